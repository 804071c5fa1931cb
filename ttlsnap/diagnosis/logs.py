"""The offset log and the commit log: the retained batches, and those that were started but not committed.

An offline repartition of Spark 4.2 (``OfflineStateRepartitionRunner``) adds a batch without input: it writes
``offsets/<N+1>``, a copy of ``offsets/<N>`` with another ``spark.sql.shuffle.partitions``, then a snapshot of version
N + 2 in every new partition, then operator metadata v2 for the batch, and ``commits/<N+1>`` last. If it
is interrupted before that, Spark 4.2 refuses to start (STREAMING_UNFINISHED_REPARTITION_DETECTED). It compares only the
two numbers, and so does this module.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ttlsnap.checkpoint import Logs, MicroBatch, layout
from ttlsnap.checkpoint.logs import find_future_watermark, read_batch, read_file_logs, read_logs, shuffle_partitions
from ttlsnap.checkpoint.starting import describe_missing_commits, find_obstacles
from ttlsnap.diagnosis.problems import Problem, Severity, problem
from ttlsnap.diagnosis.sources import examine_file_logs
from ttlsnap.errors import CorruptionError, NotACheckpointError, UnsupportedError
from ttlsnap.publishing.backups import find_held_tables
from ttlsnap.publishing.hidden_batches import HiddenBatch, find_hidden_batches
from ttlsnap.publishing.journal import Journal
from ttlsnap.publishing.missing import find_last_run, find_missing_files
from ttlsnap.publishing.runs import Runs
from ttlsnap.publishing.stale_snapshots import published_files
from ttlsnap.storage.directory import Directory


@dataclass
class LogFindings:
    """The result for both logs: ``batches`` are the committed ones that can be read.

    ``unfinished``: the last batch is a repartition that was not committed. ``skipped`` are batches that the user let a
    repartition skip: they are committed and have no state. ``file_logs`` has the positions of file sources in their own
    logs, from the newest readable offsets. ``hidden_batches`` are snapshots of ttlsnap that hide a newer result of a
    batch. ``published`` are the files of the recent runs, and ``last_run`` is the last of them (see ``missing``).
    ``runs`` are all runs, None if they are not looked at, or if a journal is damaged.
    """

    logs: Logs
    batches: dict[int, MicroBatch] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unfinished: bool = False
    skipped: set[int] = field(default_factory=set)
    file_logs: dict[int, int] = field(default_factory=dict)
    hidden_batches: list[HiddenBatch] = field(default_factory=list)
    published: frozenset[str] = frozenset()
    last_run: Journal | None = None
    runs: Runs | None = None

    @property
    def uncommitted(self) -> list[int]:
        """The batches that were started after the last commit."""
        return [batch for batch in self.logs.offsets if batch > self.logs.commits[-1]]


def examine_logs(files: Directory) -> LogFindings:
    """Read both logs completely. Raise NotACheckpointError if there are none."""
    logs = read_logs(files)
    if not logs.commits:
        raise NotACheckpointError(describe_missing_commits(files, logs.offsets))
    found = LogFindings(logs)
    _own_runs(files, found)
    first = logs.offsets[0] if logs.offsets else 0
    for batch in logs.commits:
        # Spark removes offsets before commits, so a commit older than all offsets is just not removed yet.
        if batch >= first or batch == logs.commits[-1]:
            _check_committed(files, batch, found)
    if (newest := found.batches.get(logs.commits[-1])) is not None and (future := find_future_watermark(newest)):
        where, words = future
        found.problems.append(problem(files.root, "future-watermark", where, f"{files.root}/{where}: {words}"))
    _gaps(files, found)
    _find_obstacles(files, found)
    _find_positions(files, found)
    _find_repartitions(found)
    found.problems += examine_file_logs(files, found.file_logs)
    return found


def _own_runs(files: Directory, found: LogFindings) -> None:
    if found.logs.fence is not None:
        fence = layout.offset_file(found.logs.offsets[-1] + 1 if found.logs.offsets else 0)
        found.problems.append(problem(files.root, "fence", fence, f"Spark refuses to start: {found.logs.fence}"))
        return
    try:
        runs = found.runs = Runs.read(files)
    except CorruptionError as error:
        found.problems.append(problem(files.root, "damaged-log", layout.RUNS, error))
        return
    found.last_run = find_last_run(runs, found.logs)
    found.published = published_files(runs, found.logs)
    found.hidden_batches = find_hidden_batches(runs, found.logs)
    for hidden in found.hidden_batches:
        where = next(iter(hidden.files), hidden.planned or layout.RUNS)
        found.problems.append(
            problem(files.root, "hidden-batch", where, hidden.describe(files.root), advice=hidden.advise(files.root))
        )
    for missing in find_missing_files(runs, found.logs):
        found.problems.append(
            problem(
                files.root,
                "published-file-missing",
                missing.files[0],
                missing.describe(files.root),
                advice=missing.advise(files.root),
            )
        )
    for held in find_held_tables(files, [run for run in runs.ids if layout.is_run(run)]):
        words = (
            f"{files.root}/{held.path} is missing and {held.needed_by} needs it; the backup of run {held.run} has it"
        )
        found.problems.append(problem(files.root, "table-in-backup", held.path, words))
    for journal in (journal for journal in runs.journals if journal.status == "open"):
        words = f"run {journal.run} was interrupted while it published, and its fence is missing"
        found.problems.append(problem(files.root, "cut-off-run", journal.path, words))


def _check_committed(files: Directory, batch: int, found: LogFindings) -> None:
    newest = batch == found.logs.commits[-1]
    try:
        found.batches[batch] = read_batch(files, batch)
    except UnsupportedError as error:
        found.problems.append(problem(files.root, "unsupported", layout.offset_file(batch), error))
    except CorruptionError as error:
        severity: Severity = "error" if newest else "warning"
        where = layout.commit_file(batch) if layout.commit_file(batch) in str(error) else layout.offset_file(batch)
        found.problems.append(problem(files.root, "damaged-log", where, error, severity))


def _gaps(files: Directory, found: LogFindings) -> None:
    """Report commits that are missing between others."""
    commits = set(found.logs.commits)
    for batch in found.logs.offsets:
        if found.logs.commits[0] < batch < found.logs.commits[-1] and batch not in commits:
            path = layout.commit_file(batch)
            words = f"{files.root}/{path} is missing, but later batches are committed. Its version is not in the list"
            spark = "Spark does not read it, and continues with the newest commit"
            found.problems.append(problem(files.root, "missing-commit", path, words, "warning", spark=spark))


def _find_obstacles(files: Directory, found: LogFindings) -> None:
    """Add what stops Spark, and what runs again when the query starts."""
    told = {(told.code, told.where) for told in found.problems}
    for obstacle in find_obstacles(files, found.logs):
        found.unfinished |= obstacle.code == "unfinished-repartition"
        if (obstacle.code, obstacle.where) in told:  # with the severity of a batch that was committed long ago
            found.problems = [one for one in found.problems if (one.code, one.where) != (obstacle.code, obstacle.where)]
        # If a commit is missing here, several batches were started and not committed.
        spark = "Spark would run only the last of the batches, and skip the others"
        words, where = obstacle.words, obstacle.where
        found.problems.append(problem(files.root, obstacle.code, where, words, count=obstacle.count, spark=spark))
    if len(found.uncommitted) != 1 or any(
        one.where == layout.offset_file(found.uncommitted[0]) for one in found.problems
    ):
        return
    (batch,) = found.uncommitted
    path = layout.offset_file(batch)
    planned = found.runs.find_planning(found.logs) if found.runs is not None else None
    if planned is not None:
        words = f"batch {batch} was planned by ttlsnap run {planned.run}, without data"
        found.problems.append(problem(files.root, "planned-batch", path, words))
    else:
        words = f"batch {batch} was started but not committed"
        found.problems.append(problem(files.root, "uncommitted-batch", path, words))


def _find_positions(files: Directory, found: LogFindings) -> None:
    """Find the positions of file sources in their own logs, in the newest offsets that can be read."""
    for batch in found.logs.offsets[-2:]:
        with suppress(CorruptionError, UnsupportedError):  # reported already
            found.file_logs = read_file_logs(files, batch, found.file_logs)


def _find_repartitions(found: LogFindings) -> None:
    counts = {number: shuffle_partitions(batch.conf) for number, batch in found.batches.items()}
    for number, count in counts.items():
        before = counts.get(number - 1)
        if None not in (count, before) and count != before:
            found.skipped.add(number - 1)
