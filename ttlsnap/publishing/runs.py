"""The runs of a checkpoint, which a command reads once; the checkpoint of a run, and the run's id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from secrets import token_hex
from typing import Any

import xxhash

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.logs import MAX_LOG_BYTES, fenced, is_copy_fence, read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.errors import FencedError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import Journal, find_migrated, read_journal, read_report
from ttlsnap.storage.directory import Directory, cache_listings, each
from ttlsnap.storage.open import open_directory


@dataclass(frozen=True)
class Runs:
    """The runs on the checkpoint in ``files``.

    ``ids`` are those of all runs with a folder, in no order. ``journals`` are those of the runs that reached
    publishing, oldest first. All of them are read, whatever the times in their names are: a clock may have been wrong.
    ``known`` is the same directory with the folders of these runs as they were then, so that each is listed once.
    """

    files: Directory
    known: Directory
    ids: tuple[str, ...]
    journals: tuple[Journal, ...]

    @classmethod
    def read(cls, files: Directory) -> Runs:
        """Read the journals of a checkpoint. Raise CorruptionError for one that cannot be read."""
        known = cache_listings(files)
        ids = [info.name for info in known.list(layout.RUNS) if info.is_dir]
        journals = each(files, lambda run: read_journal(known, run), ids)
        return cls(files, known, tuple(ids), _in_order(filter(None, journals)))

    def with_journal(self, journal: Journal) -> Runs:
        """Return the runs after this process has written a journal."""
        other_journals = [other_journal for other_journal in self.journals if other_journal.run != journal.run]
        return replace(self, ids=tuple({*self.ids, journal.run}), journals=_in_order([*other_journals, journal]))

    def find(self, run: str) -> Journal | None:
        """Return the journal of a run; None if the run did not reach publishing."""
        return next((journal for journal in self.journals if journal.run == run), None)

    def report_of_copy(self, run: str) -> dict[str, Any] | None:
        """Return the report of a run if it made this checkpoint as a copy. Raise CorruptionError if it is damaged.

        Other runs without a journal were interrupted before they changed anything.
        """
        report = read_report(self.known, run) if self.find(run) is None else None
        return report if report is not None and report.get("output") is not None else None

    def has_folders(self, run: str) -> bool:
        """Return whether an earlier run has left folders, such as a backup."""
        return any(info.is_dir for info in self.known.list(layout.run_directory(run)))

    @property
    def interrupted(self) -> Journal | None:
        """The run that ``recover`` must end, or None."""
        return next((journal for journal in self.journals if journal.status == "open"), None)

    @property
    def next_number(self) -> int:
        """The number of the next journal."""
        return max((journal.number for journal in self.journals), default=0) + 1

    def find_restored(self, batch: int) -> int | None:
        """Return the batch whose state and positions a run gave to ``batch``; None if it has its own.

        It has its own, too, if a later run has given sources other positions.
        """
        changes = [one for one in self.in_force if one.batch == batch and (one.kind == "restore" or self._sets(one))]
        restores = [journal for journal in changes[-1:] if journal.kind == "restore"]
        report = read_report(self.files, restores[-1].run) if restores else None
        restored_batch: int | None = (report or {}).get("source_batch")
        return restored_batch if restored_batch != batch else None

    @property
    def last_published(self) -> str | None:
        """The id of the run, or the rollback, that was published last; None if there is none."""
        return next((journal.run for journal in reversed(self.journals) if journal.status == "done"), None)

    @property
    def in_force(self) -> list[Journal]:
        """The journals of the published runs that no rollback has undone, oldest first."""
        done_journals = [journal for journal in self.journals if journal.status == "done"]
        undone_runs = {journal.undoes for journal in done_journals}
        return [journal for journal in done_journals if journal.run not in undone_runs]

    @property
    def last_in_force(self) -> str | None:
        """The id of the run whose result the checkpoint has; None if there is none, or if all of them were undone."""
        return next((journal.run for journal in reversed(self.in_force) if journal.undoes is None), None)

    @property
    def newest(self) -> dict[str, tuple[int, str]]:
        """The number and the id of the newest run that has written new state of each partition, by its folder.

        A run that was rolled back does not count: the state from before it is back, and so are its ledgers.
        """
        newest_runs: dict[str, tuple[int, str]] = {}
        for journal in self.in_force:
            for move in journal.moves if journal.has_new_state else ():
                for path in (move.source, move.target):
                    if path.startswith(f"{layout.STATE}/"):
                        folder = "/".join(path.split("/")[:3])
                        newest_runs[folder] = max(newest_runs.get(folder, (0, "")), (journal.number, journal.run))
        return newest_runs

    def has_set_positions(self, batch: int) -> bool:
        """Return whether a run has given sources other positions after ``batch``, and is not undone."""
        return any(journal.batch == batch and self._sets(journal) for journal in self.in_force)

    def _sets(self, journal: Journal) -> bool:
        """Return whether a run has given sources other positions, and not only other names or files."""
        report = read_report(self.files, journal.run) if journal.kind == "sources" else {}
        return report is None or bool(report.get("changes"))

    def taken_batches(self, logs: Logs) -> list[int]:
        """Return the batches whose offsets keep a query from going on that is idle since before a run.

        Those are the batches that a restore has blocked, and those that runs have planned, also after they were run.
        """
        planned = {journal.fence_batch for journal in self.journals if journal.planned is not None}
        planned |= {journal.batch + 1 for journal in self.journals if journal.kind == "restore"}
        return sorted({*logs.blocked, *(batch for batch in logs.offsets if batch in planned)})

    def recent(self, logs: Logs) -> list[Journal]:
        """Return the journals of runs on batches that the logs still have, newest first."""
        oldest = min((*logs.offsets, *logs.commits), default=0)
        return [journal for journal in reversed(self.journals) if journal.batch >= oldest]

    def find_planning(self, logs: Logs) -> Journal | None:
        """Return the run that planned the newest batch, if the batch is still as planned, and not committed.

        A later migration may have given the planned batch other settings.
        """
        if not logs.offsets or (logs.commits and logs.offsets[-1] <= logs.commits[-1]):
            return None
        offset_path = layout.offset_file(logs.offsets[-1])
        recent_journals = self.recent(logs)
        planning_journals = [
            planning_journal
            for planning_journal in recent_journals
            if planning_journal.fence == offset_path
            and planning_journal.status == "done"
            and planning_journal.planned is not None
        ]
        if not planning_journals:
            return None
        offset_bytes = self.files.read(offset_path, MAX_LOG_BYTES)
        unchanged_journal = next(
            (journal for journal in planning_journals if str(journal.planned).encode() == offset_bytes), None
        )
        if unchanged_journal is not None:
            return unchanged_journal
        migrated_digests = {facts.digest for facts in find_migrated(recent_journals, offset_path)}
        return planning_journals[0] if xxhash.xxh3_128_hexdigest(offset_bytes) in migrated_digests else None


def _in_order(journals: Iterable[Journal]) -> tuple[Journal, ...]:
    return tuple(sorted(journals, key=lambda journal: (journal.number, journal.run)))


def refuse_if_interrupted(files: Directory) -> Runs:
    """Return the runs of a checkpoint. Raise FencedError for one that needs ``recover``, and for an incomplete copy."""
    runs, fence = Runs.read(files), read_logs(files).fence
    if is_copy_fence(fence):
        raise fenced(files, fence)
    if runs.interrupted is not None or fence is not None:
        command = f"ttlsnap recover {shell_word(files.root)}"
        raise FencedError(f"{files.root}: a run was interrupted while it published. Run: {command}")
    return runs


class Fence(Enum):
    """Whether the fence of a run is there, and what this means for the query. ``MAYBE``: a storage did not say."""

    ABSENT = "Spark can start"
    MAYBE = "Spark may refuse to start"
    PRESENT = "Spark does not start"


def describe_interrupted(files: Directory, run: str, fence: Fence) -> str:
    """Return, for the message of an error, that a run is interrupted, and what to do."""
    return (
        f"Run {run} is interrupted, and {fence.value}. After fixing the error, run: ttlsnap recover "
        f"{shell_word(files.root)}"
    )


def open_existing(target: str) -> Directory:
    """Return the folder of a checkpoint. Raise NotACheckpointError for another folder."""
    files = open_directory(target)
    require_checkpoint(files, layout.OFFSETS)
    return files


def started_at(run: str) -> str:
    """Return the time in UTC at which a run started, from its id, or a dash if the id is not one of ttlsnap's."""
    try:
        return f"{datetime.strptime(run[:16], '%Y%m%dT%H%M%SZ'):%Y-%m-%d %H:%M:%SZ}"
    except ValueError:
        return "-"


def new_run_id() -> str:
    """Return a unique id for a run, which sorts by time. It is unique across checkpoints, because archives use it."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{token_hex(6)}"
