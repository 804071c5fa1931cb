"""Planning a run: everything is read, checked and decided before anything is written.

``plan_compaction`` refuses what is unknown, proves that every partition's lineage is complete, asks the factories
which states they are about, and returns plain data. A dry run and a real one run the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex

import xxhash

from ttlsnap.checkpoint import Checkpoint, Store
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.clock import Clock
from ttlsnap.errors import FencedError, UsageError
from ttlsnap.filesystem import each
from ttlsnap.links import Link, Place
from ttlsnap.operators import AnyOf, Selection, TimerPolicy, behind_join, describe, left_untouched, links_of
from ttlsnap.operators.transform_with_state import Timers
from ttlsnap.partition import PartitionTask, StoreTask
from ttlsnap.shadows import refuse_shadows
from ttlsnap.state import StateDescriptor
from ttlsnap.stores import RewriteChoice, StateStore, lineage_of, state_store
from ttlsnap.stores.lineage import Lineage
from ttlsnap.transform import (
    ChoosesStrategy,
    CollectionStrategy,
    PlansStates,
    StateSnapshotTransformerFactory,
)
from ttlsnap.transforming import create


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
    """A store with its states, which share their partitions' files.

    ``links`` say what hangs together with its entries; a store that ``follows`` has nothing but what is derived from
    another store.
    """

    operator: int
    store: str
    states: tuple[StatePlan, ...]
    partitions: tuple[PartitionPlan, ...]
    links: tuple[Link, ...] = ()
    follows: bool = False

    @property
    def offered(self) -> tuple[StateDescriptor, ...]:
        """The states that a transformer looks at."""
        return tuple(p.state for p in self.states if p.left_alone is None and p.state.role == "primary")

    @property
    def touched(self) -> bool:
        """Whether anything in it may change."""
        return self.follows or bool(self.offered)

    @property
    def size(self) -> int:
        """Bytes on disk of the planned version."""
        return sum(partition.lineage.size for partition in self.partitions)


@dataclass(frozen=True)
class Plan:
    """What a run will do. ``listing`` has the logs and state files that were there when it was planned."""

    run: str
    checkpoint: Checkpoint
    listing: Listing
    clock: Clock
    state_store: StateStore
    factories: tuple[StateSnapshotTransformerFactory, ...]
    stores: tuple[StorePlan, ...]

    @property
    def fingerprint(self) -> str:
        """Of the batch, and of the files that were planned with, their sizes and times."""
        files = [
            (store.operator, store.store, partition.partition, file)
            for store in self.stores
            for partition in store.partitions
            for file in partition.lineage.files
        ]
        return xxhash.xxh3_64_hexdigest(repr((self.checkpoint.batch.id, files)).encode("utf-8", "surrogateescape"))

    def find(self, store: StorePlan, partition: int) -> Lineage:
        """The files of a partition as they are now."""
        operator = next(o for o in self.checkpoint.operators if o.id == store.operator)
        (found,) = (s for s in operator.stores if s.name == store.store)
        return lineage_of(self.checkpoint, self.state_store, found, partition)

    def tasks(
        self,
        staging_root: str,
        below: str | None,
        *,
        rewrite: RewriteChoice = "auto",
        scratch: str | None = None,
        expired: bool = False,
    ) -> list[PartitionTask]:
        """One task for each partition that a transformer looks at.

        New files go below ``below`` in ``staging_root`` at first, under the paths they will have; None for a dry run.
        With ``expired`` what is dropped is written down.
        """
        return [
            PartitionTask(
                root=self.checkpoint.target,
                operator=group[0].operator,
                partition=partition.partition,
                stores=tuple(_store_task(store, number) for store in group),
                state_store=self.state_store,
                factories=self.factories,
                clock=self.clock.of(group[0].operator),
                staging_root=staging_root,
                staged_below=below,
                links=group[0].links,
                rewrite=rewrite,
                scratch=scratch,
                expired_of=self.run if expired and below is not None else None,
            )
            for group in self.groups
            for number, partition in enumerate(group[0].partitions)
        ]

    @property
    def groups(self) -> Iterator[list[StorePlan]]:
        """The stores that are worked on, each with those that hang together with it."""
        for store in self.stores:
            if store.offered:
                linked = {name for link in store.links for name, _ in link.places}
                mine = [s for s in self.stores if s.operator == store.operator and s.follows and s.store in linked]
                yield [store, *mine]


def _store_task(store: StorePlan, number: int) -> StoreTask:
    partition = store.partitions[number]
    states = tuple(replace(state, partition=partition.partition) for state in store.offered)
    return StoreTask(store.store, states, partition.lineage)


def new_run_id() -> str:
    """A name for a run that sorts by time, and that no other has, of however many checkpoints: archives go by it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{token_hex(6)}"


