"""The sorting of an old partition's entries by their new partitions, as they are or after transformers."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError
from ttlsnap.evolution.changes import Misfits
from ttlsnap.evolution.model import StateEvolution
from ttlsnap.evolution.work import evolve_keys, evolve_values
from ttlsnap.migration.fingerprint import add, fingerprint
from ttlsnap.migration.spill import SpillWriter
from ttlsnap.operators.placement import PlacementCheck, hash_keys
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.convert import convert, with_values
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import (
    EntryBatch,
    Moves,
    RewriteChoice,
    Staging,
    StateStore,
    StoredPartition,
    Written,
)
from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.murmur3 import partitions_of
from ttlsnap.unsaferow.rows import Rows

ENOUGH = 64
"""Different hashes of a partition's keys that are counted."""


@dataclass(frozen=True)
class OldPartition:
    """An old ``partition`` of a store with ``before`` of them, to be split into ``partitions`` new ones.

    These are the targets from number ``first``. ``states`` are the old ones, and ``new_states`` the new ones, in the
    same order. ``evolutions`` has the changes of those whose schema changes.
    """

    where: str
    partition: int
    before: int
    partitions: int
    first: int
    states: tuple[StateDescriptor, ...]
    new_states: tuple[StateDescriptor, ...]
    lineage: Lineage
    evolutions: tuple[StateEvolution, ...] = ()


@dataclass(frozen=True)
class Split:
    """The result for an ``OldPartition``: the entries of each new one, counted, and the fingerprint of all of them.

    ``first`` and ``partition`` are those of the ``OldPartition``.
    ``families`` are the column families by their ids. ``misplaced`` counts the keys that are not where Spark's hash
    puts them, and ``example`` describes one. ``hashes`` is how many different hashes the keys have, at most ``ENOUGH``.
    ``misfits`` counts the values that do not fit their new types, by their places.
    """

    first: int
    partition: int
    entries: tuple[int, ...]
    fingerprint: int
    families: Mapping[int, str]
    misplaced: int
    example: str
    hashes: int
    misfits: Mapping[str, int] = field(default_factory=dict)


class Converter:
    """The conversion of the entries of ``old`` from one store to another, and to new schemas.

    ``states`` are the old states by name. ``misfits`` counts the values that do not fit their new types, by place.
    """

    def __init__(self, old: OldPartition, source: StateStore, target: StateStore) -> None:
        self._old, self._source, self._target = old, source, target
        self.states = {state.state: state for state in old.states}
        self.new_states = {old.state: new for old, new in zip(old.states, old.new_states, strict=True)}
        self.misfits: Counter[str] = Counter()
        self._evolutions = {evolution.state: evolution for evolution in old.evolutions}

    def convert(self, batch: EntryBatch) -> tuple[Rows, Rows, Rows | None]:
        """Return the new stored keys and values of a batch with rows, and the rows of the keys if these change.

        Raise UnsupportedError for a state that was not planned.
        """
        state = self.states.get(batch.state)
        if state is None:
            raise UnsupportedError(f"{self._old.where}: the state {batch.state!r} is not in the schema")
        new_state, evolution = self.new_states[batch.state], self._evolutions.get(batch.state)
        if evolution is not None and evolution.value is not None:
            rows = evolve_values(evolution, state.value_schema, batch.values, self._counter(evolution))
            batch = with_values(batch, self._source, rows)
        if evolution is not None and evolution.key is not None:
            rows = evolve_keys(evolution, state.key_schema, batch.keys, self._counter(evolution))
            return *self._target.encode(new_state, rows, batch.values), rows
        return *convert(batch, self._source, self._target, new_state, self._old.where), None

    def _counter(self, evolution: StateEvolution) -> Misfits:
        def count(field: str, number: int) -> None:
            self.misfits[f"{evolution}.{field}"] += number

        return count


