"""Planning a run: everything is read, checked and decided before anything is written.

``plan_compaction`` refuses what is unknown, proves that every partition's lineage is complete, asks the factories
which states they are about, and returns plain data. A dry run and a real one run the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.clock import MIN_INT64, Clock
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.operators import Selection, describe, is_join, left_untouched
from ttlsnap.partition import PartitionTask, create
from ttlsnap.state import StateDescriptor
from ttlsnap.stores.hdfs import StoreFormat, store_format
from ttlsnap.stores.lineage import Lineage, find_lineage
from ttlsnap.transform import PlansStates, StateSnapshotTransformerFactory


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of a state's store, and the files its version is made of."""

    partition: int
    lineage: Lineage


@dataclass(frozen=True)
class StatePlan:
    """One state: ``left_alone`` says why no transformer looks at it, None meaning that one does."""

    state: StateDescriptor
    partitions: tuple[PartitionPlan, ...]
    left_alone: str | None

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
    form: StoreFormat
    factories: tuple[StateSnapshotTransformerFactory, ...]
    states: tuple[StatePlan, ...]

    def tasks(self, staging_root: str, staged: Callable[[str], str | None]) -> list[PartitionTask]:
        """One task for each partition that a transformer looks at.

        ``staged`` is asked where below ``staging_root`` the snapshot with that path in the checkpoint goes at first.
        """
        return [
            PartitionTask(
                root=self.checkpoint.target,
                state=replace(planned.state, partition=partition.partition),
                lineage=partition.lineage,
                form=self.form,
                factories=self.factories,
                clock=self.clock,
                staging_root=staging_root,
                staged=staged(self.snapshot(planned.state, partition.partition)),
            )
            for planned in self.states
            if planned.left_alone is None
            for partition in planned.partitions
        ]

    def snapshot(self, state: StateDescriptor, partition: int) -> str:
        """Where a partition's new snapshot belongs, relative to the checkpoint."""
        return layout.state_file(state.operator, partition, state.store, self.checkpoint.version, "snapshot")


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
    if checkpoint.provider != "hdfs":
        raise UnsupportedError(
            f"{checkpoint.target}: the state store provider is {checkpoint.provider}; only the HDFS-backed one "
            "can be rewritten"
        )
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
    form = store_format(checkpoint)
    states = describe(checkpoint, selection)
    reasons = _reasons(states, factories, clock)
    return Plan(
        run=new_run_id(),
        checkpoint=checkpoint,
        clock=clock,
        form=form,
        factories=tuple(factories),
        states=tuple(
            StatePlan(state, lineages(checkpoint, state), reason) for state, reason in zip(states, reasons, strict=True)
        ),
    )


def lineages(checkpoint: Checkpoint, state: StateDescriptor) -> tuple[PartitionPlan, ...]:
    """Every partition of a state's store with its files; raises CorruptionError when one is incomplete."""
    store = next(s for o in checkpoint.operators if o.id == state.operator for s in o.stores if s.name == state.store)
    return tuple(
        PartitionPlan(p, find_lineage(checkpoint.files, store.directory(p), checkpoint.version))
        for p in store.partitions
    )


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
