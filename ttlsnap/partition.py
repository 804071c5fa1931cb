"""The work on one partition of a store, or of stores that hang together: scan, transform, stage, count what was staged.

``compact_partition`` is the one function that every engine runs, one partition at a time on one thread. It takes
and gives plain data, so that it can cross to another process or machine. Nothing is written but its own staged
files and scratch, and in a dry run nothing is left of either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from ttlsnap import errors
from ttlsnap.checkpoint import layout
from ttlsnap.clock import Clock
from ttlsnap.entries import Int64, RowEntries, StateEntries
from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError
from ttlsnap.expired.writing import ExpiredWriter, folder_of
from ttlsnap.filesystem import Directory, open_directory, open_for_reading, scratch_name
from ttlsnap.links import Decisions, Link, Outcome, Place
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Rewrite, RewriteChoice, StagedFile, Staging, StateStore, StoredPartition, Written
from ttlsnap.stores.lineage import Lineage
from ttlsnap.transform import StateSnapshotTransformerFactory
from ttlsnap.transforming import StateResult, StateTransformers
from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows

RowTransformers = StateTransformers[RowEntries]


@dataclass(frozen=True)
class StoreTask:
    """One store's part of a task.

    ``states`` are those of its states that a transformer may look at; the others are copied as they are, or follow.
    """

    name: str
    states: tuple[StateDescriptor, ...]
    lineage: Lineage


@dataclass(frozen=True)
class PartitionTask:
    """One partition to compact, of one store or of several that hang together by ``links``.

    New files are staged below ``staged_below`` in ``staging_root``; None in a dry run. ``scratch`` is the local folder
    for the work. ``expired_of`` is the run whose dropped entries are to be written down, None where they are not.
    """

    root: str
    operator: int
    partition: int
    stores: tuple[StoreTask, ...]
    state_store: StateStore
    factories: tuple[StateSnapshotTransformerFactory, ...]
    clock: Clock
    staging_root: str
    staged_below: str | None
    links: tuple[Link, ...] = ()
    rewrite: RewriteChoice = "auto"
    scratch: str | None = None
    expired_of: str | None = None

    def __str__(self) -> str:
        states = [state for store in self.stores for state in store.states]
        return str(states[0] if len(states) == 1 else replace(states[0], state="default"))

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(store.lineage.size for store in self.stores)

    @property
    def directory(self) -> str:
        """The partition's folder, that of the first store."""
        return f"{self.root}/{layout.store_directory(self.operator, self.partition, self.stores[0].name)}"


@dataclass(frozen=True)
class PartitionResult:
    """What became of one store's partition: counts of entries for each state, bytes on disk before and after.

    ``staged`` are the new files; None when nothing changed (the partition keeps its files) or in a dry run. ``rewrite``
    says how it was written, or would be. ``reused`` and ``superseded`` are as in ``Written``. ``expired`` is the file
    with what was dropped, of all stores of the task, beside the first of them, as is how many of these entries
    ``followed`` others.
    ``failure`` is an error's class name and message; the rest then means nothing.
    """

    operator: int
    store: str
    partition: int
    states: tuple[StateResult, ...] = ()
    bytes_before: int = 0
    bytes_after: int = 0
    staged: tuple[StagedFile, ...] | None = None
    rewrite: Rewrite | None = None
    reused: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    expired: StagedFile | None = None
    followed: int = 0
    failure: tuple[str, str] | None = None

    @property
    def entries(self) -> int:
        """All that was looked at."""
        return sum(state.entries for state in self.states)

    @property
    def dropped(self) -> int:
        """All that was dropped."""
        return sum(state.dropped for state in self.states)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for crossing to another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> PartitionResult:
        """The result that ``to_json`` made the document of."""
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        facts["states"] = tuple(StateResult.from_json(state) for state in facts["states"])
        if facts["staged"] is not None:
            facts["staged"] = tuple(StagedFile(**file) for file in facts["staged"])
        if facts["expired"] is not None:
            facts["expired"] = StagedFile(**facts["expired"])
        return cls(**facts)

    def raise_failure(self) -> None:
        """Raise the error that stopped the partition, if one did."""
        if self.failure is not None:
            kind = getattr(errors, self.failure[0], TtlsnapError)
            raise kind(self.failure[1])


PartitionResults = tuple[PartitionResult, ...]
"""A task's results, one for each of its stores."""

