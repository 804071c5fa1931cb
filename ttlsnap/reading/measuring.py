"""The scan of ``inspect --sizes`` and ``--age``: its plan, and the sums of what the partitions give.

A state whose files are larger than the limit is sampled: whole partitions are read, at the same distance from each
other, and at least one of each store. Spark places keys by their hash, so partitions have similar entries. What was
read is counted exactly. ``estimated_entries`` and ``estimated_bytes`` scale it by the number of entries if the files
record it, and otherwise by the sizes of the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import monotonic

from ttlsnap.checkpoint import Checkpoint, Operator, Store
from ttlsnap.checkpoint.state_schema import DEFAULT_FAMILY
from ttlsnap.clock import Clock, TimeCharacteristic
from ttlsnap.compaction.plan import explain_left_alone
from ttlsnap.engines.local import read_all
from ttlsnap.engines.progress import SilentWorkListener, WorkListener
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import WrittenField, explain_unnamed, name_for, require_fields, split_unit
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators.registry import Selection, behind_join, describe, explain_untouched, links_of
from ttlsnap.operators.transform_with_state import NAMES
from ttlsnap.publishing.runs import Runs
from ttlsnap.reading.ages import AgeField, Ages, age_field
from ttlsnap.reading.distribution import Distribution
from ttlsnap.reading.growth import read_growth
from ttlsnap.reading.inspected import Inspection, StateInspection
from ttlsnap.reading.partition_sizes import (
    Freed,
    LargeEntry,
    MeasuringTask,
    StatePart,
    StateWork,
    measure_partition,
)
from ttlsnap.reading.sizes import PartitionSizes, RuleOutcome, Sizes, StateSizes, StoreSizes
from ttlsnap.reading.times import find_times, merge_times
from ttlsnap.stores.open import open_state_store, partitions_of
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.transform.protocols import TransformerFactory
from ttlsnap.written.history import history_of

MOST = 5
"""How many of the largest entries, and of the keys with the most rows, are found."""
_MAY_FOLLOW = "With --variables follow, compact drops it with its key, which is not counted here"


@dataclass(frozen=True)
class Measurement:
    """What to measure.

    sizes       the sizes of entries; otherwise only their number and ages
    ages        the ages for ``--age``, whose problems are errors or are noted in the states
    timestamps  the fields with the time of an entry, as for ``compact``; () for the time that Spark stores
    time        the clock of that time
    rule        what would drop entries
    limit       the bytes of files to read at most; None for no limit
    most        how many of the largest entries and keys to find
    times       the fields that can hold a time
    """

    sizes: bool = False
    ages: bool = False
    timestamps: tuple[str, ...] = ()
    time: TimeCharacteristic | None = None
    rule: TransformerFactory | None = None
    limit: int | None = None
    most: int = MOST
    times: bool = False


def measure(
    inspection: Inspection,
    measurement: Measurement,
    clock: Clock,
    parallelism: int | None = None,
    listener: WorkListener | None = None,
) -> Sizes | None:
    """Scan the states of the inspection, and fill in their numbers of entries and, if measured, their ages.

    Return the sizes, or None if they are not wanted. Raise UsageError if no state has a field that is named, or if the
    rule cannot be applied to any state. Raise CorruptionError for damage, and UnsupportedError for a state store that
    cannot be read.
    """
    started, listener = monotonic(), listener or SilentWorkListener()
    checkpoint = inspection.checkpoint
    clock = replace(clock, behind_join=behind_join(checkpoint)) if measurement.rule is not None else clock
    plans = _plan(inspection, measurement, clock)
    state_store = open_state_store(checkpoint)
    partitions = [partitions_of(checkpoint, state_store, plan.store) for plan in plans]
    total = sum(store_partition.size for store_partitions in partitions for store_partition in store_partitions)
    share = 1.0 if measurement.limit is None or total <= measurement.limit else measurement.limit / total
    chosen_places = [_choose(len(store_partitions), share) for store_partitions in partitions]
    uses_written = any(isinstance(work.age.field, WrittenField) for plan in plans for work in plan.work if work.age)
    uses_written |= measurement.rule is not None and measurement.rule.uses_written_times
    history = history_of(checkpoint, Runs.read(checkpoint.files)) if uses_written else None
    tasks = [
        MeasuringTask(store_partitions[place], plan.work, history)
        for plan, store_partitions, places in zip(plans, partitions, chosen_places, strict=True)
        for place in places
    ]
    results = iter(read_all(measure_partition, tasks, parallelism, listener))
    stores, states = [], []
    for plan, store_partitions, places in zip(plans, partitions, chosen_places, strict=True):
        store_results = [next(results) for _ in places]
        results_by_place = dict(zip(places, store_results, strict=True))
        sizes = tuple(
            PartitionSizes.of(partition.partition, partition.size, results_by_place.get(place))
            for place, partition in enumerate(store_partitions)
        )
        stores.append(StoreSizes(plan.store.operator, plan.store.name, sizes))
        states += [
            _merge(
                stores[-1], state, work, [of_partition[number] for of_partition in store_results], plan.reasons[number]
            )
            for number, (state, work) in enumerate(zip(plan.states, plan.work, strict=True))
        ]
        for state, work, merged_sizes in zip(plan.states, plan.work, states[-len(plan.states) :], strict=True):
            if stores[-1].is_complete:
                state.entries = merged_sizes.entries
            if measurement.ages:
                state.age = merged_sizes.ages.to_json() if merged_sizes.ages is not None else None
            if work.times is not None:
                state.times = merge_times(part.times for part in merged_sizes.parts)
    if not measurement.sizes:
        return None
    keys = sum(part.stored_keys for state in states for part in state.parts)
    is_whole = all(
        plan.has_all_states(store_partitions) for plan, store_partitions in zip(plans, partitions, strict=True)
    )
    is_counted = is_whole and all(store.is_complete for store in stores)
    return Sizes(
        measurement.limit,
        tuple(stores),
        tuple(states),
        read_growth(checkpoint, [plan.store for plan in plans], keys if is_counted else None, whole=is_whole),
        measurement.rule.describe() if measurement.rule is not None else None,
        monotonic() - started,
    )


@dataclass(frozen=True)
class _Reasons:
    """Why a state has no ages, and why the rule leaves it alone; and the states that follow it."""

    no_ages: str | None
    left_alone: str | None
    followers: tuple[str, ...]


@dataclass(frozen=True)
class _StorePlan:
    store: Store
    states: Sequence[StateInspection]
    work: tuple[StateWork, ...]
    reasons: tuple[_Reasons, ...]

    def has_all_states(self, partitions: Sequence[StorePartition]) -> bool:
        """Return whether no state of the store, which has these partitions, is left out."""
        families = {family.name for family in self.store.families}.union(
            *(partition.lineage.families for partition in partitions)
        )
        return families - {DEFAULT_FAMILY} <= {state.name for state in self.states}


def _plan(inspection: Inspection, measurement: Measurement, clock: Clock) -> list[_StorePlan]:
    checkpoint = inspection.checkpoint
    left_alone = _apply(inspection, measurement.rule, clock) if measurement.rule is not None else {}
    plans = []
    for operator, stores in inspection.operators:
        followers = _followers(checkpoint, operator) if measurement.rule is not None else {}
        for store, states in stores:
            can_drop = measurement.times and _find_refusal(checkpoint, operator, store) is None
            work, reasons = [], []
            for state in states:
                descriptor = state.descriptor
                place = (operator.id, store.name, state.name)
                is_rule_applied = measurement.rule is not None and place in left_alone and left_alone[place] is None
                age, no_ages = _age(state, measurement, clock.of(operator.id), is_rule_applied)
                rules = (measurement.rule,) if is_rule_applied and measurement.rule is not None else ()
                times = None
                if can_drop and descriptor is not None and explain_untouched(descriptor) is None:
                    times = tuple(find_times(descriptor, clock.of(operator.id)))
                work.append(
                    StateWork(
                        state.name,
                        descriptor,
                        age,
                        rules,
                        clock.of(operator.id),
                        measurement.sizes,
                        measurement.most,
                        times,
                    )
                )
                reason = None
                if measurement.rule is not None and not is_rule_applied:
                    reason = left_alone.get(place) or "the checkpoint has no schema for it"
                reasons.append(_Reasons(no_ages, reason, followers.get((store.name, state.name), ())))
                if measurement.ages and age is None and descriptor is not None:
                    state.problem = no_ages
            plans.append(_StorePlan(store, states, tuple(work), tuple(reasons)))
    require_fields([state.descriptor for state in inspection.states() if state.descriptor], measurement.timestamps)
    return plans


def _age(
    state: StateInspection, measurement: Measurement, clock: Clock, is_seen: bool
) -> tuple[AgeField | None, str | None]:
    """Return the field with the time of a state's entries, or why there is none. A rule's own time is preferred."""
    descriptor = state.descriptor
    if descriptor is None:
        return None, "no ages: the checkpoint has no schema for it"
    cutoff = measurement.rule.cutoff(descriptor, clock) if is_seen and measurement.rule is not None else None
    if cutoff is not None:
        return AgeField(cutoff.timestamp, cutoff.now_us, cutoff.now_us - cutoff.at_us), None
    try:
        age = age_field(descriptor, measurement.timestamps, measurement.time, clock)
    except UsageError as error:
        if measurement.ages or measurement.timestamps:
            raise
        return None, f"no ages: {str(error).splitlines()[0]}"
    if age is not None:
        return age, None
    return None, f"no ages: {_explain_no_time(descriptor, measurement.timestamps)}"


def _explain_no_time(state: StateDescriptor, timestamps: tuple[str, ...]) -> str:
    if not timestamps:
        return "Spark stores no timestamp here; name one with --timestamp"
    name = name_for(state, timestamps)
    if name is None:
        return explain_unnamed(state, timestamps)
    stored = "no timestamp" if state.stored_timestamp is None else state.stored_timestamp
    return f"there is no field {split_unit(name)[0]}; Spark stores {stored} here"


def _apply(inspection: Inspection, rule: TransformerFactory, clock: Clock) -> dict[tuple[int, str, str], str | None]:
    """Return for each state why the rule leaves it alone, or None. Raise UsageError if it fits none, as in a run."""
    checkpoint = inspection.checkpoint
    reasons: dict[tuple[int, str, str], str | None] = {}
    descriptors: list[StateDescriptor] = []
    for operator, stores in inspection.operators:
        for store, states in stores:
            refusal = _find_refusal(checkpoint, operator, store)
            for state in states:
                if state.descriptor is not None and refusal is None:
                    descriptors.append(state.descriptor)
                else:
                    reasons[operator.id, store.name, state.name] = refusal
    for descriptor, reason in zip(descriptors, explain_left_alone(descriptors, [rule], clock), strict=True):
        reasons[_place(descriptor)] = reason
    variables = [one for one in descriptors if one.operator_name in NAMES and explain_untouched(one) is None]
    deciding_operators = {variable.operator for variable in variables if reasons[_place(variable)] is None}
    for variable in variables:
        reason = reasons[_place(variable)]
        if reason is not None and variable.operator in deciding_operators:
            reasons[_place(variable)] = f"{reason}. {_MAY_FOLLOW}"
    return reasons


def _place(state: StateDescriptor) -> tuple[int, str, str]:
    return state.operator, *state.place


def _find_refusal(checkpoint: Checkpoint, operator: Operator, store: Store) -> str | None:
    """Return why no run can drop entries from a store; None if one can."""
    try:
        describe(checkpoint, Selection(operator.id, store.name))
    except UnsupportedError as error:
        return error.text
    except UsageError:  # all of its states are derived
        pass
    return None


def _followers(checkpoint: Checkpoint, operator: Operator) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the derived states that follow each primary state of an operator, by its place."""
    states_of_place: dict[tuple[str, str], tuple[str, ...]] = {}
    for link in links_of(checkpoint, operator):
        derived = tuple(
            f"{operator.id}.{state.store}.{state.state}" for state in link.places.values() if state.role == "derived"
        )
        for place, state in link.places.items():
            if state.role == "primary" and derived:
                states_of_place[place] = (*states_of_place.get(place, ()), *derived)
    return states_of_place


