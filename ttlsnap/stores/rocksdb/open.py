"""Opening of one version of a partition: a database in a scratch folder, with the changelogs replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rocksdict import Rdict

from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.rocksdb.archive import SnapshotMetadata
from ttlsnap.stores.rocksdb.database import (
    assemble,
    database,
    default_settings,
    live_tables,
    require_room,
    rocksdb_errors,
    settings_of,
    storage_errors,
)
from ttlsnap.stores.rocksdb.format import RocksDbFormat
from ttlsnap.stores.rocksdb.partition import SOURCE
from ttlsnap.stores.rocksdb.writer import WritablePartition
from ttlsnap.stores.scratch import scratch_folder

_UNPACKED = 10  # bytes of a scratch database for each byte of a changelog


@contextlib.contextmanager
def open_partition(
    store: RocksDbFormat, files: Directory, lineage: Lineage, scratch: str | None, keep_in_memory: bool
) -> Iterator[WritablePartition]:
    """Assemble a partition's database in its own folder below ``scratch``, which is removed when the block ends."""
    where = f"{files.root}/{lineage.new_snapshot.rpartition('/')[0]}, version {lineage.version}"
    with scratch_folder(scratch) as folder, storage_errors(str(folder)):
        changes = sum(file.size for file in lineage.deltas)
        # Remote tables are downloaded twice: for the work, and with the staged tables for the verification.
        copied_bytes = 0 if is_local(files.root) else 2 * sum(file.size for file in lineage.shared)
        require_room(folder, copied_bytes + _UNPACKED * (changes + (lineage.snapshot.size if lineage.snapshot else 0)))
        source = folder / SOURCE
        source.mkdir()
        metadata = assemble(files, lineage.snapshot.path, source, store.delimiter) if lineage.snapshot else None
        with rocksdb_errors(where):
            # A store that has only changelogs has no OPTIONS file.
            settings = settings_of(source) if metadata else default_settings(store.format_version)
        with database(source, settings, where, new=metadata is None) as opened_database:
            if metadata is not None:
                _require_tables(
                    opened_database, metadata, f"{files.root}/{lineage.snapshot.path if lineage.snapshot else ''}"
                )
            partition = WritablePartition(
                store, files, lineage, folder, opened_database, settings, metadata, where, keep_in_memory
            )
            partition.replay()
            with partition.spark_database(source, opened_database) as fast_source:
                partition.source = fast_source or opened_database
                yield partition


def _require_tables(opened_database: Rdict, metadata: SnapshotMetadata, where: str) -> None:
    """Raise CorruptionError unless the database has exactly the tables that the metadata lists.

    A truncated MANIFEST makes a smaller database, and RocksDB does not notice.
    """
    live_names, listed_names = set(live_tables(opened_database)), set(metadata.tables)
    if live_names != listed_names:
        differing_name = min(live_names ^ listed_names)
        raise CorruptionError(
            f"{where}: {differing_name} is "
            f"{'listed, but the MANIFEST does not have it' if differing_name in listed_names else 'not listed'}"
        )
