"""The logs of sources that read files, in a checkpoint that gets the state of a backup. Their numbers do not go back.

A query that is idle has the number of the newest file of such a log in memory. When it finds input, it writes the next
number, and only then finds that its next batch is taken, and stops. With the log of the backup alone, the numbers
between would be missing, and Spark does not read a log with a gap. So the restored log ends at the number at which the
old one ended, and the offsets name this number:

    <c>.compact          everything that the backup had read; c is the number of the newest such file in the old log
    <c + 1> to <last>    a file that does not exist

Source: Spark's ``CompactibleFileStreamLog`` and ``FileStreamSourceLog``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, compress

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.log_lines import read_lines
from ttlsnap.checkpoint.logs import read_file_logs
from ttlsnap.checkpoint.source_logs import (
    COMPACT,
    UNREAD,
    are_exact,
    find_sources,
    line_of,
    list_source_log,
    log_number,
)
from ttlsnap.copies.selection import SelectedFile
from ttlsnap.errors import CorruptionError, TtlsnapError
from ttlsnap.storage.directory import Directory, hide_files
from ttlsnap.storage.uris import is_local

_MOST_OF_AN_ENTRY = 1 << 20  # bytes
_DAY_MS = 86_400_000
_MAX_FILE_AGE_MS = 7 * _DAY_MS
"""The age above which Spark leaves out a file, unless the source has the option ``maxFileAge``."""


@dataclass(frozen=True)
class AdvancedLogs:
    """The ``files`` of a restored checkpoint with its logs of sources, and the new ``positions`` of these sources.

    ``going_back`` are the sources whose logs end with a lower number than before.
    """

    files: tuple[SelectedFile, ...]
    positions: dict[str, int]
    going_back: tuple[str, ...]


def advance_logs(
    backup: Directory, batch: int, files: Sequence[SelectedFile], old_paths: Sequence[str]
) -> AdvancedLogs:
    """Return the ``files`` of the backup as of ``batch`` with logs that go on where those in ``old_paths`` end."""
    offsets = read_file_logs(backup, batch, {})
    logs = find_sources(backup, offsets)
    new_files, positions = {file.path: file for file in files}, dict[str, int]()
    old_names, newest_numbers = _list_old(logs, old_paths)
    going_back = {
        source for source in logs if newest_numbers[source] > _newest_number(_files_of_log(new_files, source))
    }
    if not are_exact(logs, offsets):
        # It is not known which log an offset belongs to.
        return AdvancedLogs(tuple(files), {}, tuple(sorted(going_back)))
    for sources, names in _group(logs, offsets):
        last_number, newest_number = logs[sources[0]], newest_numbers[sources[0]]
        if newest_number <= last_number or any(newest_numbers[source] != newest_number for source in sources):
            continue
        own_files = {source: _files_of_log(new_files, source) for source in sources}
        advanced_logs = [
            _advance(backup, source, own_files[source], old_names[source], last_number, newest_number)
            for source in sources
        ]
        if None in advanced_logs:
            continue
        replaced_paths = {path for files_of_log in own_files.values() for path in files_of_log}
        new_files = {path: file for path, file in new_files.items() if path not in replaced_paths}
        new_files |= {file.path: file for log in advanced_logs for file in log or ()}
        positions |= dict.fromkeys(names, newest_number)
        going_back.difference_update(sources)
    return AdvancedLogs(tuple(new_files.values()), positions, tuple(sorted(going_back)))


def describe_left_out(backup: Directory, batch: int, files: Directory) -> Iterator[str]:
    """Yield in words which sources may not read again what the checkpoint ``files`` has read after ``batch``.

    Spark leaves out a file that is much older than the newest one in the log, even if only ``sources --record`` has
    recorded that.
    """
    offsets = read_file_logs(backup, batch, {})
    logs = find_sources(backup, offsets)
    for source, last_number in logs.items() if are_exact(logs, offsets) else ():
        newest_ms, oldest_ms = 0, None
        lost_files: list[str] = []
        with suppress(TtlsnapError):  # a log that is damaged is replaced
            log = list_source_log(files, source, last_number)
            for lines in chain.from_iterable(read_lines(files, log.folder, name) for name in log.read):
                is_read_again = lines.entries > last_number
                newest_ms = max(newest_ms, lines.limit_ms, int(lines.times_ms[~is_read_again].max(initial=0)))
                if is_read_again.any():
                    oldest_here = int(lines.times_ms[is_read_again].min())
                    oldest_ms = min(oldest_here, oldest_here if oldest_ms is None else oldest_ms)
                    lost_files += _find_lost(files, compress(lines.names, is_read_again))
        if lost_files:
            what = quantity(len(lost_files), "file that is read again is", "files that are read again are")
            yield (
                f"source {source}: {what} not found on this machine, such as {min(lost_files)}. The rows of "
                "files that the query does not find, either, are lost"
            )
        if oldest_ms is not None and newest_ms - oldest_ms > _MAX_FILE_AGE_MS:
            days = (newest_ms - oldest_ms) // _DAY_MS
            yield (
                f"source {source}: some of the files that are to be read again are {days} days older than the newest "
                "file in its log. Spark leaves out what is more than maxFileAge older (an option of the source, 7 days "
                "by default), except with latestFirst and a limit for a batch. Start the query with a longer one, or "
                "their rows are lost"
            )


def _find_lost(files: Directory, paths: Iterable[str]) -> Iterator[str]:
    """Yield those of the paths of local files that do not exist, if the checkpoint itself is local."""
    if is_local(files.root):
        yield from (path for path in paths if path.startswith("/") and not os.path.exists(path))  # noqa: PTH110 - fast


def _group(logs: Mapping[str, int], offsets: Mapping[str, int]) -> list[tuple[list[str], list[str]]]:
    """Return the logs, and the names of the offsets that belong to them.

    If the offsets do not have the names of the logs, those of one position are together.
    """
    if logs.keys() == offsets.keys():
        return [([source], [source]) for source in logs]

    def find(numbers: Mapping[str, int], position: int) -> list[str]:
        return [name for name, number in numbers.items() if number == position]

    return [(find(logs, position), find(offsets, position)) for position in dict.fromkeys(logs.values())]


def _list_old(sources: Iterable[str], old_paths: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the names in the old log of each source, and the newest number in each; -1 if there is none."""
    names = {
        source: [
            path.rpartition("/")[2] for path in old_paths if path.rpartition("/")[0] == f"{layout.SOURCES}/{source}"
        ]
        for source in sources
    }
    return names, {source: _newest_number(old_names) for source, old_names in names.items()}


