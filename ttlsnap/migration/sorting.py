"""The sorting of an old partition's entries by their new partitions, as they are or after transformers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ttlsnap.engines.proof import Fingerprint, Sent
from ttlsnap.engines.spill import SpillWriter
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError
from ttlsnap.migration.evolution import StateEvolution
from ttlsnap.migration.evolving import converted_values, evolve_keys, evolve_values
from ttlsnap.migration.expiry import with_expiry, without_expiry
from ttlsnap.migration.struct_changes import Misfits
from ttlsnap.migration.times import KeptStates, MovingTimes
from ttlsnap.operators.join_rows import keys_with_times
from ttlsnap.operators.placement import PlacementCheck, hash_keys
from ttlsnap.operators.transform_with_state import UNUSED, derived_of, user_part
from ttlsnap.operators.variables import keys_by_time
from ttlsnap.quoting import quote
from ttlsnap.stores.convert import convert, with_keys, with_values
from ttlsnap.stores.families import NO_FAMILY_CHANGES, FamilyChanges
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import EntryBatch, Renumbering, StateStore, StoredPartition, Written
from ttlsnap.transform.converters import ConvertsValues
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.murmur3 import partitions_of
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows, null_rows
from ttlsnap.written.ledger import Hashes

GONE = " (gone)"
"""Marks the states in ``misfits`` that the new query does not have."""

ENOUGH = 64
"""Different hashes of a partition's keys that are counted."""


@dataclass(frozen=True)
class OldPartition:
    """An old ``partition`` of the store ``name`` with ``before`` of them, to be split into ``partitions`` new ones.

    These are the targets from number ``first``. ``states`` are the old ones, and ``new_states`` the new ones.
    ``evolutions`` has the changes of those whose schema changes, and ``families`` those of the column families.
    ``kept`` are the states whose times go to the targets from number ``ledgers``; None if there are none.
    """

    where: str
    name: str
    partition: int
    before: int
    partitions: int
    first: int
    states: tuple[StateDescriptor, ...]
    new_states: tuple[StateDescriptor, ...]
    lineage: Lineage
    evolutions: tuple[StateEvolution, ...] = ()
    families: FamilyChanges = NO_FAMILY_CHANGES
    kept: KeptStates | None = None
    ledgers: int | None = None


@dataclass(frozen=True)
class Split:
    """The result for an ``OldPartition``: the entries that it has ``sent`` to the new ones.

    ``first``, ``name`` and ``partition`` are those of the ``OldPartition``.
    ``families`` are the column families by their ids. ``misplaced`` counts the keys that are not where Spark's hash
    puts them, and ``example`` describes one. ``hashes`` is how many different hashes the keys have, at most ``ENOUGH``.
    ``misfits`` counts the values that do not fit their new types, by their places. ``expired`` counts the entries that
    were dropped because they have expired, and ``unused`` those of unused states that go, by their states.
    """

    first: int
    name: str
    partition: int
    sent: Sent
    families: Mapping[int, str]
    misplaced: int
    example: str
    hashes: int
    misfits: Mapping[str, int] = field(default_factory=dict)
    expired: Mapping[str, int] = field(default_factory=dict)
    unused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Converted:
    """Entries as the new store has them.

    ``rows`` are the keys in the old schema of the state ``of``, to which the entries belong or from which they are
    derived; ``new_rows`` are the same keys in the new schema, if it is another one. Entries that are not derived are
    those of ``state``, and it knows them by the keys ``state_rows``.
    """

    of: str
    keys: Rows
    values: Rows
    rows: Rows
    new_rows: Rows | None
    state: str | None = None
    state_rows: Rows | None = None


