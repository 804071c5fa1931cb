"""After the publishing: recover a run that was cut off, roll back the last one, forget old backups.

All three hold the checkpoint's lock. Each change goes through the same journal and fence as publishing, so that
``recover`` can be cut off itself, and run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ttlsnap.backups import held_tables
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.checkpoint import open_checkpoint, query_id
from ttlsnap.checkpoint.listing import Listing, list_activity
from ttlsnap.checkpoint.logs import Logs, read_logs
from ttlsnap.errors import (
    CorruptionError,
    FencedError,
    NotACheckpointError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from ttlsnap.expired.delivery import (
    begin_to_take_back,
    deliver_all,
    take_back_if_allowed,
)
from ttlsnap.expired.places import Confirm, Places
from ttlsnap.expired.receivers import ExpiredCallback, refuse_within
from ttlsnap.filesystem import OWN, SCRATCH, Directory, each, open_directory
from ttlsnap.interrupts import deferred
from ttlsnap.journal import (
    FileFacts,
    Journal,
    Move,
    backup_path,
    close_journal,
    digest_of,
    facts_of,
    next_number,
    planned_batch,
    read_journal,
    read_journals,
    read_report,
    report_path,
    scratch_path,
    staged_path,
)
from ttlsnap.locking import refuse_if_running
from ttlsnap.plan import new_run_id, partitions
from ttlsnap.preflight import refuse_foreign
from ttlsnap.publish import (
    close_undone,
    complete_halves,
    existing,
    fence_file,
    finish,
    has_fence,
    has_its_batch,
    has_planned,
    is_done,
    raise_fence,
    refuse_if_changed,
    refuse_unclear,
    rewritten,
    set_aside,
    stats,
    swap,
    take_fence_back,
    undo,
)
from ttlsnap.stores import state_store

Outcome = Literal["nothing", "finished", "undone"]


@dataclass(frozen=True)
class RecoverReport:
    """What ``recover`` did: ``finished`` or ``undone`` with the run, or ``nothing`` when nothing was open.

    ``warnings`` say what runs have dropped and could not be delivered yet.
    """

    target: str
    outcome: Outcome
    run: str | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RollbackReport:
    """What ``rollback`` put back: the run that was undone, the run that undid it, and the files restored."""

    target: str
    run: str
    undone: str
    restored: int
    warnings: tuple[str, ...] = ()


def recover(
    target: str,
    *,
    prefer_undo: bool = False,
    expired_to: str | ExpiredCallback | None = None,
    confirm: Confirm | None = None,
) -> RecoverReport:
    """Finish the run that was cut off, or undo it where that is not possible or not wanted.

    What runs have dropped and not delivered is delivered to ``expired_to`` if it is for that place, and to another that
    the checkpoint names if ``confirm``, asked a question, agrees. It waits otherwise, and a warning says so.

    Raises RefusedError when the fence was removed by hand and the query has gone on, CorruptionError when files
    that the journal names are gone.
    """
    files = existing_checkpoint(target)
    if not files.list(OWN) and read_logs(files).fence is None:
        return RecoverReport(files.root, "nothing", None)
    places = _places(target, expired_to, confirm)
    try:
        with files.lock():
            return _recover(files, prefer_undo, places)
    except StorageError as error:
        raise StorageError(
            f"{error}\nNothing is lost. When the disk is well again, run: ttlsnap recover {files.root}"
        ) from error


def _recover(files: Directory, prefer_undo: bool, places: Places) -> RecoverReport:
    journal = next((j for j in read_journals(files) if j.status == "open"), None)
    foreign: list[str] = []
    if journal is None:
        _refuse_orphan_fence(files)
        outcome: Outcome = "nothing"
    else:
        if journal.planned is not None:
            refuse_foreign(files, [journal.fence])  # the planned batch takes its place
        foreign = rewritten(files, journal) if prefer_undo else []
        outcome = _settle(files, journal, prefer_undo)
        if outcome == "undone" and not foreign:
            _discard_files(files, journal.run)
    discard_leftovers(files)
    kept = _kept(files, journal) if journal and foreign else []
    warnings = [*kept, *warn_of_only_copies(files), *deliver_all(files, places)]
    return RecoverReport(files.root, outcome, journal.run if journal else None, tuple(warnings))


def _kept(files: Directory, journal: Journal) -> list[str]:
    folder = f"{files.root}/{layout.run_directory(journal.run)}"
    return [f"files that were written over those of run {journal.run} are kept in {folder}"]


@deferred()
def _settle(files: Directory, journal: Journal, prefer_undo: bool) -> Outcome:
    complete_halves(files, journal)
    done = each(files, lambda move: is_done(files, move), journal.moves)
    # Every file is at one end of its move; a new one may be lost where the old ones come back.
    ends = [m.target if d else m.source for m, d in zip(journal.moves, done, strict=True)]
    there = existing(files, ends)
    lost = [move for move, end in zip(journal.moves, ends, strict=True) if end not in there]
    can_finish, can_undo = not lost, not set(lost) & set(journal.aside)
    refuse_unclear(files, journal)
    if not any(done):
        # Whether the query is stopped was not known yet.
        take_fence_back(files, journal)
        close_undone(files, journal)
        return "undone"
    if not has_fence(files, journal):
        # When all is done, a query may have been started since. It may be running a batch on the new state, and may
        # have cleaned up behind itself: only ``rollback`` may take that state back.
        over = has_planned(files, journal) or _has_gone_on(files, journal)
        if all(done) and (over or can_finish):
            if not over and journal.planned is not None:
                _refuse_rewritten(files, journal, can_undo=False)
                files.create(journal.fence, journal.planned.encode())
            close_journal(files, journal, "done")
            return "finished"
        _fence_again(files, journal)
    if can_finish and not (can_undo and (prefer_undo or _is_committed_since(files, journal))):
        _refuse_rewritten(files, journal, can_undo)
        finish(files, journal)
        return "finished"
    if can_undo:
        undo(files, journal)
        take_fence_back(files, journal)
        close_undone(files, journal)
        return "undone"
    raise CorruptionError(
        f"{files.root}/{lost[0].source} is gone, and is not at {lost[0].target} either: run {journal.run} can neither "
        "be finished nor undone. The fence stays; restore the file from a copy and run recover again"
    )


def _is_committed_since(files: Directory, journal: Journal) -> bool:
    """Whether a batch was committed that was running when the run began, and so was computed from the old state."""
    return journal.kind != "repair" and max(read_logs(files).commits, default=-1) > journal.batch


def _refuse_rewritten(files: Directory, journal: Journal, can_undo: bool) -> None:
    others = rewritten(files, journal)
    if others:
        undo_it = f" Then undo the run: ttlsnap recover {files.root} --undo" if can_undo else ""
        raise RefusedError(
            f"{files.root}/{others[0]} is not the file that run {journal.run} wrote ({len(others)} such in all). A "
            f"query that was running has written it since, or it is damaged. The fence stays. Stop the query.{undo_it}"
        )


def _newest_offset(files: Directory) -> int:
    return max(read_logs(files).offsets, default=-1)


def _has_gone_on(files: Directory, journal: Journal) -> bool:
    """Whether the query has begun a batch since the fence was removed, or the run's batch was set back."""
    newest = _newest_offset(files)  # a fence is not an offset
    return newest >= (journal.fence_batch or 0) or not has_its_batch(files, journal)


