"""HDFS as a directory, by its own protocol: no JVM, and no Hadoop on this machine.

It keeps what ``Directory`` promises much as a disk does, with these differences:

* A renaming is one step of the name node, which can be told to overwrite nothing; ``create`` is that of a file that is
  whole. What the name node has answered for is in its log.
* The lock is a file that is held open for writing: the name node lets nobody else open it. Of a client that has died
  it lets go after a minute. One that was stopped for so long finds, before it changes anything, that it has lost it.
* Times are the name node's, in milliseconds.

Where the name nodes of a name service are, and how one proves who one is (Kerberos), is in ``HADOOP_CONF_DIR``.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from hdfs_native import Client, FileReader, FileStatus, FileWriter, WriteOptions

from ttlsnap.access import Access, access_of_new, access_of_new_folder, may_reach, without_group
from ttlsnap.errors import BusyError, RefusedError, StorageError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.filesystem import LOCK, OWN, FileInfo, scratch_for, scratch_name

_HELD_S = 15.0  # for so long a lock that was just seen to be ours is ours: a quarter of what the name node allows
_PATIENCE_S = 20
_PIECE = 8 << 20
_IN_MEMORY = 64 << 20


class HdfsDirectory:
    """A directory in HDFS. ``root`` is a URI without a slash at its end."""

    at_once = 32

    def __init__(self, target: str) -> None:
        self._host, _, path = target.partition("://")[2].partition("/")
        if not self._host:
            raise UsageError(f"{target} names no name node; write hdfs://host:port/path, or a name service")
        self._path = "".join(f"/{part}" for part in path.split("/") if part)
        self.root = f"hdfs://{self._host}{self._path}"
        self._lock: _Lock | None = None

    def __repr__(self) -> str:
        return f"HdfsDirectory({self.root!r})"

    @property
    def _client(self) -> Client:
        # Made where it is used: a client is nothing that could be sent to another process.
        return _connected(self._host, os.getpid())

    def _locate(self, path: str) -> str:
        parts = [part for part in path.split("/") if part]
        if path.startswith("/") or ".." in parts or "." in parts or "\0" in path:
            raise RefusedError(f"{path!r} leads outside {self.root}")
        return "/".join([self._path, *parts]) or "/"

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        full = self._locate(path)
        with _errors("list", self, path):
            try:
                found = [status for status in self._client.list_status(full) if status.path != full]
            except FileNotFoundError:
                return []
        return sorted((_info(s) for s in found if s.path.endswith(suffixes)), key=lambda info: info.name)

    def stat(self, path: str) -> FileInfo | None:
        with _errors("look at", self, path):
            try:
                return _info(self._client.get_file_info(self._locate(path)))
            except FileNotFoundError:
                return None

    def real_path(self, path: str) -> str:
        """The path itself: there are no links."""
        return f"{self.root}/{path}"

    def access(self, path: str) -> Access | None:
        with _errors("look at", self, path):
            try:
                return _access(self._client.get_file_info(self._locate(path)))
            except FileNotFoundError:
                return None

    def reach(self, path: str) -> Access | None:
        found = self.access(path)
        with _errors("look at", self, path):
            above = [str(folder) for folder in PurePosixPath(self._locate(path)).parents]
            return found and may_reach(found, (_access(self._client.get_file_info(folder)) for folder in above))

    def set_access(self, path: str, access: Access) -> bool:
        self._require_lock()
        with _errors("set the owner and mode of", self, path):
            full = self._locate(path)
            now, mode = _access(self._client.get_file_info(full)), access.mode
            given = (now.owner, now.group) == (access.owner, access.group) or self._give(full, access)
            if not given and now.group != access.group:
                mode = without_group(mode)
            if now.mode != mode:
                self._client.set_permission(full, mode)
        return given

    def _give(self, full: str, access: Access) -> bool:
        """Return whether this user may do that; only the superuser may. Numbers are those of a local file system."""
        if not isinstance(access.owner, str) or not isinstance(access.group, str):
            return False
        try:
            self._client.set_owner(full, access.owner, access.group)
        except Exception as error:  # the client has no kind of its own
            if "AccessControlException" not in str(error):
                raise
            return False
        return True

    def is_link(self, path: str) -> bool:
        return False  # there are none

    def mount(self, path: str) -> Hashable:
        return None  # a file system is one

    def open(self, path: str) -> BinaryIO:
        with _errors("open", self, path):
            if self._client.get_file_info(self._locate(path)).isdir:
                raise UnsupportedError(f"{self.root}/{path} is not a regular file")
            reader = self._client.read(self._locate(path))
        return cast("BinaryIO", io.BufferedReader(_RawFile(self, path, reader), _PIECE))

    def read(self, path: str, limit: int) -> bytes:
        """The whole file; raises StorageError when it is longer than ``limit`` bytes."""
        with _errors("read", self, path):
            reader = self._client.read(self._locate(path))
            if len(reader) <= limit:
                return reader.read()
        raise StorageError(f"{self.root}/{path} is longer than {limit} bytes, which no such file should be")

    def provide(self, path: str, place: Path) -> None:
        """Have the file at a local path, to be read there: by a copy."""
        with self.open(path) as source, place.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def create(self, path: str, data: bytes) -> bool:
        """Make ``path`` with ``data``, whole; False when it exists already. No two callers give the same ``data``."""
        scratch = self._write_beside(path, data)
        with _errors("create", self, path):
            try:
                self._move(scratch, path, overwrite=False)
            except TtlsnapError:
                raise
            except Exception:
                # The answer may be what failed: then it is there, and the other is not.
                there = self.stat(path)
                if there is not None and there.size == len(data) and self.read(path, len(data)) == data:
                    return True
                self.remove(scratch)
                if there is None:
                    raise
                return False
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Write ``path`` whole: readers see the old content or the new."""
        self.rename(self._write_beside(path, data), path)

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        """A new file, that is there when the block ends well; until then it grows in memory, or on the local disk."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            yield cast("BinaryIO", file)
            file.seek(0)
            self._upload(cast("BinaryIO", file), path)

    def rename(self, source: str, target: str) -> None:
        with _errors("rename", self, source):
            self._move(source, target, overwrite=True)

    def _move(self, source: str, target: str, *, overwrite: bool) -> None:
        self._require_lock()
        self._client.rename(self._locate(source), self._locate(target), overwrite)

    def complete_rename(self, source: str, target: str) -> None:
        """Nothing: a renaming is done or not done."""

    def preserve(self, source: str, target: str) -> None:
        """Make a copy of a file that never changes: names outlive no files here."""
        with self.open(source) as old:
            self._upload(old, target)

    def bring(self, source: str, path: str) -> None:
        """Move a local file here."""
        place = Path(source)
        with place.open("rb") as file:
            self._upload(file, path)
        place.unlink()

    def remove(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        self._delete(path, recursive=False)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it; a missing one is fine."""
        self._delete(path, recursive=True)

    def mkdirs(self, path: str) -> None:
        """Make a directory and those above it that are missing."""
        self._require_lock()
        parts = [part for part in path.split("/") if part]
        for folder in ("/".join(parts[: number + 1]) for number in range(len(parts))):
            if self.stat(folder) is None:
                access = access_of_new_folder(self, folder)
                with _errors("make directory", self, folder):
                    self._client.mkdirs(self._locate(folder), create_parent=True)
                if access is not None:
                    self.set_access(folder, access)

    def sync(self, path: str) -> None:
        """Nothing: names are the name node's, which has logged them before it answers."""

    def now_ns(self) -> int:
        """What time it is by the name node's clock, in nanoseconds since the epoch."""
        path = scratch_name(f"{OWN}/.clock")
        self._write(path, b"")
        try:
            info = self.stat(path)
        finally:
            self.remove(path)
        if info is None:
            raise StorageError(f"{self.root}/{path} is gone, a moment after it was put there")
        return info.mtime_ns

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock; ``shared`` only looks that nobody does, since whoever reads may not be allowed to write.

        Raises BusyError when somebody else has it.
        """
        # Of its own, whose lease ends with it.
        client = _connect(self._host)
        if shared:
            # Whoever may not write cannot find out more than that there is no lock.
            if self.stat(LOCK) is not None:
                with contextlib.suppress(StorageError):
                    self._take_lock(client, make=False).close()
            yield
            return
        self.mkdirs(OWN)
        self._lock = _Lock(self, client, self._take_lock(client, make=True))
        try:
            yield
        finally:
            self._lock.release()
            self._lock = None

    def _take_lock(self, client: Client, *, make: bool) -> FileWriter:
        with _errors("lock", self, LOCK):
            try:
                try:
                    if make:
                        return client.create(self._locate(LOCK), WriteOptions(create_parent=True))
                except FileExistsError:
                    pass
                return client.append(self._locate(LOCK))
            except FileNotFoundError as error:
                raise BusyError(f"another ttlsnap has just ended its work on {self.root}; try again") from error
            except Exception as error:
                if not isinstance(error, FileExistsError) and "RecoveryInProgress" not in str(error):
                    raise
                raise BusyError(
                    f"another ttlsnap is at work on {self.root}; wait until it has ended. If it has died, its lock "
                    f"ends within some minutes ({_reason(error)})"
                ) from error

    def _require_lock(self) -> None:
        if self._lock is not None:
            self._lock.require()

    def _write_beside(self, path: str, data: bytes) -> str:
        """Write what is to become ``path``; where it is until then."""
        scratch, access = scratch_for(self, path), access_of_new(self, path)
        self._write(scratch, data)
        if access is not None:
            self.set_access(scratch, access)
        return scratch

    def _write(self, path: str, data: bytes) -> None:
        self._upload(io.BytesIO(data), path)

    def _upload(self, source: BinaryIO, path: str) -> None:
        self._require_lock()
        with _errors("write", self, path):
            file = self._client.create(self._locate(path), WriteOptions(overwrite=True, create_parent=True))
            try:
                shutil.copyfileobj(source, file, _PIECE)
                file.hsync()
                file.close()
            except BaseException:
                with contextlib.suppress(Exception):  # what is there is a part of it
                    self._client.delete(self._locate(path))
                raise

    def _delete(self, path: str, *, recursive: bool) -> None:
        self._require_lock()
        with _errors("remove", self, path):
            self._client.delete(self._locate(path), recursive)


class _Lock:
    """The lock's file, held open."""

    def __init__(self, files: HdfsDirectory, client: Client, writer: FileWriter) -> None:
        self._files, self._client, self._writer, self._seen = files, client, writer, _awake_or_not()

    def require(self) -> None:
        """Raises BusyError when it is somebody else's by now."""
        asked = _awake_or_not()
        if asked - self._seen < _HELD_S:
            return
        try:
            self._writer.hsync()  # of which the name node is told, and whose file it is
        except Exception as error:
            raise BusyError(
                f"the lock of {self._files.root} was lost, since this process was stopped, or could not reach the name "
                f"node, for too long; nothing more was changed ({_reason(error)})"
            ) from error
        self._seen = asked

    def release(self) -> None:
        """Let go of it; what cannot be removed ends with the client."""
        with contextlib.suppress(Exception):
            self._writer.hsync()  # which fails if it is somebody else's
            # As long as it is open nobody else can have it.
            self._client.delete(self._files._locate(LOCK))
            self._client.delete(self._files._locate(OWN))  # if it is empty
        with contextlib.suppress(Exception):
            self._writer.close()


