"""Where the bytes lie: one directory of files, addressed by relative POSIX paths.

``Directory`` is the seam: everything that touches a checkpoint goes through one. ``LocalDirectory`` is the
implementation for local disks (and what is mounted like one), ``ttlsnap.objects`` has that for object stores, and
``ttlsnap.hdfs`` that for HDFS. Rules that every implementation keeps:

* A path never leads outside the directory: ``..`` and absolute paths are refused, and so is a symbolic link
  whose target lies outside. In ttlsnap's own folder, where things are deleted, no link is followed at all.
* ``create`` makes a whole file appear at once, or not at all, and never overwrites.
* A file that was written, and a directory that was made, are on the disk (synced) before the call returns;
  ``sync`` does that for the names in a directory.
* ``rename`` overwrites nothing that its caller has not looked for. Where it is no single step, a crash can leave both
  names, with the same content; ``complete_rename`` ends that.
* ``lock`` keeps every other ttlsnap away, and outlives no process for long.
* Reading never writes.

Every ``OSError`` leaves here as a ``StorageError`` that names the path.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, Protocol, TypeVar, cast
from urllib.parse import unquote, urlparse

from ttlsnap.access import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    Access,
    access_of_new,
    access_of_new_folder,
    may_reach,
    read_access,
    write_access,
)
from ttlsnap.errors import BusyError, RefusedError, StorageError, UnsupportedError, UsageError
from ttlsnap.lease import Lease
from ttlsnap.local_lock import LocalLock

OWN = "_ttlsnap"
"""The folder that ttlsnap keeps for itself in a checkpoint."""

LOCK = f"{OWN}/lock"
"""The file by which a process holds the lock of a directory; on a local file system each has another name."""

SCRATCH = ".tmp"
"""How the names of files end that are written beside others, and renamed or linked when they are whole."""

OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "az": "az"}
"""The schemes of object stores that are understood, Hadoop's among them, and what their client calls them."""

REMOTE = {**OBJECT_STORES, "hdfs": "hdfs"}
"""The schemes of all that is not on this machine."""

_PIECE = 8 << 20
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)

Item = TypeVar("Item")
Result = TypeVar("Result")
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One name in a directory listing; ``size`` in bytes, ``mtime_ns`` since the epoch."""

    name: str
    size: int
    mtime_ns: int
    is_dir: bool


class Directory(Protocol):
    """A tree of files; paths are relative, with ``/``. ``at_once`` is how many requests are worth having under way."""

    root: str
    at_once: int

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        """Names in ``path`` that end in one of ``suffixes``, sorted; empty when the directory does not exist."""
        ...

    def stat(self, path: str) -> FileInfo | None: ...
    def real_path(self, path: str) -> str: ...
    def access(self, path: str) -> Access | None:
        """Who may use a file or folder; None where it does not exist, or the storage does not record that."""
        ...

    def reach(self, path: str) -> Access | None:
        """The same, without those whom a folder above keeps out."""
        ...

    def set_access(self, path: str, access: Access) -> bool:
        """Give a file or folder its owner, group and mode; False if this user may not give it away.

        Then it stays this user's, and its group may do no more than everybody, unless the group is right.
        """
        ...

    def is_link(self, path: str) -> bool:
        """Return whether a path is a symbolic link, which a renaming would not follow."""
        ...

    def mount(self, path: str) -> Hashable:
        """What all folders have in common between which files can be renamed; of one that is missing, that above it."""
        ...

    def open(self, path: str) -> BinaryIO: ...
    def read(self, path: str, limit: int) -> bytes: ...
    def provide(self, path: str, place: Path) -> None: ...
    def create(self, path: str, data: bytes) -> bool: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def writer(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]: ...
    def rename(self, source: str, target: str) -> None: ...
    def complete_rename(self, source: str, target: str) -> None: ...
    def bring(self, source: str, path: str) -> None: ...
    def preserve(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def mkdirs(self, path: str) -> None: ...
    def sync(self, path: str) -> None: ...
    def lock(self, *, shared: bool = False) -> contextlib.AbstractContextManager[None]: ...
    def now_ns(self) -> int: ...


def each(files: Directory, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What ``work`` makes of each item, in their order; many at a time where each waits for a network.

    Raises the first failure. Nothing is under way any more when this returns or raises, whoever interrupts.
    """
    items = list(items)
    if files.at_once == 1 or len(items) < 2:
        return [work(item) for item in items]
    pool = ThreadPoolExecutor(min(files.at_once, len(items)))
    try:
        return [future.result() for future in [pool.submit(work, item) for item in items]]
    finally:
        while True:
            try:
                pool.shutdown(cancel_futures=True)
                break
            except KeyboardInterrupt:
                # What goes on may be a renaming that is about to be undone; the first interrupt is on its way already.
                continue


