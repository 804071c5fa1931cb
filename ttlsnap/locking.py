"""Two that must not meet: another ttlsnap, which ``Directory.lock`` keeps away, and a query that runs.

``refuse_if_alive`` looks for signs of a running query: log files that change, state files that are being written,
and a query of that id in this process's own Spark session. Files tell only of a query that moves: one that waits
for data in another process looks like one that is stopped. Publishing looks again behind its fence, and the fence
makes a query that wakes up meanwhile fail at its next batch instead of going on with a state that changes under it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.errors import BusyError
from ttlsnap.filesystem import Directory, FileInfo, each

QUIET_PERIOD = 5.0
# A batch that was begun and not committed may be a crash or a long batch: how many quiet periods old it must be.
_UNCOMMITTED_FACTOR = 10


def refuse_if_alive(
    files: Directory,
    query_id: str | None,
    quiet_period: float = QUIET_PERIOD,
    sleep: Callable[[float], None] = time.sleep,
    *,
    only_read: bool = False,
) -> None:
    """Raise BusyError when a query seems to run on this checkpoint.

    Logs and half-written state files that changed less than ``quiet_period`` seconds ago are watched until they have
    been quiet for so long; if one changes meanwhile, the query runs. A batch begun but not committed must be ten
    such periods old. Ages are by the clock that stamps the files, which may be another machine's, and which is asked by
    writing one; of what is ``only_read``, by this machine's.
    """
    if _runs_in_this_process(query_id):
        raise BusyError(f"{files.root}: its query runs in this Spark session. Stop it first")
    before = _signature(files)
    logs = read_logs(files)
    now_ns = time.time_ns() if only_read else files.now_ns()
    age = (now_ns - max((moment for _, moment in before), default=0)) / 1e9
    if logs.offsets and logs.offsets[-1] > logs.commits[-1] and age < quiet_period * _UNCOMMITTED_FACTOR:
        raise BusyError(
            f"{files.root}: batch {logs.offsets[-1]} was begun {max(age, 0):.0f} s ago and is not committed: the query "
            "seems to run. If it is stopped, give --quiet-period 0"
        )
    # A file from the future, of a clock that is ahead, counts as one of right now.
    wait = quiet_period - max(age, 0)
    if wait > 0:
        sleep(wait)
    if _signature(files) != before:
        raise BusyError(f"{files.root}: its logs are changing: the query runs. Stop it first")


def _signature(files: Directory) -> list[tuple[str, int]]:
    """The log files, and the temporary files that Spark renames to state files, with their times."""
    logs = _list_all(files, (layout.OFFSETS, layout.COMMITS))
    state = _list_all(files, list(_partition_folders(files)))
    # A store that has a name has a folder of its own in the partition's.
    state += _list_all(files, [f"{folder}/{info.name}" for folder, info in state if info.is_dir])
    found = [*logs, *((folder, info) for folder, info in state if info.name.endswith(".tmp"))]
    return [(f"{folder}/{info.name}", info.mtime_ns) for folder, info in found]


def _list_all(files: Directory, folders: Sequence[str]) -> list[tuple[str, FileInfo]]:
    listed = zip(folders, each(files, files.list, folders), strict=True)
    return [(folder, info) for folder, infos in listed for info in infos]


def _partition_folders(files: Directory) -> Iterator[str]:
    for operator in files.list(layout.STATE):
        for partition in files.list(f"{layout.STATE}/{operator.name}"):
            if partition.is_dir and layout.parse_number(partition.name) is not None:
                yield f"{layout.STATE}/{operator.name}/{partition.name}"


def _runs_in_this_process(query_id: str | None) -> bool:
    """Whether a Spark session that this process has already (in a notebook, say) runs the query itself."""
    # Another thread may be importing it just now; there is no session then.
    sessions = getattr(sys.modules.get("pyspark.sql"), "SparkSession", None)
    session = sessions.getActiveSession() if sessions is not None else None
    return session is not None and any(query.id == query_id for query in session.streams.active)
