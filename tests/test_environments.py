"""The environments of the tests: one is made once, and again if it is not complete or if its requirements change."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import environments
from .environments import Environment, MissingEnvironment, find, folder_of, make


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the name of an environment without packages."""
    monkeypatch.setenv("TTLSNAP_VENVS", str(tmp_path))
    monkeypatch.setitem(environments.ENVIRONMENTS, "empty", Environment("venvs", ()))
    return "empty"


@pytest.mark.slow
def test_an_environment_is_found_once_it_is_complete(empty: str) -> None:
    with pytest.raises(MissingEnvironment, match="`make venvs`"):
        find(empty)
    (folder_of(empty) / "rest of an interrupted attempt").mkdir(parents=True)
    with pytest.raises(MissingEnvironment):
        find(empty)
    folder = make(empty)
    assert folder == find(empty) == folder_of(empty)
    assert (folder / "bin" / "python").exists() and not (folder / "rest of an interrupted attempt").exists()
    (folder / "kept").touch()
    assert make(empty) == folder and (folder / "kept").exists()


def test_other_requirements_make_another_environment(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folder_of(empty)
    monkeypatch.setitem(environments.ENVIRONMENTS, "empty", Environment("venvs", (("numpy<2",),)))
    assert folder_of(empty) != before
