"""The logs of sources that read files, as far as they show what another position means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.log_lines import read_lines
from ttlsnap.checkpoint.logs import named_positions, read_file_logs
from ttlsnap.checkpoint.source_logs import COMPACT, are_exact, find_sources, list_source_log, log_number
from ttlsnap.errors import CorruptionError, UnsupportedError, UsageError
from ttlsnap.positions.kinds import find_kind, require_source
from ttlsnap.positions.meaning import explain
from ttlsnap.storage.directory import Directory

_MOST_READ = 64 << 20
"""The bytes of a log above which its entries are not counted."""


@dataclass(frozen=True)
class FileLogs:
    """The logs of all sources that read files, as of a batch.

    ``positions`` are those in the offsets, by the names of the sources, and ``last_numbers`` those of the logs.
    """

    files: Directory
    batch: int

    @cached_property
    def positions(self) -> Mapping[str, int]:
        return read_file_logs(self.files, self.batch, {})

    @cached_property
    def last_numbers(self) -> Mapping[str, int]:
        return find_sources(self.files, self.positions)

    @property
    def are_separate(self) -> bool:
        """Whether each source has a log of its own, so that the query uses none twice."""
        return len(self.last_numbers) >= len(self.positions)

    def find(self, name: str) -> str | None:
        """Return the name of the log of a source; None if its offset does not show which one that is."""
        if not are_exact(self.last_numbers, self.positions):
            return None
        if self.are_separate and name in self.last_numbers:
            return name
        # The logs of a query that uses a source twice have other numbers than its offsets.
        logs = [log for log, number in self.last_numbers.items() if number == self.positions[name]]
        return logs[0] if len(logs) == 1 else None


def find_log(logs: FileLogs, source: str) -> str:
    """Return the name of the log of a source. Raise UsageError if there is no such source or log."""
    require_source(source, named_positions(logs.files, logs.batch))
    owner = logs.find(source) if source in logs.positions else None
    if owner is None:
        reason = "nothing shows which log it has" if source in logs.positions else "it does not read files"
        raise UsageError(f"source {source}: {reason}")
    return owner


def count_recorded(logs: FileLogs, name: str, first: int, last: int) -> int | None:
    """Return how many files the log of a source has recorded after entry ``first``, up to ``last``.

    None if it is not known which log the source has, or if the log is large or damaged. Spark omits a file in an entry
    of another number, as ``rewind`` writes them.
    """
    files, owner = logs.files, logs.find(name)
    if owner is None or first >= last:
        return None
    infos = {info.name: info for info in files.list(f"{layout.SOURCES}/{owner}")}
    numbers = range(first + 1, last + 1)
    names = {number: f"{number}{COMPACT}" if f"{number}{COMPACT}" in infos else str(number) for number in numbers}
    if any(one not in infos for one in names.values()) or sum(infos[one].size for one in names.values()) > _MOST_READ:
        return None
    found = 0
    try:
        for number, file_name in names.items():
            for lines in read_lines(files, f"{layout.SOURCES}/{owner}", file_name):
                found += int((lines.entries == number).sum())
    except (CorruptionError, UnsupportedError):
        return None  # which a rewind may repair
    return found


def explain_with_log(logs: FileLogs, name: str, before: Any, after: Any) -> list[str]:
    """Return what another position of a source means, with a number of files if its log shows that. See ``explain``."""
    recorded = None
    if find_kind(before) == find_kind(after) == "files":
        recorded = count_recorded(logs, name, after["logOffset"], before["logOffset"])
    return explain(before, after, recorded)


def require_entries(logs: FileLogs, new_positions: Mapping[str, int]) -> None:
    """Raise UsageError if the log of a source does not have a file of each entry after its new position.

    Spark removes files whose entries a later ``.compact`` file has, too. ``new_positions`` are entries, by the names
    of their sources.
    """
    if not new_positions:
        return
    files = logs.files
    for source, position in find_sources(files, {**logs.positions, **new_positions}).items():
        log = list_source_log(files, source, position)
        newest = max((number for name in log.files if (number := log_number(name)) is not None), default=position)
        for number in range(position + 1, newest + 1):
            if not log.files.keys() & {str(number), f"{number}{COMPACT}"}:
                raise UsageError(
                    f"{files.root}/{log.folder} has no file of entry {number} any more, so the source cannot go back "
                    f"to entry {position}"
                )
