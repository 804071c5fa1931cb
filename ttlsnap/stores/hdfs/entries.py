"""Live entries of one partition of the HDFS-backed state store, read from the files of a version.

The deltas are resolved first, from their keys alone: the last write of a key wins. The snapshot is then streamed, so
that memory is bounded by the deltas and a window. With row checksums, every row is verified.

Source: Spark's ``HDFSBackedStateStoreProvider``; see ``docs/hdfs-state-store.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.expansion import Room
from ttlsnap.stores.codecs import MOST_BYTES, decompress
from ttlsnap.stores.hdfs.files import HdfsFormat
from ttlsnap.stores.hdfs.key_index import KeyIndex
from ttlsnap.stores.hdfs.records import DELETED, Records, read_records
from ttlsnap.stores.lineage import Lineage, StateFile
from ttlsnap.stores.protocols import StoredSizes
from ttlsnap.stores.record_limit import RecordLimit
from ttlsnap.stores.row_checksums import CHECKSUM_SIZE, verify_row_checksums
from ttlsnap.unsaferow.layout import fixed_bytes
from ttlsnap.unsaferow.rows import Rows

KEPT_DELTA_BYTES = 64 << 20  # decompressed deltas that are kept in memory rather than read twice

_LEAST_KEY = fixed_bytes(1)  # bytes of the smallest key that has fields


@dataclass(frozen=True, eq=False)
class HdfsBatch:
    """Live entries from one buffer: their records, and the key and value rows in them."""

    records: Records
    keys: Rows
    values: Rows
    state = DEFAULT_FAMILY

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def stored(self) -> tuple[Rows, Rows, Rows]:
        """See ``EntryBatch.stored``."""
        records = self.records
        keys = Rows(records.data, records.key_start, records.key_size)
        return keys, Rows(records.data, records.value_start, records.value_size), self.keys

    @property
    def sizes(self) -> StoredSizes:
        """See ``EntryBatch.sizes``."""
        return StoredSizes(self.records.key_size, self.records.value_size, self.records.value_size)


@dataclass(frozen=True, eq=False)
class ChangedBatch:
    """Entries that were changed: their rows, and their keys and values as they will be stored."""

    state: str
    keys: Rows
    values: Rows
    stored_keys: Rows
    stored_values: Rows

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def stored(self) -> tuple[Rows, Rows, Rows]:
        """See ``EntryBatch.stored``."""
        return self.stored_keys, self.stored_values, self.keys

    @property
    def sizes(self) -> StoredSizes:
        """See ``EntryBatch.sizes``."""
        return StoredSizes(self.stored_keys.size, self.stored_values.size, self.stored_values.size)


def read_entries(files: Directory, lineage: Lineage, hdfs_format: HdfsFormat) -> Iterator[HdfsBatch]:
    """Yield every live entry of the lineage's version once, in batches, in no particular order.

    Raises CorruptionError for a file that is missing, truncated or damaged.
    """
    deltas = _Deltas(files, lineage.deltas, hdfs_format)
    yield from deltas.live()
    if lineage.snapshot is None:
        return
    for batch in read_file(files, lineage.snapshot, hdfs_format):
        yield _take(batch, ~deltas.written.has(batch.keys)) if len(deltas.written) else batch


class _Deltas:
    """Writes of the deltas after the snapshot; ``written`` has each key that they put or deleted."""

    def __init__(self, files: Directory, deltas: tuple[StateFile, ...], hdfs_format: HdfsFormat) -> None:
        self._files, self._deltas, self._format = files, deltas, hdfs_format
        self._kept_batches: dict[int, list[HdfsBatch]] = {}
        chunks: list[pa.LargeBinaryArray] = []
        size = 0
        # All keys are in memory at once, so the deltas share one limit.
        total = sum(delta.size for delta in deltas)
        room = Room(total, MOST_BYTES, f"{files.root}: the deltas of a partition", "keys")
        for number, delta in enumerate(deltas):
            kept_batches: list[HdfsBatch] | None = []
            for batch in read_file(files, delta, hdfs_format):
                room.take(int(batch.keys.size.sum()))
                chunks.append(batch.keys.to_arrow())
                size += len(batch.records.data)
                if kept_batches is not None and size <= KEPT_DELTA_BYTES:
                    kept_batches.append(batch)
                else:
                    kept_batches = None
            if kept_batches is not None:
                self._kept_batches[number] = kept_batches
        keys = pa.concat_arrays(chunks or [Rows.none().to_arrow()])
        chunks.clear()
        self.written = KeyIndex(keys)
        self._is_last = np.zeros(len(keys), np.bool_)
        self._is_last[self.written.last_writes] = True

    def live(self) -> Iterator[HdfsBatch]:
        """Yield the entries whose last write in the deltas is a put."""
        position = 0
        for number, delta in enumerate(self._deltas):
            batches = self._kept_batches.pop(number, None)
            for batch in read_file(self._files, delta, self._format) if batches is None else batches:
                is_last = self._is_last[position : position + len(batch.keys)]
                position += len(batch.keys)
                # A batch can write a key several times, as a join does with its counts. Only the last write is alive.
                yield _take(batch, is_last & (batch.records.value_size != DELETED))


def read_file(files: Directory, file: StateFile, hdfs_format: HdfsFormat) -> Iterator[HdfsBatch]:
    """Yield all records of one file, including deletes.

    Raises CorruptionError for a file that is missing, truncated or damaged.
    """
    where = f"{files.root}/{file.path}"
    snapshot = file.path.endswith(".snapshot")
    limit = RecordLimit(file.size, where)
    with open_checked(files, file.path) as stream:
        for records in read_records(decompress(stream, hdfs_format.codec, where, file.size), where):
            limit.count(len(records), int((records.key_size < _LEAST_KEY).sum()))
            # Spark refuses it, too (HDFSBackedStateStoreProvider.readSnapshotFile).
            if snapshot and (records.value_size == DELETED).any():
                raise CorruptionError(f"{where}: a snapshot cannot contain a delete")
            yield _batch(records, hdfs_format, where)


def _batch(records: Records, hdfs_format: HdfsFormat, where: str) -> HdfsBatch:
    key_start, key_size = records.key_start, records.key_size
    value_start, value_size = records.value_start, records.value_size
    if hdfs_format.row_checksums:
        # A put has its checksum before the value; a delete has no value, and its checksum before the key.
        deleted = value_size == DELETED
        key_start, key_size = key_start + CHECKSUM_SIZE * deleted, key_size - CHECKSUM_SIZE * deleted
        value_start, value_size = (
            value_start + CHECKSUM_SIZE * ~deleted,
            value_size - CHECKSUM_SIZE * ~deleted,
        )
        if min(key_size.min(), value_size[~deleted].min(initial=0)) < 0:
            raise CorruptionError(f"{where}: a row is too short to hold its checksum")
    keys = Rows(records.data, key_start, key_size)
    values = Rows(records.data, value_start, np.maximum(value_size, 0))
    if hdfs_format.row_checksums:
        verify_row_checksums(keys, values, records.value_size == DELETED, where)
    return HdfsBatch(records, keys, values)


def _take(batch: HdfsBatch, mask: npt.NDArray[np.bool_]) -> HdfsBatch:
    if mask.all():
        return batch
    index = np.flatnonzero(mask)  # once, because otherwise each of the arrays would search the mask
    return HdfsBatch(batch.records.take(index), batch.keys.take(index), batch.values.take(index))
