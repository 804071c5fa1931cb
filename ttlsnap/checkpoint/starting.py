"""What stops Spark when it starts a query, as far as the two logs and the names of other files show.

Spark takes each name in ``offsets/`` and ``commits/`` that is a number for a batch, whatever is there. It starts from
the newest offsets, reads those of the batch before them, too, and compares the number of the newest commit. A batch is
written as a new file, so a folder in its place stops the query when it comes to that batch.

Source: Spark's ``HDFSMetadataLog`` and ``MicroBatchExecution.populateStartOffsets``; tested on Spark 3.1 to 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.listing import list_activity
from ttlsnap.checkpoint.logs import (
    NO_OFFSET,
    PROVIDER,
    Logs,
    names_sources,
    read_conf,
    read_file_logs,
    shuffle_partitions,
    source_offsets,
)
from ttlsnap.checkpoint.source_logs import describe_missing, find_sources, list_source_log
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.printable import shell_word
from ttlsnap.storage.directory import Directory

WITHOUT_LOGS = (
    "Spark 4.1 and later do not start the query. An earlier Spark begins with batch 0 again, and may later read an old "
    "snapshot as the new state."
)
WITHOUT_METADATA = (
    "metadata is missing: Spark 4.2 and later refuse to start, and an earlier version takes it for another query"
)
_LONG = re.compile(r"[+-]?\d+")  # as Java parses a long, also in digits of other scripts
_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True)
class StartProblem:
    """Something that stops Spark, or makes it skip a batch. ``code`` is the problem of ``doctor``.

    ``where`` is the path. An unfinished repartition is one to ``count`` partitions.
    """

    code: str
    where: str
    words: str
    count: int | None = None


def find_obstacles(files: Directory, logs: Logs) -> Iterator[StartProblem]:
    """Yield what stops Spark. Without a committed batch, nothing is known. Files of the state are not read.

    The files of the newest committed batch must be readable; see ``read_batch``.
    """
    yield from _find_blocked(files, logs)
    if not (logs.offsets and logs.commits):
        return
    last_batch, last_committed = logs.offsets[-1], logs.commits[-1]
    if last_batch < last_committed:
        return  # reading the committed batch fails
    # Spark reads the offsets of two batches: they are the end and the start of the newest one
    # (MicroBatchExecution.populateStartOffsets).
    if last_batch > 0 and last_batch - 1 not in logs.offsets:
        path = layout.offset_file(last_batch - 1)
        message = f"{files.root}/{path} is missing, and Spark reads it when the query starts with batch {last_batch}"
        yield StartProblem("damaged-log", path, message)
    uncommitted = [batch for batch in logs.offsets if batch > last_committed]
    # Spark runs only the newest one again. The one before it would be skipped.
    if len(uncommitted) > 1:
        message = (
            f"batches {uncommitted[0]} to {last_batch} were started, but the last committed batch is {last_committed}"
        )
        yield StartProblem("missing-commit", layout.commit_file(last_batch - 1), message)
    torn_offsets = list(_find_torn(files, last_batch, last_committed)) if uncommitted else []
    yield from torn_offsets
    if last_batch - 1 in logs.offsets and not torn_offsets:
        yield from _find_changes(files, last_batch - 1, last_batch, last_committed)


def require_startable(files: Directory, logs: Logs) -> None:
    """Raise CorruptionError if something stops Spark: see ``find_obstacles``, or a missing file beside the logs.

    Raise UnsupportedError for logs of an unknown version.
    """
    for obstacle in _find_all(files, logs):
        error = (UnsupportedError if obstacle.code == "unsupported" else CorruptionError)(_describe(files, obstacle))
        error.advice = ""  # doctor has it
        raise error


def describe_obstacles(files: Directory, logs: Logs) -> list[str]:
    """Return what stops Spark, for a user."""
    return [_describe(files, obstacle) for obstacle in _find_all(files, logs)]


def _find_missing(files: Directory, logs: Logs) -> Iterator[StartProblem]:
    """Yield files beside the two logs that Spark reads when it starts, and that are missing."""
    if files.stat(layout.METADATA) is None:
        yield StartProblem("damaged-metadata", layout.METADATA, f"{files.root}/{WITHOUT_METADATA}")
    try:
        positions = read_file_logs(files, logs.offsets[-1], {}) if logs.offsets else {}
    except (CorruptionError, UnsupportedError):
        return  # an obstacle itself, or the offsets of a batch that is planned again
    for source, last_number in find_sources(files, positions).items():
        with suppress(RefusedError):  # a link that leads outside, which ttlsnap does not follow
            if (missing_file := describe_missing(files, list_source_log(files, source, last_number))) is not None:
                yield StartProblem("damaged-log", *missing_file)


def _find_all(files: Directory, logs: Logs) -> Iterator[StartProblem]:
    yield from find_obstacles(files, logs)
    yield from _find_missing(files, logs)


def _describe(files: Directory, obstacle: StartProblem) -> str:
    return (
        f"{obstacle.words}. Depending on the version of Spark, the query does not start, stops at that batch, "
        f"or skips a batch. Run: ttlsnap doctor {shell_word(files.root)}"
    )


def _backup(files: Directory, run: str) -> str:
    directory = layout.run_directory(run)
    return f"{directory}/{layout.newest_folder((info.name for info in files.list(directory)), 'backup')}"


def describe_missing_commits(files: Directory, offsets: Sequence[int]) -> str:
    """Return what follows for a checkpoint without a committed batch: it has no state yet, or it has lost its logs."""
    newest_state = newest_version(files)
    if not newest_state or (newest_state == 1 and len(offsets) < 2):
        return f"{files.root}: no batch is committed yet, so there is no state"
    runs = files.list(layout.RUNS)
    if any(files.list(f"{_backup(files, info.name)}/{layout.COMMITS}") for info in runs):
        return (
            f"{files.root}: the commit log is missing. A migration or a restore has moved the logs of earlier batches "
            "to its backup, so Spark does not load the state without those of the last batch. If you deleted these to "
            f"withdraw the batch, run: ttlsnap rollback {shell_word(files.root)} --stopped. "
            + _restoring(files, "Otherwise restore", "the folders offsets and commits")
        )
    if offsets:
        description = (
            f"{files.root}: the commit log is missing, but offsets has the batches {offsets[0]} to {offsets[-1]}, and "
            f"the state has versions up to {newest_state}"
        )
        if _have_ids(files):
            return (
                f"{description}. The names of its files have ids (checkpoint format 2), which only the commit log has, "
                "so Spark does not load the state. " + _restoring(files, "Restore", "the folder commits")
            )
        # Without commits, Spark runs the newest batch again. It loads the state before that batch, whose version is the
        # batch's own number.
        if newest_state < offsets[-1]:
            return f"{description}. Spark needs version {offsets[-1]}. " + _restoring(files, "Restore")
        return (
            f"{description}. When the query starts, Spark runs batch {offsets[-1]} again, and continues with this "
            "state. Put the folder commits back as it was, or let the query commit a batch. Then repeat the command"
        )
    has_commits = bool(files.list(layout.COMMITS))
    lost = "the offset log is" if has_commits else "the logs are"
    folders = "the folder offsets" if has_commits else "the folders offsets and commits"
    return (
        f"{files.root}: {lost} missing, but the state has versions up to {newest_state}. {WITHOUT_LOGS} "
        + _restoring(files, "Restore", folders)
    )


def _restoring(files: Directory, start: str, folders: str = "") -> str:
    """Return the advice to restore a checkpoint that has lost logs. Those of another batch would not fit the state."""
    command = f"ttlsnap copy BACKUP {shell_word(files.root)} --replace --stopped"
    return f"{start} the checkpoint from a backup: {command}" + (
        f". Or put {folders} back as before" if folders else ""
    )


def newest_version(files: Directory) -> int:
    """Return the newest version of the state files; 0 if there are none."""
    return max((name.version for name in _state_files(files)), default=0)


def _have_ids(files: Directory) -> bool:
    return any(name.unique_id is not None for name in _state_files(files))


def _state_files(files: Directory) -> list[layout.StateFileName]:
    parsed_names = (layout.parse_state_file(info.name) for info in list_activity(files).values())
    return [name for name in parsed_names if name is not None]


def _find_blocked(files: Directory, logs: Logs) -> Iterator[StartProblem]:
    """Yield what Spark takes for a batch to come, and can neither read nor replace."""
    for folder, batches in ((layout.OFFSETS, logs.offsets), (layout.COMMITS, logs.commits)):
        for info in files.list(folder):
            # Spark takes names like ``007`` for a batch, and then opens ``7``, which does not exist. Spark 3.1 to 3.3
            # also count folders.
            number = int(info.name) if _LONG.fullmatch(info.name) else -1
            if not max(batches, default=-1) < number <= _MAX_LONG:
                continue
            path = f"{folder}/{info.name}"
            if info.is_dir:
                message = f"{files.root}/{path} is a folder, in the place where Spark writes batch {number}"
                yield StartProblem("blocked-batch", path, message)
            elif layout.parse_number(info.name) is None:
                message = f"{files.root}/{path} is not a file that Spark writes, but Spark takes it for batch {number}"
                yield StartProblem("blocked-batch", path, message)


def _find_changes(files: Directory, old_batch: int, batch: int, last_committed: int) -> Iterator[StartProblem]:
    """Yield what is wrong with the offsets of two batches, which Spark both reads when it starts with ``batch``."""
    old_path, path = layout.offset_file(old_batch), layout.offset_file(batch)
    try:
        read_conf(files, old_batch)
        old_positions = read_file_logs(files, old_batch, {})
    except UnsupportedError as error:
        yield StartProblem("unsupported", old_path, str(error))
        return
    except CorruptionError as error:
        yield StartProblem("damaged-log", old_path, str(error))
        return
    try:
        new_positions = read_file_logs(files, batch, old_positions)
    except UnsupportedError:
        return  # found before
    except CorruptionError as error:
        yield _unreadable(path, batch, last_committed, error)
        return
    old_offsets, new_offsets = source_offsets(files, old_batch), source_offsets(files, batch)
    if not new_positions or names_sources(files, batch):
        return  # sources of other kinds, or named ones, which may come and go
    # Offsets belong to the sources of the query by their positions. Spark refuses another number of them.
    if len(old_offsets) != len(new_offsets):
        sources = quantity(len(new_offsets), "source")
        message = f"{files.root}/{path} has the offsets of {sources}, and {old_path} of {len(old_offsets)}"
        yield StartProblem("damaged-log", path, message)
    for source in new_positions:
        number = int(source)
        if source not in old_positions and number < len(old_offsets) and old_offsets[number] != NO_OFFSET:
            message = (
                f"{files.root}/{old_path}: source {source} reads files, and its offset is not one of such a source"
            )
            yield StartProblem("damaged-log", old_path, message)


def _find_torn(files: Directory, last_batch: int, last_committed: int) -> Iterator[StartProblem]:
    """Yield what is wrong with a batch that was started and not committed."""
    path = layout.offset_file(last_batch)
    try:
        conf = read_conf(files, last_batch)
    except UnsupportedError as error:
        yield StartProblem("unsupported", path, str(error))
        return
    except CorruptionError as error:
        yield _unreadable(path, last_batch, last_committed, error)
        return
    try:
        committed_conf = read_conf(files, last_committed)
    except (CorruptionError, UnsupportedError):
        return  # the committed batch cannot be read, which is another problem
    if conf.get(PROVIDER) != committed_conf.get(PROVIDER):
        message = (
            f"{files.root}/{path} names another class of the state store ({conf.get(PROVIDER)}) than the last "
            f"committed batch ({committed_conf.get(PROVIDER)}), and Spark would read the state with it"
        )
        yield StartProblem("unsupported", path, message)
        return
    count, committed_count = shuffle_partitions(conf), shuffle_partitions(committed_conf)
    # From 4.2 on, Spark's offline repartition writes the offsets of a batch with the new number first, and commits it
    # last.
    if None not in (count, committed_count) and count != committed_count:
        message = (
            f"batch {last_batch} is an unfinished repartition from {committed_count} to {count} partitions; Spark "
            "refuses to start"
        )
        yield StartProblem("unfinished-repartition", path, message, count)


def _unreadable(path: str, batch: int, last_committed: int, error: CorruptionError) -> StartProblem:
    if batch <= last_committed:
        return StartProblem("damaged-log", path, str(error))
    return StartProblem("torn-offset", path, f"{error}. Batch {batch} was started but not committed")
