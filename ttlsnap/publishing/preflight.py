"""Checks before any work for problems that would appear in the middle of publishing: files that cannot be moved.

Publishing renames files within the checkpoint. A rename does not follow a symbolic link, and cannot reach another
mount. A new file gets the owner, group and mode of the file that it replaces (see ``storage.access``). Only root or
that owner can do that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath

from ttlsnap.checkpoint import Checkpoint, layout
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.checkpoint.logs import SHUFFLE_PARTITIONS, fenced
from ttlsnap.checkpoint.own_paths import MovedSchemas
from ttlsnap.checkpoint.starting import require_startable
from ttlsnap.errors import Foreseen, RefusedError, tidy_after_error
from ttlsnap.publishing.hidden_batches import refuse_hidden_batches
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.missing import refuse_missing_files
from ttlsnap.publishing.runs import Runs
from ttlsnap.publishing.stale_snapshots import refuse_stale_snapshots
from ttlsnap.storage.access import Access, own_access
from ttlsnap.storage.directory import OWN, Directory, each, scratch_name
from ttlsnap.storage.lease import refuse_other_systems
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.storage.uris import is_local

WOULD_BE_REFUSED = "a run would be refused now: "
"""The beginning of the warning that ``describe_refusal`` returns."""


def foresee(check: Callable[[], object], *, dry_run: bool) -> tuple[str, ...]:
    """Run a check that may raise RefusedError. In a dry run, return that error as a warning.

    So a dry run also works while the query is running, and still says that a run would be refused.
    """
    try:
        check()
    except RefusedError as error:
        if not dry_run:
            raise
        return (describe_refusal(error),)
    return ()


def describe_refusal(error: RefusedError) -> str:
    """Return the warning of a dry run that a run would be refused."""
    return Foreseen(f"{WOULD_BE_REFUSED}{error}", type(error))


def refuse_running(runs: Runs, query_id: str | None, stopped: bool, only_read: bool, dry_run: bool) -> tuple[str, ...]:
    """Raise BusyError if the query may be running (see ``refuse_if_running``); in a dry run, return that as a warning.

    A dry run writes nothing, so it compares the times of files with this machine's clock.
    """
    check = partial(refuse_if_running, runs, query_id, stopped=stopped, only_read=only_read or dry_run)
    return foresee(check, dry_run=dry_run)


def refuse_in_place(
    checkpoint: Checkpoint,
    new_files: Sequence[str],
    *,
    planned_batch: bool,
    moved: MovedSchemas | None,
    dry_run: bool,
) -> tuple[str, ...]:
    """Raise RefusedError if ``new_files`` or a planned batch cannot be put in place; in a dry run, return warnings.

    Nothing is put in place on another system than Linux.

    Raise it, too, if the query would restart with the state schemas of another checkpoint (``moved``).
    """
    checks = [
        partial(refuse_other_systems, checkpoint.files.root),
        *([partial(refuse_moved, moved)] if moved is not None else []),
        partial(require_ownership, checkpoint.files, new_files, dry_run=dry_run),
        *([partial(refuse_planned_batch, checkpoint)] if planned_batch else []),
    ]
    return tuple(warning for check in checks for warning in foresee(check, dry_run=dry_run))


def refuse_unsettled(checkpoint: Checkpoint, listing: Listing, runs: Runs) -> None:
    """Raise FencedError if there is a fence, and RefusedError if an earlier run's files are missing or hide a batch.

    Raise RefusedError also if a snapshot has the state of a withdrawn batch. ``listing`` has the files of the state.
    Raise CorruptionError if something in the logs stops Spark (see ``require_startable``).
    """
    files, logs = checkpoint.files, checkpoint.logs
    if logs.fence is not None:
        raise fenced(files, logs.fence)
    refuse_hidden_batches(runs, logs)
    refuse_missing_files(runs, logs)
    require_startable(files, logs)
    refuse_stale_snapshots(checkpoint, listing, runs)


def refuse_moved(moved: MovedSchemas) -> None:
    """Raise RefusedError for a checkpoint whose metadata names state schemas in another folder, as after ``cp -r``."""
    raise RefusedError(f"{moved.words}. Nothing was changed")


def describe_unplannable(checkpoint: Checkpoint) -> str | None:
    """Return why no batch can be planned, if Spark could not run one without data; None if it can.

    Spark's optimizer removes a global limit from such a batch. Spark 4.0 and later then refuse to run it, and earlier
    versions commit it without a state of the limit.

    Before Spark 4.2 and later run a batch that is planned, they compare its number of partitions with that of the batch
    before. The first run of a query with version 2 of the offset log does not record it. Then the query ends with
    ``None.get`` (``OfflineStateRepartitionUtils.isRepartitionBatch``).
    """
    global_limit = next((operator for operator in checkpoint.operators if operator.is_global_limit), None)
    if global_limit is not None:
        return (
            f"operator {global_limit.id} is a global limit, and Spark cannot run such a query in a batch without data"
        )
    if SHUFFLE_PARTITIONS not in checkpoint.batch.conf:
        path = layout.offset_file(checkpoint.batch.id)
        return (
            f"{path} does not have the number of partitions, as in the first run of a query with version 2 of the "
            "offset log, and Spark then cannot start with a batch that is planned. This ends once you have started the "
            "query again, and it has committed a batch"
        )
    return None


def refuse_planned_batch(checkpoint: Checkpoint) -> None:
    """Raise RefusedError if a batch without data would break the query, so that none can be planned."""
    reason = describe_unplannable(checkpoint)
    # If a batch was started, its offsets stay, and no batch is planned.
    if reason is not None and checkpoint.logs.offsets[-1] == checkpoint.batch.id:
        raise RefusedError(
            f"{checkpoint.target}: {reason}. So ttlsnap cannot plan the batch that stops a query that is idle. Nothing "
            "was changed. Make sure that no query has this checkpoint, and add --no-planned-batch"
        )


def refuse_immovable(files: Directory, paths: Sequence[str]) -> None:
    """Raise RefusedError if one of these files is a symbolic link, or on another mount than ttlsnap's own folder."""
    links = each(files, files.is_link, paths)
    linked_path = next((path for path, is_link in zip(paths, links, strict=True) if is_link), None)
    if linked_path is not None:
        raise RefusedError(
            f"{files.root}/{linked_path} is a symbolic link, which ttlsnap cannot move. Nothing was changed. Replace "
            "the link by its target, or write a new checkpoint with --output"
        )
    folders = sorted({path.rpartition("/")[0] for path in paths})
    own_mount = files.mount(OWN)
    other_folder = next(
        (
            folder
            for folder, mount in zip(folders, each(files, files.mount, folders), strict=True)
            if mount != own_mount
        ),
        None,
    )
    if other_folder is not None:
        raise RefusedError(
            f"{files.root}/{other_folder} is on another mount than {files.root}/{OWN}, so ttlsnap cannot rename files "
            "between them. Nothing was changed. Unmount it and copy its files into the checkpoint, or write a new "
            "checkpoint with --output"
        )


