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
from ttlsnap.checkpoint.logs import (
    fenced,
    find_future_watermark,
    is_copy_fence,
    read_batch,
    read_file_logs,
    read_logs,
    shuffle_partitions,
)
from ttlsnap.checkpoint.starting import describe_missing_commits, find_obstacles
from ttlsnap.diagnosis.problems import Problem, Severity, problem
from ttlsnap.diagnosis.sources import examine_file_logs
from ttlsnap.errors import CorruptionError, NotACheckpointError, UnsupportedError
from ttlsnap.publishing.backups import find_held_tables
from ttlsnap.publishing.hidden_batches import HiddenBatch, find_hidden_batches
from ttlsnap.publishing.journal import Journal
from ttlsnap.publishing.liveness import find_planning_run
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
    file_logs: dict[str, int] = field(default_factory=dict)
    hidden_batches: list[HiddenBatch] = field(default_factory=list)
    published: frozenset[str] = frozenset()
    last_run: Journal | None = None
    runs: Runs | None = None

    @property
    def uncommitted(self) -> list[int]:
        """The batches that were started after the last commit."""
        return [batch for batch in self.logs.offsets if batch > self.logs.commits[-1]]


def examine_logs(files: Directory) -> LogFindings:
    """Read both logs completely. Raise NotACheckpointError if there are none, FencedError for an unfinished copy."""
    logs = read_logs(files)
    if is_copy_fence(logs.fence) or (logs.fence is not None and not logs.commits):  # all logs may be in the backup
        raise fenced(files, logs.fence)
    if not logs.commits:
        raise NotACheckpointError(describe_missing_commits(files, logs.offsets))
    findings = LogFindings(logs)
    _own_runs(files, findings)
    first_batch = logs.offsets[0] if logs.offsets else 0
    for batch in logs.commits:
        # Spark removes offsets before commits, so a commit older than all offsets is just not removed yet.
        if batch >= first_batch or batch == logs.commits[-1]:
            _check_committed(files, batch, findings)
    if (newest_batch := findings.batches.get(logs.commits[-1])) is not None and (
        future_watermark := find_future_watermark(newest_batch)
    ):
        where, message = future_watermark
        findings.problems.append(problem(files.root, "future-watermark", where, f"{files.root}/{where}: {message}"))
    _gaps(files, findings)
    _find_obstacles(files, findings)
    _find_positions(files, findings)
    _find_repartitions(findings)
    findings.problems += examine_file_logs(files, findings.file_logs)
    return findings


def _own_runs(files: Directory, findings: LogFindings) -> None:
    if findings.logs.fence is not None:
        fence = layout.offset_file(findings.logs.offsets[-1] + 1 if findings.logs.offsets else 0)
        findings.problems.append(problem(files.root, "fence", fence, f"Spark refuses to start: {findings.logs.fence}"))
        return
    try:
        runs = findings.runs = Runs.read(files)
    except CorruptionError as error:
        findings.problems.append(problem(files.root, "damaged-log", layout.RUNS, error))
        return
    findings.last_run = find_last_run(runs, findings.logs)
    findings.published = published_files(runs, findings.logs)
    findings.hidden_batches = find_hidden_batches(runs, findings.logs)
    for hidden_batch in findings.hidden_batches:
        where = next(iter(hidden_batch.files), hidden_batch.planned or layout.RUNS)
        findings.problems.append(
            problem(
                files.root,
                "hidden-batch",
                where,
                hidden_batch.describe(files.root),
                advice=hidden_batch.advise(files.root),
            )
        )
    for missing_files in find_missing_files(runs, findings.logs):
        findings.problems.append(
            problem(
                files.root,
                "published-file-missing",
                missing_files.files[0],
                missing_files.describe(files.root),
                advice=missing_files.advise(files.root),
            )
        )
    for table in find_held_tables(files, [run for run in runs.ids if layout.is_run(run)]):
        message = (
            f"{files.root}/{table.path} is missing and {table.needed_by} needs it; the backup of run {table.run} has it"
        )
        findings.problems.append(problem(files.root, "table-in-backup", table.path, message))
    for journal in (journal for journal in runs.journals if journal.status == "open"):
        message = f"run {journal.run} was interrupted while it published, and its fence is missing"
        findings.problems.append(problem(files.root, "cut-off-run", journal.path, message))


def _check_committed(files: Directory, batch: int, findings: LogFindings) -> None:
    is_newest = batch == findings.logs.commits[-1]
    try:
        findings.batches[batch] = read_batch(files, batch)
    except UnsupportedError as error:
        findings.problems.append(problem(files.root, "unsupported", layout.offset_file(batch), error))
    except CorruptionError as error:
        severity: Severity = "error" if is_newest else "warning"
        where = layout.commit_file(batch) if layout.commit_file(batch) in str(error) else layout.offset_file(batch)
        findings.problems.append(problem(files.root, "damaged-log", where, error, severity))


def _gaps(files: Directory, findings: LogFindings) -> None:
    """Report commits that are missing between others."""
    commits = set(findings.logs.commits)
    for batch in findings.logs.offsets:
        if findings.logs.commits[0] < batch < findings.logs.commits[-1] and batch not in commits:
            path = layout.commit_file(batch)
            message = f"{files.root}/{path} is missing, but later batches are committed. Its version is not in the list"
            consequence = "Spark does not read it, and continues with the newest commit"
            findings.problems.append(problem(files.root, "missing-commit", path, message, "warning", spark=consequence))


def _find_obstacles(files: Directory, findings: LogFindings) -> None:
    """Add what stops Spark, and what runs again when the query starts."""
    reported = {(reported.code, reported.where) for reported in findings.problems}
    for obstacle in find_obstacles(files, findings.logs):
        findings.unfinished |= obstacle.code == "unfinished-repartition"
        if (obstacle.code, obstacle.where) in reported:  # with the severity of a batch that was committed long ago
            findings.problems = [
                reported_problem
                for reported_problem in findings.problems
                if (reported_problem.code, reported_problem.where) != (obstacle.code, obstacle.where)
            ]
        # If a commit is missing here, several batches were started and not committed.
        consequence = "Spark would run only the last of the batches, and skip the others"
        message, where = obstacle.words, obstacle.where
        findings.problems.append(
            problem(files.root, obstacle.code, where, message, count=obstacle.count, spark=consequence)
        )
    if len(findings.uncommitted) != 1 or any(
        reported_problem.where == layout.offset_file(findings.uncommitted[0]) for reported_problem in findings.problems
    ):
        return
    (batch,) = findings.uncommitted
    path = layout.offset_file(batch)
    planning_run = find_planning_run(findings.runs, findings.logs) if findings.runs is not None else None
    if planning_run is not None:
        message = f"batch {batch} was planned by ttlsnap run {planning_run}, without data"
        findings.problems.append(problem(files.root, "planned-batch", path, message))
    else:
        message = f"batch {batch} was started but not committed"
        findings.problems.append(problem(files.root, "uncommitted-batch", path, message))


def _find_positions(files: Directory, findings: LogFindings) -> None:
    """Find the positions of file sources in their own logs, in the newest offsets that can be read."""
    for batch in findings.logs.offsets[-2:]:
        with suppress(CorruptionError, UnsupportedError):  # reported already
            findings.file_logs = read_file_logs(files, batch, findings.file_logs)


def _find_repartitions(findings: LogFindings) -> None:
    partition_counts = {number: shuffle_partitions(batch.conf) for number, batch in findings.batches.items()}
    for number, count in partition_counts.items():
        count_before = partition_counts.get(number - 1)
        if None not in (count, count_before) and count != count_before:
            findings.skipped.add(number - 1)