def plan_compaction(
    checkpoint: Checkpoint,
    factories: Sequence[StateSnapshotTransformerFactory],
    clock: Clock,
    selection: Selection | AnyOf | None = None,
    timers: TimerPolicy = "keep",
) -> Plan:
    """Decide what a run of ``factories`` over ``checkpoint`` will look at.

    With ``timers`` "follow", those of a key go with the last of its state. Raises FencedError when a fence stands,
    UnsupportedError for what is not known, CorruptionError for an incomplete lineage, UsageError when the factories or
    the selection fit nothing.
    """
    if checkpoint.logs.fence is not None:
        raise FencedError(
            f"{checkpoint.target} is fenced: a run was cut off while it published. "
            f"Run: ttlsnap recover {checkpoint.target}"
        )
    refuse_shadows(checkpoint.files, checkpoint.logs)
    listing = list_activity(checkpoint.files)
    files = state_store(checkpoint)
    for factory in factories:
        if not callable(getattr(factory, "create", None)):
            raise UsageError(
                f"{factory!r} is no transformer factory: it has no create(state, clock). A function of (key, value) "
                "becomes one with EntryTransformerFactory(function)"
            )
    for factory in factories:
        if isinstance(factory, ChoosesStrategy):
            CollectionStrategy.parse(factory.strategy)
    clock = replace(clock, behind_join=behind_join(checkpoint))
    states = describe(checkpoint, selection)
    reasons = _reasons(states, factories, clock)
    at_work = {state.operator for state, reason in zip(states, reasons, strict=True) if reason is None}
    links = {
        operator.id: links_of(checkpoint, operator, timers)
        for operator in checkpoint.operators
        if operator.id in at_work
    }
    if (
        timers == "follow"
        and at_work
        and not any(isinstance(link, Timers) for found in links.values() for link in found)
    ):
        raise UsageError("--timers follow: none of the operators that are looked at has timers")
    return Plan(
        run=new_run_id(),
        checkpoint=checkpoint,
        listing=listing,
        clock=clock,
        state_store=files,
        factories=tuple(factories),
        stores=tuple(
            _stores(checkpoint, files, [StatePlan(*pair) for pair in zip(states, reasons, strict=True)], links)
        ),
    )


def _stores(
    checkpoint: Checkpoint, files: StateStore, states: Sequence[StatePlan], links: Mapping[int, Sequence[Link]]
) -> Iterator[StorePlan]:
    looked_at = {(p.state.operator, p.state.store, p.state.state) for p in states if p.left_alone is None}
    for operator in checkpoint.operators:
        # A link of which no primary entry is looked at has nothing to do.
        at_work = [
            link
            for link in links.get(operator.id, ())
            if any((operator.id, *place) in looked_at for place in _primary(link))
        ]
        for store in operator.stores:
            mine = [p for p in states if (p.state.operator, p.state.store) == (operator.id, store.name)]
            own = tuple(link for link in at_work if any(name == store.name for name, _ in _primary(link)))
            derived = [
                StatePlan(state, None)
                for link in at_work
                for (name, _), state in link.places.items()
                if name == store.name and state.role == "derived"
            ]
            known = {p.state.state for p in derived}
            mine = [p for p in mine if p.state.state not in known] + derived
            if mine:
                follows = bool(derived) and not own
                yield StorePlan(
                    operator.id, store.name, tuple(mine), partitions(checkpoint, files, store), own, follows
                )


def _primary(link: Link) -> list[Place]:
    return [place for place, state in link.places.items() if state.role == "primary"]


def partitions(checkpoint: Checkpoint, files: StateStore, store: Store) -> tuple[PartitionPlan, ...]:
    """Every partition of a store with its files; raises CorruptionError when one is incomplete."""
    lineages = each(checkpoint.files, lambda p: lineage_of(checkpoint, files, store, p), store.partitions)
    return tuple(map(PartitionPlan, store.partitions, lineages))


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
        if any(create(factory, probe, clock.of(state.operator)) is not None for factory in factories):
            continue
        given = [answers[number] for answers in told if answers[number]]
        reasons[i] = given[0] if given else "no transformer is about this state"
    return reasons
