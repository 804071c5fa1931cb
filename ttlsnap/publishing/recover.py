"""The recovery of a checkpoint: finish the run that was interrupted, or undo it.

``recover`` uses the same journal and fence as publishing, so it can be interrupted and run again.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from ttlsnap.archives.places import AllowedPlaces, Confirm
from ttlsnap.archives.receivers import ExpiredCallback
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import fenced, is_copy_fence, read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.documents import Result
from ttlsnap.errors import (
    CorruptionError,
    RefusedError,
    StorageError,
    explain_errors,
)
from ttlsnap.interrupts import defer_signals
from ttlsnap.keywords import public
from ttlsnap.printable import shell_word
from ttlsnap.publishing.archives import allowed_places, deliver_all, is_unsettled
from ttlsnap.publishing.cleanup import discard_leftovers, find_overwritten, warn_of_only_copies
from ttlsnap.publishing.fence import has_fence, has_its_batch, has_planned, raise_fence, undo_fence
from ttlsnap.publishing.journal import Journal, find_backup, read_journal
from ttlsnap.publishing.moves import (
    complete_halves,
    find_altered,
    find_done,
    find_rewritten,
    is_untouched,
    refuse_unclear,
    remove_empty_folders,
    remove_if_nothing,
)
from ttlsnap.publishing.preflight import require_ownership
from ttlsnap.publishing.recording import close_journal
from ttlsnap.publishing.runs import Fence, Runs
from ttlsnap.publishing.swap import close_undone, finish, undo
from ttlsnap.publishing.takeover import is_half_taken_over, take_over
from ttlsnap.storage.directory import OWN, Directory
from ttlsnap.storage.open import open_directory
from ttlsnap.storage.trees import find_existing

Outcome = Literal["nothing", "finished", "undone"]


@dataclass(frozen=True)
class RecoverReport(Result):
    """The result of ``recover``.

    ``outcome`` is ``finished`` or ``undone`` for the run ``run``, or ``nothing`` if no run was interrupted. ``settled``
    has the runs whose dropped entries were now archived, or removed from the archive; the latter are in ``taken_back``,
    too. ``warnings`` describe the failures.
    """

    target: str
    outcome: Outcome
    run: str | None
    warnings: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()


@public
def recover(
    target: str,
    *,
    prefer_undo: bool = False,
    expired_to: str | ExpiredCallback | None = None,
    confirm: Confirm | None = None,
) -> RecoverReport:
    """Finish the interrupted run, or undo it if that is impossible or not wanted.

    Dropped entries that still wait are delivered to ``expired_to`` if they belong there. ``confirm`` decides about
    another place that the checkpoint names. Otherwise they wait, and a warning says so.

    Raise RefusedError if the fence was removed by hand and the query has continued, and CorruptionError if files that
    the journal names are missing.
    """
    root = open_directory(target).root
    advice = f"Nothing is lost. After fixing the storage error, run: ttlsnap recover {shell_word(root)}"
    with explain_errors(advice, StorageError), ExitStack() as stack:
        with explain_errors("Nothing was changed, and Spark may refuse to start.", StorageError):
            files = open_directory(target)
            # After a restore from nothing, there may be runs and nothing else.
            if not files.list(layout.RUNS):
                require_checkpoint(files, layout.OFFSETS)
            if not files.list(OWN) and read_logs(files).fence is None:
                return RecoverReport(files.root, "nothing", None)
            places = allowed_places(target, expired_to, confirm)
            stack.enter_context(files.lock())
            journal = Runs.read(files).interrupted
        return _recover(files, journal, prefer_undo, places)


def _recover(files: Directory, journal: Journal | None, prefer_undo: bool, places: AllowedPlaces) -> RecoverReport:
    """End the ``journal`` of an interrupted run, or remove a fence that arrived late. Then tidy up."""
    if journal is None:
        with explain_errors("Spark may refuse to start.", StorageError):
            journal = _remove_late_fence(files)
        outcome: Outcome = "nothing" if journal is None else "undone"
    else:
        with explain_errors(f"Run {journal.run} is still interrupted, and {Fence.MAYBE.value}.", StorageError):
            if journal.planned is not None:
                require_ownership(files, [journal.fence])  # the planned batch takes its place
            outcome = _settle(files, journal, prefer_undo)
    if journal is None:
        return _tidied(files, places, RecoverReport(files.root, outcome, None))
    with explain_errors(f"Run {journal.run} was {outcome}, so Spark can start."):
        return _tidied(files, places, RecoverReport(files.root, outcome, journal.run))


def _tidied(files: Directory, places: AllowedPlaces, report: RecoverReport) -> RecoverReport:
    """Remove what runs have left, and deliver what waits. Return the whole report."""
    kept_warnings = []
    # Read again, because a takeover gives the run's folders other names.
    journal = read_journal(files, report.run) if report.run is not None and report.outcome == "undone" else None
    if journal is not None and find_overwritten(files, journal):
        folder = f"{files.root}/{layout.run_directory(journal.run)}"
        kept_warnings = [f"files that overwrote those of run {journal.run} are kept in {folder}"]
    runs = discard_leftovers(Runs.read(files))
    for ended in runs.journals[-1:]:
        undone = ended if ended.status == "undone" else runs.find(ended.undoes or "")
        if undone is not None:
            remove_if_nothing(files, undone)
    unsettled_before = _list_unsettled_runs(runs)
    warnings = (*kept_warnings, *warn_of_only_copies(runs), *deliver_all(runs, places))
    unsettled_after = _list_unsettled_runs(Runs.read(files))
    settled = tuple(run for run in unsettled_before if run not in unsettled_after)
    rolled_back = {rollback.undoes for rollback in runs.journals if rollback.status == "done"}
    taken_back = tuple(run for run in settled if run in rolled_back)
    return replace(report, warnings=warnings, settled=settled, taken_back=taken_back)


def _list_unsettled_runs(runs: Runs) -> list[str]:
    return [run for run in runs.ids if layout.is_run(run) and is_unsettled(runs, run)]


@defer_signals()
def _settle(files: Directory, journal: Journal, prefer_undo: bool) -> Outcome:
    if not is_half_taken_over(files, journal):
        _find_way(files, journal, prefer_undo)  # raises if there is none, before anything is changed
    journal = take_over(files, journal)
    complete_halves(files, journal)
    ending = _find_way(files, journal, prefer_undo)
    if ending == "withdraw":
        remove_empty_folders(files, journal)
        undo_fence(files, journal)
        close_undone(files, journal)
        return "undone"
    if ending in ("plan", "close"):
        if ending == "plan" and journal.planned is not None:
            files.create(journal.fence, journal.planned.encode())
        close_journal(files, journal, "done")
        return "finished"
    if not has_fence(files, journal) and not raise_fence(files, journal):
        raise _gone_on(files, journal)
    if ending == "finish":
        finish(files, journal)
        return "finished"
    undo(files, journal)
    undo_fence(files, journal)
    close_undone(files, journal)
    return "undone"


def _find_way(
    files: Directory, journal: Journal, prefer_undo: bool
) -> Literal["withdraw", "plan", "close", "finish", "undo"]:
    """Return how to end an interrupted run, and change nothing.

    ``withdraw`` removes the fence of a run that has moved no file. ``plan`` and ``close`` end a run that has moved all.
    ``plan`` also creates the planned batch.

    Raise RefusedError if the query has continued without the fence, or if a new file is not what the run wrote. Raise
    CorruptionError if files are missing, or if an old file is not what it was.
    """
    if is_untouched(files, journal):
        return "withdraw"
    are_done = find_done(files, journal.moves)
    # Every file is at one end of its move. Undoing only needs the old files, so a new one may be missing then.
    current_paths = [
        journal_move.target if move_is_done else journal_move.source
        for journal_move, move_is_done in zip(journal.moves, are_done, strict=True)
    ]
    present_paths = find_existing(files, current_paths)
    lost_moves = [move for move, path in zip(journal.moves, current_paths, strict=True) if path not in present_paths]
    can_finish, can_undo = not lost_moves, not set(lost_moves) & set(journal.to_backup)
    refuse_unclear(files, journal)
    if not any(are_done):
        # No file has moved, and the run may not have known yet whether the query is stopped. So it is not finished.
        return "withdraw"
    if not has_fence(files, journal):
        # If all moves are done, a query may have been started since. It may be running a batch on the new state, and
        # may have removed old versions. So only ``rollback`` may undo the run.
        is_over = has_planned(files, journal) or _has_gone_on(files, journal)
        if all(are_done) and (is_over or can_finish):
            if not is_over and journal.planned is not None:
                _refuse_rewritten(files, journal, can_undo=False)
            return "close" if is_over else "plan"
        if _has_gone_on(files, journal) or files.stat(journal.fence) is not None:
            raise _gone_on(files, journal)
    if can_finish and not (can_undo and (prefer_undo or _is_committed_since(files, journal))):
        _refuse_rewritten(files, journal, can_undo)
        return "finish"
    if can_undo:
        _refuse_altered(files, journal)
        return "undo"
    raise CorruptionError(
        f"{files.root}/{lost_moves[0].source} is missing, and so is {lost_moves[0].target}. ttlsnap can neither finish "
        f"nor undo run {journal.run}. The fence stays. Restore the file from a copy and run recover again. Without a "
        "copy of it, restore the checkpoint from a copy of before the run"
    )


def _is_committed_since(files: Directory, journal: Journal) -> bool:
    """Return whether a batch was committed that had started before the run, and so was computed from the old state."""
    return journal.kind != "repair" and max(read_logs(files).commits, default=-1) > journal.batch


def _refuse_rewritten(files: Directory, journal: Journal, can_undo: bool) -> None:
    rewritten_paths = find_rewritten(files, journal)
    if rewritten_paths:
        undo_advice = f" Then undo the run: ttlsnap recover {shell_word(files.root)} --undo" if can_undo else ""
        raise RefusedError(
            f"{files.root}/{rewritten_paths[0]} is not the file that run {journal.run} wrote (files like this: "
            f"{len(rewritten_paths)}). A running query has overwritten it, or it is damaged. The fence stays. Stop the "
            f"query.{undo_advice}"
        )


def _refuse_altered(files: Directory, journal: Journal) -> None:
    altered_paths = find_altered(files, journal)
    if altered_paths:
        raise CorruptionError(
            f"{files.root}/{altered_paths[0]} is not the file that was there before run {journal.run} (files like "
            f"this: {len(altered_paths)}). Another program wrote it, or it is damaged. The fence stays. Restore the "
            "file from a copy and run recover again"
        )


def _newest_offset(files: Directory) -> int:
    return max(read_logs(files).offsets, default=-1)


def _has_gone_on(files: Directory, journal: Journal) -> bool:
    """Return whether the query has started a batch since the fence was removed, or the run's batch was set back."""
    newest_batch = _newest_offset(files)  # the log's offsets do not include a fence
    return newest_batch >= (journal.fence_batch or 0) or not has_its_batch(files, journal)


