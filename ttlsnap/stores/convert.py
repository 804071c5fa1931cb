"""Entries of one store as another store keeps them: of the other provider, or with or without row checksums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.stores.hdfs.entries import ChangedBatch
from ttlsnap.stores.protocols import EntryBatch, StateStore
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.encoding import CHECKSUM_SIZE, change_checksums, write_lists, write_values
from ttlsnap.stores.rocksdb.lists import SIZE, Elements, split
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.stores.row_checksums import with_row_checksums
from ttlsnap.unsaferow.gather import Int64s, gather_ragged
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
        has_old_checksums, has_new_checksums = source.row_checksums, target.row_checksums
        values = change_checksums(batch, target.delimiter, before=has_old_checksums, after=has_new_checksums)
        new_batch = replace(batch, raw_values=values, elements=_elements(values, target) if batch.elements else None)
        values_converted_back = change_checksums(
            new_batch, target.delimiter, before=has_new_checksums, after=has_old_checksums
        )
        is_same = _are_equal(values_converted_back, batch.raw_values)
    else:
        keys, values = target.encode(state, batch.keys, batch.values)
        decoded_rows = target.decode(state, keys, values)
        is_same = _are_equal(decoded_rows[0], batch.keys) and _are_equal(decoded_rows[1], batch.values)
    if not is_same:
        raise CorruptionError(
            f"{where}: entries as the new store has them do not read as before. Nothing was published. Check the "
            "memory of this machine"
        )
    return keys, values


def with_values(
    batch: EntryBatch, store: StateStore, state: StateDescriptor, values: Rows, kept: Int64s | None = None
) -> EntryBatch:
    """Return the entries of a batch from ``store`` with other values, given as rows of ``state``.

    Only those entries are in it that are ``kept``, in ascending order; by default, all are.
    """
    if not isinstance(batch, RocksDbBatch):
        assert kept is None
        keys, _, rows = batch.stored
        stored_values = with_row_checksums(keys, values) if store.row_checksums else values
        return ChangedBatch(batch.state, rows, values, keys, stored_values)
    assert isinstance(store, RocksDbStore)
    raw_keys, keys = batch.raw_keys, batch.keys
    owner = None if batch.elements is None else batch.elements.owner
    if kept is not None:
        keys = keys.take(kept)
        if owner is None:
            raw_keys = raw_keys.take(kept)
        else:
            lists, owner = np.unique(owner[kept], return_inverse=True)
            raw_keys = raw_keys.take(lists)
    if owner is None:
        stored_values = write_values(raw_keys, values, state, checksums=store.row_checksums)
        return RocksDbBatch(batch.state, raw_keys, stored_values, (keys, values))
    stored_values = write_lists(raw_keys, values, owner, state, store.delimiter, checksums=store.row_checksums)
    return RocksDbBatch(batch.state, raw_keys, stored_values, (keys, values), _elements(stored_values, store))


def with_keys(
    batch: EntryBatch, store: StateStore, state: StateDescriptor, keys: Rows, family: int | None
) -> tuple[Rows, Rows]:
    """Return the entries of a batch as ``store`` keeps them, with other keys, given as rows of ``state``.

    ``family`` is the id of the column family, if keys have one.
    """
    owner = batch.elements.owner if isinstance(batch, RocksDbBatch) and batch.elements is not None else None
    return store.encode(state, keys, batch.values, family=family, owner=owner)


def _elements(values: Rows, store: RocksDbStore) -> Elements:
    """Return the elements of values that are lists."""
    # With row checksums, each element has its checksum before its size (Spark's KeyValueChecksumEncoder).
    return split(values, CHECKSUM_SIZE - SIZE if store.row_checksums else 0, store.delimiter)[0]


def _are_equal(first_rows: Rows, second_rows: Rows) -> bool:
    if len(first_rows) != len(second_rows) or not bool((first_rows.size == second_rows.size).all()):
        return False
    first_bytes, second_bytes = (gather_ragged(rows.data, rows.start, rows.size) for rows in (first_rows, second_rows))
    return bool(first_bytes.equals(second_bytes))
