"""The decisions about the entries of a key in one partition: by each rule, and by what follows from other entries.

The transformers see every entry of the partition, in the same batches as in ``compact``, because a transformer may
decide by what it saw before. Only the entries of the key are noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ttlsnap.clock import iso
from ttlsnap.compaction.linked import LinkedStores
from ttlsnap.compaction.task import PartitionTask, Progress
from ttlsnap.entries.batch import Int64, RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.entries.timestamps import WRITTEN
from ttlsnap.operators.links import Decisions, StateId
from ttlsnap.operators.showing import show_entry
from ttlsnap.reading.explained_key import StateKey
from ttlsnap.transform.chain import sees_only_first
from ttlsnap.transform.protocols import (
    Transformer,
)
from ttlsnap.unsaferow.rows import Rows

KEPT, DROPPED, REWRITTEN = "kept", "dropped", "rewritten"
_SECOND = 1_000_000  # microseconds
_FOLLOWS = {
    "count": "it is a count of other entries of its key",
    "index": "it is an index of other entries of its key",
    "timer": "with --timers follow, the timers of a key are dropped with the last of its state",
}
_VARIABLES = ("value", "list", "map")
_UNMATCHED = "it has not matched yet: "
_RUN_REFUSES = f"{_UNMATCHED}compact refuses to drop such rows without --drop-unmatched"
_NEVER_EMITTED = f"{_UNMATCHED}an outer join will never emit it"


@dataclass
class Watched:
    """An entry of the key: what the store has, its number in its state, and the decisions of the rules in order."""

    state: StateDescriptor
    number: int
    key: dict[str, Any]
    shown: dict[str, Any]
    rules: list[dict[str, Any]] = field(default_factory=list)
    decision: str = KEPT
    new_value: Any = None
    reasons: list[str] = field(default_factory=list)

    def to_json(self, partition: int) -> dict[str, Any]:
        """Return the entry as ``inspect`` shows it, and the decisions; a new value only if it is rewritten."""
        state = self.state
        place = {"operator": state.operator, "operator_name": state.operator_name, "store": state.store}
        document = {**place, "state": state.state, "role": state.role, "partition": partition, **self.shown}
        document["decision"] = self.decision
        if self.decision == REWRITTEN:
            document["new_value"] = self.new_value
        return {**document, "rules": self.rules, "reasons": self.reasons}


@dataclass(frozen=True)
class Explanation:
    """The entries of the key in one partition: the first ones, and how many there are."""

    entries: tuple[dict[str, Any], ...]
    found: int


@dataclass(frozen=True)
class Work:
    """A partition of a store, or of linked stores.

    ``keys`` are the key for each of its states. ``others`` are the states that no transformer sees, with the reasons.
    ``rules`` describe the task's factories. At most ``limit`` entries are noted. ``drop_unmatched`` is that of
    ``compact``.
    """

    task: PartitionTask
    keys: Mapping[StateId, StateKey]
    others: Mapping[StateId, tuple[StateDescriptor, str]]
    rules: tuple[str, ...]
    limit: int
    drop_unmatched: bool

    @property
    def root(self) -> str:
        """The checkpoint."""
        return self.task.root

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return self.task.size

    def run(self, progress: Progress) -> Explanation:
        """Return the decisions in this partition. Raise CorruptionError for damage."""
        task = self.task
        watcher = _Watcher(self)
        other_states = [state for state, _ in self.others.values()]
        stores = LinkedStores(task, progress=progress, others=other_states, watcher=watcher)
        with task.stores[0].locate():
            decisions, outcomes = stores.decide()
        derived = {place: decision for outcome in outcomes for place, decision in outcome.decisions.items()}
        linked = {place: state for link in task.links for place, state in link.places.items()}
        for entry in watcher.noted:
            place = entry.state.place
            if place in decisions:
                _explain_row(entry, decisions[place], drop_unmatched=self.drop_unmatched)
            elif place in derived:
                _explain_derived(entry, derived[place], linked[place])
            else:
                reason = self.others[place][1] if place in self.others else "no rule changes it"
                entry.reasons.append(f"no rule sees this state: {reason}")
        noted_entries = tuple(entry.to_json(task.partition) for entry in watcher.noted)
        return Explanation(noted_entries, watcher.found)


class _Watcher:
    """See ``compaction.linked.Watcher``."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._entries_seen: dict[StateId, int] = {}
        self._watched_in_batch: dict[int, Watched] = {}
        self._scanned_entries: RowEntries
        self._watched_by_role: dict[str, list[Watched]] = {"primary": [], "derived": []}
        self.found = 0

    def see(self, entries: RowEntries) -> None:
        """Note the entries of the key in a batch."""
        place = entries.state.place
        first_number = self._entries_seen.get(place, 0)
        self._entries_seen[place] = first_number + len(entries)
        self._scanned_entries, self._watched_in_batch = entries, {}
        key = self._work.keys.get(place)
        if key is None:
            return
        matching = np.flatnonzero(key.matches(entries))
        self.found += len(matching)
        chosen_index = matching[: self._work.limit - len(self._watched_by_role[entries.state.role])]
        if not len(chosen_index):
            return
        chosen_entries = _take(entries, chosen_index)
        shown_pairs = zip(
            to_json_values(chosen_entries.key_structs), to_json_values(chosen_entries.value_structs), strict=True
        )
        for index, (shown_key, value) in zip(chosen_index.tolist(), shown_pairs, strict=True):
            shown_entry = show_entry(entries.state, shown_key, value)
            self._watched_in_batch[index] = Watched(entries.state, first_number + index, shown_key, shown_entry)
        self._watched_by_role[entries.state.role] += self._watched_in_batch.values()

    @property
    def noted(self) -> list[Watched]:
        """The noted entries, primary ones first."""
        return [*self._watched_by_role["primary"], *self._watched_by_role["derived"]][: self._work.limit]

    def note(
        self, rule: int, transformer: Transformer, entries_before: StateEntries, entries_after: StateEntries
    ) -> None:
        """Note what a rule does with the entries of the key."""
        index = np.intersect1d(entries_before.index, np.array(list(self._watched_in_batch), np.int64))
        if not len(index):
            return
        old_entries = _take(entries_before, np.searchsorted(entries_before.index, index))
        is_kept = np.isin(index, entries_after.index)
        new_entries = _take(entries_after, np.searchsorted(entries_after.index, index[is_kept]))
        # A rule may rewrite what another one has rewritten.
        is_rewritten = np.zeros(len(index), np.bool_)
        differs = np.asarray(
            [
                old_value != new_value
                for old_value, new_value in zip(
                    _raw(old_entries, is_kept), new_entries.values.to_arrow().to_pylist(), strict=True
                )
            ]
        )
        is_rewritten[is_kept] = new_entries.rewritten & (~old_entries.rewritten[is_kept] | differs.astype(np.bool_))
        is_skipped = self._skipped(rule, index, entries_after)
        applies, deciding = transformer.sees(old_entries), transformer.decides
        facts = _facts(deciding, old_entries, self._work.task.factories[rule].rotation_us)
        is_unclosed = np.zeros(len(index), np.bool_)
        if not is_kept.all():
            is_unclosed[~is_kept] = deciding.unclosed(old_entries.filter(~is_kept))
        for number, entry_index in enumerate(index.tolist()):
            decision = DROPPED if not is_kept[number] else REWRITTEN if is_rewritten[number] else KEPT
            entry, entry_facts = self._watched_in_batch[entry_index], facts[number]
            if not applies[number]:
                entry.rules.append({"rule": self._work.rules[rule], "decision": decision, "applies": False})
                continue
            entry.rules.append({"rule": self._work.rules[rule], "decision": decision, **entry_facts})
            if is_skipped[number]:
                entry.reasons.append("the rule does not look at it: an earlier value of its list is kept")
            else:
                entry.reasons += _reasons(decision, entry_facts)
            if entry_facts.get("timestamp") == WRITTEN and old_entries.written[1][number]:
                entry.reasons.append("it was written before the known history begins, and counts as written then")
            if is_unclosed[number]:
                entry.reasons.append(
                    "its timeout has not fired, and never will"
                    if old_entries.state.timeout
                    else "the watermark has not reached it: a query in append mode will never emit it"
                )
        for entry_index, value in zip(index[is_kept].tolist(), to_json_values(new_entries.value_structs), strict=True):
            entry = self._watched_in_batch[entry_index]
            entry.new_value = show_entry(entry.state, entry.key, value)["value"]
            if entry.rules[-1]["decision"] == REWRITTEN:
                entry.rules[-1]["new_value"] = entry.new_value

    def _skipped(self, rule: int, index: Int64, entries_after: StateEntries) -> Sequence[bool]:
        """Return which entries come after the first kept one of their list, if the rule stops there."""
        state = self._scanned_entries.state
        if state.kind != "list" or not sees_only_first(self._work.task.factories[rule]):
            return [False] * len(index)
        # Within a batch, values of one list share the bytes of their key.
        start = self._scanned_entries.keys.start
        list_numbers = np.cumsum(np.append(False, start[1:] != start[:-1]))
        kept_lists, first_kept = (
            list_numbers[entries_after.index],
            np.full(int(list_numbers[-1]) + 1, len(list_numbers)),
        )
        np.minimum.at(first_kept, kept_lists, entries_after.index)
        return cast(Sequence[bool], (index > first_kept[list_numbers[index]]).tolist())