class Converter:
    """The conversion of the entries of ``old_partition`` from one store to another, and to new schemas.

    ``states`` are the old states by name, and ``new_states`` the new ones by the old names. ``misfits`` counts the
    values that do not fit their new types, by place, ``expired`` the entries that have expired, by state, and
    ``unused`` those of the unused states that go.
    ``families`` are the partition's column families by their ids; they must be set if keys have ids.
    """

    def __init__(self, old_partition: OldPartition, source: StateStore, target: StateStore) -> None:
        self._old_partition, self._source, self._target = old_partition, source, target
        self.states = {state.state: state for state in old_partition.states}
        self._evolutions = {evolution.state: evolution for evolution in old_partition.evolutions}
        new_names = {evolution.state: evolution.new_name for evolution in old_partition.evolutions}
        self._by_name = {state.state: state for state in old_partition.new_states}
        kept_names = (name for name in self.states if name not in old_partition.families.removed)
        new_states = ((name, self._by_name.get(new_names.get(name, name))) for name in kept_names)
        self.new_states = {name: state for name, state in new_states if state is not None}
        self._derived = {name for evolution in old_partition.evolutions for name in evolution.derived}
        self.families: Mapping[int, str] = {}
        self.misfits: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.unused: Counter[str] = Counter()

    def convert(self, batch: EntryBatch) -> Iterator[Converted]:
        """Yield the entries of a batch with rows as the new store has them, and those that are derived from them.

        Entries of a state that the new query does not have are counted in ``misfits``, or in ``unused`` if the old one
        does not have it either. Raise UnsupportedError for a state that was not planned.
        """
        state = self.states.get(batch.state)
        if state is None:
            raise UnsupportedError(f"{self._old_partition.where}: the state {batch.state!r} is not in the schema")
        if batch.state in self._derived or not len(batch):
            return
        if state.kind == UNUSED:
            raise UnsupportedError(f"{self._old_partition.where}: {state} has entries, although {state.opaque}")
        new_state, evolution = self.new_states.get(batch.state), self._evolutions.get(batch.state)
        if new_state is None:
            place = f"{state.operator}.{state.store}.{state.state}"
            if state.unused:
                self.unused[place] += len(batch)
            else:
                self.misfits[f"{place}{GONE}"] += len(batch)
            return
        if evolution is None:
            yield self._as_it_is(batch, new_state)
            return
        if evolution.changes_bytes and state.opaque:
            raise UnsupportedError(f"{self._old_partition.where}: {state}: {state.opaque}")
        count_misfits, times = self._counter(evolution), None
        if evolution.expiry is not None:
            values, times, kept_entries, missing_births = evolution.expiry.apply(
                StateEntries.of(state, batch.keys, batch.values)
            )
            if missing_births:
                count_misfits("birth", missing_births)
            self.expired[str(evolution)] += len(batch) - len(kept_entries)
            rows = evolve_values(evolution, user_part(state) or state.value_schema, values, count_misfits)
            rows = with_expiry(rows, times) if evolution.expiry.has else rows
            batch = with_values(batch, self._source, new_state, rows, kept_entries)
        elif evolution.converter is not None:
            rows = self._converted(evolution.converter, state, new_state, batch, count_misfits)
            batch = with_values(batch, self._source, new_state, rows)
        elif evolution.value is not None or state.avro is not None:
            rows = evolve_values(evolution, state.value_schema, batch.values, count_misfits)
            batch = with_values(batch, self._source, new_state, rows)
        if not len(batch):
            return
        if evolution.new_store is not None:
            yield from self._moved(batch, state, new_state, evolution)
            return
        if evolution.key is None:
            yield self._as_it_is(batch, new_state)
            new_rows = None
        else:
            new_rows = evolve_keys(evolution, state.key_schema, batch.keys, count_misfits)
            stored_entries = with_keys(batch, self._target, new_state, new_rows, self._family(new_state.state))
            first_keys = new_rows.take(_firsts(batch))
            yield Converted(batch.state, *stored_entries, batch.stored[2], first_keys, new_state.state, first_keys)
        if evolution.expiry is not None:
            kinds = derived_of(new_state.state, has_ttl=evolution.expiry.has)
            for name in evolution.made:
                yield self._derive(batch, self._by_name[name], kinds[name], times, new_rows)

    @staticmethod
    def _converted(
        converter: ConvertsValues,
        state: StateDescriptor,
        new_state: StateDescriptor,
        batch: EntryBatch,
        count_misfits: Misfits,
    ) -> Rows:
        """Return the values that a user's code gives. It does not see the expiry times of a variable, which stay."""
        values, times, schema = batch.values, None, new_state.value_schema
        if (user_schema := user_part(state)) is not None and (new_user_schema := user_part(new_state)) is not None:
            values, times = without_expiry(values)
            state, schema = replace(state, value_schema=user_schema, stored_timestamp=None), new_user_schema
        rows = converted_values(converter, StateEntries.of(state, batch.keys, values), schema, count_misfits)
        return rows if times is None else with_expiry(rows, times)

    def _as_it_is(self, batch: EntryBatch, new_state: StateDescriptor) -> Converted:
        stored_entries = convert(batch, self._source, self._target, new_state, self._old_partition.where)
        return Converted(batch.state, *stored_entries, batch.stored[2], None, new_state.state, batch.stored[2])

    def _moved(
        self, batch: EntryBatch, state: StateDescriptor, new_state: StateDescriptor, evolution: StateEvolution
    ) -> Iterator[Converted]:
        """Yield the entries of a join as another store keeps them; those with their times as keys, and their index."""
        if not evolution.timed:
            family = self._family(new_state.state)
            stored_entries = self._target.encode(new_state, batch.keys, batch.values, family=family)
            yield Converted(batch.state, *stored_entries, batch.stored[2], None, new_state.state, batch.stored[2])
            return
        owner = np.arange(len(batch))
        keys = keys_with_times(state, batch.keys, batch.values, evolution.new_value)
        for name, values in ((new_state.state, batch.values), (evolution.made[0], null_rows(len(batch)))):
            stored_entries = self._target.encode(
                self._by_name[name], keys, values, family=self._family(name), owner=owner
            )
            state_and_rows = (name, keys) if name == new_state.state else (None, None)
            yield Converted(batch.state, *stored_entries, batch.stored[2], None, *state_and_rows)

    def _derive(
        self, batch: EntryBatch, state: StateDescriptor, kind: str, times: Int64s | None, new_rows: Rows | None
    ) -> Converted:
        """Return the entries of a ``state`` that Spark keeps beside the elements of a variable, one for each key."""
        first_entries = _firsts(batch)
        rows, keys = (
            batch.stored[2],
            batch.keys.take(first_entries) if new_rows is None else new_rows.take(first_entries),
        )
        if kind == "count":
            numbers = np.diff(first_entries, append=len(batch))
        else:
            assert times is not None
            numbers = np.minimum.reduceat(times, first_entries)
        values = long_rows(numbers)
        if kind == "index":
            keys, values = keys_by_time(state, numbers, keys), null_rows(len(first_entries))
        stored_entries = self._target.encode(state, keys, values, family=self._family(state.state))
        return Converted(batch.state, *stored_entries, rows, None if new_rows is None else new_rows.take(first_entries))

    def _family(self, name: str) -> int | None:
        """Return the id of a column family, given by its new name; None if keys have no ids."""
        ids = self._old_partition.families.ids({family: number for number, family in self.families.items()})
        return ids[name] if ids else None

    def _counter(self, evolution: StateEvolution) -> Misfits:
        def count(field: str, number: int) -> None:
            self.misfits[f"{evolution}.{field}"] += number

        return count


