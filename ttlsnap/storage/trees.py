"""Many files and folders of a directory at once."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ttlsnap.storage.directory import Directory, FileInfo, each

_IN_A_REQUEST = 1000
"""The files that an object store lists in one answer."""


def find_existing(files: Directory, paths: Sequence[str]) -> set[str]:
    """Return the paths that exist."""
    return set(stat_files(files, paths))


def stat_files(files: Directory, paths: Iterable[str]) -> dict[str, FileInfo]:
    """Return the facts of the paths that exist. In a network, one request serves as many of them as it can."""
    paths = list(dict.fromkeys(paths))
    if files.at_once == 1:
        infos_of_paths = zip(paths, (files.stat(path) for path in paths), strict=True)
        return {path: info for path, info in infos_of_paths if info is not None}
    folders = list(dict.fromkeys(path.rpartition("/")[0] for path in paths))
    info_of_path: dict[str, FileInfo] = {}
    trees = {} if files.has_folders else _trees(folders)
    for ancestor, folders_below in (
        (ancestor, folders_below) for ancestor, folders_below in trees.items() if ancestor and len(folders_below) > 1
    ):
        # With fewer files than that, it takes fewer requests than a listing of each folder.
        listing_limit = _IN_A_REQUEST * len(folders_below)
        tree = files.list_tree(ancestor, listing_limit)
        if len(tree) <= listing_limit:
            info_of_path |= tree
            info_of_path |= {path: FileInfo(path.rpartition("/")[2], 0, 0, is_dir=True) for path in _folders(tree)}
            folders = [folder for folder in folders if folder not in folders_below]
    for folder, infos in zip(folders, each(files, files.list, folders), strict=True):
        info_of_path |= {f"{folder}/{info.name}".lstrip("/"): info for info in infos}
    return {path: info_of_path[path] for path in paths if path in info_of_path}


def _trees(folders: Iterable[str]) -> dict[str, list[str]]:
    """Return the folders by the first folder in their paths, or rather by the one that they all are below."""
    by_first: dict[str, list[str]] = defaultdict(list)
    for folder in folders:
        by_first[folder.partition("/")[0]].append(folder)
    return {posixpath.commonpath(folders_below): folders_below for folders_below in by_first.values()}


def _folders(paths: Iterable[str]) -> set[str]:
    all_names = (path.split("/") for path in paths)
    return {"/".join(names[:end]) for names in all_names for end in range(1, len(names))}


def make_folders(files: Directory, paths: Sequence[str]) -> None:
    """Make the folders of files that do not exist yet."""
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        files.mkdirs(folder)


def sync_names(files: Directory, paths: Sequence[str]) -> None:
    """Make the names of ``paths`` durable, if their folders exist."""
    if not files.has_folders:
        return

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
