"""Tables in the backups of runs that a snapshot still names.

RocksDB's snapshots share their tables. ttlsnap leaves every table in its place, and gives superseded tables a second
name in the backup. A running query that ttlsnap did not detect may name such a table in its next snapshot after Spark's
maintenance has removed it. ttlsnap 0.1 moved tables to the backup. In both cases the backup has the only copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ttlsnap.checkpoint import layout
from ttlsnap.errors import TtlsnapError
from ttlsnap.publishing.journal import find_backup
from ttlsnap.storage.directory import Directory, each
from ttlsnap.stores.rocksdb.archive import read_metadata


@dataclass(frozen=True)
class HeldTable:
    """A table that the snapshot ``needed_by`` names, missing at ``path``, but in the backup of ``run``."""

    run: str
    path: str
    needed_by: str


def find_held_tables(files: Directory, runs: list[str]) -> list[HeldTable]:
    """Return the tables that snapshots need, and that only the backups of ``runs`` have."""

    def list_held_tables(run: str) -> list[HeldTable]:
        return [table for folder in _table_folders(files, run) for table in _find_held_in(files, run, folder)]

    return [table for tables in each(files, list_held_tables, runs) for table in tables]


def _table_folders(files: Directory, run: str) -> Iterator[str]:
    """Yield the folders of tables in a backup, by their paths in the checkpoint."""
    backup = find_backup(files, run)
    for operator in files.list(f"{backup}/{layout.STATE}"):
        for partition in files.list(f"{backup}/{layout.STATE}/{operator.name}"):
            folder = f"{layout.STATE}/{operator.name}/{partition.name}"
            for inner in files.list(f"{backup}/{folder}"):
                if inner.name == layout.SSTS:
                    yield f"{folder}/{layout.SSTS}"
                elif inner.is_dir and files.list(f"{backup}/{folder}/{inner.name}/{layout.SSTS}"):
                    yield f"{folder}/{inner.name}/{layout.SSTS}"


def _find_held_in(files: Directory, run: str, folder: str) -> Iterator[HeldTable]:
    present_names = {info.name for info in files.list(folder)}
    missing_paths = {f"{folder}/{info.name}" for info in files.list(f"{find_backup(files, run)}/{folder}", (".sst",))}
    missing_paths = {path for path in missing_paths if path.rpartition("/")[2] not in present_names}
    snapshot_folder = folder.rpartition("/")[0]
    for info in files.list(snapshot_folder, (".zip",)) if missing_paths else ():
        snapshot = f"{snapshot_folder}/{info.name}"
        try:
            named_paths = {file.path for file in read_metadata(files, snapshot).files}
        except TtlsnapError:
            named_paths = missing_paths  # a damaged snapshot may need any of them
        for path in sorted(named_paths & missing_paths):
            missing_paths.discard(path)
            yield HeldTable(run, path, snapshot)
