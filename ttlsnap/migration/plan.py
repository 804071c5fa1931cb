"""The plan of a migration: everything is read and checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import uuid4

from ttlsnap.checkpoint import Checkpoint, Operator, Store, layout
from ttlsnap.checkpoint.checkpoint import state_files
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.checkpoint.metadata import metadata_file
from ttlsnap.compaction.plan import Plan, fingerprint_of
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import NothingToMigrateError, UnsupportedError
from ttlsnap.migration.changes import CHANGELOG, Changes, NewSettings, find_target
from ttlsnap.migration.evolution import NO_EVOLUTION, Evolution, StateEvolution
from ttlsnap.migration.recorded import with_schemas_of
from ttlsnap.migration.struct_changes import StructChange, Take
from ttlsnap.migration.times import KeptStates
from ttlsnap.migration.unused import find_unused
from ttlsnap.operators import transform_with_state
from ttlsnap.operators.placement import is_placed_by_hash
from ttlsnap.operators.registry import describe
from ttlsnap.printable import shell_word
from ttlsnap.publishing.preflight import refuse_unsettled
from ttlsnap.publishing.runs import Runs, new_run_id
from ttlsnap.schema.fields import all_fields
from ttlsnap.storage.directory import each
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.stores.protocols import StateStore
from ttlsnap.written.history import History, history_to_keep


@dataclass(frozen=True)
class StoreMigration:
    """A store that gets new files. ``lineages`` are the files of its old partitions, in order.

    ``states`` describe its entries as they are, and ``new_states`` as they will be. ``becomes`` is the store that they
    move to: the same one, or one that has the entries of several old ones. ``partitions`` is its number of partitions.
    ``ids`` are the ids in the names of the new partitions' files; empty if they have none (checkpoint format 1).
    ``evolutions`` has the changes of its states whose schemas change. ``is_transformed``: transformers see its entries.
    """

    store: Store
    states: tuple[StateDescriptor, ...]
    new_states: tuple[StateDescriptor, ...]
    lineages: tuple[Lineage, ...]
    becomes: Store
    partitions: int
    new_store: StateStore
    ids: tuple[str, ...] = ()
    evolutions: tuple[StateEvolution, ...] = ()
    is_transformed: bool = False

    @property
    def operator(self) -> int:
        return self.store.operator

    @property
    def stays(self) -> bool:
        """Whether every entry stays in its partition."""
        moves = self.partitions != len(self.lineages) or any(state.moves for state in self.evolutions)
        return not moves and not self.is_transformed

    @property
    def merged(self) -> StateDescriptor | None:
        """The new state whose entries may have the same key; None if there is none."""
        merging_names = {state.new_name for state in self.evolutions if state.merges}
        return next((state for state in self.new_states if state.state in merging_names), None)

    @property
    def size(self) -> int:
        """The size of the old partitions on disk, in bytes."""
        return sum(lineage.size for lineage in self.lineages)

    def new_snapshot(self, partition: int) -> str:
        """Return the path of the snapshot of a new partition."""
        unique_id = self.ids[partition] if self.ids else None
        name = self.new_store.snapshot_name(self.lineages[0].version, unique_id)
        return f"{self.becomes.directory(partition)}/{name}"


@dataclass(frozen=True)
class MigrationPlan:
    """The plan of a migration. ``after`` is the checkpoint with its new settings and schemas.

    ``partitions`` is the number that the checkpoint pins afterwards. ``single`` are the operators that Spark runs in
    one partition. ``stores`` are those that get new files. The offsets of the ``taken`` batches stay (see
    ``Runs.taken_batches``). ``compaction`` is the plan of the transformers, and ``evolution`` that of the schemas.
    ``history`` is given if the times of some entries must be kept.
    """

    run: str
    checkpoint: Checkpoint
    after: Checkpoint
    listing: Listing
    state_store: StateStore
    new_store: StateStore
    target: NewSettings
    partitions: int
    stores: tuple[StoreMigration, ...]
    single: tuple[int, ...]
    taken: tuple[int, ...] = ()
    compaction: Plan | None = None
    evolution: Evolution = NO_EVOLUTION
    history: History | None = None

    def kept(self, store: StoreMigration) -> KeptStates | None:
        """Return the states of a store whose times are kept; None if there are none."""
        group = next(group for group in self.groups if store in group)
        new_names = {name for member in group for name in self._kept_names(member).values()}
        if self.history is None or not new_names:
            return None
        states = tuple(state for state in store.states if state.state in self._kept_names(store))
        return KeptStates(self.history, states, tuple(sorted(new_names)))

    def _kept_names(self, store: StoreMigration) -> dict[str, str]:
        """Return the new names of the states whose times are kept, by the old ones."""
        if self.history is None:
            return {}
        asked_states = set()
        if self.history.is_asked and self.compaction is not None:
            asked_states = {
                (state.operator, state.place) for plan in self.compaction.stores for state in plan.seen_states
            }
        old_names = [
            state.state
            for state in store.states
            if self.history.keeps(state) or (state.operator, state.place) in asked_states
        ]
        remaining, renamed = (
            {state.state for state in store.new_states},
            {evolution.state: evolution.new_name for evolution in store.evolutions},
        )
        return {name: new_name for name in old_names if (new_name := renamed.get(name, name)) in remaining}

    def is_joined(self, operator: Operator) -> bool:
        """Return whether several stores of an operator become one."""
        return operator.id in self.evolution.new_stores and len(operator.stores) > 1

    @property
    def groups(self) -> list[tuple[StoreMigration, ...]]:
        """The stores, those together that become one."""
        groups: dict[tuple[int, str], list[StoreMigration]] = {}
        for store in self.stores:
            groups.setdefault((store.operator, store.becomes.name), []).append(store)
        return list(map(tuple, groups.values()))

    @property
    def fingerprint(self) -> str:
        """The digest of the batch, and of the files that are read with their sizes and times."""
        files = (
            (store.operator, store.store.name, partition, lineage)
            for store in self.stores
            for partition, lineage in enumerate(store.lineages)
        )
        return fingerprint_of(self.checkpoint.batch.id, files)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to change."""
        return not self.stores and not self.evolution.changes


