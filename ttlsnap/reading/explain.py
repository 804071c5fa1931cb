"""``explain``: why ``compact`` with the same rules would keep, drop or rewrite the entries of a key.

It plans as ``compact`` does. Of each operator it reads the partition in which Spark places the key. It reads all of
them if the key is given in part, or if ttlsnap does not know the placement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttlsnap.clock import Moment, clock_at
from ttlsnap.compaction.given_schemas import check_given_schemas
from ttlsnap.compaction.plan import Plan, StorePlan, plan_compaction
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.documents import MILLISECONDS, Document, Result, in_json
from ttlsnap.engines.local import read_all
from ttlsnap.engines.options import ReadOptions
from ttlsnap.engines.progress import SilentWorkListener
from ttlsnap.errors import UsageError
from ttlsnap.keywords import takes
from ttlsnap.operators.links import StateId
from ttlsnap.operators.placement import STRICT
from ttlsnap.operators.registry import FollowPolicy
from ttlsnap.reading.explained_entries import Explanation, Work
from ttlsnap.reading.explained_key import Key, StateKey, key_text
from ttlsnap.reading.opening import open_to_read
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

SHOWN = 100


@dataclass(frozen=True)
class Looked(Document):
    """The partitions of an operator that were read, of how many."""

    operator: int
    partitions: tuple[int, ...]
    of: int


@dataclass(frozen=True)
class ExplainReport(Result):
    """The entries of a key with the decisions about them, as JSON; ``found`` is how many there are.

    ``rules`` describe the transformers. ``left_out`` says which states cannot be read, and why.
    """

    target: str
    batch: int
    key: str = field(metadata=in_json(hidden=True))
    now_source: str
    rules: tuple[str, ...]
    found: int
    entries: tuple[Mapping[str, Any], ...]
    looked: tuple[Looked, ...]
    left_out: tuple[str, ...]
    seconds: float = field(metadata=MILLISECONDS)


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(ReadOptions):
    """The arguments of ``explain``."""

    target: str = field(kw_only=False)
    key: str | Mapping[str, Any] = field(kw_only=False)
    transformers: Sequence[StateSnapshotTransformerFactory] = field(kw_only=False)
    now: Moment = "checkpoint"
    timers: FollowPolicy = "keep"
    variables: FollowPolicy = "keep"
    drop_unmatched: bool = False
    show: int = SHOWN


@takes(ExplainRequest)
def explain(request: ExplainRequest) -> ExplainReport:
    """Return why ``compact`` with these ``transformers`` keeps, drops or rewrites the entries of a key.

    ``key`` is JSON (see ``ttlsnap.reading.explained_key``), or a dict of its columns. The report has the first ``show``
    entries, and how many were ``found``: 0 for a key without entries. The other arguments are those of ``compact``.
    Nothing is written.

    Raise UsageError if the keys of no state have such fields, or another ``TtlsnapError``.
    """
    started = time.monotonic()
    listener, parallelism = request.listener or SilentWorkListener(), request.parallelism
    key = key_text(request.key)
    parsed_key = Key.parse(key)
    checkpoint = open_to_read(request.target, schemas=request.schemas)
    clock = clock_at(request.now, checkpoint.batch).unchecked()
    plan = plan_compaction(
        checkpoint,
        request.transformers,
        clock,
        request.selection,
        request.timers,
        variables=request.variables,
    )
    check_given_schemas(plan, request.schemas or {})
    keys = _keys(plan, parsed_key)
    rules = tuple(factory.describe() for factory in plan.factories)
    all_work = _works(plan, keys, rules, request.show, request.drop_unmatched)
    first_work, remaining_work = _placed(plan, keys, all_work)
    work_and_results = list(zip(first_work, read_all(Work.run, first_work, parallelism, listener), strict=True))
    # A query of old Spark may have had its own partitioning. All entries of a key are then together elsewhere.
    operators_with_entries = {work.task.operator for work, result in work_and_results if result.found}
    more_work = [work for work in remaining_work if work.task.operator not in operators_with_entries]
    if more_work:
        work_and_results += zip(more_work, read_all(Work.run, more_work, parallelism, listener), strict=True)
    return ExplainReport(
        target=checkpoint.target,
        batch=checkpoint.batch.id,
        key=key,
        now_source=plan.clock.source,
        rules=rules,
        found=sum(result.found for _, result in work_and_results),
        entries=_in_order(work_and_results)[: request.show],
        looked=tuple(_looked(plan, work_and_results)),
        left_out=tuple(
            f"{state_plan.state}: {state_plan.state.opaque}"
            for store in plan.stores
            for state_plan in store.states
            if state_plan.state.opaque
        ),
        seconds=time.monotonic() - started,
    )


def _in_order(work_and_results: Sequence[tuple[Work, Explanation]]) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of all partitions, primary ones first."""
    entries = [entry for _, result in work_and_results for entry in result.entries]
    return tuple(sorted(entries, key=lambda entry: entry["role"] != "primary"))


