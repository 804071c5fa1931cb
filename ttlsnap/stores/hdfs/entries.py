"""The HDFS-backed state store: one partition of one store, its live entries read from the files of a version.

What the deltas wrote is resolved first, from their keys alone: the last write of a key wins. The snapshot then
streams through, so that memory is bounded by the deltas and a window. With row checksums every row is verified.
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
from ttlsnap.filesystem import Directory
from ttlsnap.stores.codecs import decompress
from ttlsnap.stores.hdfs import HdfsStore
from ttlsnap.stores.hdfs.key_index import KeyIndex
from ttlsnap.stores.hdfs.records import DELETED, Records, read_records
from ttlsnap.stores.lineage import Lineage, StateFile
from ttlsnap.stores.record_limit import RecordLimit
from ttlsnap.stores.row_checksums import CHECKSUM_SIZE, verify_row_checksums
from ttlsnap.unsaferow.layout import fixed_bytes
from ttlsnap.unsaferow.rows import Rows

_KEEP_DELTAS = 64 << 20  # bytes of decompressed deltas that are kept rather than read twice

_LEAST_KEY = fixed_bytes(1)  # bytes of a key that has fields


@dataclass(frozen=True, eq=False)
class Batch:
    """Live entries from one buffer: their records as they lie, and the key and value rows in them."""

    records: Records
    keys: Rows
    values: Rows
    state = DEFAULT_FAMILY

    def __len__(self) -> int:
        return len(self.keys)


def read_entries(files: Directory, lineage: Lineage, form: HdfsStore) -> Iterator[Batch]:
    """Every live entry of the lineage's version once, in batches, in no particular order.

    Raises CorruptionError for a file that is missing, torn or damaged.
    """
    deltas = _Deltas(files, lineage.deltas, form)
    yield from deltas.live()
    if lineage.snapshot is None:
        return
    for batch in read_file(files, lineage.snapshot, form):
        yield _take(batch, ~deltas.written.has(batch.keys)) if len(deltas.written) else batch


class _Deltas:
    """What the deltas after the snapshot wrote: ``written`` has each key that they put or deleted."""

    def __init__(self, files: Directory, deltas: tuple[StateFile, ...], form: HdfsStore) -> None:
        self._files, self._deltas, self._form = files, deltas, form
        self._kept: dict[int, list[Batch]] = {}
        chunks: list[pa.LargeBinaryArray] = []
        size = 0
        for number, delta in enumerate(deltas):
            kept: list[Batch] | None = []
            for batch in read_file(files, delta, form):
                chunks.append(batch.keys.to_arrow())
                size += len(batch.records.data)
                if kept is not None and size <= _KEEP_DELTAS:
                    kept.append(batch)
                else:
                    kept = None
            if kept is not None:
                self._kept[number] = kept
        keys = pa.concat_arrays(chunks or [Rows.none().to_arrow()])
        chunks.clear()
        self.written = KeyIndex(keys)
        self._is_last = np.zeros(len(keys), np.bool_)
        self._is_last[self.written.last_writes] = True

    def live(self) -> Iterator[Batch]:
        """The entries whose last write in the deltas is a put."""
        position = 0
        for number, delta in enumerate(self._deltas):
            batches = self._kept.pop(number, None)
            for batch in read_file(self._files, delta, self._form) if batches is None else batches:
                is_last = self._is_last[position : position + len(batch.keys)]
                position += len(batch.keys)
                yield _take(batch, is_last & (batch.records.value_size != DELETED))


def read_file(files: Directory, file: StateFile, form: HdfsStore) -> Iterator[Batch]:
    """All records of one file, deletes among them."""
    where = f"{files.root}/{file.path}"
    snapshot = file.path.endswith(".snapshot")
    limit = RecordLimit(file.size, where)
    with open_checked(files, file.path) as stream:
        for records in read_records(decompress(stream, form.codec, where), where):
            limit.count(len(records), int((records.key_size < _LEAST_KEY).sum()))
            if snapshot and (records.value_size == DELETED).any():
                raise CorruptionError(f"{where}: a snapshot with a delete in it")
            yield _batch(records, form, where)


def _batch(records: Records, form: HdfsStore, where: str) -> Batch:
    key_start, key_size = records.key_start, records.key_size
    value_start, value_size = records.value_start, records.value_size
    if form.row_checksums:
        # A put's checksum stands before its value; a delete has no value, so it stands before the key.
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
    if form.row_checksums:
        verify_row_checksums(keys, values, records.value_size == DELETED, where)
    return Batch(records, keys, values)


def _take(batch: Batch, mask: npt.NDArray[np.bool_]) -> Batch:
    if mask.all():
        return batch
    index = np.flatnonzero(mask)  # once, where each of the arrays would search the mask for itself
    return Batch(batch.records.take(index), batch.keys.take(index), batch.values.take(index))
