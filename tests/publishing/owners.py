"""Owners and modes of the files in a checkpoint."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ..judge.processes import User

NOBODY = 65534
THEIRS = User(NOBODY, umask=0o077)


class Owned(NamedTuple):
    """The owner, group and mode of a file or folder."""

    user: int
    group: int
    mode: str


def require_root() -> None:
    """Skip the test unless root runs it, because only root may give files to another user."""
    if os.geteuid() != 0:
        pytest.skip("gives files to another user, which only root may: run the tests as root")


def owned(path: Path) -> Owned:
    found = path.lstat()
    return Owned(found.st_uid, found.st_gid, oct(stat.S_IMODE(found.st_mode)))


def owners(folder: Path) -> dict[str, Owned]:
    """Return the owners of a folder, and of all files and folders below it."""
    return {str(path.relative_to(folder)): owned(path) for path in (folder, *sorted(folder.rglob("*")))}


def kinds(folder: Path, *, scratch: bool = True) -> tuple[set[Owned], set[Owned]]:
    """Return the owners of all files, and the owners of all folders, with or without scratch files and folders."""
    found = {True: set[Owned](), False: set[Owned]()}
    for path in (folder, *folder.rglob("*")):
        if scratch or path.suffix != ".tmp":
            found[path.is_dir()].add(owned(path))
    return found[False], found[True]


def give(folder: Path, user: int, group: int, *, files: int, folders: int) -> Path:
    """Give all files of a checkpoint to a user, with these modes. Return the folder."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, group)
        path.chmod(folders if path.is_dir() else files)
    return folder


def make_reachable(folder: Path) -> Path:
    """Let other users reach a folder. Return it."""
    for above in (folder, *folder.parents):
        mode = above.stat().st_mode
        if not mode & stat.S_IXOTH:
            above.chmod(mode | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    return folder


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    """Set the umask of this process within the block."""
    own = os.umask(mask)
    try:
        yield
    finally:
        os.umask(own)