class _RawFile(io.RawIOBase):
    """A file, read piece by piece."""

    def __init__(self, directory: HdfsDirectory, path: str, reader: FileReader) -> None:
        super().__init__()
        self._directory, self._path, self._reader = directory, path, reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._reader.tell(), io.SEEK_END: len(self._reader)}[whence]
        self._reader.seek(min(max(begin + offset, 0), len(self._reader)))
        return self._reader.tell()

    def readinto(self, buffer: Any) -> int:
        left = len(self._reader) - self._reader.tell()
        with _errors("read", self._directory, self._path):
            found = self._reader.read(len(buffer))
        if len(found) != min(len(buffer), left):
            raise StorageError(f"{self._directory.root}/{self._path}: {left:,} bytes were left, {len(found):,} came")
        buffer[: len(found)] = found
        return len(found)


@cache
def _connected(host: str, process: int) -> Client:
    """The client of a process; one that was forked must not use its parent's."""
    return _connect(host)


def _connect(host: str) -> Client:
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():  # the client itself would try for minutes; a name service has no port
        with contextlib.closing(socket.create_connection((name.strip("[]"), int(port)), _PATIENCE_S)):
            pass
    try:
        return Client(f"hdfs://{host}")
    except Exception as error:
        if "No NameNode" not in str(error):
            raise
        raise UsageError(
            f"hdfs://{host}: no name node is known by that name; give its port, hdfs://{host}:8020/..., or "
            "HADOOP_CONF_DIR, where name services are"
        ) from error


def _awake_or_not() -> float:
    """Seconds that have passed, those in which the machine slept, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _access(status: FileStatus) -> Access:
    return Access(status.owner, status.group, status.permission & 0o777)


def _info(status: FileStatus) -> FileInfo:
    name = status.path.rstrip("/").rpartition("/")[2]
    return FileInfo(name, status.length, status.modification_time * 1_000_000, status.isdir)


@contextlib.contextmanager
def _errors(verb: str, directory: HdfsDirectory, path: str) -> Iterator[None]:
    try:
        yield
    except TtlsnapError:
        raise
    except Exception as error:  # the client has no kind of its own
        place = f"{directory.root}/{path}".rstrip("/")
        raise StorageError(f"cannot {verb} {place}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of what the name node says: behind it comes where in Java."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
