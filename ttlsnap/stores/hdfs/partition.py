"""One partition of the HDFS-backed store: its entries, and the writer of its new snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import xxhash

from ttlsnap.amounts import quantity
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, TtlsnapError, UnsupportedError
from ttlsnap.storage.directory import Directory, scratch_name
from ttlsnap.stores.codecs import Piece, decompress
from ttlsnap.stores.hdfs.entries import ChangedBatch, HdfsBatch, read_entries, read_file
from ttlsnap.stores.hdfs.files import HdfsFormat
from ttlsnap.stores.hdfs.records import DELETED, read_records
from ttlsnap.stores.hdfs.snapshot_writer import CountingSink, SnapshotFileWriter
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import Look, Renumbering, RewriteChoice, StagedFile, Staging, Written
from ttlsnap.stores.row_checksums import with_row_checksums
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows

KEPT_BYTES = 64 << 20  # records that are kept in memory rather than read again
_LARGE_BLOCK = 31 << 20  # bytes, just below glibc's maximum for its mmap threshold


class HdfsPartition:
    """See ``StoredPartition``."""

    families: Mapping[int, str] = MappingProxyType({})

    def __init__(self, store: HdfsFormat, files: Directory, lineage: Lineage, keep_in_memory: bool) -> None:
        self._store, self._files, self._lineage = store, files, lineage
        self._keep_in_memory = keep_in_memory
        self._kept_batches: list[HdfsBatch] | None = None

    def batches(
        self, states: Mapping[str, StateDescriptor], only: str | None = None
    ) -> Generator[HdfsBatch, None, None]:
        """See ``StoredPartition.batches``."""
        # After one large block is freed, glibc keeps freed memory for the next window. Otherwise it would return the
        # memory and fault it in again, which costs a tenth of the CPU time.
        np.empty(_LARGE_BLOCK, np.uint8)
        if self._kept_batches is not None:
            yield from self._kept_batches
            return
        kept_batches, bytes_left = [], KEPT_BYTES if self._keep_in_memory else 0
        for batch in read_entries(self._files, self._lineage, self._store):
            bytes_left -= len(batch.records.data)
            if bytes_left >= 0:
                kept_batches.append(batch)
            else:
                kept_batches.clear()
            yield batch
        self._kept_batches = kept_batches if bytes_left >= 0 else None

    def change(
        self, batch: HdfsBatch, state: StateDescriptor, kept: Int64s, rewritten: Mask, values: Rows
    ) -> ChangedBatch:
        """See ``StoredPartition.change``."""
        keys, stored_values, _ = batch.stored
        keys, new_values = keys.take(kept), values.take(rewritten)
        rows = batch.values.take(kept).replace(rewritten, new_values)
        if self._store.row_checksums:
            new_values = with_row_checksums(keys.take(rewritten), new_values)
        return ChangedBatch(
            batch.state, batch.keys.take(kept), rows, keys, stored_values.take(kept).replace(rewritten, new_values)
        )

    def moved(self, states: Mapping[str, StateDescriptor], moves: Mapping[str, Renumbering]) -> Iterator[ChangedBatch]:
        """See ``StoredPartition.moved``; there are none, because entries have no order."""
        assert not moves
        return iter(())

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> HdfsWriter:
        """See ``StoredPartition.writer``.

        A snapshot is always written in full. ``moves`` must be empty, because entries have no order.
        """
        assert not moves
        return HdfsWriter(self._store, self._lineage.new_snapshot, staging)


class HdfsWriter:
    """See ``ttlsnap.stores.protocols.SnapshotWriter``.

    The file has a temporary name in the staging folder, because an engine may run a task twice at the same time. Spark
    does so with speculation.
    """

    def __init__(self, store: HdfsFormat, target: str, staging: Staging | None) -> None:
        self._store, self._target, self._staging = store, target, staging
        self._path = "" if staging is None else scratch_name(staging.place(target))
        self._file = contextlib.ExitStack()
        self._is_finished = False

    def __enter__(self) -> Self:
        if self._staging is None:
            self._sink = CountingSink()
        else:
            self._staging.files.mkdirs(self._path.rpartition("/")[0])
            self._sink = CountingSink(self._file.enter_context(self._staging.files.writer(self._path)))
        self._writer = SnapshotFileWriter(self._sink, self._store)
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)
        if self._staging is not None and not self._is_finished:
            self._staging.files.remove(self._path)

    def keep(self, batch: HdfsBatch) -> None:
        """See ``SnapshotFileWriter.keep``."""
        self._writer.copy(batch)

    def change(self, batch: HdfsBatch, kept: Int64s, rewritten: Mask, values: Rows) -> None:
        """See ``SnapshotFileWriter.change``."""
        if not rewritten.any():
            self._writer.copy(HdfsBatch(batch.records.take(kept), batch.keys, batch.values))
            return
        self._writer.copy(HdfsBatch(batch.records.take(kept[~rewritten]), batch.keys, batch.values))
        self._writer.put(batch.keys.take(kept[rewritten]), values.take(rewritten))

    def put(self, keys: Rows, values: Rows) -> None:
        """See ``PartitionBuilder.put``."""
        self._writer.put_stored(keys, values)

    def finish(self) -> Written:
        """See ``SnapshotFileWriter.finish``."""
        digest = self._writer.close()
        self._file.close()
        if self._staging is None:
            return Written((), self._sink.size)
        self._verify_all(self._staging.files, digest)
        self._is_finished = True
        staged = StagedFile(self._path, self._target, self._sink.size, self._sink.digest)
        return Written((staged,), self._sink.size)

    def _verify_all(self, files: Directory, digest: str) -> None:
        """Read the staged file back from disk; raise CorruptionError unless every entry and byte is as written."""
        digest_read = xxhash.xxh3_128()
        where = f"{files.root}/{self._path}"

        def pieces(source: Iterator[Piece]) -> Iterator[Piece]:
            for piece in source:
                digest_read.update(piece)
                yield piece

        with files.open(self._path) as file:
            stream = pieces(decompress(file, self._store.codec, where))
            count = sum(len(records) for records in read_records(stream, where))
        if count != self._writer.entries or digest_read.hexdigest() != digest:
            raise CorruptionError(
                f"{where}: {quantity(self._writer.entries, 'entry was', 'entries were')} staged and {count} read "
                "back, or their bytes differ. "
                "Nothing was published. Check the disk and the memory of this machine"
            )


def find_damaged_files(
    store: HdfsFormat, files: Directory, lineage: Lineage, paths: Collection[str], look: Look
) -> Iterator[tuple[str, TtlsnapError]]:
    """See ``StateStore.find_damaged``."""
    for file in lineage.files:
        if file.path not in paths:
            continue
        try:
            for batch in read_file(files, file, store):
                puts = np.flatnonzero(batch.records.value_size != DELETED)
                # A delete has no value to look at, and its key is also the key of a put.
                look(batch.state, batch.keys.take(puts), batch.values.take(puts))
        except (CorruptionError, UnsupportedError) as error:
            yield file.path, error
