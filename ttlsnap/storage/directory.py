"""The interface of a directory of files, local or remote. Paths are relative, with ``/``.

All access to a checkpoint goes through a ``Directory``: ``storage.local`` implements it for local and mounted disks,
``storage.objects`` for object stores, and ``storage.hdfs`` for HDFS. Each implementation keeps these rules:

* A path never leads outside the directory. ``..``, absolute paths and symbolic links to a place outside are refused.
  In ttlsnap's own folder, from which ttlsnap deletes, no link is followed at all.
* ``create`` makes a whole file appear at once or not at all, and never overwrites.
* A written file and a new directory are on the disk (synced) before the call returns, unless the caller gives a place
  for files that are synced later. ``sync`` does the same for the names in a directory.
* ``rename`` never overwrites, unless it is asked to. If a rename takes two steps, a crash can leave both names with the
  same content; ``complete_rename`` finishes it.
* ``replace`` with ``instead_of``, and ``remove_exactly``, change a file only if it has this content.
* A change can arrive after its process has given it up, and after another process has taken over the lock. Then it must
  fail or change nothing that counts. So every change in a checkpoint comes from a name, or leads to a name, in a run's
  folder or to a scratch file. Who takes over first removes the scratch files (``remove_scratch``), and gives the folder
  another name (``move_folder``).
* ``lock`` excludes every other ttlsnap, and expires soon after its process has died.
* Reading never writes.

Every ``OSError`` becomes a ``StorageError`` that names the path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, Protocol, TypeVar, cast

from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.storage.access import Access
from ttlsnap.storage.unsynced import Unsynced

OWN = "_ttlsnap"
"""ttlsnap's own folder in a checkpoint."""


LOCK = f"{OWN}/lock"
"""The lock file of a directory. On a local file system each owner's lock file has its own name."""


SCRATCH = ".tmp"
"""The end of the names of scratch files, which are renamed or linked when they are complete."""


