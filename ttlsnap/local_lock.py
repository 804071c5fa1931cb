"""The lock of a local directory among several machines: lock files, each of them a lease (see ``ttlsnap.lease``).

Each owner has a lock file of its own, ``_ttlsnap/lock.<token>``, whose name no other ever has. First it looks at the
files of others: all of them must have run out. Then it makes its own, and looks again: of two owners that come at the
same time, at least one sees the other, and withdraws. A lock file that has run out is renamed, which only one owner can
do, and written over: that needs no room, so that ``recover`` works on a full disk.

Times are those of the file system, as a touched file shows them: on a network file system, those of its server.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from ttlsnap.errors import BusyError, RefusedError, StorageError, UnsupportedError
from ttlsnap.lease import MAX_LOCK_BYTES, Owner, refuse_if_alive

if TYPE_CHECKING:
    from ttlsnap.filesystem import LocalDirectory

_NAME = re.compile(r"lock\.[0-9a-f]{16}")
_TRIES = 5


class LocalLock:
    """The lock files in ``folder`` of a directory."""

    def __init__(self, files: LocalDirectory, folder: str) -> None:
        self.root, self._files, self._folder = files.root, files, folder

    def take_lock(self, data: bytes) -> str:
        """Make a lock file; its path. Raises BusyError where the lease of another owner is alive."""
        for _ in range(_TRIES):
            mine = f"{self._folder}/lock.{token_hex(8)}"
            try:
                over = self._paths()
                self._refuse_if_alive(over, self._touched_ns)
                if over:
                    self._take_over(over[0], mine, data)
                else:
                    self._files.create(mine, data)
                if self._is_alone(mine, data):
                    return mine
            except StorageError as error:
                # Another owner may be faster: it takes a file over, or removes the folder when it ends.
                if not isinstance(error.__cause__, FileNotFoundError):
                    self._remove_empty_folder()
                    raise
            time.sleep(random.uniform(0.01, 0.1))
        raise BusyError(f"another ttlsnap has just begun or ended its work on {self.root}; try again")

    def _is_alone(self, mine: str, data: bytes) -> bool:
        """Look at the other lock files, now that ours can be seen, and withdraw if one of them is alive."""
        others = [path for path in self._paths() if path != mine]
        try:
            self._refuse_if_alive(others, self._touched_ns)
            for path in others:
                self._files.remove(path)
            alone = self._read(mine) == data
        except BusyError:
            alone = False
        except BaseException:
            self.release_lock(mine)
            raise
        if not alone:
            self.release_lock(mine)
        return alone

    def renew_lock(self, data: bytes, version: str) -> str:
        """Renew a lock file; raises BusyError where it is not ours any more."""
        with self._errors("renew"), contextlib.suppress(FileNotFoundError):
            os.utime(self._files.locate(version))
        if self._read(version) != data:
            raise BusyError(f"another ttlsnap has taken the lock of {self.root} over")
        return version

    def release_lock(self, version: str) -> None:
        """Remove a lock file, and the folder where nothing else is in it."""
        self._files.remove(version)
        self._remove_empty_folder()

    def refuse_if_held(self) -> None:
        """Raise BusyError where a lease is alive. Nothing is written, so the time is this machine's."""
        self._refuse_if_alive(self._paths(), time.time_ns)

    @property
    def owners(self) -> list[Owner]:
        """The processes that lock files name."""
        return [owner for path in self._paths() if (owner := self._owner(path)) is not None]

    def _take_over(self, path: str, mine: str, data: bytes) -> None:
        self._files.rename(path, mine)
        with self._errors("write"), Path(self._files.locate(mine)).open("r+b") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

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
        """Return a lock file's content; None where it is gone, or not a lock file."""
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
