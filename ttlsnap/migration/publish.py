"""What a migration publishes, in place or in a copy: state files, logs, operator metadata and schemas.

Files of older versions could not be read with the new number of partitions, nor could their batches be run again. So
they move to the run's backup with the logs of their batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import plan_next, with_conf, with_unique_ids
from ttlsnap.checkpoint.metadata import (
    metadata_file,
    new_metadata_file,
    with_changes,
    with_one_store,
)
from ttlsnap.checkpoint.state_schema import new_schemas, with_schemas
from ttlsnap.errors import RefusedError
from ttlsnap.migration.plan import MigrationPlan, StoreMigration, old_documents, old_files
from ttlsnap.publishing.preflight import refuse_immovable
from ttlsnap.publishing.reading import refuse_shared_folders
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.open import lineages_of
from ttlsnap.stores.protocols import StagedFile
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.copy import copy_all_but_state, copy_state_files
from ttlsnap.written.ledger import list_ledgers, state_of


def change_of(
    plan: MigrationPlan, staged: Sequence[StagedFile], ledgers: Sequence[str] = (), *, planned_batch: bool = True
) -> Change:
    """Return what a migration changes. All other files of the migrated operators are set aside."""
    files, checkpoint = plan.checkpoint.files, plan.checkpoint
    migrated_operators = {store.operator for store in plan.stores}
    old_ledgers = [path for path in list_ledgers(files) if state_of(path)[0] in migrated_operators]
    plans_batch = planned_batch and checkpoint.logs.offsets[-1] == checkpoint.batch.id
    return Change(
        kind="migrate",
        batch=checkpoint.batch.id,
        staged=staged,
        documents=new_documents(plan, files, files.root),
        ledgers=ledgers,
        set_aside=[*old_files(plan), *older_logs(plan), *old_ledgers],
        planned=plan_next(files, checkpoint.batch, plan.target.pinned) if plans_batch else None,
    )


def fill_copy(plan: MigrationPlan, staging: Directory, home: str) -> None:
    """Add everything else to ``staging``, which has the new partitions. The final place of the copy is ``home``."""
    source = plan.checkpoint.files
    migrated_operators = {store.operator for store in plan.stores}
    other_stores = [
        store for one in plan.checkpoint.operators if one.id not in migrated_operators for store in one.stores
    ]
    lineages = [lineage for store in other_stores for lineage in lineages_of(plan.checkpoint, plan.state_store, store)]
    copy_all_but_state(source, staging, home, plan.checkpoint.logs)
    copy_state_files(source, staging, home, [file.path for lineage in lineages for file in lineage.files])
    for path, data in new_documents(plan, staging, home).items():
        _remove_with_checksums(staging, path)
        staging.mkdirs(path.rpartition("/")[0])
        with staging.writer(path) as file:
            file.write(data)
    for path in older_logs(plan):
        _remove_with_checksums(staging, path)
    for migration in plan.stores:
        for partition in range(migration.partitions, len(migration.lineages)):
            staging.remove_tree(layout.store_directory(migration.operator, partition, layout.DEFAULT_STORE))
        if migration.becomes.name != migration.store.name:
            for partition in range(migration.partitions):
                staging.remove_tree(migration.store.directory(partition))
    for path in old_documents(plan):
        _remove_with_checksums(staging, path)


def _remove_with_checksums(staging: Directory, path: str) -> None:
    for name in (path, *layout.all_checksums(path)):
        staging.remove(name)


def older_logs(plan: MigrationPlan) -> list[str]:
    """Return the logs of earlier batches, except the offsets of the last one before the migrated batch.

    A query that restarts after the batch also reads the offsets before it. And one that is idle since before an earlier
    run must find its next batch taken.
    """
    batch, logs = plan.checkpoint.batch.id, plan.checkpoint.logs
    if not plan.stores:
        return []  # older versions have the same files, and remain readable
    moved_offsets = sorted({*logs.offsets}.difference(plan.taken))
    paths = [layout.offset_file(number) for number in moved_offsets if number < batch - 1]
    return paths + [layout.commit_file(number) for number in logs.commits if number < batch]


def new_documents(plan: MigrationPlan, files: Directory, home: str) -> dict[str, bytes]:
    """Return the new content of the logs, the operator metadata and the schemas in ``files``, by path.

    ``home`` is the final path of the checkpoint.
    """
    batch, conf = plan.checkpoint.batch.id, plan.target.pinned
    # A batch that was begun before is among the replaced files, so that a rollback can tell it from a later one.
    kept_batches = [number for number in plan.checkpoint.logs.offsets if number >= (batch - 1 if conf else batch + 1)]
    documents = {layout.offset_file(number): with_conf(files, number, conf).encode() for number in kept_batches}
    ids = {
        operator.id: [list(ids_of_partition) for ids_of_partition in zip(*store_ids, strict=True)]
        for operator in plan.checkpoint.operators
        if (store_ids := [group[0].ids for group in plan.groups if group[0].operator == operator.id and group[0].ids])
    }
    if ids or plan.checkpoint.batch.unique_ids:
        documents[layout.commit_file(batch)] = with_unique_ids(files, batch, ids).encode()
    partition_counts = {store.operator: (len(store.lineages), store.partitions) for store in plan.stores}
    for operator, new_operator in zip(plan.checkpoint.operators, plan.after.operators, strict=True):
        path = metadata_file(files, operator.id, batch)
        partitions_before, partitions = partition_counts.get(operator.id, (0, 0))
        if plan.is_joined(operator):
            assert path is not None
            (store,) = new_operator.stores
            with_store = with_one_store(files, path, home, store.name, store.schema_file, partitions)
            documents[new_metadata_file(operator.id, batch)] = with_store
            continue
        prefixes = {
            store: column_count
            for (number, store), column_count in plan.evolution.prefixes.items()
            if number == operator.id
        }
        properties: tuple[Any, ...] = ()
        properties_of = attrgetter("variables", "time_mode", "output_mode")
        if properties_of(operator) != properties_of(new_operator):
            properties = properties_of(new_operator)
        if path is not None and (partitions_before != partitions or prefixes or properties):
            documents[path] = with_changes(files, path, partitions_before, partitions, prefixes, *properties)
    return documents | _new_schemas(plan, files)


def _new_schemas(plan: MigrationPlan, files: Directory) -> dict[str, bytes]:
    """Return the new content of the state schema files, by path."""
    documents: dict[str, bytes] = {}
    for old_operator, new_operator in zip(plan.checkpoint.operators, plan.after.operators, strict=True):
        if old_operator.id in plan.evolution.new_stores:
            (store,) = new_operator.stores
            documents[store.schema_file] = new_schemas(store.families)
            continue
        names = plan.evolution.renamed(old_operator.id)
        for old_store, new_store in zip(old_operator.stores, new_operator.stores, strict=True):
            place = (old_operator.id, old_store.name)
            removed, added = plan.evolution.removed.get(place, ()), plan.evolution.added.get(place, ())
            families = {family.name: family for family in new_store.families}
            schemas = {
                old_family.name: new_family
                for old_family in old_store.families
                if old_family.name not in removed
                and (new_family := families[names.get(old_family.name, old_family.name)]) != old_family
            }
            if schemas or removed or added:
                added_families = [families[family.name] for family in added]
                documents[old_store.schema_file] = with_schemas(
                    files, old_store.schema_file, schemas, removed, added_families
                )
            if dropped_names := {family.name for family in old_store.unused} & set(removed):
                documents |= {
                    path: with_schemas(files, path, {}, dropped_names) for path in old_store.older_schema_files
                }
    return documents


def refuse_unmovable(plan: MigrationPlan) -> None:
    """Raise RefusedError if a file that the plan may move cannot be moved, or is where a new folder belongs."""
    files = plan.checkpoint.files
    for store in plan.stores:
        _refuse_files_as_folders(files, store)
    folders = [store.store.directory(partition) for store in plan.stores for partition in range(len(store.lineages))]
    refuse_shared_folders(files, folders)
    paths = [path for old_file in old_files(plan) for path in (old_file, *layout.all_checksums(old_file))]
    logs = plan.checkpoint.logs
    paths += [*map(layout.offset_file, logs.offsets), *map(layout.commit_file, logs.commits)]
    refuse_immovable(files, [*paths, layout.offset_file(logs.offsets[-1] + 1)])


def _refuse_files_as_folders(files: Directory, store: StoreMigration) -> None:
    """Raise RefusedError if there is a file where the folder of a new partition belongs."""
    operator_folder = layout.operator_directory(store.operator)
    for info in files.list(operator_folder):
        number = layout.parse_number(info.name)
        if number is None or number >= store.partitions:
            continue
        path = f"{operator_folder}/{info.name}"
        obstacles = [path] if not info.is_dir else []
        folder = store.becomes.directory(number)
        if info.is_dir and number >= len(store.lineages) and folder != path:
            obstacles = [
                f"{path}/{inner_info.name}"
                for inner_info in files.list(path)
                if f"{path}/{inner_info.name}" == folder and not inner_info.is_dir
            ]
        if obstacles:
            raise RefusedError(
                f"{files.root}/{obstacles[0]} is a file, and the folder of partition {number} belongs there. Remove "
                "the file. Nothing was changed"
            )
