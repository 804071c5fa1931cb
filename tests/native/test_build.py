"""The library that the tests use is the one that the code makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ttlsnap import native


@pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
def test_the_library_is_younger_than_its_code() -> None:
    # An installation succeeds without the library, also if its code does not compile.
    code = Path(native.__file__).with_name("kernels.c")
    library = code.with_name("kernels.so.1")
    assert library.exists() and library.stat().st_mtime >= code.stat().st_mtime, (
        f"{code} does not compile, or has changed since: run `make .venv/tested`"
    )
    assert native.is_available()