def _take(entries: StateEntries, index: Int64) -> RowEntries:
    is_chosen = np.zeros(len(entries), np.bool_)
    is_chosen[index] = True
    return cast(RowEntries, entries.filter(is_chosen))


def _raw(entries: RowEntries, mask: Any) -> list[bytes]:
    return cast(list[bytes], entries.values.take(np.flatnonzero(mask)).to_arrow().to_pylist())


def _facts(transformer: Transformer, entries: RowEntries, rotation: int | None) -> list[dict[str, Any]]:
    """Return the times by which a transformer decides about each entry; nothing for one that uses no time.

    ``rotation`` is the time in microseconds between those at which entries can be dropped; None if that is any time.
    """
    moments_and_nulls = transformer.moments(entries)
    if moments_and_nulls is None:
        return [{} for _ in range(len(entries))]
    moments, nulls = moments_and_nulls
    summary = transformer.time_summary()
    cutoff = summary.cutoff_us if summary is not None else None
    facts_of_entries = []
    for moment, is_null in zip(moments.tolist(), nulls.tolist(), strict=True):
        facts: dict[str, Any] = {"time": None if is_null else iso(moment)}
        if summary is not None:
            facts |= {"timestamp": summary.field, "timestamp_unit": summary.unit, "clock": summary.time}
            facts |= {
                "now": iso(summary.now_us),
                "age_seconds": None if is_null else (summary.now_us - moment) // _SECOND,
            }
        if summary is not None and cutoff is not None:
            expires = moment + (summary.now_us - cutoff)
            if rotation is not None:
                expires = (expires // rotation + 1) * rotation
                facts["rotation_seconds"] = rotation // _SECOND
            facts |= {"cutoff": iso(cutoff), "expires": None if is_null else iso(expires)}
        facts_of_entries.append(facts)
    return facts_of_entries


def _reasons(decision: str, facts: Mapping[str, Any]) -> list[str]:
    if "time" not in facts:
        return []
    name = facts.get("timestamp") or "its time"
    if facts["time"] is None:
        return [f"{name} has no time, and an entry without a time is kept"] if decision == KEPT else []
    reasons = []
    if facts.get("cutoff") is not None:
        comparison = "not later than" if decision == DROPPED else "later than"
        reasons.append(f"{name} is {comparison} the cut-off")
    if facts.get("age_seconds") is not None and facts["age_seconds"] < 0:
        reasons.append(f"{name} is after the current time")
    return reasons


def _explain_row(entry: Watched, decisions: Decisions, *, drop_unmatched: bool) -> None:
    """Set the decision about an entry that transformers see."""
    number = entry.number
    if not decisions.kept[number]:
        entry.decision = DROPPED
        if entry.shown.get("matched") is False:
            entry.reasons.append(_NEVER_EMITTED if drop_unmatched else _RUN_REFUSES)
    elif decisions.rewritten[number]:
        entry.decision = REWRITTEN
    if not entry.rules:
        entry.reasons.append("no rule handles it")


def _explain_derived(entry: Watched, decisions: Decisions, state: StateDescriptor) -> None:
    """Set the decision about an entry that follows others."""
    number = entry.number
    if state.role == "primary" and state.kind in _VARIABLES:
        _explain_following(entry, decisions)
        return
    entry.reasons.append(_FOLLOWS.get(state.kind, "it follows other entries of its key"))
    is_moved = decisions.moves is not None and decisions.moves.which[number]
    if is_moved:
        entry.decision = REWRITTEN
        entry.reasons.append("its time changes with them")
    elif not decisions.kept[number]:
        entry.decision = DROPPED
        entry.reasons.append("nothing of its key is left for it")
    elif decisions.rewritten[number]:
        entry.decision = REWRITTEN
        value_index = np.array([int(decisions.rewritten[:number].sum())])
        value = StateEntries.of(state, Rows.none(), decisions.values.take(value_index))
        entry.new_value = to_json_values(value.value_structs)[0]
    elif state.kind == "timer":
        entry.reasons.append("its key still has state")


def _explain_following(entry: Watched, decisions: Decisions) -> None:
    """Set the decision about an entry of a variable that follows those that a rule sees."""
    if decisions.kept[entry.number]:
        entry.reasons.append("with --variables follow: a rule keeps another entry of its key, or sees none of them")
    else:
        entry.decision = DROPPED
        entry.reasons.append("with --variables follow: a rule drops all entries of its key that it sees")
