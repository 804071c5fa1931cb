"""The removal of files that runs have left: old backups, staged and scratch files. Only copies stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from ttlsnap.checkpoint import layout
from ttlsnap.errors import (
    CorruptionError,
    TtlsnapError,
    tidy_after_error,
)
from ttlsnap.interrupts import defer_signals
from ttlsnap.publishing.archives import has_lost_journal
from ttlsnap.publishing.backups import find_held_tables
from ttlsnap.publishing.journal import (
    BACKUP,
    STAGED,
    FileMove,
    Journal,
    digest_of,
    folders_of,
    is_same,
    read_journal,
    report_path,
    scratch_path,
)
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import OWN, SCRATCH, Directory, each, remove_scratch
from ttlsnap.storage.trees import stat_files


def discard_backups(runs: Runs, keep: str | None) -> list[str]:
    """Remove the files of ended runs, other than ``keep``, except journal and report. Return the names of these runs.

    A backup with the only copy of a table that a snapshot needs stays.
    """
    ended = [journal for journal in runs.journals if journal.status != "open" and journal.run != keep]
    ended = [journal for journal in ended if runs.has_folders(journal.run)]
    needed_runs = {table.run for table in find_held_tables(runs.files, [journal.run for journal in ended])}
    ended = [journal for journal in ended if journal.run not in needed_runs]
    had_backups = each(runs.files, lambda journal: discard_files(runs.files, journal), ended)
    return [journal.run for journal, had_backup in zip(ended, had_backups, strict=True) if had_backup]


@dataclass(frozen=True)
class Tidied:
    """The result of ``tidy_up``. ``made_final`` is the earlier run that only the removed backup could still undo."""

    warnings: tuple[str, ...] = ()
    made_final: str | None = None


def tidy_up(runs: Runs, run: str) -> Tidied:
    """Remove what a published run has left in its staging folder, and older backups. A failure is a warning."""
    try:
        _discard_folders(runs.files, run, STAGED)  # a worker that was killed may have left something there
        removed = discard_backups(runs, keep=run)
        return Tidied(made_final=_made_final(runs, run, removed))
    except (TtlsnapError, MemoryError) as error:
        reason = error.text if isinstance(error, TtlsnapError) else "out of memory"
        return Tidied(("an older backup could not be removed; the next run will try again: " + reason,))


def foresee_final(runs: Runs, batch: int) -> str | None:
    """Return the run that a new one on the last committed ``batch`` would make final; None if there is none."""
    run = _find_undoable(runs.journals, batch)
    return run if run is not None and runs.has_folders(run) else None


def _made_final(runs: Runs, run: str, removed: Sequence[str]) -> str | None:
    """Return the run before ``run`` if its backup is ``removed``, and no batch was committed between the two."""
    for place, journal in enumerate(runs.journals):
        if journal.run == run and journal.status == "done":
            earlier = _find_undoable(runs.journals[:place], journal.batch)
            return earlier if earlier in removed else None
    return None


def _find_undoable(journals: Sequence[Journal], batch: int) -> str | None:
    """Return the last published run, if it is of this batch, and no rollback."""
    last = next((journal for journal in reversed(journals) if journal.status == "done"), None)
    return last.run if last is not None and last.kind != "rollback" and last.batch == batch else None


def discard_files(files: Directory, journal: Journal) -> bool:
    """Remove the files of an ended run except journal and report. Return whether there was a backup."""
    run = journal.run
    had_backup = bool(folders_of(files, run, BACKUP))
    if had_backup and only_copies(files, run, journal):
        return False
    _discard_folders(files, run, BACKUP)
    _discard_folders(files, run, STAGED)
    files.remove_tree(scratch_path(run))
    return had_backup


def _discard_folders(files: Directory, run: str, kind: str) -> None:
    for folder in folders_of(files, run, kind):
        files.remove_tree(folder)


def only_copies(files: Directory, run: str, journal: Journal | None) -> list[str]:
    """Return the files in the backup of a run that was not published that are not back in their places.

    There should be none, because undoing a run brings them back. They may be all that is left of the old state.
    """
    backups = folders_of(files, run, BACKUP)
    if not backups:
        return []
    if journal is not None and journal.status != "undone":
        return []
    preserved = set(journal.preserved) if journal is not None else set()  # these have two names, and are still in place
    copies = [(path, path.removeprefix(f"{backup}/")) for backup in backups for path in files.list_tree(backup)]
    copies_to_compare = [
        (path, place) for path, place in copies if place not in preserved and not path.endswith(SCRATCH)
    ]
    are_back = each(files, lambda paths: _are_same(files, *paths), copies_to_compare)
    return [path for (path, _), is_back in zip(copies_to_compare, are_back, strict=True) if not is_back]


def warn_of_only_copies(runs: Runs) -> list[str]:
    """Return warnings about the backups that stay because of ``only_copies``."""
    files, ids = runs.files, [run for run in runs.ids if layout.is_run(run)]
    copies_of_runs = each(files, lambda run: only_copies(runs.known, run, runs.find(run)), ids)
    return [
        f"run {run} was not published, but {files.root}/{copies[0]} was not restored (files like this: {len(copies)}), "
        "so ttlsnap keeps the run's folder. If the file is missing from the checkpoint, move it back; if it is not "
        f"needed, remove {files.root}/{layout.run_directory(run)}"
        for run, copies in zip(ids, copies_of_runs, strict=True)
        if copies
    ]


def _are_same(files: Directory, first: str, second: str) -> bool:
    first_info, second_info = files.stat(first), files.stat(second)
    if (
        first_info is None
        or second_info is None
        or (first_info.size, first_info.is_dir) != (second_info.size, second_info.is_dir)
    ):
        return False
    return first_info.mtime_ns == second_info.mtime_ns or digest_of(files, first) == digest_of(files, second)


def find_overwritten(files: Directory, journal: Journal) -> list[str]:
    """Return the staged files of an undone run that another program has overwritten while they were in place."""
    published_facts = {facts.path: facts for facts in journal.published}
    published_moves = [move for move in journal.new if move.target in published_facts]
    staged_infos = stat_files(files, [move.source for move in published_moves])

    def is_overwritten(move: FileMove) -> bool:
        facts, info = published_facts[move.target], staged_infos.get(move.source)
        return info is not None and not is_same(files, replace(facts, path=move.source), info)

    return [
        staged_move.source
        for staged_move, was_overwritten in zip(
            published_moves, each(files, is_overwritten, published_moves), strict=True
        )
        if was_overwritten
    ]


def discard_leftovers(runs: Runs) -> Runs:
    """Remove the files of runs that changed nothing: they were interrupted before their journal, or undone.

    Return the runs that are left. The files of an undone run stay if another program has overwritten some of them.
    """
    files, known, ids = runs.files, runs.known, [run for run in runs.ids if layout.is_run(run)]

    def find_removal(run: str) -> Callable[[], object] | None:
        journal = runs.find(run)
        if journal is None:
            # The run that made this copy has only a report, which must stay. A damaged file may be such a report.
            try:
                is_needed = runs.report_of_copy(run) is not None or has_lost_journal(runs, run)
            except CorruptionError:
                return None
            return None if is_needed else partial(discard_run, files, run)
        if journal.status != "undone" or not folders_of(known, run, STAGED) + folders_of(known, run, BACKUP):
            return None
        return partial(discard_files, files, journal) if not find_overwritten(files, journal) else None

    each(files, lambda folder: remove_scratch(known, folder), (OWN, *map(layout.run_directory, ids)))
    removed_runs = set()
    for run, remove in zip(ids, each(files, find_removal, ids), strict=True):
        if remove is not None:
            remove()
            if runs.find(run) is None and files.stat(layout.run_directory(run)) is None:
                removed_runs.add(run)
    return replace(runs, ids=tuple(run for run in runs.ids if run not in removed_runs))


@defer_signals()
def discard_run(files: Directory, run: str) -> None:
    """Remove a run's folder, and ttlsnap's own if it was the only one; keep files that exist nowhere else."""
    if only_copies(files, run, read_journal(files, run)):
        return
    # Removed first: after an interrupt, a report without a journal would look like that of a copy.
    files.remove(report_path(run))
    files.remove_tree(layout.run_directory(run))
    files.remove_folder(layout.RUNS)
    files.remove_folder(OWN)


def discard_after_error(files: Directory, run: str) -> AbstractContextManager[None]:
    """Remove what a run staged if the block fails, unless ``recover`` needs it. What cannot be removed stays."""
    return tidy_after_error(partial(_discard_unless_open, files, run))


def _discard_unless_open(files: Directory, run: str) -> None:
    journal = read_journal(files, run)
    if journal is None or (journal.status == "undone" and files.failures_are_final):
        discard_run(files, run)
    elif journal.status == "undone":
        discard_files(files, journal)  # the run's fence may arrive late, and recover knows it by the journal
