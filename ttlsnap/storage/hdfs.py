"""HDFS as a directory, by its own protocol. This needs no JVM, and no Hadoop on this machine.

It follows the rules of ``Directory`` as a local disk does, with these differences:

* A rename is one step of the name node, and can refuse to overwrite. ``create`` writes a complete file and renames it.
  What the name node has confirmed is in its log. A rename whose source, or whose target's folder, has another name by
  then fails. So a late request changes nothing after another process has taken over.
* The lock is a file that its owner keeps open for writing. The name node lets nobody else open it, and releases it a
  minute after its client has died. A process that was stopped for that long notices that it lost the lock before it
  changes anything.
* Times are those of the name node, in milliseconds.

``HADOOP_CONF_DIR`` has the name nodes of a name service, and how to authenticate (Kerberos).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import time
from collections.abc import Hashable, Iterator
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from hdfs_native import Client, FileReader, FileStatus, FileWriter, WriteOptions

from ttlsnap.errors import (
    BusyError,
    RefusedError,
    StorageError,
    TtlsnapError,
    UnsupportedError,
    UsageError,
    tidy_after_error,
)
from ttlsnap.storage import patience
from ttlsnap.storage.access import Access, may_reach, without_group
from ttlsnap.storage.directory import (
    LOCK,
    OWN,
    Directory,
    FileInfo,
    refuse_other_content,
    scratch_for,
    scratch_name,
    walk,
)
from ttlsnap.storage.lease import refuse_other_systems
from ttlsnap.storage.new_access import access_of_new, access_of_new_folder
from ttlsnap.storage.spool import open_spool
from ttlsnap.storage.unsynced import Unsynced

HELD_S = 15.0  # so long a confirmed lock is certainly ours: a quarter of the name node's limit
# The client has no class for this exception of the name node, so its name in the text decides.
_NOT_EMPTY = "PathIsNotEmptyDirectoryException"
_PIECE = 8 << 20


class HdfsDirectory:
    """A directory in HDFS. ``root`` is a URI without a slash at its end."""

    at_once = 32
    has_folders = True
    renames_in_one_step = True
    failures_are_final = False

    def __init__(self, target: str) -> None:
        self._host, _, path = target.partition("://")[2].partition("/")
        if not self._host:
            raise UsageError(f"{target} does not name a name node; write hdfs://host:port/path, or a name service")
        self._path = "".join(f"/{name}" for name in path.split("/") if name)
        self.root = f"hdfs://{self._host}{self._path}"
        self._lock: _Lock | None = None
        self._patience = patience.patience_with(self._host)

    def __repr__(self) -> str:
        return f"HdfsDirectory({self.root!r})"

    @property
    def _client(self) -> Client:
        # Created in the process that uses it, because a client cannot be sent to another process.
        return cast("Client", _Patient(client_of_process(self._host, os.getpid()), self._patience))

    def _locate(self, path: str) -> str:
        names = [name for name in path.split("/") if name]
        if path.startswith("/") or ".." in names or "." in names or "\0" in path:
            raise RefusedError(f"{path!r} leads outside {self.root}")
        return "/".join([self._path, *names]) or "/"

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        full_path = self._locate(path)
        with _errors("list", self, path):
            try:
                # The client asks for the names only while the result is read.
                all_statuses = self._patience.call(
                    lambda: list(client_of_process(self._host, os.getpid()).list_status(full_path))
                )
                statuses = [status for status in all_statuses if status.path != full_path]
            except FileNotFoundError:
                return []
        return sorted(
            (_info(listed_status) for listed_status in statuses if listed_status.path.endswith(suffixes)),
            key=lambda info: info.name,
        )

    def list_tree(self, path: str, most: int | None = None) -> dict[str, FileInfo]:
        return walk(self, path)

    def stat(self, path: str) -> FileInfo | None:
        with _errors("look at", self, path):
            try:
                return _info(self._client.get_file_info(self._locate(path)))
            except FileNotFoundError:
                return None

    def real_path(self, path: str) -> str:
        """Return the URI of the path itself: there are no links."""
        return f"{self.root}/{path}"

    def access(self, path: str) -> Access | None:
        with _errors("look at", self, path):
            try:
                return _access(self._client.get_file_info(self._locate(path)))
            except FileNotFoundError:
                return None

    def effective_access(self, path: str) -> Access | None:
        own_access = self.access(path)
        with _errors("look at", self, path):
            parent_folders = [str(folder) for folder in PurePosixPath(self._locate(path)).parents]
            return own_access and may_reach(
                own_access, (_access(self._client.get_file_info(folder)) for folder in parent_folders)
            )

    def set_access(self, path: str, access: Access) -> bool:
        self._require_lock()
        with _errors("set the owner and mode of", self, path):
            full_path = self._locate(path)
            current_access, mode = _access(self._client.get_file_info(full_path)), access.mode
            is_owner_given = (current_access.owner, current_access.group) == (
                access.owner,
                access.group,
            ) or self._try_chown(full_path, access)
            if not is_owner_given and current_access.group != access.group:
                mode = without_group(mode)
            if current_access.mode != mode:
                self._client.set_permission(full_path, mode)
        return is_owner_given

    def _try_chown(self, full_path: str, access: Access) -> bool:
        """Set owner and group. Return False if this user may not: only the superuser may.

        Also return False for numbers, which belong to a local file system.
        """
        if not isinstance(access.owner, str) or not isinstance(access.group, str):
            return False
        try:
            self._client.set_owner(full_path, access.owner, access.group)
        except Exception as error:  # the client has no error classes of its own
            if "AccessControlException" not in str(error):
                raise
            return False
        return True

    def is_link(self, path: str) -> bool:
        return False  # there are no links

    def mount(self, path: str) -> Hashable:
        return None  # the whole file system is one mount

    def open(self, path: str) -> BinaryIO:
        with _errors("open", self, path):
            if self._client.get_file_info(self._locate(path)).isdir:
                raise UnsupportedError(f"{self.root}/{path} is not a regular file")
            reader = self._client.read(self._locate(path))
        return cast("BinaryIO", io.BufferedReader(_RawFile(self, path, reader), _PIECE))

    def read(self, path: str, limit: int) -> bytes:
        """Return the whole file. Raise StorageError if it is longer than ``limit`` bytes."""
        with _errors("read", self, path):
            reader = self._client.read(self._locate(path))
            if len(reader) <= limit:
                return b"".join(iter(lambda: self._patience.call(reader.read, _PIECE), b""))
        raise StorageError(f"{self.root}/{path} is longer than {limit} bytes, but such a file is never that long")

    def make_local(self, path: str, place: Path) -> None:
        """Copy the file to a local path, to read it there."""
        with self.open(path) as source, place.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def create(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data``, complete. Return False if it already exists.

        No two callers may use the same ``data``.
        """
        scratch = self._write_beside(path, data)
        with _errors("create", self, path):
            try:
                self._move(scratch, path, overwrite=False)
            except TtlsnapError:
                raise
            except Exception:
                # Perhaps only the answer was lost. Then the data is at ``path``, and the scratch file is gone.
                info = self.stat(path)
                if info is not None and info.size == len(data) and self.read(path, len(data)) == data:
                    return True
                with contextlib.suppress(StorageError):
                    self.remove(scratch)
                if info is None:
                    raise
                return False
        return True

    def replace(self, path: str, data: bytes, *, instead_of: bytes | None = None) -> None:
        """Replace the content of ``path`` at once: readers see the old content or the new.

        With ``instead_of``, raise BusyError unless the file has this content, or does not exist if that is empty.
        """
        scratch = self._write_beside(path, data)
        if instead_of is not None:
            refuse_other_content(self, path, instead_of)
        self.rename(scratch, path, overwrite=instead_of != b"")

    @contextlib.contextmanager
    def writer(self, path: str, later: Unsynced | None = None) -> Iterator[BinaryIO]:
        """Provide a new file, which exists once the block ends without an error.

        Until then its content is in memory, or on the local disk.
        """
        with open_spool(f"{self.root}/{path}") as file:
            yield file
            file.flush()
            file.seek(0)
            self._upload(file, path)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename a file. The name node refuses if another one has the new name, unless it may be overwritten."""
        with _errors("rename", self, source):
            self._move(source, target, overwrite=overwrite)

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder, which is one step. No other folder may have the new name."""
        self.rename(source, target)

    def _move(self, source: str, target: str, *, overwrite: bool) -> None:
        self._require_lock()
        self._client.rename(self._locate(source), self._locate(target), overwrite)

    def complete_rename(self, source: str, target: str) -> None:
        """Do nothing: a rename is one step."""

    def keep_copy(self, source: str, target: str) -> None:
        """Copy a file that never changes. HDFS has no hard links."""
        with self.open(source) as source_file:
            self._upload(source_file, target)

    def take(self, other: Directory, path: str) -> bool:
        """See ``Directory.take``; HDFS can neither link nor copy a file."""
        return False

    def move_in(self, source: str, path: str) -> None:
        """Move a local file here."""
        place = Path(source)
        with place.open("rb") as file:
            self._upload(file, path)
        place.unlink()

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        self._delete(path, recursive=False)

    def remove_exactly(self, path: str, content: bytes) -> None:
        """Delete a file if it exists. Raise BusyError if it has other content.

        The file is moved to a new scratch folder first. A late request finds that folder removed, and fails.
        """
        if self.stat(path) is None:
            return
        refuse_other_content(self, path, content)
        folder = scratch_name(f"{OWN}/.removed")
        self.mkdirs(folder)
        self.rename(path, f"{folder}/{path.rpartition('/')[2]}")
        self.remove_tree(folder)

    def remove_tree(self, path: str) -> None:
        """Delete a directory and everything in it, if it exists."""
        self._delete(path, recursive=True)

    def remove_folder(self, path: str) -> None:
        """Delete a directory if it exists and is empty."""
        if not self.list(path):
            try:
                self._delete(path, recursive=False)
            except StorageError as error:
                if _NOT_EMPTY not in str(error.__cause__):  # a file was written since
                    raise

    def mkdirs(self, path: str) -> None:
        """Make a directory and the missing ones above it."""
        self._require_lock()
        names = [name for name in path.split("/") if name]
        if not names and self.stat("") is None:
            with _errors("make directory", self, path):
                self._client.mkdirs(self._path, create_parent=True)
        for folder in ("/".join(names[: number + 1]) for number in range(len(names))):
            if self.stat(folder) is None:
                access = access_of_new_folder(self, folder)
                with _errors("make directory", self, folder):
                    self._client.mkdirs(self._locate(folder), create_parent=True)
                if access is not None:
                    self.set_access(folder, access)

    def sync(self, path: str) -> None:
        """Do nothing: the name node logs names before it answers."""

    def now_ns(self) -> int:
        """Return the time of the name node's clock, in nanoseconds since the epoch."""
        path = scratch_name(f"{OWN}/.clock")
        with tidy_after_error(partial(self.remove, path)):
            self._write(path, b"")
            info = self.stat(path)
        self.remove(path)
        if info is None:
            raise StorageError(f"{self.root}/{path} disappeared just after ttlsnap had written it")
        return info.mtime_ns

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock. ``shared`` only checks that nobody holds it, because a reader may not be allowed to write.

        Raise BusyError if another process holds it.
        """
        # A client of its own, because the lock ends with its client.
        client = cast("Client", _Patient(_connect(self._host), self._patience))
        if shared:
            # Without write permission, one can only find out that there is no lock file.
            if self.stat(LOCK) is not None:
                with contextlib.suppress(StorageError):
                    self._take_lock(client, make=False).close()
            yield
            return
        refuse_other_systems(self.root)
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
                        return self._patient(client.create(self._locate(LOCK), WriteOptions(create_parent=True)))
                except FileExistsError:
                    pass
                return self._patient(client.append(self._locate(LOCK)))
            except FileNotFoundError as error:
                raise BusyError(f"another ttlsnap has just finished with {self.root}; try again") from error
            except Exception as error:
                # The name node first recovers the file of a client that has died, and refuses others until then.
                if not isinstance(error, FileExistsError) and "RecoveryInProgress" not in str(error):
                    raise
                raise BusyError(
                    f"another ttlsnap is working on {self.root}; wait until it ends. If it has died, its lock expires "
                    f"within a few minutes ({_reason(error)})"
                ) from error

    def _patient(self, writer: FileWriter) -> FileWriter:
        return cast("FileWriter", _Patient(writer, self._patience))

    def _require_lock(self) -> None:
        if self._lock is not None:
            self._lock.require()

    def _write_beside(self, path: str, data: bytes) -> str:
        """Write the new content of ``path`` to a scratch file, and return the path of that file."""
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
            new_file = self._client.create(self._locate(path), WriteOptions(overwrite=True, create_parent=True))
            file = self._patient(new_file)
            try:
                shutil.copyfileobj(source, file, _PIECE)
                # Closing a file does not make the data nodes write it to their disks, unless they are configured to
                # (``dfs.datanode.synconclose``).
                file.hsync()
                file.close()
            except BaseException:
                with contextlib.suppress(Exception):  # the file is not complete
                    self._client.delete(self._locate(path))
                raise

    def _delete(self, path: str, *, recursive: bool) -> None:
        self._require_lock()
        with _errors("remove", self, path):
            self._client.delete(self._locate(path), recursive)


class _Lock:
    """The lock file, held open."""

    def __init__(self, files: HdfsDirectory, client: Client, writer: FileWriter) -> None:
        self._files, self._client, self._writer, self._held_at = files, client, writer, _boot_seconds()

    def require(self) -> None:
        """Raise BusyError if the lock has expired, and may be held by another process."""
        asked_at = _boot_seconds()
        if asked_at - self._held_at < HELD_S:
            return
        try:
            self._writer.hsync()  # the name node refuses this if another process has the lock
        except Exception as error:
            raise BusyError(
                f"the lock of {self._files.root} expired, because this process was stopped, or could not reach the "
                f"name node, for too long. Nothing more was changed ({_reason(error)})"
            ) from error
        self._held_at = asked_at

    def release(self) -> None:
        """Release the lock. If its file cannot be removed, the lock ends with the client."""
        with contextlib.suppress(Exception):
            self._writer.hsync()  # fails if another process has the lock
            # Nobody else can get the lock while the file is open.
            self._client.delete(self._files._locate(LOCK))
            self._client.delete(self._files._locate(OWN))  # fails unless it is empty
        with contextlib.suppress(Exception):
            self._writer.close()


class _Patient:
    """A client or a writer whose calls end in a limited time. The library itself waits forever."""

    def __init__(self, waiting_object: Client | FileWriter, patient: patience.Patience) -> None:
        self._waiting, self._patience = waiting_object, patient

    def __getattr__(self, name: str) -> Any:
        return partial(self._patience.call, getattr(self._waiting, name))


class _RawFile(io.RawIOBase):
    """A file that is read piece by piece."""

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
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._reader.tell(), io.SEEK_END: len(self._reader)}[whence]
        self._reader.seek(min(max(start + offset, 0), len(self._reader)))
        return self._reader.tell()

    def readinto(self, buffer: Any) -> int:
        bytes_left = len(self._reader) - self._reader.tell()
        with _errors("read", self._directory, self._path):
            chunk = self._directory._patience.call(self._reader.read, min(len(buffer), _PIECE, bytes_left))
        if len(chunk) != min(len(buffer), _PIECE, bytes_left):
            raise StorageError(
                f"{self._directory.root}/{self._path}: {bytes_left:,} bytes were expected, {len(chunk):,} arrived"
            )
        buffer[: len(chunk)] = chunk
        return len(chunk)


@cache
def client_of_process(host: str, process: int) -> Client:
    """Return the client of a process. A forked process must not use its parent's client."""
    return _connect(host)


