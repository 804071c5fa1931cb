"""The work of ``inspect --sizes`` and ``--age`` on each partition, as plain data, and its result.

A partition is read once, in batches. What is kept of it does not grow with its entries, except the counts of rows by
key (see ``rows_by_key``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ttlsnap.clock import Clock
from ttlsnap.compaction.task import Progress
from ttlsnap.documents import Document, in_json
from ttlsnap.engines.local import PartitionReading
from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.operators.showing import show_key
from ttlsnap.reading.ages import AgeField, Ages
from ttlsnap.reading.distribution import Distribution
from ttlsnap.reading.rows_by_key import KeyCount, RowsByKey, has_many_rows
from ttlsnap.reading.times import FieldTimes
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.protocols import EntryBatch, StoredSizes
from ttlsnap.transform.chain import StateTransformers
from ttlsnap.transform.protocols import TransformerFactory
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.history import History, WrittenTimes


@dataclass(frozen=True)
class StateWork:
    """The work on one state: ``state`` is None if the checkpoint has no schema for it.

    ``rules`` would drop some of its entries, at the time of ``clock``. Without ``sizes``, entries are only counted, by
    their ages as well. ``most`` is how many of the largest entries and keys the result has. ``times`` are the fields
    that can hold a time; None if nothing can expire.
    """

    name: str
    state: StateDescriptor | None
    age: AgeField | None
    rules: tuple[TransformerFactory, ...]
    clock: Clock
    sizes: bool
    most: int
    times: tuple[FieldTimes, ...] | None = None


@dataclass(frozen=True)
class MeasuringTask(PartitionReading):
    """The partition ``source``, whose states are measured. ``history`` says when entries were written, if needed."""

    states: tuple[StateWork, ...]
    history: History | None = None


@dataclass(frozen=True)
class LargeEntry(Document):
    """One of the largest entries: its key as ``inspect`` shows it, and the bytes as stored.

    ``bytes`` are those of key and value. The elements of a list share its key, so theirs are those of the value alone.
    """

    JSON_ORDER = "partition key bytes"

    partition: int
    key: dict[str, Any] = field(metadata=in_json(inline=True))
    key_bytes: int
    value_bytes: int
    bytes: int


@dataclass(frozen=True)
class KeyWithRows(Document):
    """A key with many rows: the columns by which the query groups, as JSON, and the bytes of all its rows."""

    partition: int
    key: Any
    rows: int
    bytes: int


@dataclass(frozen=True)
class Freed:
    """What a rule would drop: its entries, and their bytes as stored."""

    entries: int = 0
    bytes: int = 0

    def __add__(self, added: Freed) -> Freed:
        return Freed(self.entries + added.entries, self.bytes + added.bytes)


@dataclass(frozen=True)
class StatePart:
    """The sizes of a state in one partition, in bytes as stored; ``stored_keys`` counts a list once.

    ``with_rows`` is None if each key of the state has one entry; ``ages`` and ``freed`` if they were not counted.
    ``times`` are those of the fields that can hold a time.
    """

    partition: int
    entries: int
    stored_keys: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    keys: Distribution = field(default_factory=Distribution)
    values: Distribution = field(default_factory=Distribution)
    largest: tuple[LargeEntry, ...] = ()
    with_rows: tuple[KeyWithRows, ...] | None = None
    ages: Ages | None = None
    freed: Freed | None = None
    times: tuple[FieldTimes, ...] = ()

    @property
    def bytes(self) -> int:
        """The bytes of keys and values."""
        return self.key_bytes + self.value_bytes


def measure_partition(task: MeasuringTask, progress: Progress) -> list[StatePart]:
    """Return the sizes of each state of a task in its partition. Raise CorruptionError for damage."""
    as_rows = {work.name: work.state for work in task.states if work.state is not None and not work.state.opaque}
    only_state = task.states[0].name if len(task.states) == 1 else None
    files, source = open_for_reading(task.root), task.source
    times: dict[str, WrittenTimes] = {}
    if task.history is not None:
        times = task.history.times(files, source.state_store, source.lineage, as_rows)
    scans = {work.name: _StateScan(work, source.partition, times.get(work.name)) for work in task.states}

    with source.locate():
        with contextlib.closing(source.scan(files, as_rows, only=only_state)) as batches:
            for batch, _ in batches:
                scan = scans.get(batch.state)
                if scan is not None:
                    scan.add(batch)
                    progress(len(batch), 0)
        return [scan.result() for scan in scans.values()]


class _StateScan:
    """The scan of one state in one partition."""

    def __init__(self, work: StateWork, partition: int, times: WrittenTimes | None) -> None:
        self._work, self._partition, self._times = work, partition, times
        state = work.state
        self._state = replace(state, partition=partition) if state is not None else None
        self._ages = Ages(work.age) if work.age is not None else None
        self._keys, self._values = Distribution(), Distribution()
        self._largest = Largest(work.most)
        self._by_key = (
            RowsByKey(state, work.most) if state is not None and work.sizes and has_many_rows(state) else None
        )
        self._rules: StateTransformers[RowEntries] | None = None
        if self._state is not None and work.rules:
            self._rules = StateTransformers(self._state, work.rules, work.clock)
        self._entries = self._stored_keys = self._key_bytes = self._value_bytes = 0
        self._freed = Freed()
        self._fields = tuple(replace(times) for times in work.times or ())

    def add(self, batch: EntryBatch) -> None:
        self._entries += len(batch)
        sizes = batch.sizes if self._work.sizes else None
        weights = None
        if sizes is not None:
            self._stored_keys += len(sizes.keys)
            self._key_bytes += int(sizes.keys.sum())
            self._value_bytes += int(sizes.records.sum())
            self._keys.add(sizes.keys)
            self._values.add(sizes.values)
            weights = sizes.keys + sizes.values if sizes.owner is None else sizes.values
            self._largest.add(batch.keys, sizes, weights)
            if self._by_key is not None:
                rows = np.ones(len(sizes.keys), np.int64)
                if sizes.owner is not None:
                    rows = np.bincount(sizes.owner, minlength=len(rows))
                self._by_key.add(batch.stored[2], rows, sizes.keys + sizes.records)
        if self._state is None or (self._ages is None and self._rules is None and not self._fields):
            return
        entries = StateEntries.of(self._state, batch.keys, batch.values, self._times)
        if self._ages is not None:
            self._ages.add(entries, weights)
        for times in self._fields:
            times.add(entries)
        if self._rules is not None and sizes is not None:
            self._freed += _freed(len(batch), self._rules.run(entries), sizes)

    def result(self) -> StatePart:
        with_rows = None
        if self._by_key is not None:
            with_rows = self._show_keys(self._by_key.result())
        return StatePart(
            self._partition,
            self._entries,
            self._stored_keys,
            self._key_bytes,
            self._value_bytes,
            self._keys,
            self._values,
            tuple(self._show_largest()),
            with_rows,
            self._ages,
            self._freed if self._rules is not None else None,
            self._fields,
        )

    def _show_largest(self) -> list[LargeEntry]:
        largest_entries = self._largest.found
        shown_keys = self._decode([key for key, *_ in largest_entries])
        return [
            LargeEntry(self._partition, key, *sizes)
            for key, (_, *sizes) in zip(shown_keys, largest_entries, strict=True)
        ]

    def _show_keys(self, key_counts: Sequence[KeyCount]) -> tuple[KeyWithRows, ...]:
        assert self._state is not None
        shown_keys = [shown_entry["key"] for shown_entry in self._decode([key_count.key for key_count in key_counts])]
        if self._state.grouping_without_last and self._state.kind != "row":
            shown_keys = [{name: key[name] for name in [*key][:-1]} for key in shown_keys]
        keys_and_counts = zip(shown_keys, key_counts, strict=True)
        return tuple(
            KeyWithRows(self._partition, key, key_count.rows, key_count.bytes) for key, key_count in keys_and_counts
        )

    def _decode(self, keys: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the keys of these rows as ``inspect`` shows them."""
        state = self._state
        if not keys:
            return []  # to decode even nothing makes Arrow import pandas, if that is installed
        if state is None or state.opaque:
            return [{"key": key.hex()} for key in keys]
        return [show_key(state, key) for key in to_json_values(decode(Rows.of(keys), state.key_schema))]