def _firsts(batch: EntryBatch) -> Int64s:
    """Return the first entry of each stored key: of each list, or each entry."""
    elements = getattr(batch, "elements", None)
    return np.arange(len(batch)) if elements is None else np.unique(elements.owner, return_index=True)[1]


def times_of(converted: Converted, times: MovingTimes) -> tuple[str, tuple[Hashes, Int64s, Mask]] | None:
    """Return the new state of entries, the hashes of their new keys, and their times; None if these are not kept."""
    if converted.state is None or converted.state_rows is None:
        return None
    times_of_keys = times.of(converted.of, converted.rows, converted.state, converted.state_rows)
    return None if times_of_keys is None else (converted.state, times_of_keys)


class Sorter:
    """The sorter of ``old_partition``'s entries, from one store for another, into ``spill``, and of their ``times``.

    ``states`` are the old states by name. The partition's ``families`` must be set; see ``Converter``.
    """

    def __init__(
        self,
        old_partition: OldPartition,
        source: StateStore,
        target: StateStore,
        spill: SpillWriter,
        times: MovingTimes,
        spill_of_times: SpillWriter | None,
    ) -> None:
        self._old_partition, self.converter, self._spill = (
            old_partition,
            Converter(old_partition, source, target),
            spill,
        )
        self._times, self._spill_of_times = times, spill_of_times
        self.states = self.converter.states
        self._checks: dict[str, PlacementCheck] = {}
        self._fingerprint = Fingerprint()
        self._hashes: set[int] = set()

    def add(self, batch: EntryBatch) -> None:
        """Add entries, which have their rows. Raise UnsupportedError for a state that was not planned."""
        for converted in self.converter.convert(batch):
            place = self._place(converted)
            self._spill.add(converted.keys, converted.values, place)
            if self._spill_of_times is not None and (moved_times := times_of(converted, self._times)) is not None:
                state, times = moved_times
                self._spill_of_times.add(*self._times.as_entries(state, *times), place)
            self._fingerprint.add(converted.keys, converted.values)

    def _place(self, converted: Converted) -> Int64s:
        """Return the new partition of each stored key, and check its old one."""
        old_partition, state, rows = self._old_partition, self.states[converted.of], converted.rows
        if old_partition.partitions == old_partition.before and converted.new_rows is None:
            return np.full(len(rows), old_partition.partition)
        hashes = hash_keys(state, rows)
        if len(self._hashes) < ENOUGH:
            self._hashes.update(np.unique(hashes)[:ENOUGH].tolist())
        if bool((partitions_of(hashes, old_partition.before) != old_partition.partition).any()):
            check = self._checks.setdefault(
                state.state, PlacementCheck(state, old_partition.partition, old_partition.before)
            )
            check.look(rows)
        if converted.new_rows is not None:
            hashes = hash_keys(self.converter.new_states[converted.of], converted.new_rows)
        return partitions_of(hashes, old_partition.partitions)

    def finish(self) -> Split:
        """Complete the spills."""
        self._spill.finish()
        if self._spill_of_times is not None:
            self._spill_of_times.finish()
        misplaced = [keys for keys in (check.result() for check in self._checks.values()) if keys is not None]
        example = ""
        if misplaced:
            first_misplaced = misplaced[0]
            places_text = (
                f" is in partition {first_misplaced.partition}, and belongs to partition {first_misplaced.belongs_to}"
            )
            example = quote(first_misplaced.example) + places_text
        return Split(
            self._old_partition.first,
            self._old_partition.name,
            self._old_partition.partition,
            Sent(tuple(self._spill.entries.tolist()), self._fingerprint),
            self.converter.families,
            sum(keys.count for keys in misplaced),
            example,
            min(len(self._hashes), ENOUGH),
            dict(self.converter.misfits),
            dict(self.converter.expired),
            dict(self.converter.unused),
        )


