"""The plan of a migration: everything is read and checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

from ttlsnap.checkpoint import Checkpoint, Operator, Store, layout
from ttlsnap.checkpoint.checkpoint import state_files
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.operators.placement import is_placed_by_hash
from ttlsnap.operators.registry import describe
from ttlsnap.publishing.preflight import refuse_unsettled
from ttlsnap.publishing.runs import new_run_id
from ttlsnap.storage.directory import each
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.open import lineages_of, open_state_store
from ttlsnap.stores.protocols import StateStore


@dataclass(frozen=True)
class StoreMigration:
    """A store whose entries get new partitions. ``lineages`` are the files of its old partitions, in order.

    ``ids`` are the ids in the names of the new partitions' files; empty if they have none (checkpoint format 1).
    """

    store: Store
    states: tuple[StateDescriptor, ...]
    lineages: tuple[Lineage, ...]
    ids: tuple[str, ...] = ()

    @property
    def operator(self) -> int:
        return self.store.operator

    @property
    def size(self) -> int:
        """The size of the old partitions on disk, in bytes."""
        return sum(lineage.size for lineage in self.lineages)

    def new_snapshot(self, partition: int) -> str:
        """Return the path of the snapshot of a new partition."""
        name = self.lineages[0].new_snapshot.rpartition("/")[2]
        if self.ids:
            name = f"{self.lineages[0].version}_{self.ids[partition]}.zip"
        return f"{self.store.directory(partition)}/{name}"


@dataclass(frozen=True)
class MigrationPlan:
    """The plan of a migration to ``partitions``. ``single`` are the operators that Spark runs in one partition."""

    run: str
    checkpoint: Checkpoint
    listing: Listing
    state_store: StateStore
    partitions: int
    stores: tuple[StoreMigration, ...]
    single: tuple[int, ...]

    @property
    def is_done(self) -> bool:
        """Whether the state has this number of partitions already."""
        return all(len(store.lineages) == self.partitions for store in self.stores)


def plan_migration(checkpoint: Checkpoint, partitions: int) -> MigrationPlan:
    """Plan a migration to ``partitions``.

    Raise FencedError if there is a fence, UnsupportedError for what ttlsnap cannot place, CorruptionError for an
    incomplete lineage, and UsageError if there is nothing to do.
    """
    target = checkpoint.target
    if not 1 <= partitions <= layout.MAX_PARTITIONS:
        raise UsageError(f"--partitions is {partitions}; it must be from 1 to {layout.MAX_PARTITIONS:,}")
    refuse_unsettled(checkpoint)
    listing = list_activity(checkpoint.files)
    state_store = open_state_store(checkpoint)
    states = describe(checkpoint)
    single = tuple(o.id for o in checkpoint.operators if _is_single(checkpoint, o, states))
    stores = tuple(
        StoreMigration(
            store,
            tuple(state for state in states if (state.operator, state.store) == (operator.id, store.name)),
            tuple(lineages_of(checkpoint, state_store, store)),
            tuple(str(uuid4()) for _ in range(partitions)) if operator.id in checkpoint.batch.unique_ids else (),
        )
        for operator in checkpoint.operators
        if operator.id not in single
        for store in operator.stores
    )
    if not stores:
        raise UsageError(
            f"{target}: Spark runs every operator of this query in a single partition, whatever the number is. Nothing "
            "was changed"
        )
    return MigrationPlan(new_run_id(), checkpoint, listing, state_store, partitions, stores, single)


def _is_single(checkpoint: Checkpoint, operator: Operator, states: list[StateDescriptor]) -> bool:
    """Return whether Spark runs an operator in one partition, whatever their number is.

    Raise UnsupportedError if ttlsnap does not know how its keys are placed.
    """
    mine = [state for state in states if state.operator == operator.id]
    unplaced = [state for state in mine if not is_placed_by_hash(state)]
    if not unplaced:
        return False
    if len(unplaced) == len(mine) and all(store.partitions == (0,) for store in operator.stores):
        return True
    reason = unplaced[0].opaque or "Spark does not place its keys by their hash"
    raise UnsupportedError(f"{checkpoint.target}: {unplaced[0]}: {reason}; migrating it is not supported")


def old_files(plan: MigrationPlan) -> list[str]:
    """Return every state file of the migrated operators, of all versions."""
    files = plan.checkpoint.files
    operators = sorted({store.operator for store in plan.stores})
    places = [(o.id, p) for o in plan.checkpoint.operators if o.id in operators for p in _partitions(plan, o.id)]
    found = each(files, lambda place: list(_files_of(plan, *place)), places)
    return [path for paths in found for path in paths]


def _partitions(plan: MigrationPlan, operator: int) -> Iterator[int]:
    for info in plan.checkpoint.files.list(layout.operator_directory(operator)):
        number = layout.parse_number(info.name)
        if info.is_dir and number is not None:
            yield number


def _files_of(plan: MigrationPlan, operator: int, partition: int) -> Iterator[str]:
    files = plan.checkpoint.files
    yield from (path for path, _ in state_files(files, operator, partition))
    for store in {store.store.name for store in plan.stores if store.operator == operator}:
        folder = layout.store_directory(operator, partition, store)
        for shared in layout.SHARED:
            for info in files.list(f"{folder}/{shared}"):
                if not info.is_dir and layout.strip_checksum(info.name) == info.name:
                    yield f"{folder}/{shared}/{info.name}"
