"""Scans for ``inspect``: a few decoded entries, and the ages of all entries."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.clock import Clock, TimeCharacteristic, iso
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.entries.timestamps import TimestampField, field_listing, split_unit, timestamp_field
from ttlsnap.errors import UsageError
from ttlsnap.inspection.model import Inspection, StateInspection
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.operators.showing import show_entry
from ttlsnap.stores.open import lineage_of, open_state_store
from ttlsnap.stores.protocols import EntryBatch
from ttlsnap.stores.scan import check_batch, locate_errors, scan_partition
from ttlsnap.unsaferow.rows import Rows

_HOUR = 3_600_000_000
AGES = {"1h": _HOUR, "6h": 6 * _HOUR, "1d": 24 * _HOUR, "3d": 72 * _HOUR, "7d": 168 * _HOUR, "30d": 720 * _HOUR,
        "90d": 2_160 * _HOUR, "365d": 8_760 * _HOUR}  # fmt: skip


def scan(
    found: Inspection, entries: int, timestamp: str | None, age: bool, clock: Clock, selection: Selection | AnyOf
) -> list[dict[str, Any]]:
    """Decode up to ``entries`` entries of each state. With ``age``, count all entries and fill the histograms.

    Derived entries are omitted, unless the ``selection`` names their state. Raise UnsupportedError for a provider
    or a store that cannot be read entry by entry.
    """
    checkpoint = found.checkpoint
    samples: list[dict[str, Any]] = []
    aged = 0
    for _, stores in found.operators:
        for store, states in stores:
            histograms = [_histogram(state, timestamp, clock) if age else None for state in states]
            wanted = [entries if _is_wanted(s.descriptor, selection) else 0 for s in states]
            scans = [_StateScan(store, *each) for each in zip(states, histograms, wanted, strict=True)]
            for each in scans:
                aged += each.histogram is not None
                if age and each.histogram is None and each.state.descriptor is not None:
                    each.state.problem = "no ages: Spark stores no timestamp here" + (
                        f", and there is no field {split_unit(timestamp)[0]}"
                        if timestamp
                        else "; name one with --timestamp"
                    )
            _scan_store(checkpoint, store, scans, complete=age)
            samples += [found for each in scans for found in each.samples]
    if age and not aged and timestamp is not None:
        described = [state.descriptor for state in found.states() if state.descriptor]
        raise UsageError(
            f"no state has the field {split_unit(timestamp)[0]}.\nIts fields are:\n{field_listing(described)}"
        )
    return samples


def _is_wanted(state: StateDescriptor | None, selection: Selection | AnyOf) -> bool:
    return state is None or state.role == "primary" or selection.names(state)


class _StateScan:
    """The results of the scan of a store for one of its states."""

    def __init__(self, store: Store, state: StateInspection, histogram: Histogram | None, wanted: int) -> None:
        self.store, self.state, self.wanted, self.histogram = store, state, wanted, histogram
        self.samples: list[dict[str, Any]] = []
        self.count = 0

    def add(self, partition: int, batch: EntryBatch) -> None:
        keys, values = batch.keys, batch.values
        self.count += len(keys)
        missing = min(self.wanted - len(self.samples), len(keys))
        if missing > 0:
            head = np.arange(missing)
            self.samples += _samples(self.store, self.state, partition, keys.take(head), values.take(head))
        if self.histogram is not None and self.state.descriptor is not None:
            self.histogram.add(StateEntries.of(self.state.descriptor, keys, values))


def _scan_store(checkpoint: Checkpoint, store: Store, scans: Sequence[_StateScan], complete: bool) -> None:
    """Scan a store once for all its states; unless ``complete``, stop when each state has enough entries."""
    by_name = {each.state.name: each for each in scans}
    as_rows = {
        each.state.name: each.state.descriptor for each in scans if each.state.descriptor and not each.state.opaque
    }
    state_store = open_state_store(checkpoint)
    for partition in store.partitions:
        lineage = lineage_of(checkpoint, state_store, store, partition)

        where = f"{checkpoint.target}/{store.directory(partition)}, version {checkpoint.version}"

        def check(state: StateDescriptor, keys: Rows, values: Rows, where: str = where) -> None:
            with locate_errors(where):
                check_batch(state, keys, values)

        with (
            state_store.open(checkpoint.files, lineage, None) as stored,
            contextlib.closing(scan_partition(stored, as_rows, check=check)) as batches,
        ):
            for batch, _ in batches:
                mine = by_name.get(batch.state)
                if mine is None:
                    continue
                with locate_errors(where):
                    mine.add(partition, batch)
                if not complete and all(len(each.samples) >= each.wanted for each in scans):
                    return
    for each in scans:
        each.state.entries = each.count
        each.state.age = each.histogram.to_json() if each.histogram is not None else None


def _samples(
    store: Store, state: StateInspection, partition: int, key_rows: Rows, value_rows: Rows
) -> list[dict[str, Any]]:
    place = {"operator": store.operator, "store": store.name, "state": state.name, "partition": partition}
    if state.descriptor is None or state.opaque:
        raw = zip(key_rows.to_arrow().to_pylist(), value_rows.to_arrow().to_pylist(), strict=True)
        return [{**place, "key": key.hex(), "value": value.hex()} for key, value in raw]
    entries = StateEntries.of(replace(state.descriptor, partition=partition), key_rows, value_rows)
    decoded = zip(to_json_values(entries.key_structs), to_json_values(entries.value_structs), strict=True)
    return [{**place, **show_entry(state.descriptor, key, value)} for key, value in decoded]


class Histogram:
    """The number of entries by age: a bucket has those up to its own age and older than the bucket before."""

    def __init__(self, field: TimestampField, now: int) -> None:
        self._field, self._now = field, now
        self._bounds = np.array(list(AGES.values()))
        self._counts = np.zeros(len(AGES) + 1, np.int64)
        self._future = self._nulls = 0

    def add(self, entries: StateEntries) -> None:
        moments, nulls = self._field.read(entries)
        self._nulls += int(nulls.sum())
        known = moments[~nulls]
        self._future += int((known > self._now).sum())
        # The limit keeps the difference within int64; older entries are in the last bucket anyway.
        ages = self._now - np.maximum(known[known <= self._now], self._now - (1 << 62))
        self._counts += np.bincount(np.searchsorted(self._bounds, ages), minlength=len(self._counts))

    def to_json(self) -> dict[str, Any]:
        buckets = [{"up_to": name, "entries": int(n)} for name, n in zip(AGES, self._counts, strict=False)]
        return {
            "timestamp": self._field.field.name,
            "now": iso(self._now),
            "future": self._future,
            "buckets": buckets,
            "older": int(self._counts[-1]),
            "null": self._nulls,
        }


def _histogram(state: StateInspection, timestamp: str | None, clock: Clock) -> Histogram | None:
    """Return an empty histogram for a state; None if it lacks the field, or Spark stores no timestamp."""
    descriptor = state.descriptor
    name = timestamp or (descriptor.stored_timestamp if descriptor else None)
    if descriptor is None or descriptor.opaque or name is None or descriptor.field(split_unit(name)[0]) is None:
        return None
    stored = descriptor.stored_time if name == descriptor.stored_timestamp else None
    return Histogram(
        timestamp_field(descriptor, name),
        clock.now(TimeCharacteristic(stored or TimeCharacteristic.PROCESSING)),
    )