def _fence_again(files: Directory, journal: Journal) -> None:
    """Half of the moves are done and the fence is gone: somebody removed it."""
    if _has_gone_on(files, journal) or not raise_fence(files, journal):
        raise RefusedError(
            f"{files.root}: the fence of run {journal.run} was removed by hand and the query has gone on to batch "
            f"{_newest_offset(files)}, on a state that is half old and half new. The old files are in "
            f"{files.root}/{layout.run_directory(journal.run)}/backup"
        )


def _refuse_orphan_fence(files: Directory) -> None:
    if read_logs(files).fence is not None:
        raise RefusedError(
            f"{files.root} is fenced, but the journal of the run that did it is gone from {layout.RUNS}. If that "
            "folder was moved away, put it back and run recover again"
        )


def _places(target: str, expired_to: str | ExpiredCallback | None, confirm: Confirm | None) -> Places:
    if expired_to is not None:
        refuse_within(expired_to, target)
    return Places.of(expired_to, confirm)


def rollback(
    target: str,
    *,
    stopped: bool = False,
    expired_to: str | ExpiredCallback | None = None,
    confirm: Confirm | None = None,
) -> RollbackReport:
    """Put back what the last published run replaced, byte for byte.

    What the run has delivered is taken back from ``expired_to`` if it is there, and from another place that the
    checkpoint names if ``confirm`` agrees. It stays there otherwise, and a warning says so.

    Raises RefusedError when a newer batch is committed, when the query seems to run (see ``compact``), when there is
    no such run, or its backup was removed.
    """
    files = existing_checkpoint(target)
    places = _places(target, expired_to, confirm)
    with files.lock():
        refuse_if_cut_off(files)
        last = next((j for j in reversed(read_journals(files)) if j.status == "done"), None)
        if last is None or last.kind == "rollback":
            raise RefusedError(f"{files.root}: there is no run to roll back")
        before = list_activity(files)
        logs = read_logs(files)
        committed = _refuse_moved_on(files, last, logs)
        planned = planned_batch(files, logs)
        kept = [move for move in last.aside if not _is_withdrawn(move.source, last.batch, committed)]
        lost = [path for path in last.preserved if files.stat(path) is None]
        backup = [*(move.target for move in kept), *(backup_path(last.run, path) for path in lost)]
        if len(existing(files, backup)) < len(backup):
            raise RefusedError(f"{files.root}: the backup of run {last.run} has been removed; it cannot be rolled back")
        refuse_if_running(files, query_id(files), stopped=stopped)
        run = new_run_id()
        back = [*(Move(m.target, m.source) for m in kept), *(Move(backup_path(last.run, p), p) for p in lost)]
        moves = _back(files, last, run, back)
        # A planned batch that Spark has begun to run stays, and is run again: the sink may have its number already.
        is_ours = planned is not None and planned.run == last.run and not _has_state_of(before, last.batch + 1)
        times = stats(files, [move.source for move in back])
        journal = Journal(
            run=run,
            number=next_number(files),
            kind="rollback",
            batch=last.batch,
            fence=last.fence if is_ours else fence_file(logs, moves),
            moves=tuple(moves),
            status="open",
            undoes=last.run,
            logs=facts_of(files, (layout.offset_file(last.batch), layout.commit_file(last.batch))),
            replaces=last.planned if is_ours else None,
            published=tuple(FileFacts(m.target, times[m.source].size, times[m.source].mtime_ns) for m in back),
        )
        begin_to_take_back(files, last.run, run, places)

        def recheck() -> None:
            refuse_if_changed(files, journal, before, only_signs=True)
            if last.kind == "compact" and committed == last.batch:
                _require_loadable(files)

        swap(files, journal, check=lambda: refuse_if_changed(files, journal, before), recheck=recheck)
        _remove_empty_folders(files, last)
        warnings = tuple(take_back_if_allowed(files, last.run, places))
        return RollbackReport(files.root, run, last.run, len(back), warnings)


