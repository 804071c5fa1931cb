"""Planning a run: everything is read, checked and decided before anything is written.

``plan_compaction`` refuses what is unknown, proves that every partition's lineage is complete, asks the factories
which states they are about, and returns plain data. A dry run and a real one run the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex

from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.clock import MIN_INT64, Clock
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.operators import Selection, describe, is_join, left_untouched
from ttlsnap.partition import PartitionTask, create
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import Rewrite, StateStore, lineage_of, state_store
from ttlsnap.stores.lineage import Lineage
from ttlsnap.transform import PlansStates, StateSnapshotTransformerFactory


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of a store, and the files its version is made of."""

    partition: int
    lineage: Lineage


@dataclass(frozen=True)
class StatePlan:
    """One state: ``left_alone`` says why no transformer looks at it, None meaning that one does."""

    state: StateDescriptor
    left_alone: str | None


@dataclass(frozen=True)
class StorePlan:
    """A store with its states, which share their partitions' files."""

    operator: int
    store: str
    states: tuple[StatePlan, ...]
    partitions: tuple[PartitionPlan, ...]

    @property
    def offered(self) -> tuple[StateDescriptor, ...]:
        """The states that a transformer looks at."""
        return tuple(planned.state for planned in self.states if planned.left_alone is None)

    @property
    def size(self) -> int:
        """Bytes on disk of the planned version."""
        return sum(partition.lineage.size for partition in self.partitions)


@dataclass(frozen=True)
class Plan:
    """What a run will do."""

    run: str
    checkpoint: Checkpoint
    clock: Clock
    state_store: StateStore
    factories: tuple[StateSnapshotTransformerFactory, ...]
    stores: tuple[StorePlan, ...]

    def find(self, store: StorePlan, partition: int) -> Lineage:
        """The files of a partition as they are now."""
        operator = next(o for o in self.checkpoint.operators if o.id == store.operator)
        (found,) = (s for s in operator.stores if s.name == store.store)
        return lineage_of(self.checkpoint, self.state_store, found, partition)

    def tasks(
        self, staging_root: str, below: str | None, *, rewrite: Rewrite = "auto", scratch: str | None = None
    ) -> list[PartitionTask]:
        """One task for each partition that a transformer looks at.

        New files go below ``below`` in ``staging_root`` at first, under the paths they will have; None for a dry run.
        """
        return [
            PartitionTask(
                root=self.checkpoint.target,
                operator=store.operator,
                store=store.store,
                partition=partition.partition,
                states=tuple(replace(state, partition=partition.partition) for state in store.offered),
                lineage=partition.lineage,
                state_store=self.state_store,
                factories=self.factories,
                clock=self.clock,
                staging_root=staging_root,
                staged_below=below,
                rewrite=rewrite,
                scratch=scratch,
            )
            for store in self.stores
            if store.offered
            for partition in store.partitions
        ]


def new_run_id() -> str:
    """A name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{token_hex(3)}"


def plan_compaction(
    checkpoint: Checkpoint,
    factories: Sequence[StateSnapshotTransformerFactory],
    clock: Clock,
    selection: Selection | None = None,
) -> Plan:
    """Decide what a run of ``factories`` over ``checkpoint`` will look at.

    Raises RefusedError when a fence stands, UnsupportedError for what is not known, CorruptionError for an
    incomplete lineage, UsageError when the factories or the selection fit nothing.
    """
    if checkpoint.logs.fence is not None:
        raise RefusedError(
            f"{checkpoint.target} is fenced: a run was cut off while it published. "
            f"Run: ttlsnap recover {checkpoint.target}"
        )
    files = state_store(checkpoint)
    for factory in factories:
        if not callable(getattr(factory, "create", None)):
            raise UsageError(
                f"{factory!r} is no transformer factory: it has no create(state, clock). A function of (key, value) "
                "becomes one with EntryTransformerFactory(function)"
            )
    if any(is_join(operator) for operator in checkpoint.operators):
        # What a join has still to emit lies behind the query's watermark, and the operators after it go by that.
        clock = replace(
            clock,
            event_us=None if clock.source == "checkpoint" else clock.event_us,
            watermark_us=MIN_INT64,
            no_event_time="the query has a stream-stream join, and the watermark behind a join is not recorded",
        )
    states = describe(checkpoint, selection)
    reasons = _reasons(states, factories, clock)
    return Plan(
        run=new_run_id(),
        checkpoint=checkpoint,
        clock=clock,
        state_store=files,
        factories=tuple(factories),
        stores=tuple(_stores(checkpoint, files, [StatePlan(*pair) for pair in zip(states, reasons, strict=True)])),
    )


def _stores(checkpoint: Checkpoint, files: StateStore, states: Sequence[StatePlan]) -> Iterator[StorePlan]:
    for operator in checkpoint.operators:
        for store in operator.stores:
            mine = [p for p in states if (p.state.operator, p.state.store) == (operator.id, store.name)]
            if mine:
                yield StorePlan(operator.id, store.name, tuple(mine), partitions(checkpoint, files, store))


def partitions(checkpoint: Checkpoint, files: StateStore, store: Store) -> tuple[PartitionPlan, ...]:
    """Every partition of a store with its files; raises CorruptionError when one is incomplete."""
    return tuple(PartitionPlan(p, lineage_of(checkpoint, files, store, p)) for p in store.partitions)


def _reasons(
    states: Sequence[StateDescriptor], factories: Sequence[StateSnapshotTransformerFactory], clock: Clock
) -> list[str | None]:
    """Why each state is left alone; None where at least one factory wants it."""
    offered = [(i, state) for i, state in enumerate(states) if left_untouched(state) is None]
    reasons: list[str | None] = [left_untouched(state) for state in states]
    told: list[Sequence[str | None]] = [
        factory.plan([state for _, state in offered], clock)
        if isinstance(factory, PlansStates)
        else [None] * len(offered)
        for factory in factories
    ]
    for number, (i, state) in enumerate(offered):
        probe = replace(state, partition=None)
        if any(create(factory, probe, clock) is not None for factory in factories):
            continue
        given = [answers[number] for answers in told if answers[number]]
        reasons[i] = given[0] if given else "no transformer is about this state"
    return reasons
