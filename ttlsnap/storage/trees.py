"""Many files and folders of a directory at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ttlsnap.storage.directory import Directory, FileInfo, each


def find_existing(files: Directory, paths: Sequence[str]) -> set[str]:
    """Return the paths that exist."""
    return set(stat_files(files, paths))


def stat_files(files: Directory, paths: Sequence[str]) -> dict[str, FileInfo]:
    """Return the facts of the paths that exist."""
    return {p: info for p, info in zip(paths, each(files, files.stat, paths), strict=True) if info is not None}


def list_below(files: Directory, folder: str) -> dict[str, FileInfo]:
    """Return all files in a folder and in those below it, by their paths."""
    found: dict[str, FileInfo] = {}
    for info in files.list(folder):
        path = f"{folder}/{info.name}"
        found |= list_below(files, path) if info.is_dir else {path: info}
    return found


def make_folders(files: Directory, paths: Sequence[str]) -> None:
    """Make the folders of files that do not exist yet."""
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        files.mkdirs(folder)


def sync_names(files: Directory, paths: Sequence[str]) -> None:
    """Make the names of ``paths`` durable, if their folders exist."""

    def sync(folder: str) -> None:
        if files.stat(folder) is not None:
            files.sync(folder)

    each(files, sync, sorted({path.rpartition("/")[0] for path in paths}))


def remove_if_empty(files: Directory, folders: Iterable[str]) -> None:
    """Remove those of the folders that exist and have no file below them, with the empty folders in them."""
    for folder in folders:
        if _is_empty(files, folder):
            _remove_folders(files, folder)


def _remove_folders(files: Directory, folder: str) -> None:
    """Remove a folder that has only folders. If somebody writes a file into one during that, it stays."""
    for info in files.list(folder):
        _remove_folders(files, f"{folder}/{info.name}".lstrip("/"))
    files.remove_folder(folder)


def _is_empty(files: Directory, folder: str) -> bool:
    return all(info.is_dir and _is_empty(files, f"{folder}/{info.name}".lstrip("/")) for info in files.list(folder))