def _newest_number(paths: Iterable[str]) -> int:
    """Return the newest number of these files in the log of a source; -1 if there is none."""
    numbers = (log_number(path.rpartition("/")[2]) for path in paths)
    return max((number for number in numbers if number is not None), default=-1)


def _files_of_log(files: Mapping[str, SelectedFile], source: str) -> dict[str, SelectedFile]:
    def is_of_log(path: str) -> bool:
        parent, _, name = layout.strip_checksum(path).rpartition("/")
        return parent == f"{layout.SOURCES}/{source}" and log_number(name) is not None

    return {path: file for path, file in files.items() if is_of_log(path)}


def _advance(
    backup: Directory,
    source: str,
    own_files: dict[str, SelectedFile],
    old_names: Sequence[str],
    last_number: int,
    newest_number: int,
) -> list[SelectedFile] | None:
    """Return the files of a log that ends at ``newest_number``; None if the old one does not show how."""
    folder = f"{layout.SOURCES}/{source}"
    later_paths = [path for info in backup.list(folder) if (path := f"{folder}/{info.name}") not in own_files]
    log = list_source_log(hide_files(backup, later_paths), source, last_number)
    names = sorted(log.read, key=log_number)  # type: ignore[arg-type]
    model = own_files[f"{folder}/{names[-1]}"]
    compact_numbers = sorted(
        number for name in old_names if name.endswith(COMPACT) and (number := log_number(name)) is not None
    )
    has_compact = any(name.endswith(COMPACT) for name in names)
    newest_compact = compact_numbers[-1] if compact_numbers else -1
    first_number = max(newest_compact, last_number) + 1
    # If the old log has lost a file, nothing shows which of its numbers Spark expects to be ``.compact`` files.
    if any(str(number) not in old_names for number in range(first_number, newest_number + 1)):
        return None

    # Spark omits an entry that has the number of another batch. A log without any entry would look truncated.
    with backup.open(model.path) as file:
        version, line, *_ = file.read(_MOST_OF_AN_ENTRY).split(b"\n")
    try:
        path = str(json.loads(line)["path"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{backup.root}/{model.path} has a line that names no file") from error
    filler = version + b"\n" + line_of(path.removesuffix(UNREAD) + UNREAD, 0, 0)

    def empty(name: str) -> SelectedFile:
        return replace(model, path=f"{folder}/{name}", content=filler)

    later_files = [empty(str(number)) for number in range(first_number, newest_number + 1)]
    if newest_compact <= last_number:
        return None if has_compact and not compact_numbers else [*own_files.values(), *later_files]
    # Spark takes the distance of the two newest ``.compact`` files for the interval, and reads only the newest.
    earlier_files = [empty(f"{number}{COMPACT}") for number in compact_numbers[-2:-1]]
    newest_file = replace(
        model, path=f"{folder}/{newest_compact}{COMPACT}", parts=tuple(f"{folder}/{name}" for name in names)
    )
    return [*earlier_files, newest_file, *later_files]