def open_directory(target: str) -> Directory:
    """The directory that ``target`` names: a path, a ``file:`` URI, that of an object store or of HDFS.

    Raises UnsupportedError for other URI schemes. The directory need not exist.
    """
    if is_local(target):
        return open_local(target)
    if target.lower().startswith("hdfs:"):
        from ttlsnap.hdfs import HdfsDirectory

        return HdfsDirectory(target)
    from ttlsnap.objects import ObjectDirectory

    return ObjectDirectory(target)


def is_local(target: str) -> bool:
    """Whether ``target`` is on this machine's file systems; raises UsageError for what is neither a path nor a URI."""
    try:
        return urlparse(target).scheme not in REMOTE
    except ValueError as error:
        raise UsageError(f"{target}: neither a path nor a URI ({error})") from error


def open_for_reading(target: str) -> Directory:
    """``open_directory`` for what is only read, and does not change meanwhile."""
    return for_reading(open_directory(target))


def for_reading(files: Directory) -> Directory:
    """The same directory, for a while in which it does not change: what is far away is asked less often."""
    return files if isinstance(files, LocalDirectory) else listed_once(files)


def listed_once(files: Directory) -> Directory:
    """The same directory, with folders that are listed once: what is in one, and what is not, is known by that."""
    return cast("Directory", _Listed(files))


