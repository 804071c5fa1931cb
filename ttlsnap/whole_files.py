"""Files outside a checkpoint that are written as a whole: results, metrics, pages, contracts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ttlsnap.errors import StorageError, TtlsnapError


def write_whole(path: Path, data: bytes, sources: Iterable[str] = ()) -> None:
    """Write a file beside its place and rename it; write to a pipe or a terminal directly. Raise StorageError.

    The ``sources`` are the targets whose entries the file may quote. It is never more readable than these, nor than the
    file that it replaces.
    """
    from ttlsnap.storage.access import open_private
    from ttlsnap.storage.directory import scratch_name

    try:
        path = path.resolve()
        if is_special(path):
            path.write_bytes(data)
            return
        scratch = path.with_name(scratch_name(path.name))
        try:
            with open(scratch, "xb", opener=open_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _share(scratch, path, sources)
            scratch.replace(path)
        except BaseException:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def _share(scratch: Path, path: Path, sources: Iterable[str]) -> None:
    """Give a file, which only its owner can read, the access that it has at ``path``."""
    from ttlsnap.checkpoint.outside import access_outside
    from ttlsnap.storage.access import own_access, read_access, write_access
    from ttlsnap.storage.open import open_for_reading

    replaced = read_access(path) if path.exists() else None
    try:
        access = access_outside(map(open_for_reading, sources), replaced)
    except TtlsnapError:  # a target that cannot be read
        access = own_access(0)
    with suppress(PermissionError):  # a file system without modes
        write_access(str(scratch), replace(access, mode=access.mode | 0o600))


def is_special(path: Path) -> bool:
    """Return whether a path is something other than a file, such as a pipe."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False
