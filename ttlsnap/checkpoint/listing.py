"""The files that a running query changes: its logs, and the files in the folders of its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ttlsnap.checkpoint import layout
from ttlsnap.storage.directory import Directory, FileInfo, each

Listing = Mapping[str, FileInfo]
"""Files by their paths."""


def list_activity(files: Directory) -> dict[str, FileInfo]:
    """Return the files of both logs, and those in the folder of every partition and store.

    Temporary files, which Spark renames when they are complete, are included. Files that RocksDB's snapshots share are
    not.
    """
    logs = _list_all(files, (layout.OFFSETS, layout.COMMITS))
    if not files.has_folders:
        logs_and_state = {**logs, **files.list_tree(layout.STATE)}
        return {path: info for path, info in logs_and_state.items() if not info.is_dir and _is_activity(path)}
    partitions = _list_all(files, _partition_folders(files))
    # A named store has its own folder in the partition's folder.
    stores = [path for path, info in partitions.items() if info.is_dir and info.name not in layout.SHARED]
    infos_by_path = {**logs, **partitions, **_list_all(files, stores)}
    return {path: info for path, info in infos_by_path.items() if not info.is_dir}


def _is_activity(path: str) -> bool:
    """Return whether a file is one of the logs, or in the folder of a partition or store."""
    folder, *parts = path.split("/")
    if folder != layout.STATE:
        return True
    in_store = len(parts) == 4 and parts[2] not in layout.SHARED
    return (len(parts) == 3 or in_store) and layout.parse_number(parts[1]) is not None


def list_metadata(files: Directory) -> dict[str, FileInfo]:
    """Return the files of operator metadata and of state schemas whose names have the batch that wrote them."""
    folders = _list_all(files, [f"{layout.STATE}/{info.name}" for info in files.list(layout.STATE) if info.is_dir])
    metadata = [f"{path}/v2" for path, info in folders.items() if info.is_dir and info.name == "_metadata"]
    schemas = [path for path, info in folders.items() if info.is_dir and info.name == "_stateSchema"]
    stores = [path for path, info in _list_all(files, schemas).items() if info.is_dir]
    infos_by_path = _list_all(files, [*metadata, *stores])
    return {path: info for path, info in infos_by_path.items() if not info.is_dir}


def is_temporary(path: str) -> bool:
    """Return whether Spark is writing this file, or has left it behind."""
    # Where files can be renamed, Spark writes each one under such a name first
    # (CheckpointFileManager.RenameBasedFSDataOutputStream).
    return path.endswith(".tmp")


def difference(before: Listing, after: Listing) -> str | None:
    """Return the first path that is not in both listings with the same size and time, or None."""
    return min((path for path in before.keys() | after.keys() if before.get(path) != after.get(path)), default=None)


def _list_all(files: Directory, folders: Sequence[str]) -> dict[str, FileInfo]:
    folders_with_infos = zip(folders, each(files, files.list, folders), strict=True)
    return {f"{folder}/{info.name}": info for folder, infos in folders_with_infos for info in infos}


def _partition_folders(files: Directory) -> list[str]:
    operators = [f"{layout.STATE}/{info.name}" for info in files.list(layout.STATE) if info.is_dir]
    infos_by_path = _list_all(files, operators)
    return [path for path, info in infos_by_path.items() if info.is_dir and layout.parse_number(info.name) is not None]