class _Listed:
    def __init__(self, files: Directory) -> None:
        self._files = files
        self._listed: dict[str, list[FileInfo]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        if path not in self._listed:
            self._listed[path] = self._files.list(path)
        return [info for info in self._listed[path] if info.name.endswith(suffixes)]

    def stat(self, path: str) -> FileInfo | None:
        folder, _, name = path.rpartition("/")
        return next((info for info in self.list(folder) if info.name == name), None) if name else self._files.stat("")


def hadoop_uri(root: str) -> str:
    """What Spark calls the directory ``root``: of S3, Hadoop has no other file system than ``s3a``."""
    if is_local(root):
        return f"file:{root}"
    scheme, _, place = root.partition("://")
    return f"{'s3a' if REMOTE[scheme] == 's3' else scheme}://{place}"


def open_local(target: str) -> LocalDirectory:
    """The local directory that ``target`` (a path or a ``file:`` URI) names; raises UnsupportedError for other URIs."""
    if not target:
        raise UsageError("the path is empty; write . for the current folder")
    try:
        parsed = urlparse(target)
    except ValueError as error:
        raise UsageError(f"{target}: neither a path nor a URI ({error})") from error
    if len(parsed.scheme) > 1:
        if parsed.scheme in REMOTE:
            raise UnsupportedError(f"{target}: a local path is wanted here")
        if parsed.scheme != "file":
            raise UnsupportedError(
                f"{target}: the scheme '{parsed.scheme}' is not supported; give a local path, or a URI of "
                f"{', '.join(['file', *REMOTE])}"
            )
        if parsed.netloc not in ("", "localhost"):
            raise UsageError(f"{target}: a file: URI has no host; write file:///path")
        if not parsed.path.startswith("/"):
            raise UsageError(f"{target}: a file: URI has an absolute path; write file:///path")
        target = unquote(parsed.path, errors="surrogateescape")
    if "\0" in target:
        raise UsageError(f"{target!r}: a path has no NUL in it")
    return LocalDirectory(os.path.realpath(target))


def read_given(path: str | Path, limit: int, kind: str) -> bytes:
    """The file that somebody named on the command line.

    Raises StorageError where it cannot be read, and UsageError where it is longer than ``limit`` bytes, which no
    ``kind`` of file is.
    """
    try:
        with Path(path).open("rb") as file:
            data = _read_up_to(file, limit + 1)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > limit:
        raise UsageError(f"{path} is longer than {limit:,} bytes: is that {kind}?")
    return data


def _read_up_to(file: BinaryIO, most: int) -> bytes:
    """Return at most ``most`` bytes; room is taken for those that are there, not for all that there may be."""
    pieces, left = [], most
    # The size is only where to begin: a file may grow, and some say that they are empty.
    step = os.fstat(file.fileno()).st_size + 1
    while left and (piece := file.read(min(step, left))):
        pieces.append(piece)
        left -= len(piece)
        step = _PIECE
    return b"".join(pieces)


class LocalDirectory:
    """A directory on a local disk. ``root`` is absolute and free of symbolic links."""

    at_once = 1

    def __init__(self, root: str) -> None:
        self.root = root
        # Folders found to be reached without links: looking at each part of each path again is what would cost.
        self._plain: set[str] = set()
        self._lease: Lease[str] | None = None

    def __repr__(self) -> str:
        return f"LocalDirectory({self.root!r})"

    def __reduce__(self) -> tuple[type[LocalDirectory], tuple[str]]:
        return LocalDirectory, (self.root,)  # another process does not hold the lock

    def locate(self, path: str) -> str:
        """The absolute path of ``path``; raises RefusedError when it leads outside."""
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or "\0" in path:
            raise RefusedError(f"{path!r} leads outside {self.root}")
        full = f"{self.root}/{path}" if path else self.root
        folder = os.path.dirname(full)  # noqa: PTH120 - as text, and fast
        if folder not in self._plain and os.path.realpath(folder) == folder and Path(folder).is_dir():
            self._plain.add(folder)
        if folder in self._plain and not Path(full).is_symlink():
            return full
        real = os.path.realpath(full)
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise RefusedError(
                f"{full} is a symbolic link that leads outside {self.root} (to {real}); nothing was changed"
            )
        if parts[0] == OWN and real != full:
            raise RefusedError(f"{full} is or lies behind a symbolic link (to {real}); ttlsnap made none. Remove it")
        return full

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        with _errors("list", self, path):
            try:
                with os.scandir(self.locate(path)) as entries:
                    found = [
                        FileInfo(e.name, s.st_size, s.st_mtime_ns, e.is_dir())
                        for e in entries
                        if e.name.endswith(suffixes) and (s := _stat_or_none(e)) is not None
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(found, key=lambda info: info.name)

    def stat(self, path: str) -> FileInfo | None:
        with _errors("look at", self, path):
            full = self.locate(path)
            try:
                s = Path(full).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return FileInfo(path.rpartition("/")[2], s.st_size, s.st_mtime_ns, stat.S_ISDIR(s.st_mode))

    def real_path(self, path: str) -> str:
        """Where ``path`` is, links followed."""
        return os.path.realpath(self.locate(path))

    def access(self, path: str) -> Access | None:
        with _errors("look at", self, path):
            try:
                return read_access(self.locate(path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def reach(self, path: str) -> Access | None:
        found = self.access(path)
        with _errors("look at", self, path):
            above = Path(self.real_path(path)).parents
            return None if found is None else may_reach(found, map(read_access, above))

    def set_access(self, path: str, access: Access) -> bool:
        self._require_lease()
        with _errors("set the owner and mode of", self, path):
            return write_access(self.locate(path), access)

    def is_link(self, path: str) -> bool:
        with _errors("look at", self, path):
            return Path(self.locate(path)).is_symlink()

    def mount(self, path: str) -> Hashable:
        with _errors("look at", self, path):
            folder = Path(self.locate(path))
            return _mount(next(above for above in (folder, *folder.parents) if above.is_dir()))

    def _follow(self, path: str, access: Access | None) -> None:
        """Give something new its access, as far as this user may."""
        if access is not None:
            self.set_access(path, access)

    def open(self, path: str) -> BinaryIO:
        with _errors("open", self, path):
            full = self.locate(path)
            if Path(full).exists() and not Path(full).is_file():
                raise UnsupportedError(f"{full} is not a regular file")
            return io.BufferedReader(_RawFile(self, path, full))

    def read(self, path: str, limit: int) -> bytes:
        """The whole file; raises StorageError when it is longer than ``limit`` bytes."""
        with _errors("read", self, path), self.open(path) as file:
            # What is too long is not read first; what says that it is short may still be longer.
            length = os.fstat(file.fileno()).st_size
            data = _read_up_to(file, limit + 1) if length <= limit else b""
        if max(length, len(data)) > limit:
            raise StorageError(f"{self.root}/{path} is longer than {limit} bytes, which no such file should be")
        return data

    def provide(self, path: str, place: Path) -> None:
        """Have the file at a local path, to be read there: by a link."""
        place.symlink_to(self.locate(path))

    def create(self, path: str, data: bytes) -> bool:
        """Make ``path`` with ``data``, whole and synced; False when it exists already."""
        self.mkdirs(OWN)
        scratch = scratch_for(self, path)
        try:
            self._write_synced(scratch, data)
            self._follow(scratch, access_of_new(self, path))
            made = self._link(scratch, path)
        finally:
            self._discard(scratch)
        if made is None:
            made = self._create_exclusive(path, data)
        self.sync(path.rpartition("/")[0])
        return made

    def _link(self, source: str, target: str) -> bool | None:
        """A second name for a file, at once and with its content; False if there is such a name, None if no file
        can have two on this file system."""
        self._require_lease()
        with _errors("create", self, target):
            try:
                os.link(self.locate(source), self.locate(target))
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                return None
        return True

    def _create_exclusive(self, path: str, data: bytes) -> bool:
        """``create`` for file systems without hard links: exclusive, but a crash can leave a part of the content."""
        self._require_lease()
        with _errors("create", self, path):
            try:
                access = access_of_new(self, path)
                descriptor = os.open(self.locate(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            except FileExistsError:
                return False
            with os.fdopen(descriptor, "wb") as file:
                self._follow(path, access)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        return True

    def replace(self, path: str, data: bytes) -> None:
        """Write ``path`` whole: readers see the old content or the new."""
        scratch = scratch_for(self, path)
        try:
            self._write_synced(scratch, data)
            self._follow(scratch, access_of_new(self, path))
            self.rename(scratch, path)
        except BaseException:
            self._discard(scratch)
            raise
        self.sync(path.rpartition("/")[0])

    def _discard(self, path: str) -> None:
        """Remove a scratch file if the disk allows it; the next run removes what is left."""
        with contextlib.suppress(StorageError):
            self.remove(path)

    def _write_synced(self, path: str, data: bytes) -> None:
        with self.writer(path) as file:
            file.write(data)

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        """A new file (an old one is truncated), synced when the block ends; its owner alone may use a new one."""
        self._require_lease()
        with _errors("write", self, path), open(self.locate(path), "wb", opener=_open_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        self._require_lease()
        with _errors("rename", self, source):
            os.rename(self.locate(source), self.locate(target))  # noqa: PTH104 - one system call, no checks

    def complete_rename(self, source: str, target: str) -> None:
        """Nothing: a renaming is done or not done."""

    def preserve(self, source: str, target: str) -> None:
        """Give a file that never changes a second name, that outlives the first: a hard link, or else a copy."""
        self.mkdirs(target.rpartition("/")[0])
        if self._link(source, target) is None:
            with self.open(source) as old, self.writer(target) as new:
                shutil.copyfileobj(old, new, _PIECE)
            self._follow(target, self.access(source))
        self.sync(target.rpartition("/")[0])

    def bring(self, source: str, path: str) -> None:
        """Move a local file in from outside; it is synced, and its owner alone may use it."""
        self._require_lease()
        with _errors("write", self, path):
            Path(source).chmod(PRIVATE_FILE)
            try:
                os.rename(source, self.locate(path))  # noqa: PTH104 - one system call
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with Path(source).open("rb") as old, self.writer(path) as new:
                    shutil.copyfileobj(old, new, _PIECE)
                return
            with Path(self.locate(path)).open("rb") as file:
                os.fsync(file.fileno())

    def remove(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        self._require_lease()
        with _errors("remove", self, path):
            Path(self.locate(path)).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with all that is in it; a missing one is fine."""
        self._require_lease()
        with _errors("remove", self, path):
            full = self.locate(path)
            if Path(full).exists():
                shutil.rmtree(full)

    def mkdirs(self, path: str) -> None:
        """Make a directory and those above it that are missing; their names are synced."""
        self._require_lease()
        with _errors("make directory", self, path):
            folder, root = Path(self.locate(path)), Path(self.root)
            missing = [folder, *folder.parents]
            missing = missing[: next(i for i, above in enumerate(missing) if above.is_dir())]
            for new in reversed(missing):
                self._make_folder(new, new.relative_to(root).as_posix() if root in new.parents else "")

    def _make_folder(self, folder: Path, path: str) -> None:
        """Make one folder; ``path`` is empty where it is the directory itself, or above that."""
        if not path:
            folder.mkdir(exist_ok=True)
        else:
            access = access_of_new_folder(self, path)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(PRIVATE_FOLDER)
                self._follow(path, access)
        _sync_directory(folder.parent)

    def sync(self, path: str) -> None:
        """Make the names in directory ``path`` durable."""
        with _errors("sync", self, path):
            _sync_directory(self.locate(path))

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock; ``shared`` only looks that nobody does, since whoever reads may not be allowed to write.

        The lock is an exclusive ``flock`` on the directory itself, which the kernel releases when the process dies.
        But it reaches no other machine, so there is also a lease (see ``ttlsnap.lease``). The lease of a process that
        has died on this machine is taken over at once. Raises BusyError when another process has the lock.
        """
        with _errors("open", self, ""):
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        lock = LocalLock(self, OWN)
        try:
            self._flock(descriptor, shared, lock)
            if shared:
                lock.refuse_if_held()
                yield
                return
            with Lease(lock) as lease:
                self._lease = lease
                try:
                    yield
                finally:
                    self._lease = None
        finally:
            os.close(descriptor)

    def _flock(self, descriptor: int, shared: bool, lock: LocalLock) -> None:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            words = "".join(f" ({owner})" for owner in lock.owners)
            raise BusyError(f"another ttlsnap is at work on {self.root}{words}; wait until it has ended") from error
        except OSError as error:
            raise StorageError(f"{self.root} cannot be locked on this file system: {error.strerror}") from error

    def _require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    def now_ns(self) -> int:
        """What time it is by the clock that stamps the files here, in nanoseconds since the epoch.

        On a network file system that is another machine's. So a file is made, which has no name where that can be, and
        is gone at once where it needs one.
        """
        with _errors("make a file in", self, ""):
            try:
                descriptor = os.open(self.root, os.O_TMPFILE | os.O_WRONLY, 0o600)
            except OSError as error:
                if error.errno not in _NO_UNNAMED:
                    raise
                descriptor, path = tempfile.mkstemp(suffix=SCRATCH, prefix=".ttlsnap-", dir=self.root)
                Path(path).unlink()
            try:
                return os.fstat(descriptor).st_mtime_ns
            finally:
                os.close(descriptor)


def scratch_for(files: Directory, path: str) -> str:
    """A scratch name for what is to become ``path``: in ttlsnap's own folder, where the next run removes it.

    Beside ``path`` where there is no such folder.
    """
    if path.startswith(f"{OWN}/") or files.stat(OWN) is None:
        return scratch_name(path)
    return scratch_name(f"{OWN}/.{path.rpartition('/')[2]}")


def scratch_name(path: str) -> str:
    """A name beside ``path`` that none had before: that might be another link to a file that is in its place now."""
    return f"{path}.{token_hex(4)}{SCRATCH}"


class _RawFile(io.FileIO):
    """A file whose failing reads are StorageErrors, too."""

    def __init__(self, directory: LocalDirectory, path: str, full: str) -> None:
        super().__init__(full)
        self._place = directory, path

    def readinto(self, buffer: Any) -> int | None:
        with _errors("read", *self._place):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with _errors("read", *self._place):
            return super().readall()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


def _mount(folder: Path) -> Hashable:
    """Return what identifies a mount: the device, and the mount's number, since a device can be mounted twice."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        facts = Path(f"/proc/self/fdinfo/{descriptor}")
        number = re.search(r"^mnt_id:\s*(\d+)", facts.read_text(), re.MULTILINE) if facts.exists() else None
        return os.fstat(descriptor).st_dev, number and number[1]
    finally:
        os.close(descriptor)


def _sync_directory(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stat_or_none(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except FileNotFoundError:  # it vanished, or it is a dangling link
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return None
        raise


@contextlib.contextmanager
def _errors(verb: str, directory: LocalDirectory, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot {verb} {directory.root}/{path}: {reason}") from error
