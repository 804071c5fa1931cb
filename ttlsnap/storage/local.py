"""Directories on local disks, and on file systems that are mounted like one (NFS, ``/dbfs``)."""

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
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ttlsnap.errors import BusyError, RefusedError, StorageError, UnsupportedError
from ttlsnap.storage.access import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    Access,
    may_reach,
    open_private,
    read_access,
    write_access,
)
from ttlsnap.storage.directory import (
    OWN,
    SCRATCH,
    Directory,
    FileInfo,
    refuse_other_content,
    scratch_for,
    scratch_name,
    walk,
)
from ttlsnap.storage.lease import Lease
from ttlsnap.storage.local_lock import LocalLock
from ttlsnap.storage.new_access import access_of_new, access_of_new_folder
from ttlsnap.storage.unsynced import Unsynced

_PIECE = 8 << 20


_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


def read_up_to(file: BinaryIO, limit: int) -> bytes:
    """Return at most ``limit`` bytes. Memory is used only for the bytes that exist."""
    pieces, bytes_left = [], limit
    # The size is only a start: a file may grow, and some files report that they are empty.
    step = os.fstat(file.fileno()).st_size + 1
    while bytes_left and (piece := file.read(min(step, bytes_left))):
        pieces.append(piece)
        bytes_left -= len(piece)
        step = _PIECE
    return b"".join(pieces)


