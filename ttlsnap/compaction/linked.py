"""The compaction of linked stores: scan and decide about all of them, then write each.

``explain`` uses the first half: it scans and decides in the same way, and writes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np

from ttlsnap.amounts import quantity
from ttlsnap.compaction.dropped import Archive
from ttlsnap.compaction.results import RowTransformers, kept_times, make_result
from ttlsnap.compaction.sinks import EntrySink
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError
from ttlsnap.operators.links import Decisions, LinkDecisions, StateId
from ttlsnap.operators.work import begin_work
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import StoredPartition, Written
from ttlsnap.stores.scan import scan_partition
from ttlsnap.transform.chain import StateResult
from ttlsnap.transform.protocols import Transformer
from ttlsnap.unsaferow.gather import Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.ledger import Hashes, hash_keys


class Watcher(Protocol):
    """An observer of the decisions: it gets each batch, and then what each transformer does with it."""

    def see(self, entries: RowEntries) -> None: ...
    def note(self, rule: int, transformer: Transformer, before: StateEntries, after: StateEntries) -> None: ...


class LinkedStores:
    """Linked stores: all of them are scanned and decided before one of them is written.

    The kept entries go to ``sink``, which is needed only to ``run``. The ``watcher`` also gets the entries of the
    ``others``, which are states that no transformer sees.
    """

    def __init__(
        self,
        task: PartitionTask,
        sink: EntrySink | None = None,
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

    def decide(self) -> tuple[dict[StateId, Decisions], list[LinkDecisions]]:
        """Return the decisions of the transformers, and those that follow from them. Write nothing."""
        with self._open():
            return self._decide(self._transformers())

    def _transformers(self) -> dict[StateId, RowTransformers]:
        watch = self._watcher.note if self._watcher is not None else None
        return {
            (store.name, state.state): RowTransformers(self._task, state, watch)
            for store in self._task.stores
            for state in store.states
        }

    def run(self) -> PartitionResults:
        task = self._task
        with self._open():
            transformers = self._transformers()
            decisions, outcomes = self._decide(transformers)
            final_decisions = dict(decisions)
            for outcome in outcomes:
                final_decisions |= outcome.decisions
            followed = sum(self._write_down(outcome) for outcome in outcomes)
            self._keep_times(final_decisions)
            results = []
            for store in task.stores:
                store_decisions = {
                    state: decision for (name, state), decision in final_decisions.items() if name == store.name
                }
                changed = any(decision.changes for decision in store_decisions.values())
                written = self._write(store, store_decisions) if changed or task.whole else None
                results.append(
                    make_result(task, store, written, self._states(store.name, transformers, final_decisions, outcomes))
                )
        results = [replace(result, ledgers=self._times.write_ledgers(result.store)) for result in results]
        return (replace(results[0], followed=followed), *results[1:])

    def _decide(
        self, transformers: Mapping[StateId, RowTransformers]
    ) -> tuple[dict[StateId, Decisions], list[LinkDecisions]]:
        """Scan everything once. Return the decisions of the transformers, and those that follow from them."""
        task = self._task
        work_of_links = [(link, begin_work(link, task.directory)) for link in task.links]
        parts: dict[StateId, list[Decisions]] = {place: [] for place in transformers}
        for name, partition in self._partitions.items():
            for batch, state in scan_partition(partition, self._states_of(name)):
                if state is None:
                    continue
                place = name, batch.state
                keys, values = batch.keys, batch.values
                scanned_entries = StateEntries.of(state, keys, values, self._times.of(place))
                if self._watcher is not None:
                    self._watcher.see(scanned_entries)
                if place in transformers:
                    remaining_entries = transformers[place].run(scanned_entries)
                    if self._archive is not None:
                        self._archive.add(transformers[place], scanned_entries, remaining_entries)
                    parts[place].append(_decisions(len(keys), remaining_entries))
                    self._progress(len(keys), len(keys) - len(remaining_entries))
                if self._times.has_ledger(place):
                    self._hashes.setdefault(place, []).append(hash_keys(batch.keys))
                for link, work in work_of_links:
                    if place in link.places:
                        work.look(place, keys, values)
        decisions = {place: Decisions.join(parts_of_place) for place, parts_of_place in parts.items()}
        all_decisions, outcomes = dict(decisions), []
        for _, work in work_of_links:  # those that follow others come after them
            outcomes.append(work.resolve(all_decisions, self._fetch))
            all_decisions |= outcomes[-1].decisions
        return decisions, outcomes

    def _keep_times(self, final_decisions: Mapping[StateId, Decisions]) -> None:
        """Note when the entries were written that stay, or the values that have moved to them."""
        for place, hashes_of_batches in self._hashes.items():
            hashes = np.concatenate(hashes_of_batches)
            decision = final_decisions.get(place) or Decisions.keep(len(hashes))
            sources = hashes if decision.sources is None else hashes[decision.sources]
            self._times.keep_hashes(place, hashes[decision.kept], sources[decision.kept])

    def _write_down(self, outcome: LinkDecisions) -> int:
        """Archive followers that are dropped and contain a fact of their own. Return the number of derived ones."""
        derived_count = 0
        for place in outcome.archived if self._archive is not None else ():
            is_dropped, descriptor = ~outcome.decisions[place].kept, self._places[place]
            if is_dropped.any():
                self._archive_followers(descriptor, is_dropped)
            if descriptor.role == "derived":
                derived_count += int(is_dropped.sum())
        return derived_count

    def _archive_followers(self, state: StateDescriptor, is_dropped: Mask) -> None:
        assert self._archive is not None
        position = 0
        for batch, _ in scan_partition(self._partitions[state.store], {state.state: state}, only=state.state):
            entries = StateEntries.of(state, batch.keys, batch.values)
            self._archive.write(cast(RowEntries, entries.filter(is_dropped[position : position + len(batch)])), None)
            position += len(batch)

    def _fetch(self, place: StateId, mask: Mask) -> Rows:
        """Scan a place again. Return the values of the entries for which ``mask`` is true."""
        store, state = place
        values, position = [], 0
        for batch, _ in scan_partition(self._partitions[store], {state: self._places[place]}, only=state, check=None):
            values.append(Rows.concat([batch.values.take(mask[position : position + len(batch)])]))
            position += len(batch)
        return Rows.concat(values)

    def _write(self, store: StorePartition, decisions: Mapping[str, Decisions]) -> Written:
        """Scan a store again, and write the decisions. Return the new snapshot."""
        assert self._sink is not None
        next_entry = dict.fromkeys(decisions, 0)
        next_value = dict.fromkeys(decisions, 0)
        partition = self._partitions[store.name]
        # Lists are split into their values again; for other states the bytes are enough.
        descriptors = self._states_of(store.name)
        list_states = {name: state for name, state in descriptors.items() if state.lists}
        moves = {state: decision.moves for state, decision in decisions.items() if decision.moves is not None}
        # Lists are rewritten as a whole; the number of changed lists is known only after regrouping.
        changes = sum(decision.changes for state, decision in decisions.items() if state not in list_states)
        with self._sink.writer(store, partition, descriptors, moves, changes) as writer:
            for batch in partition.batches({**self._sink.needs_rows_of(store), **list_states}):
                decision = decisions.get(batch.state)
                if decision is None:
                    writer.keep(batch)
                    continue
                start = next_entry[batch.state]
                end = next_entry[batch.state] = start + len(batch)
                kept, rewritten = decision.kept[start:end], decision.rewritten[start:end]
                first_value = next_value[batch.state]
                end_value = next_value[batch.state] = first_value + int(rewritten.sum())
                if kept.all() and first_value == end_value:
                    writer.keep(batch)
                    continue
                kept_index = np.flatnonzero(kept)
                has_new_value = rewritten[kept_index]
                # The writer takes a value for each kept entry, and uses only the new ones.
                value_index = first_value + np.maximum(np.cumsum(has_new_value) - 1, 0)
                values = decision.values.take(value_index) if first_value < end_value else batch.values.take(kept_index)
                writer.change(batch, kept_index, has_new_value, values)
            for state, decision in decisions.items():
                if next_entry[state] != len(decision.kept):
                    raise CorruptionError(
                        f"{self._task.directory}, state {state}: the first scan read "
                        f"{quantity(len(decision.kept), 'entry', 'entries')}, the "
                        f"second {next_entry[state]}. Nothing was published"
                    )
            return writer.finish()

    def _states(
        self,
        store: str,
        transformers: Mapping[StateId, RowTransformers],
        final_decisions: Mapping[StateId, Decisions],
        outcomes: Sequence[LinkDecisions],
    ) -> list[StateResult]:
        """Return the results of the states of a store: primary ones by the transformers, others by the links."""
        unmatched: dict[StateId, int] = {}
        follower_results = {}
        for link, outcome in zip(self._task.links, outcomes, strict=True):
            for place, state in link.places.items():
                if place in transformers:
                    unmatched[place] = outcome.unmatched
                elif place[0] == store and place in final_decisions:
                    follower_results[place] = _count_followers(state.state, final_decisions[place])
        primary_results = [
            replace(state_transformers.result(), unmatched=unmatched.get(place, 0))
            for place, state_transformers in transformers.items()
            if place[0] == store
        ]
        return [*primary_results, *follower_results.values()]


def _decisions(count: int, entries: RowEntries) -> Decisions:
    """Return the decisions of a transformer about ``count`` entries."""
    kept, rewritten = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    kept[entries.index] = True
    rewritten[entries.index] = entries.rewritten
    values = Rows.concat([entries.values.take(entries.rewritten)])
    return Decisions(kept, rewritten, values)


def _count_followers(state: str, decision: Decisions) -> StateResult:
    entries, kept, rewritten = len(decision.kept), int(decision.kept.sum()), int(decision.rewritten.sum())
    moved_count = 0 if decision.moves is None else len(decision.moves.numbers)
    return StateResult(state, entries, kept - rewritten, entries - kept - moved_count, rewritten + moved_count)
