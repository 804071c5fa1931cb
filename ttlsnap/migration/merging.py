"""Entries of a deduplication that have one key after a column of it is gone: one of them is enough."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ttlsnap.engines.moving import Entries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.operators.deduplication import stored_limit
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import read_numbers


def merge(entries: Iterable[Entries], state: StateDescriptor, store: StateStore) -> Entries:
    """Return one entry for each key, as ``store`` keeps those of ``state``: the one that Spark keeps longest.

    All entries are in memory at once, so they should be those of one partition.
    """
    pairs = list(entries)
    keys, values = (Rows.concat([pair[side] for pair in pairs]) if pairs else Rows.none() for side in (0, 1))
    limits = np.zeros(len(keys), np.int64)
    if stored_limit(state.key_schema, state.value_schema) is not None:
        rows = store.decode(state, keys, values)[1]
        limits = read_numbers(rows, len(state.value_schema), state.value_schema.names.index("expiresAtMicros"))
    codes = keys.to_arrow().dictionary_encode().indices.to_numpy()
    order = np.lexsort((-limits, codes))
    first = order[np.append(True, codes[order][1:] != codes[order][:-1])] if len(order) else order
    kept = np.sort(first)
    return keys.take(kept), values.take(kept)