Item = TypeVar("Item")


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One name in a directory listing; ``size`` in bytes, ``mtime_ns`` since the epoch."""

    name: str
    size: int
    mtime_ns: int
    is_dir: bool


class Directory(Protocol):
    """A tree of files; paths are relative, with ``/``.

    ``at_once`` is the useful number of simultaneous requests. ``has_folders`` is False if a path of a file implies its
    folders, which then need neither to be made nor synced. ``failures_are_final``: a change that failed in this
    process is not carried out later. System calls are like that, and requests are not.
    """

    root: str
    at_once: int
    has_folders: bool
    renames_in_one_step: bool
    failures_are_final: bool

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        """Return the names in ``path`` that end in one of ``suffixes``, sorted; none if the folder does not exist."""
        ...

    def list_tree(self, path: str, most: int | None = None) -> dict[str, FileInfo]:
        """Return all files below ``path`` by their paths, or some of them, if there are more than ``most``.

        Without folders, this takes a request for each thousand files; otherwise one for each folder.
        """
        ...

    def stat(self, path: str) -> FileInfo | None: ...
    def real_path(self, path: str) -> str: ...
    def access(self, path: str) -> Access | None:
        """Return the access of a file or folder; None if it does not exist, or if the storage does not record this."""
        ...

    def effective_access(self, path: str) -> Access | None:
        """Return the access without the permissions of users whom a folder above excludes; None as for ``access``."""
        ...

    def set_access(self, path: str, access: Access) -> bool:
        """Set the owner, group and mode of a file or folder. Return False if this user may not give it away.

        Then it keeps its owner. Unless its group is right, the group's permissions are limited to those of all others.
        """
        ...

    def is_link(self, path: str) -> bool:
        """Return whether a path is a symbolic link, which may lead outside. A rename would not follow it."""
        ...

    def mount(self, path: str) -> Hashable:
        """Return a value that is the same for all folders between which files can be renamed.

        For a missing folder, return the value of the nearest folder above it.
        """
        ...

    def open(self, path: str) -> BinaryIO: ...
    def read(self, path: str, limit: int) -> bytes: ...
    def make_local(self, path: str, place: Path) -> None: ...
    def create(self, path: str, data: bytes) -> bool: ...
    def replace(self, path: str, data: bytes, *, instead_of: bytes | None = None) -> None: ...
    def writer(self, path: str, later: Unsynced | None = None) -> contextlib.AbstractContextManager[BinaryIO]: ...
    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None: ...
    def complete_rename(self, source: str, target: str) -> None: ...
    def move_in(self, source: str, path: str) -> None: ...
    def keep_copy(self, source: str, target: str) -> None: ...
    def take(self, other: Directory, path: str) -> bool:
        """Share a file that never changes with another directory, or copy it within the store, without reading it.

        Return False if that is not possible; nothing is done then. No file has this path here.
        """
        ...

    def move_folder(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_exactly(self, path: str, content: bytes) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def remove_folder(self, path: str) -> None: ...
    def mkdirs(self, path: str) -> None: ...
    def sync(self, path: str) -> None: ...
    def lock(self, *, shared: bool = False) -> contextlib.AbstractContextManager[None]: ...
    def now_ns(self) -> int: ...


def walk(files: Directory, path: str, folders_above: tuple[str, ...] = ()) -> dict[str, FileInfo]:
    """Return all files in a folder and in those below it, by their paths, from a listing of each folder.

    Raise RefusedError for a link to one of the ``folders_above``: the list would not end.
    """
    real_path = files.real_path(path)
    if real_path in folders_above:
        raise RefusedError(
            f"{files.root}/{path} is a symbolic link to a folder above it, so a list of all files would never end. "
            "Remove the link"
        )
    infos: dict[str, FileInfo] = {}
    for info in files.list(path):
        inner_path = f"{path}/{info.name}".lstrip("/")
        infos |= walk(files, inner_path, (*folders_above, real_path)) if info.is_dir else {inner_path: info}
    return infos


def each(files: Directory, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Apply ``work`` to each item, and return the results in order. If items wait for a network, run many at once.

    Raise the first failure. No work is running any more when this returns or raises, even after an interrupt.
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
                # The running work may be renames that the caller will undo. The first interrupt is already raised.
                continue


def remove_scratch(files: Directory, folder: str) -> None:
    """Remove the scratch files in a folder, so that no late request can move one of them."""
    for info in files.list(folder):
        if info.name.endswith(SCRATCH):
            remove = files.remove_tree if info.is_dir else files.remove
            remove(f"{folder}/{info.name}")


def refuse_other_content(files: Directory, path: str, content: bytes) -> bool:
    """Return whether a file exists. Raise BusyError if its content is another one; empty content means no file."""
    existing_content = None
    if files.stat(path) is not None:
        with files.open(path) as file:
            existing_content = file.read(len(content) + 1)
    if existing_content not in (None, content) or (existing_content is None and content):
        raise has_changed(files.root, path)
    return existing_content is not None


def has_changed(root: str, path: str) -> BusyError:
    """Return the error for a file that this run wrote, and that has other content now."""
    return BusyError(
        f"{root}/{path} is no longer what this run wrote: another process has taken over, or has written the file. "
        "This process changes nothing more"
    )


def cache_listings(files: Directory) -> Directory:
    """Return the same directory with cached listings. Each folder is listed once, also to find what does not exist."""
    return cast("Directory", _Listed(files))


class _Listed:
    def __init__(self, files: Directory) -> None:
        self._files = files
        self._listing_of_folder: dict[str, list[FileInfo]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        if path not in self._listing_of_folder:
            self._listing_of_folder[path] = self._files.list(path)
        return [info for info in self._listing_of_folder[path] if info.name.endswith(suffixes)]

    def stat(self, path: str) -> FileInfo | None:
        folder, _, name = path.rpartition("/")
        return next((info for info in self.list(folder) if info.name == name), None) if name else self._files.stat("")


def hide_files(files: Directory, hidden_paths: Collection[str]) -> Directory:
    """Return the same directory for reading, in which the ``hidden_paths`` do not exist."""
    return cast("Directory", _Hiding(files, hidden_paths))


class _Hiding:
    def __init__(self, files: Directory, hidden_paths: Collection[str]) -> None:
        self._files, self._hidden_paths = files, hidden_paths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def list(self, path: str, suffixes: tuple[str, ...] = ("",)) -> list[FileInfo]:
        return [info for info in self._files.list(path, suffixes) if f"{path}/{info.name}" not in self._hidden_paths]

    def stat(self, path: str) -> FileInfo | None:
        return None if path in self._hidden_paths else self._files.stat(path)


def scratch_for(files: Directory, path: str) -> str:
    """Return the name of a scratch file for ``path``. It is in ttlsnap's own folder, where the next run removes it.

    Without such a folder the name is beside ``path``.
    """
    if path.startswith(f"{OWN}/") or files.stat(OWN) is None:
        return scratch_name(path)
    return scratch_name(f"{OWN}/.{path.rpartition('/')[2]}")


def scratch_name(path: str) -> str:
    """Return a new, random name beside ``path``.

    A name that was used before could still be a second link to a file that is now in its place.
    """
    return f"{path}.{token_hex(4)}{SCRATCH}"