class Sorter:
    """The sorter of the entries of ``old``, from one store for another, into ``spill``.

    ``states`` are the old states by name, and ``families`` the partition's column families by their ids.
    """

    def __init__(self, old: OldPartition, source: StateStore, target: StateStore, spill: SpillWriter) -> None:
        self._old, self._converter, self._spill = old, Converter(old, source, target), spill
        self.states = self._converter.states
        self.families: Mapping[int, str] = {}
        self._checks: dict[str, PlacementCheck] = {}
        self._fingerprint = 0
        self._hashes: set[int] = set()

    def add(self, batch: EntryBatch) -> None:
        """Add entries, which have their rows. Raise UnsupportedError for a state that was not planned."""
        keys, values, new_rows = self._converter.convert(batch)
        self._spill.add(keys, values, self._place(batch, new_rows))
        self._fingerprint = add(self._fingerprint, fingerprint(keys, values))

    def _place(self, batch: EntryBatch, new_rows: Rows | None) -> Int64s:
        """Return the new partition of each stored key, and check its old one.

        ``new_rows`` are the keys if they change.
        """
        old, state, rows = self._old, self.states[batch.state], batch.stored[2]
        if old.partitions == old.before and new_rows is None:
            return np.full(len(rows), old.partition)
        hashes = hash_keys(state, rows)
        if len(self._hashes) < ENOUGH:
            self._hashes.update(np.unique(hashes)[:ENOUGH].tolist())
        if bool((partitions_of(hashes, old.before) != old.partition).any()):
            check = self._checks.setdefault(state.state, PlacementCheck(state, old.partition, old.before))
            check.look(rows)
        if new_rows is not None:
            hashes = hash_keys(self._converter.new_states[batch.state], new_rows)
        return partitions_of(hashes, old.partitions)

    def finish(self) -> Split:
        """Complete the spill."""
        self._spill.finish()
        misplaced = [found for found in (check.result() for check in self._checks.values()) if found is not None]
        example = ""
        if misplaced:
            first = misplaced[0]
            example = f"{first.example} is in partition {first.partition}, and belongs to partition {first.belongs_to}"
        return Split(
            self._old.first,
            self._old.partition,
            tuple(self._spill.entries.tolist()),
            self._fingerprint,
            self.families,
            sum(found.count for found in misplaced),
            example,
            min(len(self._hashes), ENOUGH),
            dict(self._converter.misfits),
        )


@dataclass(frozen=True)
class SortingStore:
    """A store whose partitions give what a compaction writes to ``sorters``, instead of writing a snapshot.

    There is a sorter for each partition, by the path of its new snapshot.
    """

    store: StateStore
    sorters: Mapping[str, Sorter]

    @contextlib.contextmanager
    def open(
        self, files: Directory, lineage: Lineage, scratch: str | None, *, keep_in_memory: bool = False
    ) -> Iterator[_SortingPartition]:
        """See ``StateStore.open``."""
        sorter = self.sorters[lineage.new_snapshot]
        with self.store.open(files, lineage, scratch, keep_in_memory=keep_in_memory) as partition:
            sorter.families = dict(partition.families)
            yield _SortingPartition(partition, sorter)


class _SortingPartition:
    """See ``StoredPartition``."""

    def __init__(self, partition: StoredPartition, sorter: Sorter) -> None:
        self._partition, self._sorter = partition, sorter
        self.families = partition.families
        self.change, self.moved = partition.change, partition.moved

    def batches(
        self, states: Mapping[str, StateDescriptor], only: str | None = None
    ) -> Generator[EntryBatch, None, None]:
        """See ``StoredPartition.batches``; the entries of all states have their rows."""
        return self._partition.batches({**self._sorter.states, **states}, only)

    def writer(
        self,
        staging: Staging | None,
        rewrite: RewriteChoice,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Moves],
        changes: int = 0,
    ) -> _SortingWriter:
        """See ``StoredPartition.writer``."""
        return _SortingWriter(self._partition, self._sorter, states, moves)


class _SortingWriter:
    """See ``SnapshotWriter``."""

    def __init__(
        self,
        partition: StoredPartition,
        sorter: Sorter,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Moves],
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