def plan_migration(
    checkpoint: Checkpoint,
    runs: Runs,
    changes: Changes,
    compaction: Plan | None = None,
    evolution: Evolution = NO_EVOLUTION,
) -> MigrationPlan:
    """Plan a migration, in which the transformers of ``compaction`` run, and schemas change by ``evolution``.

    Raise FencedError if there is a fence, UnsupportedError for what ttlsnap cannot place or the new store cannot hold,
    CorruptionError for an incomplete lineage, and NothingToMigrateError if the
    change has no effect on this checkpoint.
    """
    listing = compaction.listing if compaction is not None else list_activity(checkpoint.files)
    refuse_unsettled(checkpoint, listing, runs)
    state_store = open_state_store(checkpoint)
    target = find_target(checkpoint, changes)
    conf = {**checkpoint.batch.conf, **target.pinned}
    new_checkpoint = with_schemas_of(replace(checkpoint, batch=replace(checkpoint.batch, conf=conf)), evolution)
    new_store = open_state_store(new_checkpoint)
    states = describe(checkpoint)
    new_states = [_with_hash(state, evolution) for state in describe(new_checkpoint)]
    _require_complete(checkpoint, states, new_states)
    unused = find_unused(checkpoint)
    kept_unused = [
        state for state in unused if state.state not in evolution.removed.get((state.operator, state.store), ())
    ]
    _require_known(checkpoint, kept_unused, new_states)
    states, new_states = [*states, *unused], [*new_states, *kept_unused]
    single: tuple[int, ...] = ()
    if changes.partitions is not None:
        single = tuple(operator.id for operator in checkpoint.operators if _is_single(checkpoint, operator, states))
    # The files of every store change with the provider and the other settings, and otherwise with their number.
    all_change = new_store != state_store or target.checkpoint_format != checkpoint.batch.checkpoint_format
    old_counts = {
        (operator.id, store.name): len(store.partitions)
        for operator in checkpoint.operators
        for store in operator.stores
    }
    new_counts = {
        place: count if place[0] in single else changes.partitions or count for place, count in old_counts.items()
    }
    changing_operators = {place[0] for place in old_counts if all_change or new_counts[place] != old_counts[place]}
    changing_operators |= {state.operator for state in evolution.states if state.changes_bytes}
    changing_operators |= {place[0] for place, names in evolution.removed.items() if names}
    if changing_operators and compaction is not None:
        changing_operators |= {store.operator for group in compaction.groups for store in group}
    transformed = (
        {(plan.operator, plan.store) for group in compaction.groups for plan in group} if compaction else set()
    )
    stores = []
    ids: dict[tuple[int, str], tuple[str, ...]] = {}
    for operator in checkpoint.operators:
        for store in operator.stores if operator.id in changing_operators else ():
            partitions = new_counts[operator.id, store.name]
            becomes = evolution.new_stores[operator.id].store if operator.id in evolution.new_stores else store
            place = (operator.id, becomes.name)
            if place not in ids and target.checkpoint_format == 2:
                ids[place] = tuple(str(uuid4()) for _ in range(partitions))
            stores.append(
                StoreMigration(
                    store,
                    tuple(state for state in states if (state.operator, state.store) == (operator.id, store.name)),
                    tuple(state for state in new_states if (state.operator, state.store) == place),
                    tuple(lineages_of(checkpoint, state_store, store)),
                    becomes,
                    partitions,
                    new_store,
                    ids.get(place, ()),
                    tuple(
                        state
                        for state in evolution.states
                        if (state.operator, state.store) == (operator.id, store.name)
                    ),
                    (operator.id, store.name) in transformed,
                )
            )
    if not stores and not evolution.changes:
        _explain_nothing(checkpoint, changes, single)
    partitions = changes.partitions or max(
        len(store.partitions) for query_operator in checkpoint.operators for store in query_operator.stores
    )
    return MigrationPlan(
        new_run_id() if compaction is None else compaction.run,
        checkpoint,
        new_checkpoint,
        listing,
        state_store,
        new_store,
        target,
        partitions,
        tuple(stores),
        single,
        tuple(runs.taken_batches(checkpoint.logs)),
        compaction,
        evolution,
        history_to_keep(checkpoint, runs, is_asked=False) if compaction is None else compaction.history,
    )


