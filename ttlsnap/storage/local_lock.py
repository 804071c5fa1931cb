"""The lock of a local directory for several machines: lock files, each of them a lease (see ``storage.lease``).

Each owner has its own lock file, ``_ttlsnap/lock.<token>``, with a unique name. First the owner checks the lock files
of others: all must have expired. Then it creates its own file and checks again. If two owners start at the same time,
at least one of them sees the other and withdraws.

An owner takes over an expired lock file: it renames the file, which only one owner can do, and replaces it. It never
writes into the file, which may be a hard link to any other. On a full disk it removes the file first, and uses its
space, so ``recover`` works there, too.

Times are those of the file system, read from a touched file. On a network file system they are those of its server.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from ttlsnap.errors import BusyError, RefusedError, StorageError, UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.lease import MAX_LOCK_BYTES, Owner, refuse_if_alive

_NAME = re.compile(r"lock\.[0-9a-f]{16}")
_TRIES = 5
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LocatedDirectory(Directory, Protocol):
    """A directory whose files have a path on this machine."""

    def locate(self, path: str) -> str: ...


class LocalLock:
    """The lock files in ``folder`` of a directory."""

    def __init__(self, files: LocatedDirectory, folder: str) -> None:
        self.root, self._files, self._folder = files.root, files, folder

    def take_lock(self, data: bytes) -> str:
        """Make a lock file, and return its path. Raise BusyError if another owner's lease has not expired."""
        for _ in range(_TRIES):
            own_path = f"{self._folder}/lock.{token_hex(8)}"
            try:
                ended_locks = self._paths()
                self._refuse_if_alive(ended_locks, self._touched_ns)
                if ended_locks:
                    self._take_over(ended_locks[0], own_path, data)
                else:
                    self._files.create(own_path, data)
                if self._is_alone(own_path, data):
                    return own_path
            except StorageError as error:
                # Another owner may be faster: it took a lock file over, or removed the folder when it ended.
                if not isinstance(error.__cause__, FileNotFoundError):
                    self._remove_empty_folder()
                    raise
            time.sleep(random.uniform(0.01, 0.1))
        raise BusyError(f"another ttlsnap has just started or finished with {self.root}; try again")

    def _is_alone(self, own_path: str, data: bytes) -> bool:
        """Check the other lock files after ours exists, and remove ours if another one has not expired.

        Return whether ours is the only one.
        """
        other_paths = [path for path in self._paths() if path != own_path]
        try:
            self._refuse_if_alive(other_paths, self._touched_ns)
            for path in other_paths:
                self._files.remove(path)
            is_own = self._read(own_path) == data
        except BusyError:
            is_own = False
        except BaseException:
            self.release_lock(own_path)
            raise
        if not is_own:
            self.release_lock(own_path)
        return is_own

    def renew_lock(self, data: bytes, version: str) -> str:
        """Renew a lock file. Raise BusyError if another owner has taken it over."""
        with self._errors("renew"), contextlib.suppress(FileNotFoundError):
            os.utime(self._files.locate(version))
        if self._read(version) != data:
            raise BusyError(f"another ttlsnap has taken over the lock of {self.root}")
        return version

    def release_lock(self, version: str) -> None:
        """Remove a lock file, and its folder if that is then empty."""
        self._files.remove(version)
        self._remove_empty_folder()

    def refuse_if_held(self) -> None:
        """Raise BusyError if a lease has not expired. Nothing is written, so the time is this machine's."""
        self._refuse_if_alive(self._paths(), time.time_ns)

    @property
    def owners(self) -> list[Owner]:
        """The processes that lock files name."""
        return [owner for path in self._paths() if (owner := self._owner(path)) is not None]

    def _take_over(self, path: str, own_path: str, data: bytes) -> None:
        self._files.rename(path, own_path)
        try:
            self._files.replace(own_path, data)
        except StorageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _FULL:
                raise
            self._files.remove(own_path)
            self._files.create(own_path, data)

    def _refuse_if_alive(self, paths: Sequence[str], now_ns: Callable[[], int]) -> None:
        for path in paths:
            owner, info = self._owner(path), self._files.stat(path)
            if info is not None and not (owner is not None and owner.has_died):
                refuse_if_alive(self.root, owner, (now_ns() - info.mtime_ns) / 1e9)

    def _touched_ns(self) -> int:
        """Return the file system's time, without a new file: the disk may be full."""
        with self._errors("touch"):
            folder = self._files.locate(self._folder)
            os.utime(folder)
            return Path(folder).stat().st_mtime_ns

    def _paths(self) -> list[str]:
        return [f"{self._folder}/{info.name}" for info in self._files.list(self._folder) if _NAME.fullmatch(info.name)]

    def _owner(self, path: str) -> Owner | None:
        return Owner.read(self._read(path) or b"")

    def _read(self, path: str) -> bytes | None:
        """Return a lock file's content; None if it does not exist, or is not a lock file."""
        try:
            return self._files.read(path, MAX_LOCK_BYTES)
        except (StorageError, UnsupportedError):
            return None

    def _remove_empty_folder(self) -> None:
        with contextlib.suppress(OSError, RefusedError):
            Path(self._files.locate(self._folder)).rmdir()

    @contextlib.contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"cannot {verb} the lock of {self.root}: {error.strerror or error}") from error
