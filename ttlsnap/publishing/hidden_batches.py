"""Snapshots of ttlsnap that hide a newer result of Spark.

A user may set a batch back: delete ``commits/N`` and ``offsets/N``, so that Spark runs batch N again with other input.
Spark then writes a new delta (or changelog) of version N + 1. But if ttlsnap has compacted that version, its snapshot
still exists, and Spark prefers a snapshot to a delta. The query is correct until it restarts, and then reads the old
result. The journal of the run identifies such a snapshot, and the offsets of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import Logs, layout
from ttlsnap.errors import RefusedError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import Journal, find_migrated, is_same
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import each


@dataclass(frozen=True)
class HiddenBatch:
    """The files of a run that hide another result of its batch; ``ran_again``: that result exists already.

    ``planned`` is the batch that the run planned, if it is still in the log. ``can_roll_back``: ``rollback`` can undo
    this run, because it is the last one and has its backup.
    """

    run: str
    batch: int
    ran_again: bool
    files: tuple[str, ...]
    planned: str | None
    can_roll_back: bool

    def describe(self, root: str) -> str:
        """Return what happened, and where."""
        event = "was run again" if self.ran_again else "was set back"
        first_path = next(iter(self.files), self.planned)
        return (
            f"batch {self.batch} {event} after ttlsnap run {self.run} had rewritten its state. {root}/{first_path} "
            f"({quantity(len(self.files), 'such file')}) would hide the new result of this batch from every query "
            "that restarts"
        )

    def advise(self, root: str) -> str:
        """Return the command that helps."""
        if self.ran_again or not self.can_roll_back:
            return f"Stop the query, and run: ttlsnap doctor {shell_word(root)} --fix hidden-batch --stopped"
        return f"Stop the query, and run: ttlsnap rollback {shell_word(root)} --stopped"


def find_hidden_batches(runs: Runs, logs: Logs) -> list[HiddenBatch]:
    """Return the runs whose batch was set back or ran again, and whose files are still in place, newest first."""
    journals = runs.recent(logs)
    undone_runs = {journal.undoes for journal in journals if journal.status == "done"}
    last_run = next((journal.run for journal in journals if journal.status == "done"), None)
    valid_journals = [
        done_journal
        for done_journal in journals
        if done_journal.status == "done" and done_journal.run not in undone_runs
    ]
    hidden_batches = (
        _hidden_batch(runs, logs, journal, valid_journals, is_last=journal.run == last_run)
        for journal in valid_journals
        if journal.has_new_state
    )
    return [hidden_batch for hidden_batch in hidden_batches if hidden_batch is not None]


def refuse_hidden_batches(runs: Runs, logs: Logs) -> None:
    """Raise RefusedError if a snapshot of an earlier run hides another result of its batch."""
    for hidden_batch in find_hidden_batches(runs, logs):
        raise RefusedError(
            f"{hidden_batch.describe(runs.files.root)}. Nothing was changed. {hidden_batch.advise(runs.files.root)}"
        )


def _hidden_batch(
    runs: Runs, logs: Logs, journal: Journal, valid_journals: Sequence[Journal], *, is_last: bool
) -> HiddenBatch | None:
    files, last_committed = runs.files, logs.commits[-1] if logs.commits else -1
    offset_path = layout.offset_file(journal.batch)
    offset_facts = next((facts for facts in journal.logs if facts.path == offset_path), None)
    if offset_facts is None:
        return None  # an older ttlsnap did not record the logs
    info = files.stat(offset_facts.path)
    if info is None and last_committed >= journal.batch:
        return None  # Spark has removed the logs of an old batch
    # A later migration gives the batch other settings, and ``sources`` other positions.
    known_facts = [offset_facts, *find_migrated(valid_journals, offset_path)]
    ran_again = info is not None and not any(is_same(files, facts, info) for facts in known_facts)
    if not ran_again and last_committed >= journal.batch:
        return None
    # When the batch runs again, Spark replaces its delta, and keeps the snapshot.
    published_facts = [facts for facts in journal.published if layout.is_newer_snapshot(facts.path, journal.batch)]
    published_infos = each(files, files.stat, [facts.path for facts in published_facts])
    unchanged_paths = tuple(
        facts.path
        for facts, published_info in zip(published_facts, published_infos, strict=True)
        if is_same(files, facts, published_info)
    )
    planning_journal = runs.find_planning(logs)
    planned_path = (
        planning_journal.fence if planning_journal is not None and planning_journal.run == journal.run else None
    )
    if not unchanged_paths and planned_path is None:
        return None
    can_roll_back = is_last and None not in each(files, files.stat, [move.target for move in journal.to_backup])
    return HiddenBatch(journal.run, journal.batch, ran_again, unchanged_paths, planned_path, can_roll_back)
