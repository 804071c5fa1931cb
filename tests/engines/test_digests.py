"""The digests by which a process and its workers know that they have the same code."""

from __future__ import annotations

import importlib
from hashlib import sha256
from pathlib import Path

import pytest

from ttlsnap.engines.workers import code_digest


def test_a_module_whose_file_was_removed_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers may not need it. A notebook can outlive the folder of a module that it has loaded."""
    path = tmp_path / "short_lived_module.py"
    path.write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(path.stem)
    assert code_digest(path.stem) is not None
    path.unlink()
    code_digest.cache_clear()
    assert code_digest(path.stem) is None


def test_a_module_that_pytest_has_loaded_has_the_digest_of_its_file() -> None:
    """Its loader is none of Python's. A worker loads the module in the usual way, and must not take it for another."""
    assert code_digest(__name__) == sha256(Path(__file__).read_bytes()).hexdigest()