class Largest:
    """The largest entries of a state in a partition, up to ``most``, the largest first.

    Each has the row of its key, the bytes of the key and of the value, and those by which entries are compared.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.found: list[tuple[bytes, int, int, int]] = []

    def add(self, keys: Rows, sizes: StoredSizes, weights: Int64s) -> None:
        """Add the entries of a batch."""
        candidates = np.arange(len(weights))
        if len(self.found) == self._limit:
            candidates = np.flatnonzero(weights > self.found[-1][3])
        if not len(candidates):
            return
        for place in candidates[np.argsort(-weights[candidates], kind="stable")[: self._limit]].tolist():
            key_size = int(sizes.keys[place if sizes.owner is None else sizes.owner[place]])
            self.found.append((keys.piece(place), key_size, int(sizes.values[place]), int(weights[place])))
        self.found = sorted(self.found, key=lambda entry: -entry[3])[: self._limit]


def _freed(count: int, kept: RowEntries, sizes: StoredSizes) -> Freed:
    """Return what was dropped of ``count`` entries. The key of a list counts if all of its elements are dropped."""
    if len(kept) == count:
        return Freed()
    dropped = np.ones(count, np.bool_)
    dropped[kept.index] = False
    size = int(sizes.values[dropped].sum())
    if sizes.owner is None:
        size += int(sizes.keys[dropped].sum())
    else:
        values_left = np.bincount(sizes.owner[~dropped], minlength=len(sizes.keys))
        size += int(sizes.keys[values_left == 0].sum())
    return Freed(count - len(kept), size)