def _has_state_of(listing: Listing, batch: int) -> bool:
    """Whether Spark has begun to run a batch: there are state files that it wrote."""
    parsed = [layout.parse_state_file(path.rpartition("/")[2]) for path in listing if path.startswith(layout.STATE)]
    return any(name is not None and name.version > batch for name in parsed)


def _require_loadable(files: Directory) -> None:
    """Raise RefusedError when a file is missing that the state which came back needs: Spark may have removed it."""
    try:
        checkpoint = open_checkpoint(files, spare=True)
        store = state_store(checkpoint)
        for kept in (kept for operator in checkpoint.operators for kept in operator.stores):
            partitions(checkpoint, store, kept)
    except CorruptionError as error:
        raise RefusedError(
            f"{error}. Without it Spark cannot load the old state, so the run cannot be rolled back. The checkpoint is "
            "as it was"
        ) from error
    except UnsupportedError:
        return  # what is not known cannot be looked for


def _refuse_moved_on(files: Directory, last: Journal, logs: Logs) -> int:
    """The last committed batch; raises RefusedError unless what ``last`` replaced belongs to it.

    It is the run's batch, or an earlier one: then that batch was set back, and its new files with it.
    """
    if not logs.offsets or not logs.commits:
        folder = layout.COMMITS if logs.offsets else layout.OFFSETS
        raise RefusedError(f"{files.root}: its {folder} folder is empty; which batch is the last is not known")
    committed = logs.commits[-1]
    if committed > last.batch:
        raise RefusedError(
            f"{files.root}: batch {committed} has been committed since run {last.run} (batch {last.batch}); the old "
            "state does not belong to it"
        )
    if committed == last.batch and not has_its_batch(files, last):
        raise RefusedError(
            f"{files.root}: batch {last.batch} was run again since run {last.run}, so neither the new nor the old "
            f"state is that of this batch. Run: ttlsnap doctor {files.root}"
        )
    others = rewritten(files, last)
    if others:
        raise RefusedError(
            f"{files.root}/{others[0]} is not the file that run {last.run} published ({len(others)} such in all): a "
            f"query has written it since, or it is damaged. Nothing was changed. Run: ttlsnap doctor {files.root}"
        )
    return committed


