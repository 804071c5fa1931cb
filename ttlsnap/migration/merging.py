"""Entries that have the same key after a migration.

Of a deduplication, one of them is enough. The rows of a join with the same key and time become one list.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ttlsnap.engines.moving import Entries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.operators.deduplication import stored_limit
from ttlsnap.stores.protocols import StateStore
from ttlsnap.stores.rocksdb.lists import join
from ttlsnap.stores.rocksdb.store import RocksDbStore
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers


def merge(entries: Iterable[Entries], state: StateDescriptor, store: StateStore) -> Entries:
    """Return one entry for each key, as ``store`` keeps those of ``state``: the one that Spark keeps longest.

    All entries are in memory at once, so they should be those of one partition.
    """
    keys, values, codes = _collect(entries)
    limits = np.zeros(len(keys), np.int64)
    if stored_limit(state.key_schema, state.value_schema) is not None:
        rows = store.decode(state, keys, values)[1]
        limits = read_numbers(rows, len(state.value_schema), state.value_schema.names.index("expiresAtMicros"))
    order = np.lexsort((-limits, codes))
    first_entries = order[np.append(True, codes[order][1:] != codes[order][:-1])] if len(order) else order
    kept_entries = np.sort(first_entries)
    return keys.take(kept_entries), values.take(kept_entries)


def merge_lists(entries: Iterable[Entries], store: StateStore) -> Entries:
    """Return one list for each key, with all elements of the lists that have this key.

    All entries are in memory at once, so they should be those of one partition.
    """
    assert isinstance(store, RocksDbStore)
    keys, values, codes = _collect(entries)
    order = np.argsort(codes, kind="stable")
    first_entries = order[np.append(True, codes[order][1:] != codes[order][:-1])] if len(order) else order
    return keys.take(first_entries), Rows.of(join(values.take(order), codes[order], store.delimiter))


def _collect(entries: Iterable[Entries]) -> tuple[Rows, Rows, Int64s]:
    """Return all keys and values, and a number for each key that only equal ones share."""
    pairs = list(entries)
    keys, values = (Rows.concat([pair[side] for pair in pairs]) if pairs else Rows.none() for side in (0, 1))
    return keys, values, keys.to_arrow().dictionary_encode().indices.to_numpy()