def _explain_nothing(checkpoint: Checkpoint, changes: Changes, single: Sequence[int]) -> None:
    """Raise NothingToMigrateError if changes that change no file can have no effect, whatever the query does."""
    if single and len(single) == len(checkpoint.operators):
        raise NothingToMigrateError(
            f"{checkpoint.target}: Spark runs every operator of this query in a single partition, so another number "
            "has no effect. Nothing was changed. Leave --partitions out"
        )
    if changes.is_only_changelog:
        raise NothingToMigrateError(
            f"{checkpoint.target}: Spark does not record whether it writes changelogs, so there is nothing to change. "
            f"Set {CHANGELOG} in the query's session"
        )


def _with_hash(state: StateDescriptor, evolution: Evolution) -> StateDescriptor:
    place = (state.operator, state.store, state.state)
    choices = [
        state_evolution.hashes_days
        for state_evolution in evolution.states
        if (state_evolution.operator, state_evolution.new_store or state_evolution.store, state_evolution.new_name)
        == place
    ]
    return next((replace(state, hashes_days=hashes_days) for hashes_days in choices if hashes_days is not None), state)


def _require_complete(
    checkpoint: Checkpoint, states: Sequence[StateDescriptor], new_states: Sequence[StateDescriptor]
) -> None:
    """Raise UnsupportedError if the new schemas lack a state that Spark keeps beside another one."""
    opaque = {(state.operator, state.place) for state in states if state.opaque}
    for state in new_states:
        if state.opaque and (state.operator, state.place) not in opaque:
            raise UnsupportedError(
                f"{checkpoint.target}: the new query's contract is not complete: {state}: {state.opaque}. Make it with "
                "ttlsnap contract"
            )


def _require_known(
    checkpoint: Checkpoint, unused_states: Sequence[StateDescriptor], new_states: Sequence[StateDescriptor]
) -> None:
    """Raise UnsupportedError for an unused state that has no schema, or whose name another state gets."""
    new_places = {(state.operator, state.place) for state in new_states}
    for state in unused_states:
        advice = f"To remove it, add --drop {shell_word(transform_with_state.variable_in(state.state))}"
        if (state.operator, state.place) in new_places:
            raise UnsupportedError(
                f"{checkpoint.target}: {state}: Spark has kept it of an earlier query, and the new query has another "
                f"state of this name. {advice}"
            )
        if state.kind == "unknown":
            raise UnsupportedError(f"{checkpoint.target}: {state}: {state.opaque}. {advice}")