def _is_withdrawn(path: str, batch: int, committed: int) -> bool:
    """Whether a file is a snapshot of a batch that was set back: it would hide what the batch writes when run again."""
    return committed < batch and layout.outlives(layout.checksummed(path), committed + 1)


def _back(files: Directory, last: Journal, run: str, back: Sequence[Move]) -> list[Move]:
    """Everything in the way goes to the rollback's own backup, then the old files come ``back``.

    In the way are the files that the run published, and the snapshots that a batch left which was started since, and
    not committed: it was computed from the state that is taken away, and replaces its deltas when it runs again, but
    not a snapshot. Files that were there before the run are not touched.
    """
    replaced = [move.target for move in last.new]
    kinds = {path.rpartition(".")[2] for path in replaced} & set(layout.SNAPSHOTS)
    newer = [path for path in list_activity(files) if kinds and layout.outlives(path, last.batch + 1, *kinds)]
    lost = set(last.preserved)  # nothing is in the way of those
    in_the_way = [*replaced, *newer, *(move.target for move in back if move.target not in lost)]
    return [*set_aside(files, run, in_the_way), *back]


def _remove_empty_folders(files: Directory, last: Journal) -> None:
    """Remove the folders for tables that have none any more: the run that was undone had made them."""
    folders = {move.target.rpartition("/")[0] for move in last.new}
    shared = sorted(folder for folder in folders if folder.rpartition("/")[2] in layout.SHARED)
    for folder, left in zip(shared, each(files, files.list, shared), strict=True):
        if not left and files.stat(folder) is not None:
            files.remove_tree(folder)


def prune(target: str) -> list[str]:
    """Remove the backups of all runs that have ended; their names.

    Raises RefusedError where a backup has the only copy of a table that a snapshot needs.
    """
    files = existing_checkpoint(target)
    with files.lock():
        refuse_if_cut_off(files)
        for held in held_tables(files, _ended(files)):
            raise RefusedError(
                f"{files.root}/{held.path} is missing, {held.needed_by} needs it, and the backup of run {held.run} has "
                f"the only copy. Nothing was removed. First run: ttlsnap doctor {files.root} --fix table-in-backup"
            )
        return discard_backups(files, keep=None)


def _ended(files: Directory) -> list[str]:
    return [journal.run for journal in read_journals(files) if journal.status != "open"]


def discard_backups(files: Directory, keep: str | None) -> list[str]:
    """Remove what ended runs, other than ``keep``, still hold besides journal and report; their names.

    A backup with the only copy of a table that a snapshot needs is left alone.
    """
    ended = [run for run in _ended(files) if run != keep]
    needed = {held.run for held in held_tables(files, ended)}
    ended = [run for run in ended if run not in needed]
    had_backup = each(files, lambda run: _discard_files(files, run), ended)
    return [run for run, had in zip(ended, had_backup, strict=True) if had]


def _discard_files(files: Directory, run: str) -> bool:
    """Remove what an ended run holds besides journal and report; whether there was a backup."""
    backup = f"{layout.run_directory(run)}/backup"
    had_backup = files.stat(backup) is not None
    if had_backup and only_copies(files, run):
        return False
    files.remove_tree(backup)
    files.remove_tree(staged_path(run, ""))
    files.remove_tree(scratch_path(run))
    return had_backup