def _connect(host: str) -> Client:
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():  # the client itself would try for minutes; a name service has no port
        seconds = patience.patience_with(host).answer_s
        with contextlib.closing(socket.create_connection((name.strip("[]"), int(port)), seconds)):
            pass
    try:
        return Client(f"hdfs://{host}")
    except Exception as error:
        if "No NameNode" not in str(error):
            raise
        raise UsageError(
            f"hdfs://{host}: this name node is unknown; give its port (hdfs://{host}:8020/...), or set HADOOP_CONF_DIR "
            "to the folder that defines name services"
        ) from error


def _boot_seconds() -> float:
    """Return a number of seconds that also grows while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _access(status: FileStatus) -> Access:
    return Access(status.owner, status.group, status.permission & 0o777)


def _info(status: FileStatus) -> FileInfo:
    name = status.path.rstrip("/").rpartition("/")[2]
    # HDFS has times in milliseconds.
    return FileInfo(name, status.length, status.modification_time * 1_000_000, status.isdir)


@contextlib.contextmanager
def _errors(verb: str, directory: HdfsDirectory, path: str) -> Iterator[None]:
    try:
        with directory._patience.watch():
            yield
    except TtlsnapError:
        raise
    except Exception as error:  # the client has no error classes of its own
        place = f"{directory.root}/{path}".rstrip("/")
        raise StorageError(f"cannot {verb} {place}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the first line of the name node's message. A Java stack trace follows it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
