"""The refusal to work on a checkpoint whose query may be running.

``Directory.lock`` keeps other ttlsnap processes away. Files alone cannot show that a query is stopped, because a query
that waits for data changes none. Two things help. ``refuse_if_running`` spares people a mistake: it refuses a
checkpoint whose logs are young, and one whose query runs in this Spark application. Publishing is safe without it.
After the fence is in place, the files must be the planned ones. At the end the next batch is taken. So an idle query
stops before it writes anything (see ``publishing.swap``).
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.listing import is_temporary, list_activity
from ttlsnap.checkpoint.logs import Logs, read_logs
from ttlsnap.errors import BusyError
from ttlsnap.publishing.journal import find_planning_run
from ttlsnap.storage.directory import Directory

YOUNGEST_S = 60.0
"""Logs that changed less than this many seconds ago are young, however short the batches are."""

GAPS = 3
"""Logs are also young if they changed less than this many times the longest gap between two batches ago."""

_NS = 1_000_000_000


def refuse_if_running(
    files: Directory,
    query_id: str | None,
    *,
    stopped: bool = False,
    only_read: bool = False,
) -> None:
    """Raise BusyError if the query of this checkpoint may be running.

    It may be if the newest file of its logs is younger than a minute, or than three times the longest gap between
    retained batches. ``stopped`` is the user's word that it is not. A query of this process's own Spark application is
    always refused. Ages use the clock that sets the files' times, which is read by writing a file. If the checkpoint
    is ``only_read``, they use this machine's clock.
    """
    if _runs_in_this_application(query_id):
        raise BusyError(f"{files.root}: the query is running in this Spark application. Stop it first")
    if stopped:
        return
    logs = read_logs(files)
    by = find_planning_run(files, logs)
    planned = by.fence_batch if by is not None else None
    now_ns = time.time_ns() if only_read else files.now_ns()
    newest_ns = max((info.mtime_ns for path, info in list_activity(files).items() if _shows_work(path)), default=0)
    age_s = max((now_ns - newest_ns) / _NS, 0)
    limit_s = max(YOUNGEST_S, GAPS * _longest_gap_s(files, planned))
    if age_s < limit_s:
        raise BusyError(
            f"{files.root}: {_what_happened(logs, planned)} {_duration(age_s)} ago, so the query may be running. Stop "
            "it and repeat the command with --stopped (in a policy: stopped = true), or wait until "
            f"{_duration(limit_s)} have passed without a change"
        )


def _shows_work(path: str) -> bool:
    return is_temporary(path) or not path.startswith(layout.STATE)


def _what_happened(logs: Logs, planned: int | None) -> str:
    newest, committed = max(logs.offsets, default=-1), max(logs.commits, default=-1)
    if newest == planned:
        return f"ttlsnap planned batch {newest}, with which the query restarts,"
    if newest > committed:
        return f"batch {newest} was started but is not committed. Its files last changed"
    return f"batch {committed} was committed"


def _longest_gap_s(files: Directory, planned: int | None) -> float:
    """Return the longest time between two batches of the query, in seconds; batches of ttlsnap do not count."""
    started = {layout.parse_number(info.name): info.mtime_ns for info in files.list(layout.OFFSETS)}
    moments = [moment for batch, moment in sorted((b, m) for b, m in started.items() if b not in (None, planned))]
    return max((abs(after - before) for before, after in pairwise(moments)), default=0) / _NS


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
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
