"""Refuse to work on a checkpoint whose query may be running.

``Directory.lock`` keeps other ttlsnap processes away. Files alone cannot show that a query is stopped: one that waits
for data changes none. Two things deal with that. ``refuse_if_running`` spares people a mistake: it refuses a
checkpoint whose logs are young, and one whose query runs in this Spark application. And publishing is safe without
it: behind the fence the files must be those that were planned for, and afterwards the next batch is taken, so that a
query that was idle stops before it has written anything (see ``ttlsnap.publish``).
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
from ttlsnap.filesystem import Directory
from ttlsnap.journal import planned_batch

YOUNGEST_S = 60.0
"""Logs that changed less than this many seconds ago are young, however short the batches are."""

GAPS = 3
"""So are logs that changed less than this many times the longest gap between two batches ago."""

_NS = 1_000_000_000


def refuse_if_running(
    files: Directory,
    query_id: str | None,
    *,
    stopped: bool = False,
    only_read: bool = False,
) -> None:
    """Raise BusyError when the query of this checkpoint may be running.

    It may be while the newest file of its logs is younger than three times the longest gap between the batches that
    are retained, and than a minute. ``stopped`` is the user's word that it is not. A query that this process's Spark
    application runs is refused in any case. Ages go by the clock that stamps the files, which is asked by writing a
    file; where the checkpoint is ``only_read``, by this machine's clock.
    """
    if _runs_in_this_application(query_id):
        raise BusyError(f"{files.root}: its query is running in this Spark application. Stop the query first")
    if stopped:
        return
    logs = read_logs(files)
    by = planned_batch(files, logs)
    planned = by.fence_batch if by is not None else None
    now_ns = time.time_ns() if only_read else files.now_ns()
    newest_ns = max((info.mtime_ns for path, info in list_activity(files).items() if _shows_work(path)), default=0)
    age_s = max((now_ns - newest_ns) / _NS, 0)
    limit_s = max(YOUNGEST_S, GAPS * _longest_gap_s(files, planned))
    if age_s < limit_s:
        raise BusyError(
            f"{files.root}: {_what_happened(logs, planned)} {_duration(age_s)} ago, so the query may be running. Stop "
            f"it and repeat the command with --stopped, or wait until {_duration(limit_s)} have passed without a change"
        )


def _shows_work(path: str) -> bool:
    return is_temporary(path) or not path.startswith(layout.STATE)


def _what_happened(logs: Logs, planned: int | None) -> str:
    newest, committed = max(logs.offsets, default=-1), max(logs.commits, default=-1)
    if newest == planned:
        return f"ttlsnap planned batch {newest}, with which the query restarts,"
    if newest > committed:
        return f"batch {newest} was started, and is not committed. Its files last changed"
    return f"batch {committed} was committed"


def _longest_gap_s(files: Directory, planned: int | None) -> float:
    """The longest time between two batches, in seconds; that before a batch of ttlsnap's is not the query's."""
    started = {layout.parse_number(info.name): info.mtime_ns for info in files.list(layout.OFFSETS)}
    moments = [moment for batch, moment in sorted((b, m) for b, m in started.items() if b not in (None, planned))]
    return max((abs(after - before) for before, after in pairwise(moments)), default=0) / _NS


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _runs_in_this_application(query_id: str | None) -> bool:
    """Whether a Spark application that this process has already (in a notebook, say) runs the query itself.

    Asked from any thread, about the queries of all its sessions: a session's own list has those it started alone, and
    which session is active is a matter of each thread.
    """
    # Another thread may be importing it just now; there is no session then.
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