Progress = Callable[[int, int], None]
"""Told, as a partition is worked on, how many more entries were seen and how many of them dropped."""


def compact_partition(task: PartitionTask, progress: Progress | None = None) -> PartitionResults:
    """Compact one partition: a result for each store. An error of ttlsnap's comes back as one with a ``failure``."""
    try:
        return _compact(task, progress or (lambda entries, dropped: None))
    except TtlsnapError as error:
        message = str(error) if str(task) in str(error) else f"{task}: {error}"
        if isinstance(error, CorruptionError) and task.root not in message:
            message = f"{task.directory}, version {task.stores[0].lineage.version}: {message}"
        failure = type(error).__name__, message
    except MemoryError:
        message = (
            f"{task}: there is not enough memory for {task.directory}, whose {task.size:,} bytes on disk "
            "swell to more. Nothing was published. Try a smaller --parallelism, or a machine with more memory"
        )
        failure = TtlsnapError.__name__, message
    return (PartitionResult(task.operator, task.stores[0].name, task.partition, failure=failure),)


def _compact(task: PartitionTask, progress: Progress) -> PartitionResults:
    staging = None
    if task.staged_below is not None:
        staging = Staging(open_directory(task.staging_root), task.staged_below)
    with _archive(task) as archive:
        results = (
            _Linked(task, staging, progress, archive).run() if task.links else _alone(task, staging, progress, archive)
        )
    return (replace(results[0], expired=archive.file()), *results[1:]) if archive is not None else results


def _alone(
    task: PartitionTask, staging: Staging | None, progress: Progress, archive: _Archive | None
) -> PartitionResults:
    """The one store of a task."""
    (store,) = task.stores
    described = {state.state: state for state in store.states}
    states = {name: RowTransformers(state, task.factories, task.clock) for name, state in described.items()}
    with (
        task.state_store.open(open_for_reading(task.root), store.lineage, task.scratch) as partition,
        partition.writer(staging, task.rewrite, described, {}) as writer,
    ):
        for batch in partition.batches(described):
            transformers = states.get(batch.state)
            if transformers is None:
                writer.keep(batch)
                continue
            first = _entries(described[batch.state], batch.keys, batch.values)
            entries = transformers.run(first)
            if archive is not None:
                archive.add(transformers, first, entries)
            if len(entries) == len(batch) and not entries.rewritten.any():
                writer.keep(batch)
            else:
                writer.change(batch, entries.index, entries.rewritten, entries.values)
            progress(len(batch), len(batch) - len(entries))
        changed = any(state.changed for state in states.values())
        written = writer.finish() if changed else None
    return (_result(task, store, written, [state.result() for state in states.values()]),)


def _result(
    task: PartitionTask, store: StoreTask, written: Written | None, states: Sequence[StateResult]
) -> PartitionResult:
    size = store.lineage.size
    result = PartitionResult(task.operator, store.name, task.partition, tuple(states), size, size)
    if written is None:
        return result
    return replace(
        result,
        bytes_after=written.size,
        staged=written.files or None,
        rewrite=written.rewrite,
        reused=written.reused,
        superseded=written.superseded,
    )