def forget_cached(file: BinaryIO) -> None:
    """Let an open local file be read from its disk, where the kernel can: memory has what was written lately.

    Nothing happens to bytes that are not synced, and to files elsewhere.
    """
    with contextlib.suppress(OSError, AttributeError):  # not a file of this machine, or no such call
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _is_link(path: str) -> bool:
    """Return whether a path is a symbolic link. This is called for each file, and a ``Path`` would be slow."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


class LocalDirectory:
    """A directory on a local disk. ``root`` is absolute and free of symbolic links."""

    at_once = 1
    has_folders = True
    renames_in_one_step = True
    failures_are_final = True

    def __init__(self, root: str) -> None:
        self.root = root
        # Folders whose paths have no symbolic links. To check each part of each path again would be slow.
        self._folders_without_links: set[str] = set()
        self._lease: Lease[str] | None = None

    def __repr__(self) -> str:
        return f"LocalDirectory({self.root!r})"

    def __reduce__(self) -> tuple[type[LocalDirectory], tuple[str]]:
        return LocalDirectory, (self.root,)  # another process does not hold the lock

    def locate(self, path: str) -> str:
        """Return the absolute path of ``path``.

        Raise RefusedError if it leads outside, or through a symbolic link in ttlsnap's own folder.
        """
        names = path.split("/")
        if path.startswith("/") or ".." in names or "\0" in path:
            raise RefusedError(f"{path!r} leads outside {self.root}")
        full_path = f"{self.root}/{path}" if path else self.root
        folder = full_path.rpartition("/")[0]
        if folder not in self._folders_without_links and os.path.realpath(folder) == folder and Path(folder).is_dir():
            self._folders_without_links.add(folder)
        if folder in self._folders_without_links and not _is_link(full_path):
            return full_path
        resolved_path = os.path.realpath(full_path)
        if resolved_path != self.root and not resolved_path.startswith(self.root.rstrip("/") + "/"):
            raise RefusedError(
                f"{full_path} is a symbolic link that leads outside {self.root} (to {resolved_path}); "
                "nothing was changed"
            )
        if names[0] == OWN and resolved_path != full_path:
            raise RefusedError(
                f"{full_path} is or lies behind a symbolic link (to {resolved_path}). "
                "ttlsnap does not create links. Remove it"
            )
        return full_path

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        with _Errors("list", self, path):
            try:
                with os.scandir(self.locate(path)) as entries:
                    infos = [
                        FileInfo(entry.name, status.st_size, status.st_mtime_ns, entry.is_dir())
                        for entry in entries
                        if entry.name.endswith(suffixes) and (status := _stat_or_none(entry)) is not None
                    ]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(infos, key=lambda info: info.name)

    def list_tree(self, path: str, most: int | None = None) -> dict[str, FileInfo]:
        return walk(self, path)

    def stat(self, path: str) -> FileInfo | None:
        with _Errors("look at", self, path):
            full_path = self.locate(path)
            try:
                status = os.stat(full_path)  # noqa: PTH116 - as text, and fast
            except (FileNotFoundError, NotADirectoryError):
                return None
        return FileInfo(path.rpartition("/")[2], status.st_size, status.st_mtime_ns, stat.S_ISDIR(status.st_mode))

    def real_path(self, path: str) -> str:
        """Return the absolute path with symbolic links resolved."""
        return os.path.realpath(self.locate(path))

    def access(self, path: str) -> Access | None:
        with _Errors("look at", self, path):
            try:
                return read_access(self.locate(path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def effective_access(self, path: str) -> Access | None:
        own_access = self.access(path)
        with _Errors("look at", self, path):
            parent_folders = Path(self.real_path(path)).parents
            return None if own_access is None else may_reach(own_access, map(read_access, parent_folders))

    def set_access(self, path: str, access: Access) -> bool:
        self._require_lease()
        with _Errors("set the owner and mode of", self, path):
            return write_access(self.locate(path), access)

    def is_link(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        with _Errors("look at", self, path):
            return _is_link(f"{self.locate(folder)}/{name}")

    def mount(self, path: str) -> Hashable:
        with _Errors("look at", self, path):
            folder = Path(self.locate(path))
            return _mount(
                next(existing_folder for existing_folder in (folder, *folder.parents) if existing_folder.is_dir())
            )

    def _apply_access(self, path: str, access: Access | None) -> None:
        """Give a new file or folder its access, as far as this user may."""
        if access is not None:
            self.set_access(path, access)

    def open(self, path: str) -> BinaryIO:
        with _Errors("open", self, path):
            full_path = self.locate(path)
            if not stat.S_ISREG(os.stat(full_path).st_mode):  # noqa: PTH116 - as text, and fast
                raise UnsupportedError(f"{full_path} is not a regular file")
            return io.BufferedReader(_RawFile(self, path, full_path))

    def read(self, path: str, limit: int) -> bytes:
        """Return the whole file. Raise StorageError if it is longer than ``limit`` bytes."""
        with _Errors("read", self, path), self.open(path) as file:
            # A file that is too long is not read. A file may be longer than it reports.
            length = os.fstat(file.fileno()).st_size
            data = read_up_to(file, limit + 1) if length <= limit else b""
        if max(length, len(data)) > limit:
            raise StorageError(f"{self.root}/{path} is longer than {limit} bytes, but such a file is never that long")
        return data

    def make_local(self, path: str, place: Path) -> None:
        """Make a symbolic link to the file at a local path, to read it there."""
        place.symlink_to(self.locate(path))

    def create(self, path: str, data: bytes) -> bool:
        """Create ``path`` with ``data``, complete and synced. Return False if it already exists."""
        self.mkdirs(OWN)
        scratch = scratch_for(self, path)
        try:
            self._write_synced(scratch, data)
            self._apply_access(scratch, access_of_new(self, path))
            is_created = self._link(scratch, path)
        finally:
            self._discard(scratch)
        if is_created is None:
            is_created = self._create_exclusive(path, data)
        self.sync(path.rpartition("/")[0])
        return is_created

    def _link(self, source: str, target: str) -> bool | None:
        """Give a file a second name, in one step. Return False if the name already exists.

        Return None if the file system does not allow a hard link.
        """
        self._require_lease()
        with _Errors("create", self, target):
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
        """Do what ``create`` does, without hard links. This is exclusive, but a crash can leave an incomplete file."""
        self._require_lease()
        with _Errors("create", self, path):
            try:
                access = access_of_new(self, path)
                descriptor = os.open(self.locate(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            except FileExistsError:
                return False
            with os.fdopen(descriptor, "wb") as file:
                self._apply_access(path, access)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        return True

    def replace(self, path: str, data: bytes, *, instead_of: bytes | None = None) -> None:
        """Replace the content of ``path`` at once: readers see the old content or the new.

        With ``instead_of``, raise BusyError unless the file has this content, or does not exist if that is empty.
        """
        scratch = scratch_for(self, path)
        try:
            self._write_synced(scratch, data)
            self._apply_access(scratch, access_of_new(self, path))
            if instead_of is not None:
                refuse_other_content(self, path, instead_of)
            self.rename(scratch, path, overwrite=True)
        except BaseException:
            self._discard(scratch)
            raise
        self.sync(path.rpartition("/")[0])

    def _discard(self, path: str) -> None:
        """Remove a scratch file if the disk allows it. The next run removes any that are left."""
        with contextlib.suppress(StorageError):
            self.remove(path)

    def _write_synced(self, path: str, data: bytes) -> None:
        with self.writer(path) as file:
            file.write(data)

    @contextlib.contextmanager
    def writer(self, path: str, later: Unsynced | None = None) -> Iterator[BinaryIO]:
        """Provide a file that is empty at first. Only its owner may use a new file.

        When the block ends, the file is synced, or added to those that are synced ``later``.
        """
        self._require_lease()
        with _Errors("write", self, path), open(self.locate(path), "wb", opener=open_private) as file:
            yield file
            file.flush()
            if later is None:
                os.fsync(file.fileno())
            else:
                later.add(f"{self.root}/{path}", file)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename a file. Raise RefusedError if another one has the new name, unless it may be overwritten."""
        self._require_lease()
        with _Errors("rename", self, source):
            target_path = self.locate(target)
            if not overwrite and os.path.lexists(target_path):
                raise RefusedError(f"{target_path} already exists. Nothing was overwritten")
            os.rename(self.locate(source), target_path)  # noqa: PTH104 - one system call

    def complete_rename(self, source: str, target: str) -> None:
        """Do nothing: a rename is one step."""

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder. No other folder may have the new name."""
        self.rename(source, target)
        self.sync(source.rpartition("/")[0])

    def keep_copy(self, source: str, target: str) -> None:
        """Make a hard link to a file that never changes, or else a copy. It remains when the file is removed."""
        self.mkdirs(target.rpartition("/")[0])
        if self._link(source, target) is None:
            with self.open(source) as source_file, self.writer(target) as target_file:
                shutil.copyfileobj(source_file, target_file, _PIECE)
            self._apply_access(target, self.access(source))
        self.sync(target.rpartition("/")[0])

    def take(self, other: Directory, path: str) -> bool:
        """See ``Directory.take``; the file gets a hard link."""
        if not isinstance(other, LocalDirectory) or other.is_link(path):
            return False
        self._require_lease()
        with _Errors("create", self, path):
            try:
                os.link(other.locate(path), self.locate(path))
            except OSError as error:
                if error.errno not in (*_NO_LINKS, errno.EXDEV):
                    raise
                return False
        return True

    def move_in(self, source: str, path: str) -> None:
        """Move a local file from outside to ``path``. It is synced, and only its owner may use it."""
        self._require_lease()
        with _Errors("write", self, path):
            Path(source).chmod(PRIVATE_FILE)
            try:
                os.rename(source, self.locate(path))  # noqa: PTH104 - one system call
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                with Path(source).open("rb") as source_file, self.writer(path) as target_file:
                    shutil.copyfileobj(source_file, target_file, _PIECE)
                return
            with Path(self.locate(path)).open("rb") as file:
                os.fsync(file.fileno())

    def remove(self, path: str) -> None:
        """Delete a file if it exists."""
        self._require_lease()
        with _Errors("remove", self, path), contextlib.suppress(FileNotFoundError):
            os.unlink(self.locate(path))  # noqa: PTH108 - as text, and fast

    def remove_exactly(self, path: str, content: bytes) -> None:
        """Delete a file if it exists. Raise BusyError if it has other content."""
        if self.stat(path) is not None:
            refuse_other_content(self, path, content)
            self.remove(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory and everything in it, if it exists."""
        self._require_lease()
        with _Errors("remove", self, path):
            full_path = self.locate(path)
            if Path(full_path).exists():
                shutil.rmtree(full_path)

    def remove_folder(self, path: str) -> None:
        """Delete a directory if it exists and is empty."""
        self._require_lease()
        with _Errors("remove", self, path):
            try:
                os.rmdir(self.locate(path))  # noqa: PTH106 - one system call, no checks
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def mkdirs(self, path: str) -> None:
        """Make a directory and the missing ones above it, and sync their names."""
        self._require_lease()
        with _Errors("make directory", self, path):
            folder, root = Path(self.locate(path)), Path(self.root)
            missing_folders = [folder, *folder.parents]
            missing_folders = missing_folders[
                : next(number for number, ancestor in enumerate(missing_folders) if ancestor.is_dir())
            ]
            for new_folder in reversed(missing_folders):
                self._make_folder(
                    new_folder, new_folder.relative_to(root).as_posix() if root in new_folder.parents else ""
                )

    def _make_folder(self, folder: Path, path: str) -> None:
        """Make one folder. ``path`` is empty for the directory itself and for folders above it."""
        if not path:
            folder.mkdir(exist_ok=True)
        elif path.startswith(f"{OWN}/"):
            self._make_own_folder(folder, path)
        else:
            access = access_of_new_folder(self, path)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(PRIVATE_FOLDER)
                self._apply_access(path, access)
        # After a power cut, a new name may be gone unless its folder was synced (fsync(2)).
        _sync_directory(folder.parent)

    def _make_own_folder(self, folder: Path, path: str) -> None:
        """Make a folder below ttlsnap's own. It has its access from the first moment, even if the process dies."""
        scratch = scratch_name(f"{OWN}/.{folder.name}")
        # A rename replaces an empty folder, in which another process may be about to make a file.
        with _alone(self.locate(OWN)):
            if folder.is_dir():
                return
            new_folder = Path(self.locate(scratch))
            new_folder.mkdir(PRIVATE_FOLDER)
            try:
                self._apply_access(scratch, access_of_new_folder(self, path))
                new_folder.rename(folder)
            except BaseException as error:
                with contextlib.suppress(FileNotFoundError):
                    new_folder.rmdir()
                if not (isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST)):
                    raise  # otherwise a process on a machine that does not see the lock made it

    def sync(self, path: str) -> None:
        """Make the names in directory ``path`` durable."""
        with _Errors("sync", self, path):
            _sync_directory(self.locate(path))

    @contextlib.contextmanager
    def lock(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock. ``shared`` only checks that nobody holds it, because a reader may not be allowed to write.

        The lock is an exclusive ``flock`` on the directory itself, which the kernel releases when the process dies.
        Other machines do not see it, so there is also a lease (see ``storage.lease``). The lease of a process that has
        died on this machine is taken over at once. Raise BusyError if another process holds the lock.
        """
        with _Errors("open", self, ""):
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

    def _flock(self, descriptor: int, is_shared: bool, lock: LocalLock) -> None:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owners_text = "".join(f" ({owner})" for owner in lock.owners)
            raise BusyError(f"another ttlsnap is working on {self.root}{owners_text}; wait until it ends") from error
        except OSError as error:
            raise StorageError(f"{self.root} cannot be locked on this file system: {error.strerror}") from error

    def _require_lease(self) -> None:
        if self._lease is not None:
            self._lease.require()

    def now_ns(self) -> int:
        """Return the time of the clock that sets the times of files here, in nanoseconds since the epoch.

        On a network file system this is another machine's clock, so it is read from a new file. The file has no name if
        the file system allows that, and is removed at once otherwise.
        """
        with _Errors("make a file in", self, ""):
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


class _RawFile(io.FileIO):
    """A file whose failed reads raise StorageError."""

    def __init__(self, directory: LocalDirectory, path: str, full_path: str) -> None:
        super().__init__(full_path)
        self._place = directory, path

    def readinto(self, buffer: Any) -> int | None:
        with _Errors("read", *self._place):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with _Errors("read", *self._place):
            return super().readall()


def _mount(folder: Path) -> Hashable:
    """Return the identity of a mount: its device and its number, because a device can be mounted twice."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        descriptor_file = Path(f"/proc/self/fdinfo/{descriptor}")
        number = (
            re.search(r"^mnt_id:\s*(\d+)", descriptor_file.read_text(), re.MULTILINE)
            if descriptor_file.exists()
            else None
        )
        return os.fstat(descriptor).st_dev, number and number[1]
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keep out the other threads and processes that use this with the same folder, also those on other machines."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
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
    except FileNotFoundError:  # the file vanished, or is a dangling link
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return None
        raise


class _Errors:
    """A block that raises StorageError for an OSError. Each call has one, so it is faster than a generator."""

    __slots__ = ("_directory", "_path", "_verb")

    def __init__(self, verb: str, directory: LocalDirectory, path: str) -> None:
        self._verb, self._directory, self._path = verb, directory, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise StorageError(f"cannot {self._verb} {self._directory.root}/{self._path}: {reason}") from error
