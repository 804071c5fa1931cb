"""Verification of single RocksDB files: zips, changelogs, and tables.

Tables are read as Spark reads them: RocksDB opens the snapshot's own database, and verifies the checksum of every block
that holds entries. Tables that snapshots share are read once: the MANIFEST is reduced to the tables that no other
snapshot had. RocksDB ignores a damaged filter, and so does this module.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, TtlsnapError, UnsupportedError
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.rocksdb import changelog
from ttlsnap.stores.rocksdb.archive import extract
from ttlsnap.stores.rocksdb.database import (
    database,
    keep_harmless_options,
    live_tables,
    rocksdb_errors,
    scan,
    settings_of,
    storage_errors,
)
from ttlsnap.stores.rocksdb.footers import check_footer
from ttlsnap.stores.rocksdb.format import RocksDbFormat
from ttlsnap.stores.rocksdb.manifest import keep_tables
from ttlsnap.stores.rocksdb.partition import verify_keys
from ttlsnap.stores.scratch import scratch_folder

_NEVER = 1 << 62  # versions of a key before RocksDB seeks the next key, which would skip blocks unverified


def find_damaged_files(
    store: RocksDbFormat, files: Directory, lineage: Lineage, paths: Collection[str], scratch: str | None
) -> Iterator[tuple[str, TtlsnapError]]:
    """See ``StateStore.find_damaged``."""
    for delta in lineage.deltas:
        if delta.path in paths:
            yield from _try_read(delta.path, partial(_read_changelog, store, files, delta.path))
    snapshot = lineage.snapshot
    if snapshot is None:
        return
    tables = [file for file in lineage.shared if file.path in paths]
    if snapshot.path not in paths and not tables:
        return
    damaged_files = [damage for file in tables for damage in _try_read(file.path, partial(_check, files, file.path))]
    yield from damaged_files
    damaged_paths = {path for path, _ in damaged_files}
    tables = [file for file in tables if file.path.endswith(".sst") and file.path not in damaged_paths]
    with scratch_folder(scratch) as folder, storage_errors(str(folder)):
        try:
            unpacked_snapshot = _Snapshot.unpack(store, files, snapshot.path, folder / "unpacked")
        except (CorruptionError, UnsupportedError) as error:
            yield snapshot.path, error
            return
        yield from _find_damaged_tables(unpacked_snapshot, [file.path for file in tables])


def _try_read(path: str, read: Callable[[], None]) -> Iterator[tuple[str, TtlsnapError]]:
    try:
        read()
    except (CorruptionError, UnsupportedError) as error:
        yield path, error


def _check(files: Directory, path: str) -> None:
    open_checked(files, path).close()


def _read_changelog(store: RocksDbFormat, files: Directory, path: str) -> None:
    for changes in changelog.read_changes(files, path, store.codec):
        if store.row_checksums:
            verify_keys(changes, store.delimiter, f"{files.root}/{path}")


@dataclass(frozen=True)
class _Snapshot:
    """The unpacked zip ``path``; ``names`` has the name of each table in its database, by the table's path."""

    files: Directory
    path: str
    folder: Path
    names: Mapping[str, str]

    @classmethod
    def unpack(cls, store: RocksDbFormat, files: Directory, path: str, folder: Path) -> _Snapshot:
        folder.mkdir()
        metadata = extract(files, path, folder)
        keep_harmless_options(folder, store.delimiter, f"{files.root}/{path}")
        return cls(files, path, folder, {file.path: name for name, file in metadata.tables.items()})

    @property
    def where(self) -> str:
        return f"{self.files.root}/{self.path}"


def _find_damaged_tables(snapshot: _Snapshot, tables: Sequence[str]) -> Iterator[tuple[str, TtlsnapError]]:
    """Yield the ``tables`` that cannot be read. They are read together, and one by one only after an error."""
    error_of_all = _wrong(snapshot, tables, snapshot.where)
    if error_of_all is None:
        return
    # An error that remains without any table is in the zip.
    damaged_tables = [(snapshot.path, of_itself)] if (of_itself := _wrong(snapshot, [], snapshot.where)) else []
    for table in [] if damaged_tables else tables:
        if error := _wrong(snapshot, [table], f"{snapshot.files.root}/{table}"):
            damaged_tables.append((table, error))
    yield from damaged_tables or [(snapshot.path, error_of_all)]


def _wrong(snapshot: _Snapshot, tables: Sequence[str], where: str) -> TtlsnapError | None:
    try:
        _read_tables(snapshot, tables, where)
    except (CorruptionError, UnsupportedError) as error:
        return type(error)(error.message)  # its traceback would keep the database open
    return None


def _read_tables(snapshot: _Snapshot, tables: Sequence[str], where: str) -> None:
    """Open the snapshot's database with only these tables, and read every entry."""
    with tempfile.TemporaryDirectory(dir=snapshot.folder.parent) as scratch:
        folder = Path(scratch) / "database"
        shutil.copytree(snapshot.folder, folder)
        names = [snapshot.names[table] for table in tables]
        keep_tables(
            folder, {_number(name) for name in snapshot.names.values()}, {_number(name) for name in names}, where
        )
        for table, name in zip(tables, names, strict=True):
            snapshot.files.make_local(table, folder / name)
            check_footer(folder / name, f"{snapshot.files.root}/{table}")
        with rocksdb_errors(where):
            settings = settings_of(folder)
        settings.tables.set_max_sequential_skip_in_iterations(_NEVER)
        with database(folder, settings, where) as opened_database:
            if live_tables(opened_database) != sorted(names):
                raise CorruptionError(f"{where}: the MANIFEST and the metadata list different tables")
            for _ in scan(opened_database, where):
                pass


def _number(name: str) -> int:
    return int(name.removesuffix(".sst"))
