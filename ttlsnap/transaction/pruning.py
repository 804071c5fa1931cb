"""``history --prune``: remove the backups of ended runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ttlsnap.documents import Document
from ttlsnap.errors import RefusedError, StorageError, explain_errors
from ttlsnap.keywords import public
from ttlsnap.printable import shell_word
from ttlsnap.publishing.backups import find_held_tables
from ttlsnap.publishing.cleanup import discard_backups, only_copies
from ttlsnap.publishing.journal import find_backup
from ttlsnap.publishing.runs import Runs, open_existing, refuse_if_interrupted
from ttlsnap.transaction.rollback import undoable_run


@dataclass(frozen=True)
class Backup(Document):
    """The backup of an ended run: its files, and their size in bytes.

    ``needed_to_undo``: the run is the last one, and no batch was committed since. So ``rollback`` can undo it, but only
    with this backup.
    """

    run: str
    files: int
    bytes: int
    needed_to_undo: bool


def find_backups(target: str) -> list[Backup]:
    """Return the backups that ``prune`` would remove, oldest first, and change nothing. Raise what ``prune`` raises."""
    files = open_existing(target)
    with files.lock(shared=True):
        return _find(refuse_if_interrupted(files))


@public
def prune(target: str, *, confirm: Callable[[Backup], bool] | None = None) -> list[str]:
    """Remove the backups of all ended runs. Return the names of these runs.

    ``confirm``, if given, is called with the backup that is needed to undo the last run, if there is one. If it returns
    False, nothing is removed. Raise RefusedError if a backup has the only copy of a table that a snapshot needs.
    """
    files = open_existing(target)
    with files.lock():
        runs = refuse_if_interrupted(files)
        needed_backup = next((backup for backup in _find(runs) if backup.needed_to_undo), None)
        if needed_backup is not None and confirm is not None and not confirm(needed_backup):
            return []
        command = f"ttlsnap history {shell_word(files.root)} --prune"
        with explain_errors(f"Only backups were removed. After fixing the error, run again: {command}", StorageError):
            return discard_backups(runs, keep=None)


def _find(runs: Runs) -> list[Backup]:
    files, ended_journals = runs.files, [journal for journal in runs.journals if journal.status != "open"]
    for table in find_held_tables(files, [journal.run for journal in ended_journals]):
        raise RefusedError(
            f"{files.root}/{table.path} is missing, but {table.needed_by} needs it. The only copy is in the backup "
            f"of run {table.run}. Nothing was removed. First run: ttlsnap doctor {shell_word(files.root)} --fix "
            "table-in-backup"
        )
    undoable = undoable_run(runs)
    backups = []
    for journal in ended_journals:
        run = journal.run
        folder = find_backup(files, run)
        if files.stat(folder) is not None and not only_copies(files, run, journal):
            sizes = [info.size for info in files.list_tree(folder).values()]
            backups.append(Backup(run, len(sizes), sum(sizes), needed_to_undo=run == undoable))
    return backups
