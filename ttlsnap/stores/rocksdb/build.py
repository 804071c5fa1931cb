"""A new partition of the RocksDB store, from entries in any order.

Entries are sorted in memory, up to ``RUN_BYTES`` bytes at once. If there are more, each sorted run becomes a table of a
scratch database, and RocksDB merges these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]
from rocksdict import Rdict

from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.families import FamilyChanges
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import Staging, Written
from ttlsnap.stores.rocksdb import archive
from ttlsnap.stores.rocksdb.database import (
    database,
    default_settings,
    ingest,
    keep_harmless_options,
    rocksdb_errors,
    scan,
    settings_of,
    storage_errors,
)
from ttlsnap.stores.rocksdb.format import RocksDbFormat
from ttlsnap.stores.rocksdb.partition import SOURCE
from ttlsnap.stores.rocksdb.writer import RocksDbWriter, Tables, WritablePartition
from ttlsnap.stores.scratch import scratch_folder
from ttlsnap.unsaferow.gather import read_at
from ttlsnap.unsaferow.rows import Rows

RUN_BYTES = 64 << 20  # keys and values that are sorted at once
PUT_ENTRIES = 16384


@contextlib.contextmanager
def build_partition(
    store: RocksDbFormat,
    files: Directory,
    like: Lineage,
    target: str,
    staging: Staging | None,
    scratch: str | None,
    changes: FamilyChanges,
) -> Iterator[RocksDbBuilder]:
    """See ``StateStore.build``. The partition has the options and the column families of the partition ``like``."""
    where = f"{files.root}/{target}"
    with scratch_folder(scratch) as folder, storage_errors(str(folder)):
        source = folder / SOURCE
        metadata: archive.SnapshotMetadata | None = None
        source.mkdir()
        with rocksdb_errors(where):
            settings = default_settings(store.format_version)
        if like.snapshot is not None:
            options = folder / "options"
            options.mkdir()
            metadata_of_source = archive.extract(files, like.snapshot.path, options)
            keep_harmless_options(options, store.delimiter, f"{files.root}/{like.snapshot.path}")
            with rocksdb_errors(where):
                settings = settings_of(options)
            metadata = replace(metadata_of_source, files=(), entries=None if metadata_of_source.entries is None else 0)
        metadata = archive.with_families(metadata, changes)
        lineage = replace(like, deltas=(), newer=(), new_snapshot=target)
        with database(source, settings, where, new=True) as new_database:
            partition = WritablePartition(store, files, lineage, folder, new_database, settings, metadata, where, False)
            with RocksDbWriter(partition, staging, "full", {}, {}, 0) as writer:
                yield RocksDbBuilder(partition, writer, new_database, source)


class RocksDbBuilder:
    """See ``PartitionBuilder``."""

    def __init__(self, partition: WritablePartition, writer: RocksDbWriter, new_database: Rdict, source: Path) -> None:
        self._partition, self._writer, self._database, self._source = partition, writer, new_database, source
        self._waiting_rows: list[tuple[Rows, Rows]] = []
        self._size = self._runs = 0

    def put(self, keys: Rows, values: Rows) -> None:
        """See ``PartitionBuilder.put``."""
        self._waiting_rows.append((keys, values))
        size = int(keys.size.sum() + values.size.sum())
        self._size += size
        self._partition.size += size
        if self._size >= RUN_BYTES:
            self._write_run()

    def finish(self) -> Written:
        """See ``SnapshotWriter.finish``."""
        if self._runs and self._waiting_rows:
            self._write_run()
        self._writer.require_room()
        with self._merged() as pairs:
            for keys, values in pairs:
                self._count(keys)
                self._writer.put(keys, values)
        return self._writer.finish()

    @contextlib.contextmanager
    def _merged(self) -> Iterator[Iterator[tuple[Rows, Rows]]]:
        if not self._runs:
            yield self._sorted()
            return
        with (
            self._partition.spark_database(self._source, self._database) as spark_database,
            # Closed before its database, also after an error that keeps it alive: it frees its iterator then.
            contextlib.closing(scan(spark_database or self._database, self._partition.where)) as pairs,
        ):
            yield pairs

    def _sorted(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield what waits in the order of the keys, and forget it."""
        keys, values = (Rows.concat([pair[kind] for pair in self._waiting_rows]) for kind in (0, 1))
        self._waiting_rows, self._size = [], 0
        # RocksDB refuses a table whose keys are out of order. Arrow compares bytes, as RocksDB's default comparator
        # does.
        order = np.asarray(pc.array_sort_indices(keys.to_arrow())).astype(np.int64)
        for start in range(0, len(order), PUT_ENTRIES):
            chunk = order[start : start + PUT_ENTRIES]
            # Copied, because the writer may copy the whole buffer of what it gets.
            yield Rows.concat([keys.take(chunk)]), Rows.concat([values.take(chunk)])

    def _write_run(self) -> None:
        tables = Tables(self._partition.folder, f"run-{self._runs}", self._partition)
        try:
            for keys, values in self._sorted():
                tables.put(keys, values)
            with rocksdb_errors(self._partition.where):
                ingest(self._database, tables.close())
        finally:
            tables.discard()
        self._runs += 1

    def _count(self, keys: Rows) -> None:
        families = self._partition.families
        if not families:
            self._writer.count(DEFAULT_FAMILY, len(keys))
            return
        numbers, counts = np.unique(read_at(keys.data, keys.start, "<i2"), return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number not in families:
                raise CorruptionError(
                    f"{self._partition.where}: a key belongs to column family {number}, which the metadata does not "
                    "name"
                )
            self._writer.count(families[number], count)