def only_copies(files: Directory, run: str) -> list[str]:
    """Return the files in the backup of a run that was not published that are not back in their places.

    There should be none, because undoing a run brings them back. They may be all that is left of the old state.
    """
    backup = backup_path(run, "")
    if files.stat(backup.rstrip("/")) is None:
        return []
    journal = read_journal(files, run)
    if journal is not None and journal.status != "undone":
        return []
    known = set(journal.preserved) if journal is not None else set()  # these have two names, and never lost the first
    kept = [path for path in _files_below(files, backup.rstrip("/")) if path.removeprefix(backup) not in known]
    same = each(files, lambda path: _are_same(files, path, path.removeprefix(backup)), kept)
    return [path for path, is_back in zip(kept, same, strict=True) if not is_back]


def warn_of_only_copies(files: Directory) -> list[str]:
    """Say which backups ttlsnap keeps because of ``only_copies``."""
    runs = [info.name for info in files.list(layout.RUNS) if info.is_dir and layout.is_run(info.name)]
    return [
        f"run {run} was not published, but {files.root}/{copies[0]} is not back in its place ({len(copies)} such in "
        f"all), so ttlsnap keeps it. If the file is missing from the checkpoint, move it back; if it is not needed, "
        f"remove {files.root}/{layout.run_directory(run)}"
        for run, copies in zip(runs, each(files, lambda run: only_copies(files, run), runs), strict=True)
        if copies
    ]


def _files_below(files: Directory, folder: str) -> list[str]:
    found = []
    for info in files.list(folder):
        path = f"{folder}/{info.name}"
        found += _files_below(files, path) if info.is_dir else [path]
    return found


def _are_same(files: Directory, first: str, second: str) -> bool:
    one, other = files.stat(first), files.stat(second)
    if one is None or other is None or (one.size, one.is_dir) != (other.size, other.is_dir):
        return False
    return one.mtime_ns == other.mtime_ns or digest_of(files, first) == digest_of(files, second)


def discard_leftovers(files: Directory) -> None:
    """Remove what runs left that were cut off before their journal: they changed nothing."""
    runs = [info.name for info in files.list(layout.RUNS) if info.is_dir and layout.is_run(info.name)]

    def discard_scratch(folder: str) -> None:
        for info in files.list(folder):
            if info.name.endswith(SCRATCH) and not info.is_dir:
                files.remove(f"{folder}/{info.name}")

    def is_left_over(run: str) -> bool:
        # The report of a copy stands alone: this checkpoint is what that run made. A damaged one may be such a report.
        try:
            return read_journal(files, run) is None and (read_report(files, run) or {}).get("output") is None
        except CorruptionError:
            return False

    each(files, discard_scratch, (OWN, *map(layout.run_directory, runs)))
    for run, left_over in zip(runs, each(files, is_left_over, runs), strict=True):
        if left_over:
            discard_run(files, run)


@deferred()
def discard_run(files: Directory, run: str) -> None:
    """Remove a run's folder, and ttlsnap's own when it was the only one; keep what is nowhere else."""
    if only_copies(files, run):
        return
    # A report that stands alone is that of a copy, so it goes first.
    files.remove(report_path(run))
    files.remove_tree(layout.run_directory(run))
    if not files.list(layout.RUNS):
        files.remove_tree(layout.RUNS)
        if not files.list(OWN):
            files.remove_tree(OWN)


def discard_unless_open(files: Directory, run: str) -> None:
    """Remove what a failed run staged, unless ``recover`` needs it."""
    journal = read_journal(files, run)
    if journal is None or journal.status == "undone":
        discard_run(files, run)


def refuse_if_cut_off(files: Directory) -> None:
    """Raise FencedError when an earlier run needs ``recover``."""
    if any(j.status == "open" for j in read_journals(files)) or read_logs(files).fence is not None:
        raise FencedError(f"{files.root}: a run was cut off while it published. Run: ttlsnap recover {files.root}")


def existing_checkpoint(target: str) -> Directory:
    """The folder of a checkpoint; raises NotACheckpointError for what is none."""
    files = open_directory(target)
    if files.stat(layout.OFFSETS) is None:
        what = "does not exist" if files.stat("") is None else f"is not a checkpoint: it has no {layout.OFFSETS} folder"
        raise NotACheckpointError(f"{files.root} {what}")
    return files
