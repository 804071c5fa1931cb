"""Folders for the work, which are removed at its end."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ttlsnap.errors import StorageError


@contextlib.contextmanager
def scratch_folder(scratch: str | None) -> Iterator[Path]:
    """Create a folder below ``scratch``, and remove it when the block ends; raises StorageError if that fails."""
    with _errors(scratch or tempfile.gettempdir()):
        if scratch is not None:
            Path(scratch).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="ttlsnap-", dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Create a folder in a scratch folder; raises StorageError if that fails."""
    with _errors(str(folder.parent)):
        folder.mkdir()


@contextlib.contextmanager
def _errors(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {place}: {error}") from error
