"""The entries of a checkpoint: as they are stored, as rows, or one field of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ttlsnap import open_checkpoint
from ttlsnap.migration.unused import find_unused
from ttlsnap.operators.placement import find_partitions
from ttlsnap.operators.registry import describe
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.unsaferow.decode import decode

Entries = Counter[tuple[str, str, bytes, bytes]]


def entries_of(checkpoint: Path) -> Entries:
    """Return the stored entries of all stores. Each must be in the partition that its hash gives."""
    files = LocalDirectory(str(checkpoint.resolve()))
    read = open_checkpoint(files)
    state_store, found = open_state_store(read), Entries()
    states = [*describe(read), *find_unused(read)]
    for operator in read.operators:
        for store in operator.stores:
            mine = {s.state: s for s in states if (s.operator, s.store) == (operator.id, store.name)}
            for partition, lineage in enumerate(lineages_of(read, state_store, store)):
                with state_store.open(files, lineage, None) as opened:
                    for batch in opened.batches(mine):
                        keys, values, rows = batch.stored
                        placed = find_partitions(mine[batch.state], rows, len(store.partitions))
                        assert set(placed.tolist()) <= {partition}
                        found.update(
                            (store.name, batch.state, key, value)
                            for key, value in zip(keys.to_list(), values.to_list(), strict=True)
                        )
    return found


def rows_of(checkpoint: Path) -> Entries:
    """Return the keys and values of all entries as rows, whatever the store is."""
    files = LocalDirectory(str(checkpoint.resolve()))
    read = open_checkpoint(files)
    state_store, found = open_state_store(read), Entries()
    for operator in read.operators:
        for store in operator.stores:
            states = {s.state: s for s in describe(read) if (s.operator, s.store) == (operator.id, store.name)}
            for lineage in lineages_of(read, state_store, store):
                with state_store.open(files, lineage, None) as opened:
                    for batch in opened.batches(states):
                        rows = zip(batch.keys.to_list(), batch.values.to_list(), strict=True)
                        found.update((store.name, batch.state, key, value) for key, value in rows)
    return found


def field_of(target: Path, name: str, column: str) -> dict[str, list[Any]]:
    """Return a field of every entry of a variable or of another state, by key."""
    checkpoint = open_checkpoint(LocalDirectory(str(target.resolve())))
    (state,) = (state for state in describe(checkpoint) if state.state == name)
    store, found = open_state_store(checkpoint), dict[str, list[Any]]()
    for lineage in lineages_of(checkpoint, store, checkpoint.operators[0].stores[0]):
        with store.open(checkpoint.files, lineage, None) as partition:
            for batch in partition.batches({name: state}, only=name):
                if batch.state == name:
                    keys, values = decode(batch.keys, state.key_schema), decode(batch.values, state.value_schema)
                    for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                        found.setdefault(json.dumps(key), []).append(value[column])
    return found