class _Linked:
    """Stores that hang together: all of them are scanned and decided upon before one of them is written."""

    def __init__(
        self, task: PartitionTask, staging: Staging | None, progress: Progress, archive: _Archive | None
    ) -> None:
        self._task, self._staging, self._progress, self._archive = task, staging, progress, archive
        self._partitions: dict[str, StoredPartition] = {}
        self._places = {place: state for link in task.links for place, state in link.places.items()}
        self._places |= {state.place: state for store in task.stores for state in store.states}

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        source = open_for_reading(self._task.root)
        with contextlib.ExitStack() as stack:
            for store in self._task.stores:
                opened = self._task.state_store.open(source, store.lineage, self._task.scratch, again=True)
                self._partitions[store.name] = stack.enter_context(opened)
            yield

    def run(self) -> PartitionResults:
        task = self._task
        with self._open():
            deciders = {
                (store.name, state.state): RowTransformers(state, task.factories, task.clock)
                for store in task.stores
                for state in store.states
            }
            decided, outcomes = self._decide(deciders)
            final = dict(decided)
            for outcome in outcomes:
                final |= outcome.decisions
            followed = sum(self._write_down(outcome) for outcome in outcomes)
            results = []
            for store in task.stores:
                mine = {state: decision for (name, state), decision in final.items() if name == store.name}
                written = self._write(store.name, mine) if any(d.changes for d in mine.values()) else None
                results.append(_result(task, store, written, self._states(store.name, deciders, final, outcomes)))
        return (replace(results[0], followed=followed), *results[1:])

    def _decide(self, deciders: Mapping[Place, RowTransformers]) -> tuple[dict[Place, Decisions], list[Outcome]]:
        """Scan everything once: what the transformers make of it, and what follows."""
        task = self._task
        works = [(link, link.begin(task.directory)) for link in task.links]
        parts: dict[Place, list[Decisions]] = {place: [] for place in deciders}
        for name, partition in self._partitions.items():
            for batch in partition.batches({p[1]: state for p, state in self._places.items() if p[0] == name}):
                place = name, batch.state
                if place not in self._places:
                    continue
                keys, values = batch.keys, batch.values
                if place in deciders:
                    first = _entries(self._places[place], keys, values)
                    entries = deciders[place].run(first)
                    if self._archive is not None:
                        self._archive.add(deciders[place], first, entries)
                    parts[place].append(_decisions(len(keys), entries))
                    self._progress(len(keys), len(keys) - len(entries))
                for link, work in works:
                    if place in link.places:
                        if place not in deciders:
                            state = link.places[place]
                            check_rows(keys, state.key_schema)
                            check_rows(values, state.value_schema)
                        work.look(place, keys, values)
        decided = {place: Decisions.join(found) for place, found in parts.items()}
        return decided, [work.resolve(decided, self._fetch) for _, work in works]

    def _write_down(self, outcome: Outcome) -> int:
        """Write down what goes with others, and says something of its own; how many entries those are."""
        if self._archive is None or outcome.telling is None:
            return 0
        (store, state), gone = outcome.telling, ~outcome.decisions[outcome.telling].kept
        position = 0
        for batch in self._partitions[store].batches({state: self._places[store, state]}, only=state):
            if batch.state == state and gone.any():
                dropped = _entries(self._places[store, state], batch.keys, batch.values)
                self._archive.write(cast(RowEntries, dropped.filter(gone[position : position + len(batch)])), None)
                position += len(batch)
        return int(gone.sum())

    def _fetch(self, place: Place, mask: Mask) -> Rows:
        """Scan a place once more for the values of some of its entries."""
        store, state = place
        found, position = [], 0
        for batch in self._partitions[store].batches({state: self._places[place]}, only=state):
            if batch.state == state:
                found.append(Rows.concat([batch.values.take(mask[position : position + len(batch)])]))
                position += len(batch)
        return Rows.concat(found)

    def _write(self, store: str, decisions: Mapping[str, Decisions]) -> Written:
        """Scan a store once more, and write what was decided."""
        position = dict.fromkeys(decisions, 0)
        row = dict.fromkeys(decisions, 0)
        partition = self._partitions[store]
        # Lists are taken apart again; of all others the bytes will do.
        described = {place[1]: state for place, state in self._places.items() if place[0] == store}
        lists = {name: state for name, state in described.items() if state.lists}
        moves = {state: decision.moves for state, decision in decisions.items() if decision.moves is not None}
        # Of lists it is whole ones that change, and how many is seen when they are put together.
        changes = sum(decision.changes for state, decision in decisions.items() if state not in lists)
        with partition.writer(self._staging, self._task.rewrite, described, moves, changes) as writer:
            for batch in partition.batches(lists):
                decision = decisions.get(batch.state)
                if decision is None:
                    writer.keep(batch)
                    continue
                start = position[batch.state]
                end = position[batch.state] = start + len(batch)
                kept, rewritten = decision.kept[start:end], decision.rewritten[start:end]
                first = row[batch.state]
                last = row[batch.state] = first + int(rewritten.sum())
                if kept.all() and first == last:
                    writer.keep(batch)
                    continue
                which = np.flatnonzero(kept)
                new = rewritten[which]
                # The writer takes a value for each entry that is kept, and looks at those that are new.
                number = first + np.maximum(np.cumsum(new) - 1, 0)
                values = decision.values.take(number) if first < last else batch.values.take(which)
                writer.change(batch, which, new, values)
            for state, decision in decisions.items():
                if position[state] != len(decision.kept):
                    raise CorruptionError(
                        f"{self._task.directory}, state {state}: {position[state]} entries were read where there were "
                        f"{len(decision.kept)} a moment ago. Nothing was published"
                    )
            return writer.finish()

    def _states(
        self,
        store: str,
        deciders: Mapping[Place, RowTransformers],
        final: Mapping[Place, Decisions],
        outcomes: Sequence[Outcome],
    ) -> list[StateResult]:
        """What became of the states of a store: primary ones as the transformers said, others as it followed."""
        unmatched: dict[Place, int] = {}
        followed = []
        for link, outcome in zip(self._task.links, outcomes, strict=True):
            for place, state in link.places.items():
                if place in deciders:
                    unmatched[place] = outcome.unmatched
                elif place[0] == store and place in final:
                    followed.append(_followed(state.state, final[place]))
        looked_at = [
            replace(decider.result(), unmatched=unmatched.get(place, 0))
            for place, decider in deciders.items()
            if place[0] == store
        ]
        return [*looked_at, *followed]


