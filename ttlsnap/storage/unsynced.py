"""Written files that get to the disk together."""

from __future__ import annotations

import os
import resource
import threading
from types import TracebackType
from typing import BinaryIO

from ttlsnap.errors import StorageError

_SMALL = 1 << 20
_MOST = 128
"""The most files of this process that wait. Each of them stays open."""
_SHARE = 8
"""The part of the files that this process may have open: one of so many."""


def _limit() -> int:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if most == resource.RLIM_INFINITY else max(min(_MOST, most // _SHARE), 1)


_room = threading.Semaphore(_limit())


class Unsynced:
    """Files that a ``Directory`` has written, and that are not on the disk yet. All of them are when the block ends.

    A file system that keeps a journal commits many small files at once. So they are synced after several of them were
    written. Each is synced through the descriptor that wrote it: an error of the disk is not lost, and names the file.
    If the block raises an exception, the files that are left are only closed.
    """

    def __init__(self) -> None:
        self._files: list[tuple[str, int]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Unsynced:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        files, self._files = self._files, []
        _sync(files, close_only=error is not None)

    def add(self, name: str, file: BinaryIO) -> None:
        """Sync a file later, or at once if it is large. ``name`` is for messages. The caller may close the file."""
        if os.fstat(file.fileno()).st_size > _SMALL:
            os.fsync(file.fileno())
            return
        if not _room.acquire(blocking=False):
            with self._lock:
                files, self._files = self._files, []
            _sync(files)
            if not _room.acquire(blocking=False):  # others have all of it
                os.fsync(file.fileno())
                return
        try:
            if hasattr(os, "posix_fadvise"):  # Linux begins to write the content, and does not wait
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            descriptor = os.dup(file.fileno())
        except OSError:
            _room.release()
            raise
        with self._lock:  # from here on, another thread may sync and close it
            self._files.append((name, descriptor))


def _sync(files: list[tuple[str, int]], *, close_only: bool = False) -> None:
    """Sync and close files. After an error, the rest are only closed."""
    failure: StorageError | None = None
    for name, descriptor in files:
        try:
            if not close_only and failure is None:
                os.fsync(descriptor)
        except OSError as error:
            failure = StorageError(f"cannot write {name}: {error.strerror or error}")
            failure.__cause__ = error
        finally:
            os.close(descriptor)
            _room.release()
    if failure is not None:
        raise failure
