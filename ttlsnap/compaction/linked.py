"""The compaction of linked stores: scan and decide about all of them, then write each.

``explain`` uses the first half: it scans and decides in the same way, and writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np

from ttlsnap.compaction.dropped import Archive
from ttlsnap.compaction.results import RowTransformers, make_result
from ttlsnap.compaction.sinks import Sink
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.compaction.times import kept_times
from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.operators.links import Decisions, Outcome, StateId
from ttlsnap.operators.work import begin_work
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import StoredPartition, Written
from ttlsnap.stores.scan import scan_partition
from ttlsnap.transform.chain import StateResult
from ttlsnap.transform.protocols import StateSnapshotTransformer
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.hashing import Hashes, hash_keys


class Watcher(Protocol):
    """An observer of the decisions: it gets each batch, and then what each transformer does with it."""

    def see(self, entries: RowEntries) -> None: ...
    def note(
        self, rule: int, transformer: StateSnapshotTransformer, before: StateEntries, after: StateEntries
    ) -> None: ...


class LinkedStores:
    """Linked stores: all of them are scanned and decided before one of them is written.

    The kept entries go to ``sink``, which is needed only to ``run``. The ``watcher`` also gets the entries of the
    ``others``, which are states that no transformer sees.
    """

    def __init__(
        self,
        task: PartitionTask,
        sink: Sink | None = None,
        progress: Progress = lambda entries, dropped: None,
        archive: Archive | None = None,
        *,
        others: Sequence[StateDescriptor] = (),
        watcher: Watcher | None = None,
    ) -> None:
        self._task, self._sink = task, sink
        self._progress, self._archive, self._watcher = progress, archive, watcher
        self._partitions: dict[str, StoredPartition] = {}
        self._times = kept_times(task)
        self._places = {place: state for link in task.links for place, state in link.places.items()}
        self._places |= {state.place: state for store in task.stores for state in store.states}
        self._places |= {state.place: state for state in others} | self._times.others
        self._hashes: dict[StateId, list[Hashes]] = {}

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        source = open_for_reading(self._task.root)
        with contextlib.ExitStack() as stack:
            for store in self._task.stores:
                opened = store.open(source, self._task.scratch, keep_in_memory=True)
                self._partitions[store.name] = stack.enter_context(opened)
            yield

    def _states_of(self, store: str) -> dict[str, StateDescriptor]:
        return {place[1]: state for place, state in self._places.items() if place[0] == store}

    def decide(self) -> tuple[dict[StateId, Decisions], list[Outcome]]:
        """Return the decisions of the transformers, and those that follow from them. Write nothing."""
        with self._open():
            return self._decide(self._deciders())

    def _deciders(self) -> dict[StateId, RowTransformers]:
        watch = self._watcher.note if self._watcher is not None else None
        return {
            (store.name, state.state): RowTransformers(self._task, state, watch)
            for store in self._task.stores
            for state in store.states
        }

    def run(self) -> PartitionResults:
        task = self._task
        with self._open():
            deciders = self._deciders()
            decided, outcomes = self._decide(deciders)
            final = dict(decided)
            for outcome in outcomes:
                final |= outcome.decisions
            followed = sum(self._write_down(outcome) for outcome in outcomes)
            self._keep_times(final)
            results = []
            for store in task.stores:
                mine = {state: decision for (name, state), decision in final.items() if name == store.name}
                changed = any(decision.changes for decision in mine.values())
                written = self._write(store, mine) if changed or task.whole else None
                results.append(make_result(task, store, written, self._states(store.name, deciders, final, outcomes)))
        results = [replace(result, ledgers=self._times.write_ledgers(result.store)) for result in results]
        return (replace(results[0], followed=followed), *results[1:])

    def _decide(self, deciders: Mapping[StateId, RowTransformers]) -> tuple[dict[StateId, Decisions], list[Outcome]]:
        """Scan everything once. Return the decisions of the transformers, and those that follow from them."""
        task = self._task
        works = [(link, begin_work(link, task.directory)) for link in task.links]
        parts: dict[StateId, list[Decisions]] = {place: [] for place in deciders}
        for name, partition in self._partitions.items():
            for batch, state in scan_partition(partition, self._states_of(name)):
                if state is None:
                    continue
                place = name, batch.state
                keys, values = batch.keys, batch.values
                first = StateEntries.of(state, keys, values, self._times.of(place))
                if self._watcher is not None:
                    self._watcher.see(first)
                if place in deciders:
                    entries = deciders[place].run(first)
                    if self._archive is not None:
                        self._archive.add(deciders[place], first, entries)
                    parts[place].append(_decisions(len(keys), entries))
                    self._progress(len(keys), len(keys) - len(entries))
                if self._times.has_ledger(place):
                    self._hashes.setdefault(place, []).append(hash_keys(batch.keys))
                for link, work in works:
                    if place in link.places:
                        work.look(place, keys, values)
        decided = {place: Decisions.join(found) for place, found in parts.items()}
        return decided, [work.resolve(decided, self._fetch) for _, work in works]

    def _keep_times(self, final: Mapping[StateId, Decisions]) -> None:
        """Note when the entries were written that stay, or the values that have moved to them."""
        for place, parts in self._hashes.items():
            hashes = np.concatenate(parts)
            decision = final.get(place) or Decisions.keep(len(hashes))
            sources = hashes if decision.sources is None else hashes[decision.sources]
            self._times.keep_hashes(place, hashes[decision.kept], sources[decision.kept])

    def _write_down(self, outcome: Outcome) -> int:
        """Archive derived entries that are dropped and contain a fact of their own. Return their number."""
        if self._archive is None or outcome.archived_place is None:
            return 0
        (store, state), gone = outcome.archived_place, ~outcome.decisions[outcome.archived_place].kept
        position = 0
        if not gone.any():
            return 0
        described = {state: self._places[store, state]}
        for batch, descriptor in scan_partition(self._partitions[store], described, only=state):
            assert descriptor is not None
            entries = StateEntries.of(descriptor, batch.keys, batch.values)
            self._archive.write(cast(RowEntries, entries.filter(gone[position : position + len(batch)])), None)
            position += len(batch)
        return int(gone.sum())

    def _fetch(self, place: StateId, mask: Mask) -> Rows:
        """Scan a place again. Return the values of the entries for which ``mask`` is true."""
        store, state = place
        found, position = [], 0
        for batch, _ in scan_partition(self._partitions[store], {state: self._places[place]}, only=state, check=None):
            found.append(Rows.concat([batch.values.take(mask[position : position + len(batch)])]))
            position += len(batch)
        return Rows.concat(found)

    def _write(self, store: StorePartition, decisions: Mapping[str, Decisions]) -> Written:
        """Scan a store again, and write the decisions. Return the new snapshot."""
        assert self._sink is not None
        position = dict.fromkeys(decisions, 0)
        row = dict.fromkeys(decisions, 0)
        partition = self._partitions[store.name]
        # Lists are split into their values again; for other states the bytes are enough.
        described = self._states_of(store.name)
        lists = {name: state for name, state in described.items() if state.lists}
        moves = {state: decision.moves for state, decision in decisions.items() if decision.moves is not None}
        # Lists are rewritten as a whole; the number of changed lists is known only after regrouping.
        changes = sum(decision.changes for state, decision in decisions.items() if state not in lists)
        with self._sink.writer(store, partition, described, moves, changes) as writer:
            for batch in partition.batches({**self._sink.needs_rows_of(store), **lists}):
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
                # The writer takes a value for each kept entry, and uses only the new ones.
                number = first + np.maximum(np.cumsum(new) - 1, 0)
                values = decision.values.take(number) if first < last else batch.values.take(which)
                writer.change(batch, which, new, values)
            for state, decision in decisions.items():
                if position[state] != len(decision.kept):
                    raise CorruptionError(
                        f"{self._task.directory}, state {state}: the first scan read {len(decision.kept)} entries, the "
                        f"second {position[state]}. Nothing was published"
                    )
            return writer.finish()

    def _states(
        self,
        store: str,
        deciders: Mapping[StateId, RowTransformers],
        final: Mapping[StateId, Decisions],
        outcomes: Sequence[Outcome],
    ) -> list[StateResult]:
        """Return the results of the states of a store: primary ones by the transformers, others by the links."""
        unmatched: dict[StateId, int] = {}
        followed = []
        for link, outcome in zip(self._task.links, outcomes, strict=True):
            for place, state in link.places.items():
                if place in deciders:
                    unmatched[place] = outcome.unmatched
                elif place[0] == store and place in final:
                    followed.append(_count_followers(state.state, final[place]))
        looked_at = [
            replace(decider.result(), unmatched=unmatched.get(place, 0))
            for place, decider in deciders.items()
            if place[0] == store
        ]
        return [*looked_at, *followed]


def _decisions(count: int, entries: RowEntries) -> Decisions:
    """Return the decisions of a transformer about ``count`` entries."""
    kept, rewritten = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    kept[entries.index] = True
    rewritten[entries.index] = entries.rewritten
    values = Rows.concat([entries.values.take(entries.rewritten)])
    return Decisions(kept, rewritten, values)


def _count_followers(state: str, decision: Decisions) -> StateResult:
    entries, kept, new = len(decision.kept), int(decision.kept.sum()), int(decision.rewritten.sum())
    moved = 0 if decision.moves is None else len(decision.moves.numbers)
    return StateResult(state, entries, kept - new, entries - kept - moved, new + moved)