def _gone_on(files: Directory, journal: Journal) -> RefusedError:
    return RefusedError(
        f"{files.root}: somebody removed the fence of run {journal.run}, and the query has started batch "
        f"{_newest_offset(files)} on a mixture of old and new state. The old files are in "
        f"{files.root}/{find_backup(files, journal.run)}. Stop the query, and restore the checkpoint from a copy of "
        f"before the run. Without a copy, delete the files of {layout.COMMITS} and {layout.OFFSETS} after batch "
        f"{journal.batch}, run recover again, and then doctor. The query repeats these batches"
    )


@defer_signals()
def _remove_late_fence(files: Directory) -> Journal | None:
    """Remove the fence of an ended run, which its process sent before it ended, and which arrived later.

    Return the run; None if there is no fence. Raise RefusedError if the fence's journal is missing.
    """
    fence = read_logs(files).fence
    if fence is None:
        return None
    if is_copy_fence(fence):
        raise fenced(files, fence)
    journal = next((journal for journal in reversed(Runs.read(files).journals) if has_fence(files, journal)), None)
    if journal is None:
        raise RefusedError(
            f"{files.root} is fenced, but the journal of the interrupted run is missing from {layout.RUNS}. If that "
            "folder was moved, move it back and run recover again"
        )
    undo_fence(files, journal)
    return journal