@dataclass(frozen=True)
class SortingSink:
    """The sink that gives what a compaction keeps to ``sorters``, one for each store, by name. See ``EntrySink``."""

    sorters: Mapping[str, Sorter]

    def needs_rows_of(self, store: StorePartition) -> Mapping[str, StateDescriptor]:
        """See ``EntrySink.needs_rows_of``: all states, because rows are placed."""
        return self.sorters[store.name].states

    def writer(
        self,
        store: StorePartition,
        partition: StoredPartition,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> _SortingWriter:
        """See ``EntrySink.writer``."""
        sorter = self.sorters[store.name]
        sorter.converter.families = dict(partition.families)
        return _SortingWriter(partition, sorter, states, moves)


class _SortingWriter:
    """See ``SnapshotWriter``."""

    def __init__(
        self,
        partition: StoredPartition,
        sorter: Sorter,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
    ) -> None:
        self._partition, self._sorter, self._states, self._moves = partition, sorter, states, moves

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def keep(self, batch: EntryBatch) -> None:
        """See ``SnapshotWriter.keep``."""
        self._sorter.add(batch)

    def change(self, batch: EntryBatch, kept: Int64s, rewritten: Mask, values: Rows) -> None:
        """See ``SnapshotWriter.change``."""
        if len(kept):
            self._sorter.add(self._partition.change(batch, self._sorter.states[batch.state], kept, rewritten, values))

    def finish(self) -> Written:
        """See ``SnapshotWriter.finish``; there are no files yet."""
        for batch in self._partition.moved(self._states, self._moves):
            self._sorter.add(batch)
        return Written((), 0)