def _keys(plan: Plan, parsed_key: Key) -> dict[tuple[int, StateId], StateKey]:
    """Return the key in the form of each state. Raise UsageError if no state can have it."""
    keys, errors = {}, []
    for store in plan.stores:
        for state_plan in store.states:
            if state_plan.state.opaque:
                continue
            try:
                keys[store.operator, state_plan.state.place] = parsed_key.of(state_plan.state)
            except UsageError as error:
                errors.append(error)
    if not keys and errors:
        raise errors[0]
    return keys


def _works(
    plan: Plan, keys: Mapping[tuple[int, StateId], StateKey], rules: tuple[str, ...], show: int, drop_unmatched: bool
) -> list[Work]:
    """Return the work on each partition: of linked stores together, and of the stores that no transformer sees."""
    root = plan.checkpoint.target
    tasks = plan.tasks(root, None)
    stores_at_work = {(task.operator, store.name) for task in tasks for store in task.stores}
    for store in plan.stores:
        if (store.operator, store.store) not in stores_at_work and any(
            not candidate.state.opaque for candidate in store.states
        ):
            tasks += [_untouched(plan, store, number) for number in range(len(store.partitions))]
    all_work = []
    for task in tasks:
        names = {store.name for store in task.stores}
        seen_places = {state.place for store in task.stores for state in store.states}
        linked_places = {place for link in task.links for place in link.places}
        other_states = {
            state_plan.state.place: (state_plan.state, state_plan.left_alone or "no rule changes it")
            for store in plan.stores
            if store.operator == task.operator and store.store in names
            for state_plan in store.states
            if not state_plan.state.opaque and state_plan.state.place not in seen_places | linked_places
        }
        keys_of_operator = {place: keys[operator, place] for operator, place in keys if operator == task.operator}
        if keys_of_operator.keys() & (seen_places | linked_places | other_states.keys()):
            all_work.append(Work(task, keys_of_operator, other_states, rules, show, drop_unmatched))
    return all_work


def _untouched(plan: Plan, store: StorePlan, number: int) -> PartitionTask:
    return PartitionTask(
        stores=(store.partitions[number],),
        factories=(),
        clock=plan.clock,
        staging_root=plan.checkpoint.target,
        staged_below=None,
    )


def _placed(
    plan: Plan, keys: Mapping[tuple[int, StateId], StateKey], all_work: Sequence[Work]
) -> tuple[list[Work], list[Work]]:
    """Return the work to do first, and that to do if nothing is found in an operator."""
    is_strict = plan.checkpoint.batch.conf.get(STRICT) == "true"
    partitions_of_operators: dict[int, set[int | None]] = {}
    for (operator, _place), key in keys.items():
        count = max(len(store.partitions) for store in plan.stores if store.operator == operator)
        partitions_of_operators.setdefault(operator, set()).add(key.partition(count))
    first_work, remaining_work = [], []
    for work in all_work:
        partitions = partitions_of_operators[work.task.operator]
        if None in partitions or work.task.partition in partitions:
            first_work.append(work)
        elif not is_strict:
            remaining_work.append(work)
    return first_work, remaining_work


def _looked(plan: Plan, work_and_results: Sequence[tuple[Work, Explanation]]) -> list[Looked]:
    operators_looked_at = []
    for operator in dict.fromkeys(store.operator for store in plan.stores):
        partitions = sorted({work.task.partition for work, _ in work_and_results if work.task.operator == operator})
        if partitions:
            count = max(len(store.partitions) for store in plan.stores if store.operator == operator)
            operators_looked_at.append(Looked(operator, tuple(partitions), count))
    return operators_looked_at
