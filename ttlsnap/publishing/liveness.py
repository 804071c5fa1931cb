"""The refusal to work on a checkpoint whose query may be running.

``Directory.lock`` keeps other ttlsnap processes away. Files alone cannot show that a query is stopped, because a query
that waits for data changes none. Two things help. ``refuse_if_running`` refuses a checkpoint whose logs are young, one
in which a batch may be in progress, and one whose query runs in this Spark application. An idle query does not need
it: after the fence is in place, the files must be the planned ones, and at the end the next batch is taken, so the
query stops before it writes anything (see ``publishing.swap``). Nothing but this refusal protects the state from a
batch that is in progress and commits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.listing import Listing, is_temporary, list_activity
from ttlsnap.checkpoint.logs import Logs, batch_time, read_logs
from ttlsnap.errors import BusyError, CorruptionError, UnsupportedError
from ttlsnap.publishing.in_progress import find_begun, find_written, may_be_in_real_time_mode
from ttlsnap.publishing.journal import (
    Journal,
    digest_of,
    find_migrated,
)
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each

YOUNGEST_S = 60.0
"""Logs that changed less than this many seconds ago are young, however short the batches are."""

GAPS = 3
"""Logs are also young if they changed less than this many times the longest gap between two batches ago."""

LONGEST_GAP = "longest_gap_ms"
"""The name of the longest gap in the report of a copy."""

PLANNED = "planned_digest"
"""The name of the digest of the planned batch in the report of a copy, which lacks the journal of the run."""

MOST_BATCHES = 200
"""The newest batches whose beginnings are read. Spark keeps a hundred, unless it is told to keep more."""

_WITH_STOPPED = (
    "a batch may be running now. Stop the query and repeat the command with --stopped (in a policy: stopped = true)"
)
_NS = 1_000_000_000
_MS = 1000


def refuse_if_running(
    runs: Runs,
    query_id: str | None,
    *,
    stopped: bool = False,
    only_read: bool = False,
) -> None:
    """Raise BusyError if the query of this checkpoint may be running.

    It may be if the newest file of its logs is younger than a minute, or than three times the longest gap between two
    batches, or if nothing shows how far apart its batches are (see ``longest_gap_ms``). However old the files are, it
    also may be if a batch was begun and not committed, or if the logs would not show that (see ``in_progress``).
    ``stopped`` is the user's word that it is not running. A query of this process's own Spark application is always
    refused. Ages use the clock that sets the files' times, which is read by writing a file. If the checkpoint is
    ``only_read``, they use this machine's clock.
    """
    files = runs.files
    if _runs_in_this_application(query_id):
        raise BusyError(f"{files.root}: the query is running in this Spark application. Stop it first")
    if stopped:
        return
    logs, listing = read_logs(files), list_activity(files)
    now_ns = time.time_ns() if only_read else files.now_ns()
    newest_ns = max((info.mtime_ns for path, info in listing.items() if _shows_work(path)), default=0)
    age_s = max((now_ns - newest_ns) / _NS, 0)
    _refuse_batch_in_progress(runs, logs, listing, age_s)
    gap_ms = longest_gap_ms(runs, logs)
    limit_s = max(YOUNGEST_S, GAPS * max(gap_ms or 0, _longest_gap_of_files_ms(files)) / _MS)
    if age_s < limit_s:
        # Without a gap, later runs are refused for the next reason.
        or_later = f", or without it in {_duration(limit_s - age_s)}" if gap_ms else ""
        raise BusyError(
            f"{files.root}: the logs of batch {max(logs.commits, default=-1)} changed {_duration(age_s)} ago, so the "
            "query may be running. Stop it, and repeat the command with --stopped (in a policy: stopped = true)"
            f"{or_later}"
        )
    if not gap_ms:
        raise BusyError(
            f"{files.root}: nothing shows how long a batch of this query takes, because the log has fewer than two "
            f"batches of Spark, or an earlier version of ttlsnap has moved the others away. So {_WITH_STOPPED}"
        )


def _refuse_batch_in_progress(runs: Runs, logs: Logs, listing: Listing, age_s: float) -> None:
    """Raise BusyError if a batch was begun and not committed, or if the logs do not show whether that is so."""
    files = runs.files
    begun_paths = find_begun(files, logs, listing)
    if begun_paths:
        newest_batch, last_committed = max(logs.offsets, default=-1), max(logs.commits, default=-1)
        is_planned = newest_batch > last_committed and newest_batch == planned_batch(runs, logs)
        if is_planned and {layout.strip_checksum(path) for path in begun_paths} == {layout.offset_file(newest_batch)}:
            raise BusyError(
                f"{files.root}: ttlsnap planned batch {newest_batch}, with which the query restarts. No file shows "
                f"whether Spark has begun it, so {_WITH_STOPPED}"
            )
        if newest_batch > last_committed and not is_planned:
            sentence_start = f"{files.root}: batch {newest_batch} was started but is not committed. Its"
        else:
            sentence_start = (
                f"{files.root}/{begun_paths[0]} belongs to a batch after {last_committed}, the last one that is "
                "committed. The"
            )
        raise BusyError(
            f"{sentence_start} files last changed {_duration(age_s)} ago, but nothing shows how long this batch takes, "
            "so the query may be running. Stop it and repeat the command with --stopped (in a policy: stopped = true). "
            "If the query ended in the middle of a batch, this is needed, too"
        )
    rewritten_paths = {facts.path for journal in runs.recent(logs) for facts in journal.published}
    if _copying_run(runs, logs) is not None:
        rewritten_paths = set(listing)
    if may_be_in_real_time_mode(files, logs, listing, rewritten_paths):
        raise BusyError(
            f"{files.root}: the query may be running in real-time mode. Its batches take minutes, and the logs show "
            f"them only when they end. So {_WITH_STOPPED}"
        )


def planned_batch(runs: Runs, logs: Logs) -> int | None:
    """Return the newest batch if it is not committed, and ttlsnap has planned it: here, or before this copy was made.

    A later migration may have given it other settings.
    """
    return logs.offsets[-1] if find_planning_run(runs, logs) is not None else None


def find_planning_run(runs: Runs, logs: Logs) -> str | None:
    """Return the run that has planned the newest batch, or that made this checkpoint as a copy with such a batch."""
    journal = runs.find_planning(logs)
    if journal is not None:
        return journal.run
    if logs.offsets[-1:] <= logs.commits[-1:]:
        return None
    report_of_copy = _copying_run(runs, logs)
    if report_of_copy is None or report_of_copy.get(PLANNED) is None:
        return None
    offset_path = layout.offset_file(logs.offsets[-1])
    known_digests = {
        report_of_copy[PLANNED],
        *(facts.digest for facts in find_migrated(runs.recent(logs), offset_path)),
    }
    return str(report_of_copy["run"]) if digest_of(runs.files, offset_path) in known_digests else None


def has_begun(runs: Runs, logs: Logs, listing: Collection[str]) -> bool:
    """Return whether Spark has begun a batch after the last committed one. A planned one does not count."""
    begins_more = logs.offsets[-1:] > logs.commits[-1:] and planned_batch(runs, logs) is None
    return begins_more or find_written(logs, listing) is not None


def longest_gap_ms(runs: Runs, logs: Logs) -> int | None:
    """Return the longest time between the beginnings of two batches, in milliseconds; 0 if there are no two.

    A run may move logs away and replace others, so the times of the files do not show it. Spark writes into each log
    when its batch began. Each run records the longest gap before it changes anything, in its journal, or in the report
    of a copy. None is returned if an earlier version of ttlsnap, which recorded none, has moved logs away.
    """
    recent = runs.recent(logs)
    report_of_copy = _copying_run(runs, logs)
    if any(map(_hides_batches, _still_done(recent))) or (
        report_of_copy is not None and report_of_copy.get(LONGEST_GAP, 0) is None
    ):
        return None
    beginnings_ms = each(runs.files, lambda batch: _beginning_ms(runs.files, batch), logs.offsets[-MOST_BATCHES:])
    gaps_ms = [
        later_ms - earlier_ms
        for earlier_ms, later_ms in pairwise(beginning_ms for beginning_ms in beginnings_ms if beginning_ms is not None)
        if later_ms > earlier_ms
    ]
    recorded_ms = [journal.longest_gap_ms or 0 for journal in recent]
    before_copy_ms: int = (report_of_copy or {}).get(LONGEST_GAP, 0)
    return max((*gaps_ms, *recorded_ms, before_copy_ms))


def _copying_run(runs: Runs, logs: Logs) -> dict[str, Any] | None:
    """Return the report of the run that made this checkpoint as a copy, while the logs still have its batch."""
    for run in runs.ids:
        try:
            report = runs.report_of_copy(run)
        except CorruptionError:
            return {LONGEST_GAP: None}
        if report is not None and (report.get("batch") or 0) >= min(logs.offsets, default=0):
            return {**report, "run": run}
    return None


def _still_done(recent: Sequence[Journal]) -> list[Journal]:
    """Return the runs that no rollback has undone."""
    done_journals = [journal for journal in recent if journal.status == "done"]
    undone_runs = {journal.undoes for journal in done_journals}
    return [journal for journal in done_journals if journal.run not in undone_runs]


def _hides_batches(journal: Journal) -> bool:
    """Return whether a run moved the logs of earlier batches away, and recorded no gap."""
    removed_paths = {move.source for move in journal.to_backup} - {move.target for move in journal.new}
    batches = (layout.parse_number(path.removeprefix(f"{layout.OFFSETS}/")) for path in removed_paths)
    return journal.longest_gap_ms is None and any(batch is not None and batch < journal.batch for batch in batches)


def _beginning_ms(files: Directory, batch: int) -> int | None:
    """Return when a batch began; None if its log cannot be read, which the command will find out, or has no time."""
    try:
        return batch_time(files, batch) or None
    except (CorruptionError, UnsupportedError):
        return None


def _shows_work(path: str) -> bool:
    return is_temporary(path) or not path.startswith(layout.STATE)


def _longest_gap_of_files_ms(files: Directory) -> float:
    """Return the longest time between the log files of two batches."""
    starts_ns = {layout.parse_number(info.name): info.mtime_ns for info in files.list(layout.OFFSETS)}
    sorted_starts_ns = [
        log_start_ns
        for _, log_start_ns in sorted((batch, start_ns) for batch, start_ns in starts_ns.items() if batch is not None)
    ]
    return (
        max((abs(later_ns - earlier_ns) for earlier_ns, later_ns in pairwise(sorted_starts_ns)), default=0) / _NS * _MS
    )


def _duration(seconds: float) -> str:
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def _runs_in_this_application(query_id: str | None) -> bool:
    """Return whether this process's own Spark application, for example that of a notebook, runs the query.

    This works in every thread and covers all sessions. A session itself lists only the queries that it started, and the
    active session depends on the thread.
    """
    # Another thread may be importing PySpark now; then there is no session yet.
    sessions: Any = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
    if query_id is None or sessions is None:
        return False
    session = getattr(sessions, "_instantiatedSession", None)
    if session is not None and session._sc._jsc is not None:
        queries = session._jsparkSession.sharedState().activeStreamingQueries()
        return bool(queries.containsKey(session._jvm.java.util.UUID.fromString(query_id)))
    connect = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)
    session = getattr(connect, "_default_session", None) or sessions.getActiveSession()
    return session is not None and any(query.id == query_id for query in session.streams.active)
