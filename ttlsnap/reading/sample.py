"""A few decoded entries of each state, for ``inspect --show``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.operators.showing import show_entry
from ttlsnap.reading.inspected import Inspection, StateInspection
from ttlsnap.stores.open import open_state_store, partition_of
from ttlsnap.stores.protocols import EntryBatch
from ttlsnap.unsaferow.rows import Rows


def take_samples(found: Inspection, entries: int, selection: Selection | AnyOf) -> list[dict[str, Any]]:
    """Decode up to ``entries`` entries of each state, from as few partitions as that needs.

    Derived entries are omitted, unless the ``selection`` names their state. Raise UnsupportedError for a provider
    or a store that cannot be read entry by entry.
    """
    samples: list[dict[str, Any]] = []
    for _, stores in found.operators:
        for store, states in stores:
            wanted_counts = [entries if _is_wanted(state.descriptor, selection) else 0 for state in states]
            scans = [_StateScan(store, *each) for each in zip(states, wanted_counts, strict=True)]
            _scan_store(found.checkpoint, store, scans)
            samples += [found for each in scans for found in each.samples]
    return samples


def _is_wanted(state: StateDescriptor | None, selection: Selection | AnyOf) -> bool:
    return state is None or state.role == "primary" or selection.names(state)


class _StateScan:
    """The results of the scan of a store for one of its states."""

    def __init__(self, store: Store, state: StateInspection, wanted: int) -> None:
        self.store, self.state, self.wanted = store, state, wanted
        self.samples: list[dict[str, Any]] = []
        self.count = 0

    def add(self, partition: int, batch: EntryBatch) -> None:
        keys, values = batch.keys, batch.values
        self.count += len(keys)
        samples_missing = min(self.wanted - len(self.samples), len(keys))
        if samples_missing > 0:
            first_places = np.arange(samples_missing)
            self.samples += _samples(
                self.store, self.state, partition, keys.take(first_places), values.take(first_places)
            )


def _scan_store(checkpoint: Checkpoint, store: Store, scans: Sequence[_StateScan]) -> None:
    """Scan a store once for all its states, until each state has enough entries."""
    by_name = {scan.state.name: scan for scan in scans}
    as_rows = {
        scan.state.name: scan.state.descriptor for scan in scans if scan.state.descriptor and not scan.state.opaque
    }
    state_store = open_state_store(checkpoint)
    for number in store.partitions:
        partition = partition_of(checkpoint, state_store, store, number)
        with partition.locate(), contextlib.closing(partition.scan(checkpoint.files, as_rows)) as batches:
            for batch, _ in batches:
                scan_of_state = by_name.get(batch.state)
                if scan_of_state is None:
                    continue
                scan_of_state.add(number, batch)
                if all(len(scan.samples) >= scan.wanted for scan in scans):
                    return
    for scan in scans:
        scan.state.entries = scan.count


def _samples(
    store: Store, state: StateInspection, partition: int, key_rows: Rows, value_rows: Rows
) -> list[dict[str, Any]]:
    place = {"operator": store.operator, "store": store.name, "state": state.name, "partition": partition}
    if state.descriptor is None or state.opaque:
        raw = zip(key_rows.to_arrow().to_pylist(), value_rows.to_arrow().to_pylist(), strict=True)
        return [{**place, "key": key.hex(), "value": value.hex()} for key, value in raw]
    entries = StateEntries.of(replace(state.descriptor, partition=partition), key_rows, value_rows)
    decoded_entries = zip(to_json_values(entries.key_structs), to_json_values(entries.value_structs), strict=True)
    return [{**place, **show_entry(state.descriptor, key, value)} for key, value in decoded_entries]