def _choose(count: int, share: float) -> list[int]:
    """Return the places of the partitions to read: a share of them, at least one, at the same distance."""
    wanted_count = count if share >= 1 else max(1, int(count * share))
    return [(2 * number + 1) * count // (2 * wanted_count) for number in range(wanted_count)]


def _merge(
    store: StoreSizes, state: StateInspection, work: StateWork, parts: Sequence[StatePart], reasons: _Reasons
) -> StateSizes:
    descriptor = state.descriptor
    entries = sum(part.entries for part in parts) if store.is_complete else state.entries
    with_rows = None
    if any(part.with_rows is not None for part in parts):
        keys_with_rows = chain.from_iterable(part.with_rows or () for part in parts)
        with_rows = tuple(sorted(keys_with_rows, key=lambda key: (-key.rows, -key.bytes, key.partition))[: work.most])
    scale = _scale(store, entries, sum(part.entries for part in parts))
    rule = None
    if work.rules or reasons.left_alone is not None:
        freed = sum((part.freed for part in parts if part.freed is not None), Freed())
        rule = RuleOutcome(freed, scale, None if work.rules else reasons.left_alone, reasons.followers)
    return StateSizes(
        operator=store.operator,
        store=store.store,
        state=state.name,
        kind=descriptor.kind if descriptor else "value",
        role=descriptor.role if descriptor else "primary",
        entries=entries,
        is_complete=store.is_complete,
        scale=scale,
        parts=tuple(parts),
        keys=Distribution.of(part.keys for part in parts),
        values=Distribution.of(part.values for part in parts),
        largest=tuple(_first(work.most, (part.largest for part in parts))),
        with_rows=with_rows,
        ages=Ages.merged(work.age, _known_ages(parts)) if work.age is not None else None,
        no_ages=reasons.no_ages,
        rule=rule,
    )


def _scale(store: StoreSizes, entries: int | None, read: int) -> float:
    """Return the factor from what was read to all: by the number of entries if it is known, otherwise by the files."""
    if entries is not None and read:
        return entries / read
    return store.file_bytes / store.read_bytes if store.read_bytes else 1.0


def _first(limit: int, entry_lists: Iterable[Sequence[LargeEntry]]) -> list[LargeEntry]:
    return sorted(chain.from_iterable(entry_lists), key=lambda entry: (-entry.bytes, entry.partition))[:limit]


def _known_ages(parts: Iterable[StatePart]) -> Iterator[Ages]:
    return (part.ages for part in parts if part.ages is not None)
