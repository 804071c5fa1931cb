"""Files that the last run published and that somebody has removed since.

Spark cannot load the version without such a file. After a run of ttlsnap 0.2 or earlier, it loads the version from
older files: it continues with the state from before the run in this partition, and with the new state in all others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ttlsnap.checkpoint import Logs
from ttlsnap.errors import RefusedError
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
        copy = "Restore the file from a copy of the checkpoint"
        if not self.can_roll_back:
            return copy
        return f"{copy}, or go back to the state before the run: ttlsnap rollback {shell_word(root)} --stopped"


def find_last_run(runs: Runs, logs: Logs) -> Journal | None:
    """Return the last compaction, if its batch is still the last one, with the files that no later repair moved.

    Later batches have files of their own, and Spark removes old ones. During an interrupted run nothing is known.
    """
    journals = [journal for journal in runs.recent(logs) if journal.status != "undone"]
    undone = {journal.undoes for journal in journals}
    valid = [each for each in journals if each.kind != "rollback" and each.run not in undone]
    at = next((at for at, each in enumerate(valid) if each.has_new_state), None)
    if at is None or any(each.status != "done" for each in journals):
        return None
    last = valid[at]
    if logs.commits[-1:] != (last.batch,) or not has_its_batch(runs.files, last):
        return None
    moved = {move.source for repair in valid[:at] for move in repair.to_backup}
    return replace(last, published=tuple(facts for facts in last.published if facts.path not in moved))


def can_roll_back(runs: Runs, logs: Logs, journal: Journal) -> bool:
    """Return whether a run is the newest one, and its backup is complete.

    ``rollback`` can still refuse: the old state may need files that the run did not have.
    """
    files = runs.files
    newest = next((each for each in runs.recent(logs) if each.status != "undone"), None)
    kept = find_existing(files, journal.preserved)
    backup = [move.target for move in journal.to_backup]
    backup += [f"{find_backup(files, journal.run)}/{path}" for path in journal.preserved if path not in kept]
    is_newest = newest is not None and newest.run == journal.run
    return is_newest and len(find_existing(files, backup)) == len(backup)


def find_missing_files(runs: Runs, logs: Logs) -> list[MissingFiles]:
    """Return the last run if files of it are missing."""
    last = find_last_run(runs, logs)
    if last is None:
        return []
    there = find_existing(runs.files, [facts.path for facts in last.published])
    missing = tuple(facts.path for facts in last.published if facts.path not in there)
    return [MissingFiles(last.run, missing, can_roll_back(runs, logs, last))] if missing else []


def refuse_missing_files(runs: Runs, logs: Logs) -> None:
    """Raise RefusedError if a file that the last run published is missing."""
    root = runs.files.root
    for missing in find_missing_files(runs, logs):
        raise RefusedError(f"{missing.describe(root)}. Nothing was changed. {missing.advise(root)}")
