"""The publishing of a compaction: a check that the checkpoint is still as planned, and the swap of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.listing import Listing, difference, is_temporary, list_activity
from ttlsnap.checkpoint.logs import plan_next, read_logs
from ttlsnap.compaction.plan import PartitionPlan, Plan, StorePlan
from ttlsnap.compaction.task import PartitionResult
from ttlsnap.errors import BusyError, CorruptionError
from ttlsnap.publishing import journal as journals
from ttlsnap.publishing.fence import fence_file
from ttlsnap.publishing.journal import (
    FileFacts,
    Journal,
    Move,
    facts_of,
    next_number,
)
from ttlsnap.publishing.moves import find_existing, plan_backup, plan_checksum_backup, stat_files
from ttlsnap.publishing.preflight import refuse_immovable, refuse_shared_folders
from ttlsnap.publishing.swap import swap
from ttlsnap.storage.directory import each


def publish(
    plan: Plan,
    results: Sequence[PartitionResult],
    *,
    planned_batch: bool = True,
    kind: Literal["compact", "import"] = "compact",
) -> Journal:
    """Move the staged files of ``results`` into place, and plan the next batch.

    Without ``planned_batch`` the fence is only removed: use that only for a query that is certainly stopped. Raise
    BusyError if the checkpoint is no longer as planned, and StorageError for errors of the disk. The checkpoint is then
    unchanged or fenced, and the message says which.
    """
    files, checkpoint = plan.checkpoint.files, plan.checkpoint
    staged = [file for result in results for file in result.staged or ()]
    # An uncommitted batch runs again, and then replaces its deltas, but not its snapshots. The second run may differ in
    # every partition of every operator, because the output of one operator is the input of the next. So the snapshots
    # are moved. The deltas stay, because the batch needs them if it is running after all, and commits.
    ending = "zip" if checkpoint.provider == "rocksdb" else "snapshot"
    outliving = [path for path in plan.listing if layout.is_newer_snapshot(path, checkpoint.version, ending)]
    fence = fence_file(checkpoint.logs)
    targets = [file.target for file in staged]
    ledgers = [path for result in results for path in result.ledgers]
    to_backup = plan_backup(files, plan.run, [*targets, *_replaced_deltas(plan, targets), *outliving, *ledgers])
    to_backup += plan_checksum_backup(files, plan.run, fence)
    tables = [path for result in results for path in result.superseded]
    superseded = [
        *tables,
        *sorted(find_existing(files, [name for path in tables for name in layout.all_checksums(path)])),
    ]
    each(files, lambda path: files.keep_copy(path, journals.backup_path(plan.run, path)), superseded)
    is_next = checkpoint.logs.offsets[-1] == checkpoint.batch.id
    times = {path: info.mtime_ns for path, info in stat_files(files, [file.path for file in staged]).items()}
    journal = Journal(
        run=plan.run,
        number=next_number(files),
        kind=kind,
        batch=checkpoint.batch.id,
        fence=fence,
        moves=(
            *to_backup,
            *(Move(file.path, file.target) for file in staged),
            *(Move(journals.staged_path(plan.run, path), path) for path in ledgers),
        ),
        status="open",
        published=tuple(FileFacts(f.target, f.size, times.get(f.path, 0), f.digest) for f in staged),
        logs=facts_of(files, (layout.offset_file(checkpoint.batch.id), layout.commit_file(checkpoint.batch.id))),
        preserved=tuple(superseded),
        leftovers=journals.leftovers_of(files, plan.listing, checkpoint.batch.id),
        planned=plan_next(files, checkpoint.batch) if planned_batch and is_next else None,
    )
    return swap(files, journal, check=lambda: check_unchanged(plan), recheck=lambda: check_quiet(plan))


def _replaced_deltas(plan: Plan, targets: Sequence[str]) -> list[str]:
    """Return the deltas and changelogs of the versions that new snapshots replace.

    From 4.2 on, Spark that fails once to read a snapshot replays deltas from an older one. With this delta it would
    continue with the old state: in one partition, or in one store of a join. Without it, Spark fails.
    """
    deltas = map(layout.delta_beside, targets)
    return [path for path in deltas if path is not None and path in plan.listing]


def check_unchanged(plan: Plan) -> None:
    """Raise BusyError unless logs, state files and temporary files are those of the plan."""
    files = plan.checkpoint.files
    _check_logs(plan)
    check_listing(plan.checkpoint, plan.listing)

    def check(place: tuple[StorePlan, PartitionPlan]) -> None:
        store, partition = place
        folder = layout.store_directory(store.operator, partition.partition, store.store)
        try:
            lineage = plan.find(store, partition.partition)
        except CorruptionError as error:
            raise BusyError(
                error.text
                + "\nThe file existed when the run began: the query is running. Nothing was changed. Stop the "
                "query first"
            ) from error
        if lineage != partition.lineage:
            raise BusyError(
                f"{files.root}/{folder} changed while ttlsnap worked: the query is running. Nothing was changed. Stop "
                "the query first"
            )

    each(files, check, [(store, partition) for store in plan.stores if store.touched for partition in store.partitions])


def check_listing(checkpoint: Checkpoint, planned: Listing) -> None:
    """Raise BusyError unless logs, state files and temporary files are the ``planned`` ones, apart from the fence."""
    files = checkpoint.files
    listing = list_activity(files)
    listing.pop(fence_file(checkpoint.logs), None)
    changed = difference(planned, listing)
    if changed is not None:
        raise BusyError(
            f"{files.root}/{changed} changed while ttlsnap worked: the query is running. Nothing was changed. Stop the "
            "query first"
        )


def check_quiet(plan: Plan) -> None:
    """Raise BusyError if the logs have changed since the plan, or there are new temporary files."""
    _check_logs(plan)
    files = plan.checkpoint.files
    new = next((path for path in list_activity(files) if is_temporary(path) and path not in plan.listing), None)
    if new is not None:
        raise BusyError(f"{files.root}/{new} appeared during the run: the query is running. Stop it first")


def _check_logs(plan: Plan) -> None:
    now, then = read_logs(plan.checkpoint.files), plan.checkpoint.logs
    if (now.offsets, now.commits) != (then.offsets, then.commits):
        raise BusyError(
            f"{plan.checkpoint.target}: the query committed a batch while ttlsnap worked (the last batch was "
            f"{then.commits[-1]}, now it is {now.commits[-1] if now.commits else 'none'}). Nothing was changed. Stop "
            "the query first"
        )


def refuse_unmovable(plan: Plan) -> None:
    """Raise RefusedError if a file that the plan may move cannot be moved."""
    version = plan.checkpoint.version
    folders = [
        layout.store_directory(store.operator, partition.partition, store.store)
        for store in plan.stores
        for partition in (store.partitions if store.touched else ())
    ]
    refuse_shared_folders(plan.checkpoint.files, folders)
    paths = [layout.offset_file(plan.checkpoint.logs.offsets[-1] + 1)]
    paths += [path for path in plan.listing if layout.is_newer_snapshot(path, version)]
    for store in plan.stores:
        for partition in store.partitions if store.touched else ():
            new = partition.lineage.new_snapshot
            paths += [new, *_replaced_deltas(plan, [new]), *(file.path for file in partition.lineage.shared)]
    refuse_immovable(plan.checkpoint.files, [name for path in paths for name in (path, *layout.all_checksums(path))])


def new_files(plan: Plan) -> list[str]:
    """Return a path for every folder where the plan may put new files."""
    stores = [store for store in plan.stores if store.touched]
    new = [partition.lineage.new_snapshot for store in stores for partition in store.partitions]
    return [*new, layout.offset_file(plan.checkpoint.logs.offsets[-1] + 1)]
