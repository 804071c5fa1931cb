"""The public function ``recorded_files``: which files a source has recorded, and which batch has read each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttlsnap.checkpoint.log_lines import names_to_read, read_lines
from ttlsnap.checkpoint.logs import read_file_logs
from ttlsnap.checkpoint.source_logs import list_source_log
from ttlsnap.clock import iso
from ttlsnap.documents import Document
from ttlsnap.keywords import public
from ttlsnap.positions.file_logs import FileLogs, find_log
from ttlsnap.positions.log_rules import matcher, whole_patterns
from ttlsnap.positions.show import open_logs
from ttlsnap.storage.directory import Directory, each


@dataclass(frozen=True, kw_only=True)
class RecordedFile(Document):
    """A file that a source has recorded, so that it does not read it again.

    path       its path, as a person writes it
    time       when it was last modified, in ISO 8601
    entry      the entry of the log that recorded it; None if ``sources --record`` did
    batch      the batch that has read it; None if that is not retained any more
    is_read    whether a committed batch has read it; otherwise one that was begun reads it, a later one, or none
    """

    path: str
    time: str | None
    entry: int | None
    batch: int | None
    is_read: bool


@public
def recorded_files(target: str, source: str, patterns: Sequence[str] = ()) -> Iterator[RecordedFile]:
    """Yield the files that a source of files has recorded, in the order of its log. The query may be running.

    ``source`` is its name or number. With ``patterns``, only files whose paths match one of them.

    Raise UsageError if the source does not exist or does not read files, FencedError if a run was interrupted, and
    CorruptionError if a log is damaged.
    """
    files, logs, batch, next_batch = open_logs(target)
    newest = batch if batch is not None else next_batch
    assert newest is not None
    file_logs = FileLogs(files, newest)
    owner = find_log(file_logs, source)
    ends = _find_ends(files, logs.offsets, source)
    position = file_logs.positions[source] if batch is not None else -1
    log = list_source_log(files, owner, file_logs.positions[source])
    matches = matcher(whole_patterns(patterns)) if patterns else None
    return (
        _describe(path, int(time_ms), int(entry), position, ends)
        for name in names_to_read(files, log)
        for lines in read_lines(files, log.folder, name)
        for path, time_ms, entry in zip(lines.names, lines.times_ms, lines.entries, strict=True)
        if matches is None or matches(path)
    )


def _find_ends(files: Directory, batches: Sequence[int], source: str) -> list[tuple[int, int]]:
    """Return the last entry that each retained batch reads, with the batch, in order."""
    positions = each(files, lambda batch: read_file_logs(files, batch, {}).get(source), batches)
    ends: list[tuple[int, int]] = []
    for position, batch in reversed([*zip(positions, batches, strict=True)]):
        # A batch that had read more, before the source went back, has read nothing that still counts as read.
        if position is not None and (not ends or position <= ends[-1][0]):
            ends.append((position, batch))
    return ends[::-1]


def _describe(path: str, time_ms: int, entry: int, position: int, ends: Sequence[tuple[int, int]]) -> RecordedFile:
    place = bisect_left(ends, (entry, -1))
    # What the first retained batch has read itself, only the positions before it would show.
    is_known = place < len(ends) and (place > 0 or ends[0][1] == 0)
    return RecordedFile(
        path=path,
        time=iso(time_ms * 1000),
        entry=entry if entry >= 0 else None,
        batch=ends[place][1] if is_known and entry >= 0 else None,
        is_read=0 <= entry <= position,
    )