def _entries(state: StateDescriptor, keys: Rows, values: Rows) -> RowEntries:
    """A batch, of which it is certain that it is what its schema says."""
    check_rows(keys, state.key_schema)
    check_rows(values, state.value_schema)
    return StateEntries.of(state, keys, values)


def _decisions(count: int, entries: RowEntries) -> Decisions:
    """What a transformer made of ``count`` entries."""
    kept, rewritten = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    kept[entries.index] = True
    rewritten[entries.index] = entries.rewritten
    values = Rows.concat([entries.values.take(entries.rewritten)])
    return Decisions(kept, rewritten, values)


def _followed(state: str, decision: Decisions) -> StateResult:
    entries, kept, new = len(decision.kept), int(decision.kept.sum()), int(decision.rewritten.sum())
    moved = 0 if decision.moves is None else len(decision.moves.numbers)
    return StateResult(state, entries, kept - new, entries - kept - moved, new + moved)


class _Archive:
    """Writes down what is dropped in a task."""

    def __init__(self, task: PartitionTask, files: Directory, writer: ExpiredWriter, path: str) -> None:
        self._task, self._files, self._writer, self._path = task, files, writer, path

    def add(self, transformers: RowTransformers, before: RowEntries, after: RowEntries) -> None:
        """What is in ``before`` and not in ``after``."""
        if len(after) < len(before):
            gone = np.ones(len(before), np.bool_)
            gone[after.index] = False
            dropped = cast(RowEntries, before.filter(gone))
            self.write(dropped, transformers.moments(dropped))

    def write(self, dropped: RowEntries, moments: tuple[Int64, Mask] | None) -> None:
        """What is in ``dropped``."""
        self._writer.add(dropped, moments)

    def file(self) -> StagedFile | None:
        """The file, which is complete."""
        found = self._files.stat(self._path)
        if found is None:
            return None
        name = f"{self._task.operator}-{self._task.stores[0].name}-{self._task.partition}.parquet"
        # Counted by ``check_complete`` before it is delivered, so no digest is kept of it.
        return StagedFile(self._path, f"{folder_of(str(self._task.expired_of))}/{name}", found.size, "")


@contextlib.contextmanager
def _archive(task: PartitionTask) -> Iterator[_Archive | None]:
    if task.expired_of is None:
        yield None
        return
    files = open_directory(task.staging_root)
    # Two attempts at one task must not meet.
    path = scratch_name(f"{folder_of(task.expired_of)}/{task.operator}-{task.stores[0].name}-{task.partition}")
    with ExpiredWriter(files, path, task.expired_of, task.operator, task.partition) as writer:
        yield _Archive(task, files, writer, path)


def settle(task: PartitionTask, result: PartitionResult) -> PartitionResult:
    """Give what a task staged the names it is to have; raises StorageError if it is not what the task left."""
    if task.staged_below is None:
        return result
    staging = Staging(open_directory(task.staging_root), task.staged_below)
    if result.expired is not None:
        _settle(staging.files, result.expired, result.expired.target)
    if result.staged is None:
        return result
    return replace(
        result, staged=tuple(_settle(staging.files, file, staging.place(file.target)) for file in result.staged)
    )


def _settle(files: Directory, file: StagedFile, path: str) -> StagedFile:
    found = files.stat(file.path)
    if found is None or found.size != file.size:
        raise StorageError(
            f"{files.root}/{file.path} is {'gone' if found is None else f'{found.size:,} bytes long'}, where a "
            f"worker wrote {file.size:,} bytes: do all workers see the same storage? Nothing was published"
        )
    files.rename(file.path, path)
    return replace(file, path=path)
