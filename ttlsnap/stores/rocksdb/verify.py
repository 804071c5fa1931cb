"""RocksDB files read each by itself, for damage: zips, changelogs, and tables.

A table is read as the only one of a database that RocksDB puts together around it (``repair``): every block's checksum
is verified as it goes by, and what snapshots share is read once, not with each of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from rocksdict import Rdict

from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, TtlsnapError, UnsupportedError
from ttlsnap.filesystem import Directory
from ttlsnap.stores.lineage import Lineage, StateFile
from ttlsnap.stores.rocksdb import RocksDbStore, changelog
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
from ttlsnap.stores.rocksdb.partition import scratch_folder, verified_keys

_AT_ONCE = 64  # tables in one database


def damaged_files(
    store: RocksDbStore, files: Directory, lineage: Lineage, wanted: Collection[str], scratch: str | None
) -> Iterator[tuple[str, TtlsnapError]]:
    """See ``StateStore.damaged``."""
    for delta in lineage.deltas:
        if delta.path in wanted:
            yield from _tried(delta.path, partial(_read_changelog, store, files, delta.path))
    snapshot = lineage.snapshot
    if snapshot is None:
        return
    tables = [file for file in lineage.shared if file.path in wanted]
    if snapshot.path not in wanted and not tables:
        return
    for file in tables:
        yield from _tried(file.path, partial(_check, files, file.path))
    tables = [file for file in tables if file.path.endswith(".sst")]
    with scratch_folder(scratch) as folder, storage_errors(str(folder)):
        unpacked = folder / "unpacked"
        unpacked.mkdir()
        try:
            extract(files, snapshot.path, unpacked)
            keep_harmless_options(unpacked, store.delimiter, f"{files.root}/{snapshot.path}")
            with rocksdb_errors(f"{files.root}/{snapshot.path}"):
                settings_of(unpacked)
        except (CorruptionError, UnsupportedError) as error:
            yield snapshot.path, error
            return
        for start in range(0, len(tables), _AT_ONCE):
            yield from _damaged_tables(files, tables[start : start + _AT_ONCE], unpacked, folder)


def _tried(path: str, read: Callable[[], None]) -> Iterator[tuple[str, TtlsnapError]]:
    try:
        read()
    except (CorruptionError, UnsupportedError) as error:
        yield path, error


def _check(files: Directory, path: str) -> None:
    open_checked(files, path).close()


def _read_changelog(store: RocksDbStore, files: Directory, path: str) -> None:
    for changes in changelog.read_changes(files, path, store.codec):
        if store.row_checksums:
            verified_keys(changes, store.delimiter, f"{files.root}/{path}")


def _damaged_tables(
    files: Directory, tables: Sequence[StateFile], unpacked: Path, folder: Path
) -> Iterator[tuple[str, TtlsnapError]]:
    """Those of ``tables`` that cannot be read: all together, and if something is wrong, one by one."""
    try:
        _read_tables(files, tables, unpacked, folder / "tables")
    except CorruptionError as error:
        if len(tables) == 1:
            yield tables[0].path, error
            return
        for table in tables:
            yield from _damaged_tables(files, [table], unpacked, folder)


def _read_tables(files: Directory, tables: Sequence[StateFile], unpacked: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for options in unpacked.glob("OPTIONS-*"):
        shutil.copy(options, folder)
    where = f"{files.root}/{tables[0].path}" if len(tables) == 1 else f"{files.root}, {len(tables)} tables"
    names = {f"{number:06d}.sst" for number in range(1, len(tables) + 1)}
    for name, table in zip(sorted(names), tables, strict=True):
        files.provide(table.path, folder / name)
    with rocksdb_errors(where):
        settings = settings_of(folder)
        Rdict.repair(str(folder), settings.database)
    with database(folder, settings, where) as opened:
        if set(live_tables(opened)) != names:
            raise CorruptionError(f"{where} cannot be read as a table of RocksDB's")
        for _ in scan(opened, where):
            pass
