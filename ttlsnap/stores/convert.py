"""Entries of one store as another store keeps them: of the other provider, or with or without row checksums."""

from __future__ import annotations

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.stores.protocols import EntryBatch, StateStore
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.encoding import change_checksums
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.unsaferow.gather import gather_ragged
from ttlsnap.unsaferow.rows import Rows


def convert(
    batch: EntryBatch, source: StateStore, target: StateStore, state: StateDescriptor, where: str
) -> tuple[Rows, Rows]:
    """Return the keys and values of a batch from ``source`` as ``target`` stores them.

    ``state`` describes the state in ``target``. Raise UnsupportedError if the target cannot hold it, and
    CorruptionError if the result, read again, is not what was read before.
    """
    keys, values, _ = batch.stored
    if source.provider == target.provider and source.row_checksums == target.row_checksums:
        return keys, values
    if isinstance(batch, RocksDbBatch) and isinstance(target, RocksDbStore):
        checksums = {"before": source.row_checksums, "after": target.row_checksums}
        return keys, change_checksums(batch, target.delimiter, **checksums)
    keys, values = target.encode(state, batch.keys, batch.values)
    again = target.decode(state, keys, values)
    if not (_are_equal(again[0], batch.keys) and _are_equal(again[1], batch.values)):
        raise CorruptionError(
            f"{where}: entries written for the other state store do not read as the same rows. Nothing was published"
        )
    return keys, values


def _are_equal(first: Rows, second: Rows) -> bool:
    if len(first) != len(second) or not bool((first.size == second.size).all()):
        return False
    mine, others = (gather_ragged(rows.data, rows.start, rows.size) for rows in (first, second))
    return bool(mine.equals(others))
