"""Signs of a batch that a query may be running now, however long ago its files changed.

In micro-batches Spark writes the offsets first, then the state, then the commit. So a batch without a commit, or a file
of such a batch, is the sign of a batch in progress, or of a crash in the middle of it. Files cannot tell these apart,
and nothing limits how long a batch takes.

In real-time mode (with state from Spark 4.3 on) Spark writes the state first, at the end of a batch that lasts for
minutes, then the offsets and the commit. So there may be a batch in progress without any sign of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.checkpoint import ALWAYS_NULLABLE, PROVIDERS, REAL_TIME_AGGREGATION
from ttlsnap.checkpoint.listing import Listing, list_metadata
from ttlsnap.checkpoint.logs import PROVIDER, Logs, read_conf
from ttlsnap.checkpoint.metadata import read_operator_metadata
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.storage.directory import Directory

LET_IT_COMMIT = (
    "Start the query, let it commit the batch, and stop it. Then repeat the command. If the query does not start, go "
    "back to the last committed batch with another number: ttlsnap rewind"
)


def find_begun(files: Directory, logs: Logs, listing: Listing) -> list[str]:
    """Return the files of batches after the last committed one. ``listing`` is that of ``list_activity``.

    The offsets of a batch that ttlsnap planned are among them: a query that restarts with this batch writes nothing
    before its first state file.
    """
    last_committed = max(logs.commits, default=-1)
    later_paths = [
        path for path in {**listing, **list_metadata(files)} if (layout.batch_of(path) or 0) > last_committed
    ]
    return sorted(later_paths, key=lambda path: (path.endswith(".crc"), path))


def find_uncommitted(logs: Logs, listing: Collection[str]) -> int | None:
    """Return the batch after the last committed one if all of its state is written, and None otherwise.

    The sink may have such a batch, and then skips it when it runs again. Spark does not compute the state of a batch
    that the sink skips, so the next batch needs the state that is there. Spark writes the state of all partitions
    before the sink ends a batch. So if one that the batch before had is missing, the sink does not have it.
    """
    if not logs.commits:
        return None
    batch = logs.commits[-1] + 1
    folders, finished_folders = set[str](), set[str]()
    for path in listing:
        folder, _, name = path.rpartition("/")
        parsed_name = layout.parse_state_file(name)
        if parsed_name is not None and parsed_name.version == batch:
            folders.add(folder)
        elif parsed_name is not None and parsed_name.version == batch + 1:
            finished_folders.add(folder)
    return batch if finished_folders and folders <= finished_folders else None


def find_written(logs: Logs, listing: Collection[str]) -> int | None:
    """Return the batch after the last committed one if it has written any state, and None otherwise."""
    if not logs.commits:
        return None
    version = logs.commits[-1] + 2
    names = [layout.parse_state_file(path.rpartition("/")[2]) for path in listing]
    return version - 1 if any(name is not None and name.version == version for name in names) else None


def refuse_uncommitted(files: Directory, logs: Logs, listing: Collection[str], advice: str = LET_IT_COMMIT) -> None:
    """Raise RefusedError if the sink may have a batch that is not committed.

    Then its state must stay, and the state before it, too: a delta fits only the state from which it was computed.
    """
    batch = find_uncommitted(logs, listing)
    if batch is not None:
        raise RefusedError(
            f"{files.root}: batch {batch} was begun and not committed, but all of its state is written. So the sink "
            "may have this batch, and would skip it when it runs again. The query then goes on with the state that is "
            f"written, which does not fit another one. Nothing was changed. {advice}"
        )


def may_be_in_real_time_mode(files: Directory, logs: Logs, listing: Listing, rewritten: Collection[str]) -> bool:
    """Return whether the query may be one in real-time mode.

    Spark 4.3 is the first that keeps state in this mode. It needs RocksDB and checkpoint format 2. A setting for tests
    allows format 1, too. Then the operator shows it, or the order of Spark's files. Files that ttlsnap has
    ``rewritten`` show nothing.
    """
    last_committed = max(logs.commits, default=-1)
    conf = _newest_conf(files, logs)
    # Spark 4.3 and later pin this setting.
    if ALWAYS_NULLABLE not in conf or PROVIDERS.get(conf.get(PROVIDER, "")) != "rocksdb":
        return False
    state_paths = [
        path for path in listing if path.startswith(f"{layout.STATE}/") and layout.batch_of(path) == last_committed
    ]
    parsed_names = [layout.parse_state_file(path.rpartition("/")[2]) for path in state_paths]
    if any(name is not None and name.unique_id is not None for name in parsed_names):
        return True
    return _has_its_operator(files, last_committed) or _writes_state_first(listing, rewritten)


def _newest_conf(files: Directory, logs: Logs) -> dict[str, str]:
    """Return the settings of the newest batch whose offsets can be read."""
    for batch in reversed(logs.offsets):
        try:
            return dict(read_conf(files, batch))
        except (CorruptionError, UnsupportedError):
            continue
    return {}


def _has_its_operator(files: Directory, batch: int) -> bool:
    for info in files.list(layout.STATE):
        operator = layout.parse_number(info.name)
        try:
            metadata = read_operator_metadata(files, operator, batch) if operator is not None else None
        except (CorruptionError, UnsupportedError):
            continue  # the command will find that out
        if metadata is not None and metadata.name == REAL_TIME_AGGREGATION:
            return True
    return False


def _writes_state_first(listing: Listing, rewritten: Collection[str]) -> bool:
    """Return whether all state files of a batch are older than its offsets.

    Changelogs decide, if a batch has them: Spark's maintenance writes snapshots later.
    """
    times_of_batches: dict[int, dict[str, int]] = defaultdict(dict)
    for path, info in listing.items():
        name = layout.parse_state_file(info.name)
        if name is not None and path not in rewritten:
            times = times_of_batches[name.version - 1]
            times[name.kind] = max(times.get(name.kind, 0), info.mtime_ns)
    for batch, times in times_of_batches.items():
        offsets = listing.get(layout.offset_file(batch))
        if offsets is not None and layout.offset_file(batch) not in rewritten:
            newest_ns = times.get("changelog") or max(times.values())
            if newest_ns < offsets.mtime_ns:
                return True
    return False