def require_ownership(files: Directory, paths: Sequence[str], *, dry_run: bool = False) -> None:
    """Raise RefusedError if this user cannot give new files at ``paths`` the owner and group of the old ones.

    A file in ttlsnap's own folder is used to try it, because only the file system knows what a user may do. A dry run
    writes nothing, and only knows that on a local file system only root can give files to other users and groups.
    """
    path_with_access = zip(paths, each(files, lambda path: access_of_new(files, path), paths), strict=True)
    process_access = own_access(0)
    wanted_accesses = {
        (access.owner, access.group): (path, access) for path, access in path_with_access if access is not None
    }
    wanted_accesses.pop((process_access.owner, process_access.group), None)
    if dry_run:
        own_groups = (process_access.group, *os.getgroups())
        foreign = [
            path_with_access
            for (owner, group), path_with_access in wanted_accesses.items()
            if owner != process_access.owner or group not in own_groups
        ]
        if foreign and is_local(files.root) and os.geteuid() != 0:
            raise _refusal(files, *foreign[0])
        return
    if not wanted_accesses:
        return
    probe = scratch_name(f"{OWN}/.access")
    files.replace(probe, b"")
    with tidy_after_error(partial(files.remove, probe)):
        for path, access in wanted_accesses.values():
            if not files.set_access(probe, access):
                raise _refusal(files, path, access)
    files.remove(probe)


def hand_over(files: Directory, path: str, target: str) -> None:
    """Give a new file the access of the file ``target`` that it will replace. Raise RefusedError if that fails."""
    access = access_of_new(files, target)
    if access is not None and not files.set_access(path, access):
        raise _refusal(files, target, access)


def _refusal(files: Directory, path: str, access: Access) -> RefusedError:
    return RefusedError(
        f"the files in {files.root}/{PurePosixPath(path).parent} belong to {access.owner_name} (group "
        f"{access.group_name}), and this process may not give new files to them. The query could not use these. "
        f"Nothing was changed. Run ttlsnap as {access.owner_name}, or as root (in HDFS, as the superuser)"
    )
