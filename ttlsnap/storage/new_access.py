"""The owner, group and mode that a new file or folder gets: those of what it replaces, or of its siblings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ttlsnap.storage.access import Access

if TYPE_CHECKING:
    from ttlsnap.storage.directory import Directory, FileInfo


def access_of_new(files: Directory, path: str) -> Access | None:
    """Return the access that a new file gets: that of the file it replaces, or of the newest file beside it.

    Without such a file the folder decides. None if the storage records no access.
    """
    if files.access("") is None:
        return None
    if files.stat(path) is not None:
        return files.access(path)
    folder = path.rpartition("/")[0]
    if (newest := newest_file(files, folder)) is not None:
        return files.access(newest)
    if folder and files.stat(folder) is None:
        return access_of_new(files, folder)
    access = files.access(folder)
    return None if access is None else replace(access, mode=access.mode & 0o666)


def access_of_new_folder(files: Directory, path: str) -> Access | None:
    """Return the access that a new folder gets: that of its parent folder; at the top, of the newest one beside it."""
    parent = path.rpartition("/")[0]
    sibling_folders = [info for info in files.list("") if info.is_dir] if not parent else []
    newest = _newest(files, "", sibling_folders)
    return files.access(parent if newest is None else newest)


def newest_file(files: Directory, folder: str) -> str | None:
    """Return the path of the newest complete file in a folder that is not a symbolic link; None if it has none."""
    sibling_files = [info for info in files.list(folder) if not info.is_dir and not info.name.endswith(".tmp")]
    return _newest(files, folder, sibling_files)


def _newest(files: Directory, folder: str, infos: Iterable[FileInfo]) -> str | None:
    """Return the path of the newest one that is not a symbolic link, because the access of a link is its target's."""
    paths = (_inner(folder, info) for info in sorted(infos, key=_by_time, reverse=True))
    return next((path for path in paths if not files.is_link(path)), None)


def _by_time(info: FileInfo) -> tuple[int, str]:
    return info.mtime_ns, info.name


def _inner(folder: str, info: FileInfo) -> str:
    return f"{folder}/{info.name}" if folder else info.name
