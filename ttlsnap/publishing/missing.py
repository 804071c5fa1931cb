"""Files that the last run published and that somebody has removed since.

Spark cannot load the version without such a file. After a run of ttlsnap 0.2 or earlier, it loads the version from
older files: it continues with the state from before the run in this partition, and with the new state in all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ttlsnap.checkpoint import Logs
from ttlsnap.errors import CorruptionError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.fence import has_its_batch
from ttlsnap.publishing.journal import Journal, find_backup
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.trees import find_existing


@dataclass(frozen=True)
class MissingFiles:
    """The missing files of a run. ``can_roll_back``: the backup of the run is complete."""

    run: str
    files: tuple[str, ...]
    can_roll_back: bool

    def describe(self, root: str) -> str:
        """Return what happened, and where."""
        return (
            f"{root}/{self.files[0]} is missing, although run {self.run} published it (such files: {len(self.files)}). "
            "Spark cannot load the state of its partition, or loads an older one"
        )

    def advise(self, root: str) -> str:
        """Return what helps."""
        place = shell_word(root)
        advice = (
            "Restore the file from a copy that was made after the run, or the checkpoint from a backup: ttlsnap copy "
            f"BACKUP {place} --replace --stopped"
        )
        if not self.can_roll_back:
            return advice
        return f"{advice}. Or go back to the state before the run: ttlsnap rollback {place} --stopped"


def find_last_run(runs: Runs, logs: Logs) -> Journal | None:
    """Return the last compaction, if its batch is still the last one, with the files that no later repair moved.

    Later batches have files of their own, and Spark removes old ones. During an interrupted run nothing is known.
    """
    journals = [journal for journal in runs.recent(logs) if journal.status != "undone"]
    undone_runs = {journal.undoes for journal in journals}
    valid_journals = [
        recent_journal
        for recent_journal in journals
        if recent_journal.kind != "rollback" and recent_journal.run not in undone_runs
    ]
    position = next(
        (position for position, recent_journal in enumerate(valid_journals) if recent_journal.has_new_state), None
    )
    if position is None or any(recent_journal.status != "done" for recent_journal in journals):
        return None
    last_run = valid_journals[position]
    if logs.commits[-1:] != (last_run.batch,) or not has_its_batch(runs.files, last_run, valid_journals[:position]):
        return None
    moved_paths = {move.source for repair in valid_journals[:position] for move in repair.to_backup}
    return replace(last_run, published=tuple(facts for facts in last_run.published if facts.path not in moved_paths))


def can_roll_back(runs: Runs, logs: Logs, journal: Journal) -> bool:
    """Return whether a run is the newest one, and its backup is complete.

    ``rollback`` can still refuse: the old state may need files that the run did not have.
    """
    files = runs.files
    newest_journal = next(
        (recent_journal for recent_journal in runs.recent(logs) if recent_journal.status != "undone"), None
    )
    kept_paths = find_existing(files, journal.preserved)
    backup_paths = [move.target for move in journal.to_backup]
    backup_paths += [
        f"{find_backup(files, journal.run)}/{path}" for path in journal.preserved if path not in kept_paths
    ]
    is_newest = newest_journal is not None and newest_journal.run == journal.run
    return is_newest and len(find_existing(files, backup_paths)) == len(backup_paths)


def find_missing_files(runs: Runs, logs: Logs) -> list[MissingFiles]:
    """Return the last run if files of it are missing."""
    last_run = find_last_run(runs, logs)
    if last_run is None:
        return []
    present_paths = find_existing(runs.files, [facts.path for facts in last_run.published])
    missing_paths = tuple(facts.path for facts in last_run.published if facts.path not in present_paths)
    return [MissingFiles(last_run.run, missing_paths, can_roll_back(runs, logs, last_run))] if missing_paths else []


def refuse_missing_files(runs: Runs, logs: Logs) -> None:
    """Raise CorruptionError if a file that the last run published is missing."""
    root = runs.files.root
    for missing in find_missing_files(runs, logs):
        error = CorruptionError(f"{missing.describe(root)}. Nothing was changed. {missing.advise(root)}")
        error.advice = ""  # it has its own
        raise error
