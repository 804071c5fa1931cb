"""Scans for ``inspect``: a few decoded entries, and how old all of them are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.clock import Clock, TimeCharacteristic, iso
from ttlsnap.entries import StateEntries
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.rendering import to_json_values
from ttlsnap.stores import Batch, lineage_of, state_store
from ttlsnap.timestamps import TimestampField, field_listing, split_unit, timestamp_field
from ttlsnap.unsaferow.rows import Rows

if TYPE_CHECKING:
    from ttlsnap.inspection import Inspection, StateInspection

_HOUR = 3_600_000_000
AGES = {"1h": _HOUR, "6h": 6 * _HOUR, "1d": 24 * _HOUR, "3d": 72 * _HOUR, "7d": 168 * _HOUR, "30d": 720 * _HOUR,
        "90d": 2_160 * _HOUR, "365d": 8_760 * _HOUR}  # fmt: skip


def scan(found: Inspection, entries: int, timestamp: str | None, age: bool, clock: Clock) -> list[dict[str, Any]]:
    """Decode up to ``entries`` entries of each state, and with ``age`` count all and fill in the histograms.

    Raises UnsupportedError for a provider or a store that cannot be read entry by entry.
    """
    checkpoint = found.checkpoint
    samples: list[dict[str, Any]] = []
    aged = 0
    for _, stores in found.operators:
        for store, states in stores:
            for state in states:
                histogram = _histogram(state, timestamp, clock) if age else None
                aged += histogram is not None
                if age and histogram is None and state.descriptor is not None:
                    state.problem = "no ages: Spark stores no timestamp here" + (
                        f", and there is no field {split_unit(timestamp)[0]}"
                        if timestamp
                        else "; name one with --timestamp"
                    )
                samples += _scan_store(checkpoint, store, state, entries, histogram, complete=age)
    if age and not aged and timestamp is not None:
        described = [
            s.descriptor for _, stores in found.operators for _, states in stores for s in states if s.descriptor
        ]
        raise UsageError(
            f"no state has the field {split_unit(timestamp)[0]}.\nThe fields there are:\n{field_listing(described)}"
        )
    return samples


def _scan_store(
    checkpoint: Checkpoint,
    store: Store,
    state: StateInspection,
    wanted: int,
    histogram: _Histogram | None,
    complete: bool,
) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    count = 0
    for partition, batch in _batches(checkpoint, store, state):
        count += len(batch.keys)
        try:
            if len(samples) < wanted:
                head = np.arange(min(wanted - len(samples), len(batch.keys)))
                samples += _samples(store, state, partition, batch.keys.take(head), batch.values.take(head))
            if histogram is not None and state.descriptor is not None:
                histogram.add(StateEntries.of(state.descriptor, batch.keys, batch.values))
        except CorruptionError as error:
            where = f"{checkpoint.target}/{store.directory(partition)}, version {checkpoint.version}"
            raise CorruptionError(f"{where}: {error}") from error
        if not complete and len(samples) >= wanted:
            return samples
    state.entries = count
    state.age = histogram.to_json() if histogram is not None else None
    return samples


def _batches(checkpoint: Checkpoint, store: Store, state: StateInspection) -> Iterator[tuple[int, Batch]]:
    files = state_store(checkpoint)
    for partition in store.partitions:
        lineage = lineage_of(checkpoint, files, store, partition)
        with files.open(checkpoint.files, lineage, None) as stored:
            for batch in stored.batches(() if state.opaque else (state.name,)):
                if len(batch.keys) and batch.state == state.name:
                    yield partition, batch


def _samples(
    store: Store, state: StateInspection, partition: int, key_rows: Rows, value_rows: Rows
) -> list[dict[str, Any]]:
    if state.descriptor is None or state.opaque:
        keys: list[Any] = [value.hex() for value in key_rows.to_arrow().to_pylist()]
        values: list[Any] = [value.hex() for value in value_rows.to_arrow().to_pylist()]
    else:
        entries = StateEntries.of(replace(state.descriptor, partition=partition), key_rows, value_rows)
        keys, values = to_json_values(entries.key_structs), to_json_values(entries.value_structs)
    return [
        {
            "operator": store.operator,
            "store": store.name,
            "state": state.name,
            "partition": partition,
            "key": key,
            "value": value,
        }
        for key, value in zip(keys, values, strict=True)
    ]


class _Histogram:
    """Entries by age: each bucket has those older than the one before and not older than its own bound."""

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
        # Python's bound of years keeps the difference inside int64: what is older is simply oldest.
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


def _histogram(state: StateInspection, timestamp: str | None, clock: Clock) -> _Histogram | None:
    """The histogram of a state; None where it has no such field, or Spark stores no timestamp."""
    descriptor = state.descriptor
    name = timestamp or (descriptor.stored_timestamp if descriptor else None)
    if descriptor is None or descriptor.opaque or name is None or descriptor.field(split_unit(name)[0]) is None:
        return None
    stored = descriptor.stored_time if name == descriptor.stored_timestamp else None
    return _Histogram(
        timestamp_field(descriptor, name),
        clock.now(TimeCharacteristic(stored or TimeCharacteristic.PROCESSING)),
    )
