"""The logs of sources that read files, by their names: without them, a source does not know which files it has read.

    sources/<source>/<n>           "v1" (LF {"path": "...", "timestamp": n, "batchId": n})+
    sources/<source>/<n>.compact   the same, for 0 to n together

When the query starts, Spark reads them from the last ``.compact`` to the end. Spark records a file before it plans the
batch that reads it, so the logs may have more files than the offsets name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import open_checked
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import Directory, FileInfo

COMPACT = ".compact"
UNREAD = ".not-read"
"""The end of a path that no file has. Lines with such paths keep a log whole that has no other line there."""
_FIRST_ENTRY = re.compile(rb'v1\n\{"path":"')
_HEAD = 64
_MAX_VERSION = 1 << 20
_MOST_OF_A_LINE = 1 << 20
# Nearly all lines, perhaps millions, have this form. To match them takes an eighth of the time of parsing.
_PLAIN = re.compile(r'\{"path":"[^"\\\x00-\x1f]+","timestamp":[0-9]+,"batchId":[0-9]+\}\n?')


@dataclass(frozen=True)
class SourceLog:
    """The log of a source: the files in its ``folder`` by their names, and those that Spark reads.

    ``missing`` is the first number that Spark reads and that has no file, or None.
    """

    folder: str
    files: Mapping[str, FileInfo]
    read: tuple[str, ...]
    missing: int | None


def log_number(name: str) -> int | None:
    """Return the number of a file in the log of a source that reads files; None for another file."""
    return layout.parse_number(name.removesuffix(COMPACT))


def line_of(path: str, time_ms: int, entry: int) -> bytes:
    """Return the line of a log for a file, its time and the number of its entry."""
    line = {"path": path, "timestamp": time_ms, "batchId": entry}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()


def open_source_log(files: Directory, path: str) -> BinaryIO:
    """Open a file of the log of a source after comparing its checksums, at the line after the version.

    Raise CorruptionError if it does not begin with a version, and UnsupportedError for an unknown one.
    """
    where, log = f"{files.root}/{path}", open_checked(files, path)
    version = log.readline(_MAX_VERSION).decode("utf-8", "replace").strip()
    if version == "v1":
        return log
    log.close()
    if re.fullmatch("v[0-9]+", version):
        raise UnsupportedError(f"{where}: log version {version[:40]!r} is unknown (known: v1)")
    raise CorruptionError(f"{where}: the first line is {version[:40]!r}, not a log version")


def check_source_log(files: Directory, path: str, info: FileInfo) -> None:
    """Read a whole file of the log of a source, line by line. Raise CorruptionError or UnsupportedError."""
    where = f"{files.root}/{path}"
    if info.is_dir:
        raise CorruptionError(f"{where} is a folder, not a file")
    with open_source_log(files, path) as log:
        line_number = 1
        while line := log.readline(_MOST_OF_A_LINE):
            line_number += 1
            try:
                _require_entry(line.decode("utf-8"))
            except (ValueError, TypeError, KeyError) as error:
                raise CorruptionError(
                    f"{where}: line {line_number} is truncated, or does not name a file ({error!r})"
                ) from error
    if line_number == 1:
        raise CorruptionError(f"{where} does not name a file")


def _require_entry(line: str) -> None:
    if not _PLAIN.fullmatch(line):
        require_type(parse_json(line)["path"], str)


def list_source_log(files: Directory, source: str, last_number: int) -> SourceLog:
    """Return the log of a source whose offset is ``last_number``, with the later files, which Spark reads as well.

    Raise RefusedError if the log leads outside.
    """
    folder = f"{layout.SOURCES}/{source}"
    infos_by_name = {file.name: file for file in files.list(folder)}
    numbers = {name: number for name in infos_by_name if (number := log_number(name)) is not None}
    # Spark writes a ``.compact`` file in place of every tenth file by default (CompactibleFileStreamLog).
    first_number = max((number for name, number in numbers.items() if name.endswith(COMPACT)), default=-1)
    newest_number = max((last_number, *(n for name, n in numbers.items() if not infos_by_name[name].is_dir)))
    # The search ends at the first missing file, even if a damaged offset names a huge number.
    missing_number = next(
        (number for number in range(first_number + 1, newest_number + 1) if str(number) not in infos_by_name), None
    )
    # A ``.compact`` file repeats what all files before it have, so Spark reads none of these.
    names_to_read = (
        name for name, number in numbers.items() if number > first_number or name == f"{first_number}{COMPACT}"
    )
    return SourceLog(folder, infos_by_name, tuple(names_to_read), missing_number)


def describe_missing(files: Directory, log: SourceLog) -> tuple[str, str] | None:
    """Return the path of a missing file that Spark reads, and what follows; None if there is none."""
    if log.missing is None:
        return None
    path = f"{log.folder}/{log.missing}"
    return path, describe_log_problem(path, f"{files.root}/{path} is missing")


def describe_log_problem(path: str, message: object) -> str:
    """Return what follows from a problem in the log of a source."""
    return (
        f"{message}; source {path.split('/')[1]} records in it what it has read. Without it Spark does not start, or "
        "reads the input again"
    )


def find_sources(files: Directory, positions: Mapping[str, int]) -> Mapping[str, int]:
    """Return the last log number of each source that has a log. ``positions`` has the positions in the offsets.

    A source that the query uses twice has two offsets and one log, and later sources then have lower numbers. Spark
    numbers the logs in the order of the first offset of each. So if there are fewer logs than offsets, and as many as
    different positions, each position is that of one log. With fewer positions, each log has at least the lowest one
    (see ``are_exact``).

    The log of a source with a name has this name, also where the offsets have only numbers (Spark 4.2 with source
    evolution and version 1 of the offset log).
    """
    try:
        folders = [info.name for info in files.list(layout.SOURCES) if info.is_dir]
        names_of_sources = [name for name in folders if layout.parse_number(name) is None]
        if positions.keys() <= set(folders):
            return positions  # other folders are of no source, such as an empty one of a query without the names
        if names_of_sources:
            return _find_named_sources(files, names_of_sources, positions)
    except RefusedError:
        return positions  # reported for each source
    numbers = (layout.parse_number(name) for name in folders)
    logs = sorted(number for number in numbers if number is not None)
    distinct_positions, names = set(positions.values()), [str(number) for number in logs]
    if logs == list(range(len(logs))) and len(distinct_positions) <= len(logs) and positions.keys() - set(names):
        if len(distinct_positions) == len(logs) and list(positions) == [
            str(number) for number in range(len(positions))
        ]:
            return dict(zip(names, dict.fromkeys(positions.values()), strict=True))
        return {name: min(distinct_positions) for name in names if name in positions}
    return positions


def _find_named_sources(files: Directory, names: Sequence[str], positions: Mapping[str, int]) -> Mapping[str, int]:
    """Return the last log number of each of the named sources that reads files.

    That is the largest of the positions that its log has. It can be another source's, which has come further. The log
    of a source that the query does not have any more has none, unless that is the only log for a position.
    """
    numbers = {name: _log_numbers(files, name) for name in names if _reads_files(files, name)}
    wanted = set(positions.values())
    sources = {name: max(known & wanted) for name, known in numbers.items() if known & wanted}
    lost = {key: position for key, position in positions.items() if not any(position in n for n in numbers.values())}
    rest = [name for name in numbers if name not in sources]
    # If only one log can have lost its last file, the message names that log.
    return sources | (dict.fromkeys(rest, max(lost.values())) if lost and len(rest) == 1 else lost)


def _log_numbers(files: Directory, source: str) -> set[int]:
    numbers = (log_number(info.name) for info in files.list(f"{layout.SOURCES}/{source}") if not info.is_dir)
    return {number for number in numbers if number is not None}


def _reads_files(files: Directory, source: str) -> bool:
    """Return whether a source has a log of files, or an empty folder. Other sources keep something else in theirs."""
    folder = f"{layout.SOURCES}/{source}"
    paths = [f"{folder}/{info.name}" for info in files.list(folder) if log_number(info.name) is not None]
    if not paths:
        return True
    with files.open(paths[-1]) as file:
        return _FIRST_ENTRY.match(file.read(_HEAD)) is not None


def are_exact(sources: Mapping[str, int], positions: Mapping[str, int]) -> bool:
    """Return whether ``find_sources`` found the last log number of each source, and not only the least possible one."""
    return set(sources.values()) == set(positions.values())
