"""The plan of a run: everything is read, checked and decided before anything is written.

``plan_compaction`` refuses unknown formats, checks that every partition's lineage is complete, asks the factories which
states they process, and returns plain data. A dry run and a real run use the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import xxhash

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.clock import Clock
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import FutureWatermarkError, UsageError
from ttlsnap.operators.links import Link, StateId
from ttlsnap.operators.registry import (
    AnyOf,
    FollowPolicy,
    Selection,
    behind_join,
    describe,
    explain_untouched,
    links_of,
    states_of,
)
from ttlsnap.publishing.preflight import describe_refusal, refuse_unsettled
from ttlsnap.publishing.runs import Runs, new_run_id
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineage_of, open_state_store, partitions_of
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import RewriteChoice, StateStore
from ttlsnap.transform.adapters import as_factory
from ttlsnap.transform.chain import create
from ttlsnap.transform.protocols import CollectionStrategy, StateSnapshotTransformerFactory, TransformerFactory
from ttlsnap.written.history import History, history_to_keep


@dataclass(frozen=True)
class StatePlan:
    """One state. ``left_alone`` says why it stays as it is; None if it may change.

    A state that ``follows`` changes with others. No transformer sees it.
    """

    state: StateDescriptor
    left_alone: str | None
    follows: bool = False


@dataclass(frozen=True)
class StorePlan:
    """A store with its states, which share their partitions' files.

    ``links`` describe its linked entries. A store that ``follows`` has only entries that are derived from another
    store.
    """

    operator: int
    store: str
    states: tuple[StatePlan, ...]
    partitions: tuple[StorePartition, ...]
    links: tuple[Link, ...] = ()
    follows: bool = False

    @property
    def seen_states(self) -> tuple[StateDescriptor, ...]:
        """The states that a transformer sees."""
        return tuple(
            plan.state
            for plan in self.states
            if plan.left_alone is None and plan.state.role == "primary" and not plan.follows
        )

    @property
    def touched(self) -> bool:
        """Whether anything in the store may change."""
        return self.follows or bool(self.seen_states)

    @property
    def size(self) -> int:
        """The size of the planned version on disk, in bytes."""
        return sum(partition.size for partition in self.partitions)


@dataclass(frozen=True)
class Plan:
    """The plan of a run. ``listing`` has the logs and state files at the time of planning.

    ``history`` says when entries were written, if a transformer asks for that, or there are ledgers.
    """

    run: str
    checkpoint: Checkpoint
    listing: Listing
    clock: Clock
    state_store: StateStore
    factories: tuple[TransformerFactory, ...]
    stores: tuple[StorePlan, ...]
    history: History | None = None

    @property
    def fingerprint(self) -> str:
        """The digest of the batch, and of the planned files with their sizes and times."""
        files = (
            (store.operator, store.store, partition.partition, partition.lineage)
            for store in self.stores
            for partition in store.partitions
        )
        return fingerprint_of(self.checkpoint.batch.id, files)

    def find(self, store: StorePlan, partition: int) -> Lineage:
        """Return the current files of a partition."""
        operator = next(operator for operator in self.checkpoint.operators if operator.id == store.operator)
        (checkpoint_store,) = (candidate for candidate in operator.stores if candidate.name == store.store)
        return lineage_of(self.checkpoint, self.state_store, checkpoint_store, partition)

    def tasks(
        self,
        staging_root: str,
        below: str | None,
        *,
        rewrite: RewriteChoice = "auto",
        scratch: str | None = None,
        expired: bool = False,
    ) -> list[PartitionTask]:
        """Return one task for each partition that a transformer sees.

        New files are staged below ``below`` in ``staging_root``, under their final paths; None for a dry run. With
        ``expired``, dropped entries are archived.
        """
        kept_states = self.kept_states()
        return [
            PartitionTask(
                stores=tuple(_with_states(store, number, kept_states) for store in group),
                factories=self.factories,
                clock=self.clock.of(group[0].operator),
                staging_root=staging_root,
                staged_below=below,
                links=group[0].links,
                rewrite=rewrite,
                scratch=scratch,
                expired_of=self.run if expired and below is not None else None,
                history=self.history,
            )
            for group in self.groups
            for number in range(len(group[0].partitions))
        ]

    def for_copy(self) -> Plan:
        """Return the plan of a run that writes a copy."""
        return self if self.history is None else replace(self, history=self.history.for_copy())

    def kept_states(self) -> list[StateDescriptor]:
        """Return the states whose times must be kept."""
        places = [(operator, store) for operator in self.checkpoint.operators for store in operator.stores]
        history = self.history
        if history is None or not history.known:
            return []
        return [state for place in places for state in states_of(self.checkpoint, *place) if history.keeps(state)]

    @property
    def groups(self) -> Iterator[list[StorePlan]]:
        """The stores to process, each with its linked stores."""
        for store in self.stores:
            if store.seen_states:
                linked_names = {name for link in store.links for name, _ in link.places}
                followers = [
                    follower
                    for follower in self.stores
                    if follower.operator == store.operator and follower.follows and follower.store in linked_names
                ]
                yield [store, *followers]


def _with_states(store: StorePlan, number: int, kept_states: Sequence[StateDescriptor]) -> StorePartition:
    partition = store.partitions[number]
    states = tuple(replace(state, partition=partition.partition) for state in store.seen_states)
    seen_names = {state.state for state in states}
    states_of_store = (state for state in kept_states if (state.operator, state.store) == (store.operator, store.store))
    return replace(
        partition, states=states, others=tuple(state for state in states_of_store if state.state not in seen_names)
    )


def fingerprint_of(batch: int, partitions: Iterable[tuple[int, str, int, Lineage]]) -> str:
    """Return the digest of a batch and its files: ``partitions`` are operator, store, number and lineage of each."""
    files = [(*place, file) for *place, lineage in partitions for file in lineage.files]
    return xxhash.xxh3_64_hexdigest(repr((batch, files)).encode("utf-8", "surrogateescape"))


def plan_compaction(
    checkpoint: Checkpoint,
    factories: Sequence[StateSnapshotTransformerFactory],
    clock: Clock,
    selection: Selection | AnyOf | None = None,
    timers: FollowPolicy = "keep",
    runs: Runs | None = None,
    variables: FollowPolicy = "keep",
) -> Plan:
    """Plan a run of ``factories`` over ``checkpoint``.

    With ``timers`` "follow", the timers of a key are dropped with the last of its state. With ``variables`` "follow",
    its variables that no factory processes are dropped with its last entry that one does. Raise FencedError if there is
    a fence, UnsupportedError for unknown formats, CorruptionError for an incomplete lineage, and UsageError if the
    factories or the selection match nothing.
    """
    listing = list_activity(checkpoint.files)
    runs = runs or Runs.read(checkpoint.files)
    refuse_unsettled(checkpoint, listing, runs)
    state_store = open_state_store(checkpoint)
    transformers = tuple(map(as_factory, factories))
    for factory in transformers:
        CollectionStrategy.parse(factory.strategy)
    ahead_reason = None
    if clock.ahead is not None:
        ahead_reason = f"{checkpoint.target}/{layout.offset_file(checkpoint.batch.id)}: {clock.ahead}"
    clock = replace(clock, behind_join=behind_join(checkpoint), ahead=ahead_reason)
    states = describe(checkpoint, selection)
    reasons = explain_left_alone(states, transformers, clock)
    seen_places: dict[int, set[StateId]] = {}
    for state, reason in zip(states, reasons, strict=True):
        if reason is None:
            seen_places.setdefault(state.operator, set()).add(state.place)
    links = {
        operator.id: links_of(checkpoint, operator, timers, seen_places[operator.id] if variables == "follow" else None)
        for operator in checkpoint.operators
        if operator.id in seen_places
    }
    _refuse_idle_policies(links, {"timers": timers, "variables": variables})
    return Plan(
        run=new_run_id(),
        checkpoint=checkpoint,
        listing=listing,
        clock=clock,
        state_store=state_store,
        factories=transformers,
        stores=tuple(
            _stores(checkpoint, state_store, [StatePlan(*pair) for pair in zip(states, reasons, strict=True)], links)
        ),
        history=history_to_keep(checkpoint, runs, is_asked=any(factory.uses_written_times for factory in transformers)),
    )


def _refuse_idle_policies(links: Mapping[int, Sequence[Link]], policies: Mapping[str, str]) -> None:
    """Raise UsageError if entries should follow others, and no operator at work has such entries."""
    found = {link.option for links_of_operator in links.values() for link in links_of_operator}
    for option, followers in (("timers", "timers"), ("variables", "variables that no rule sees")):
        if links and policies[option] == "follow" and option not in found:
            raise UsageError(f"--{option} follow: none of the selected operators has {followers}")


def plan_or_foresee(
    checkpoint: Checkpoint,
    runs: Runs,
    factories: Sequence[StateSnapshotTransformerFactory],
    clock: Clock,
    options: CompactOptions,
) -> tuple[Plan, tuple[str, ...]]:
    """Plan a run as ``plan_compaction``. Raise FutureWatermarkError if a rule uses a watermark that is in the future.

    In a dry run, use this watermark, and return the refusal as a warning.
    """
    policies = options.selection, options.timers, runs, options.variables
    try:
        return plan_compaction(checkpoint, factories, clock, *policies), ()
    except FutureWatermarkError as error:
        if not options.dry_run:
            raise
        plan = plan_compaction(checkpoint, factories, clock.unchecked(), *policies)
        return plan, (describe_refusal(error),)


def _stores(
    checkpoint: Checkpoint, state_store: StateStore, states: Sequence[StatePlan], links: Mapping[int, Sequence[Link]]
) -> Iterator[StorePlan]:
    seen_places = {(plan.state.operator, plan.state.place) for plan in states if plan.left_alone is None}
    for operator in checkpoint.operators:
        own_places = {place for number, place in seen_places if number == operator.id}
        links_at_work = _links_at_work(links.get(operator.id, ()), own_places)
        for store in operator.stores:
            plans = [plan for plan in states if (plan.state.operator, plan.state.store) == (operator.id, store.name)]
            own_links = tuple(link for link in links_at_work if any(name == store.name for name, _ in _primary(link)))
            followers = [
                StatePlan(state, None, follows=True)
                for link in links_at_work
                for (name, _), state in link.followers.items()
                if name == store.name
            ]
            following_names = {plan.state.state for plan in followers}
            plans = [plan for plan in plans if plan.state.state not in following_names] + followers
            if plans:
                follows = bool(followers) and not own_links
                partitions = tuple(partitions_of(checkpoint, state_store, store))
                yield StorePlan(operator.id, store.name, tuple(plans), partitions, own_links, follows)


def _links_at_work(links: Sequence[Link], seen_places: set[StateId]) -> list[Link]:
    """Return the links of whose primary entries a transformer sees some, and of those that follow them."""
    changing, links_at_work = set(seen_places), []
    for link in links:
        if not changing.isdisjoint(_primary(link)):
            links_at_work.append(link)
            changing.update(link.followers)
    return links_at_work


def _primary(link: Link) -> list[StateId]:
    return [place for place, state in link.places.items() if state.role == "primary"]


def explain_left_alone(
    states: Sequence[StateDescriptor], factories: Sequence[TransformerFactory], clock: Clock
) -> list[str | None]:
    """Return why each state stays unchanged; None if at least one factory processes it."""
    seen_states = [(index, state) for index, state in enumerate(states) if explain_untouched(state) is None]
    reasons: list[str | None] = [explain_untouched(state) for state in states]
    reasons_by_factory = [factory.plan([state for _, state in seen_states], clock) for factory in factories]
    for number, (index, state) in enumerate(seen_states):
        probe = replace(state, partition=None)
        if any(create(factory, probe, clock.of(state.operator)) is not None for factory in factories):
            continue
        reasons_given = [factory_reasons[number] for factory_reasons in reasons_by_factory if factory_reasons[number]]
        reasons[index] = reasons_given[0] if reasons_given else "no transformer handles this state"
    return reasons