def _is_single(checkpoint: Checkpoint, operator: Operator, states: list[StateDescriptor]) -> bool:
    """Return whether Spark runs an operator in one partition, whatever their number is.

    Raise UnsupportedError if ttlsnap does not know how its keys are placed.
    """
    states_of_operator = [
        state for state in states if state.operator == operator.id and state.kind != transform_with_state.UNUSED
    ]
    unplaced_states = [state for state in states_of_operator if not is_placed_by_hash(state)]
    if not unplaced_states:
        return False
    if len(unplaced_states) == len(states_of_operator) and all(store.partitions == (0,) for store in operator.stores):
        return True
    reason = unplaced_states[0].opaque or "Spark does not place its keys by their hash"
    raise UnsupportedError(f"{checkpoint.target}: {unplaced_states[0]}: {reason}; migrating it is not supported")


def warn_of_numbers(plan: MigrationPlan) -> Iterator[str]:
    """Return a warning for each field that gets another number after its name, because others have the same name."""
    for store in plan.stores:
        old, new = ({state.state: state for state in states} for states in (store.states, store.new_states))
        for evolution in store.evolutions:
            if evolution.state not in old or evolution.new_name not in new:
                continue
            sides: tuple[tuple[Literal["key", "value"], StructChange | None], ...]
            sides = ("key", evolution.key), ("value", evolution.value)
            for side, change in sides:
                before, after = _names(old[evolution.state], side), _names(new[evolution.new_name], side)
                columns = map(Take, range(len(after))) if change is None else change.columns
                for column, name in zip(columns, after.values(), strict=False):
                    # With a TTL, these are columns within the value, and not those with these names.
                    old_name = before.get(column.ordinal, name) if isinstance(column, Take) else name
                    if old_name != name and "#" in old_name + name:
                        yield f"{evolution}: {old_name} is now {name}. Change policies and commands that name it"


def _names(state: StateDescriptor, side: Literal["key", "value"]) -> dict[int, str]:
    """Return the names of the columns of a key or a value, by their ordinals."""
    columns = [field for field in all_fields(state.key_schema, state.value_schema) if len(field.path) == 1]
    return {column.path[0]: column.name for column in columns if column.side == side}


def old_files(plan: MigrationPlan) -> list[str]:
    """Return every state file of the migrated operators, of all versions."""
    files = plan.checkpoint.files
    operators = sorted({store.operator for store in plan.stores})
    places = [
        (operator.id, partition)
        for operator in plan.checkpoint.operators
        if operator.id in operators
        for partition in _partitions(plan, operator.id)
    ]
    paths_of_partitions = each(files, lambda place: list(_files_of(plan, *place)), places)
    return [path for paths in paths_of_partitions for path in paths] + old_documents(plan)


def old_documents(plan: MigrationPlan) -> list[str]:
    """Return the operator metadata and the state schemas that have no successor of the same name."""
    checkpoint, paths = plan.checkpoint, []
    for operator in checkpoint.operators:
        if plan.is_joined(operator):
            path = metadata_file(checkpoint.files, operator.id, checkpoint.batch.id)
            paths += [path] if path is not None else []
            paths += [store.schema_file for store in operator.stores]
    return paths


def _partitions(plan: MigrationPlan, operator: int) -> Iterator[int]:
    for info in plan.checkpoint.files.list(layout.operator_directory(operator)):
        number = layout.parse_number(info.name)
        if info.is_dir and number is not None:
            yield number


def _files_of(plan: MigrationPlan, operator: int, partition: int) -> Iterator[str]:
    files = plan.checkpoint.files
    yield from (path for path, _ in state_files(files, operator, partition))
    migrations_of_operator = [store for store in plan.stores if store.operator == operator]
    for store_name in {
        store.name for migration in migrations_of_operator for store in (migration.store, migration.becomes)
    }:
        folder = layout.store_directory(operator, partition, store_name)
        for shared in layout.SHARED:
            for info in files.list(f"{folder}/{shared}"):
                if not info.is_dir and layout.strip_checksum(info.name) == info.name:
                    yield f"{folder}/{shared}/{info.name}"
