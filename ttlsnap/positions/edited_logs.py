"""The log of a file source, read and written again in pieces.

The files of the log keep their names. A file that lost all of its lines gets one that no batch reads, because without
any it would look truncated. The last line of each file has the number of an entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, compress
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ttlsnap.checkpoint.source_logs import (
    COMPACT,
    UNREAD,
    SourceLog,
    describe_missing,
    line_of,
    log_number,
    open_source_log,
)
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.positions.log_edits import Lines, LogEdit, Recorded, readable
from ttlsnap.positions.report import LogChange
from ttlsnap.storage.directory import Directory

_PIECE = 8 << 20
_MOST_OF_A_LINE = 1 << 20
_VERSION = b"v1"
_FIELDS = pa.schema([("path", pa.string()), ("timestamp", pa.int64()), ("batchId", pa.int64())])
_MOST_EXAMPLES = 10
_NO_ENTRY = -1
"""The number in a line that Spark reads with no entry."""
_DESCENDING = 0.5
"""The share of files older than those before them above which a log looks like one of ``latestFirst``."""


@dataclass(frozen=True)
class Counts:
    """What an edit does to a file of the log: its lines before and after, and how many are changed.

    ``examples`` are paths in the first of the changed lines. ``limit_ms`` is the time that the file must not forget,
    because it has lost lines, by this edit or an earlier one; otherwise 0.
    """

    before: int
    after: int
    changed: int
    examples: list[str]
    limit_ms: int


class EditedLog:
    """A log and its edit: ``recorded`` is what it has before, and ``counts`` what changes in each of its files."""

    def __init__(self, files: Directory, log: SourceLog, edit: LogEdit, position: int, needed_after: int) -> None:
        """Read the whole log, which is read up to the entry ``position``.

        ``needed_after`` is the entry after which a retained batch may have to be run again.

        Raise CorruptionError for damage, UnsupportedError for an unknown form, and UsageError for an impossible edit.
        """
        self._files, self._log, self._edit = files, log, edit
        self._names = names_to_read(files, log)
        self.recorded = self._examine(position, needed_after)
        self._rule = edit.rule(self.recorded)
        self._added = edit.added(self.recorded, self._all_lines)
        self.counts = {name: self._count(name) for name in self._names}
        others = {name for name in log.files if log_number(name) is not None} - set(self._names)
        self._earlier = {name: self._count(name) for name in sorted(others) if edit.is_for_earlier}
        # One of these is the first file that Spark reads, also as of an earlier batch.
        every_name = sorted({*self._names, *others}, key=lambda name: log_number(name) or 0)
        self._firsts = {name for name in every_name if name.endswith(COMPACT) or name == every_name[0]}
        last = self._names[-1]
        if self.changed and log_number(last) == 0 and not self.counts[last].after:
            raise UsageError(
                f"{files.root}/{log.folder}: the source has only one entry, and nothing would be left of it. To read "
                "all files again, start a new checkpoint"
            )
        if not self.changed and (mistake := edit.describe_nothing(self.recorded)) is not None:
            raise UsageError(f"{files.root}/{log.folder}: {mistake}")

    @property
    def folder(self) -> str:
        """The folder of the log in the checkpoint."""
        return self._log.folder

    def find_changed(self, files: Directory) -> str | None:
        """Return the path of a file of the log that has changed since the log was listed; None if there is none."""
        infos = {info.name: info for info in files.list(self.folder)}
        names = (name for name in {**infos, **self._log.files} if infos.get(name) != self._log.files.get(name))
        return next((f"{self.folder}/{name}" for name in names), None)

    def describe(self, name: str) -> LogChange:
        """Return what the edit does to the log of the source ``name``."""
        examples = [readable(path) for path, _ in self._added]
        if not self._edit.counts_added:
            examples = list(chain(*(one.examples for one in self.counts.values())))
        before, after = (sum(getattr(one, side) for one in self.counts.values()) for side in ("before", "after"))
        return LogChange(
            name=name,
            folder=self.folder,
            changed=self.changed,
            before=before,
            after=after + len(self._added),
            meaning=(self._edit.describe(self.changed),),
            examples=tuple(examples[:_MOST_EXAMPLES]),
        )

    @property
    def warnings(self) -> list[str]:
        """What may be wrong with the files themselves, or with what the user has named."""
        return self._edit.warnings(self.recorded, self._all_lines)

    @property
    def changed(self) -> int:
        """The number of files that the edit is about."""
        if self._edit.counts_added:
            return len(self._added)
        return sum(counts.changed for counts in self.counts.values())

    @property
    def changed_names(self) -> list[str]:
        """The names of the files of the log that change."""
        all_counts = {**self.counts, **self._earlier}
        firsts = self._firsts if self._added else ()
        return [name for name, counts in all_counts.items() if counts.changed or name in firsts]

    @property
    def kept(self) -> list[str]:
        """The paths of the other files in the folder."""
        return [f"{self.folder}/{name}" for name in self._log.files.keys() - self.changed_names]

    def write(self, name: str, file: BinaryIO) -> None:
        """Write the new content of a file of the log."""
        counts = self.counts.get(name) or self._earlier[name]
        # Spark compares the ages of files with the newest time in the log.
        new_lines = [(self._unread, counts.limit_ms)] if counts.limit_ms else []
        new_lines += self._added if name in self._firsts else []
        file.write(_VERSION)
        for path, time_ms in sorted(new_lines, key=lambda line: line[1]):
            file.write(b"\n" + line_of(path, time_ms, _NO_ENTRY))
        last_text = line_of(self._unread, 0, _NO_ENTRY)
        for lines in read_lines(self._files, self._log.folder, name):
            texts, _ = self._rule(lines)
            if texts:
                file.write(b"\n" + b"\n".join(texts))
                last_text = texts[-1]
        if json.loads(last_text)["batchId"] < 0:
            # Spark does not start if the last line of the newest file, here or in a copy, has no number of an entry. It
            # ignores a line with the number of another entry.
            file.write(b"\n" + line_of(self._unread, 0, 1 if log_number(name) == 0 else 0))

    @property
    def _unread(self) -> str:
        return self.recorded.sample + UNREAD

    def _count(self, name: str) -> Counts:
        before = after = changed = limit_ms = 0
        examples: list[str] = []
        for lines in read_lines(self._files, self._log.folder, name):
            texts, mask = self._rule(lines)
            changed_lines = int(mask.sum())
            before, after, changed = before + len(lines.texts), after + len(texts), changed + changed_lines
            numbers = np.flatnonzero(mask)[: _MOST_EXAMPLES - len(examples)]
            examples += map(readable, lines.paths.take(pa.array(numbers)).to_pylist())
            limit_ms = max(limit_ms, lines.limit_ms, self._edit.limit_ms(self.recorded) if changed_lines else 0)
        return Counts(before, after, changed, examples, limit_ms)

    def _all_lines(self) -> Iterator[Lines]:
        for name in self._names:
            yield from read_lines(self._files, self._log.folder, name)

    def _examine(self, position: int, needed_after: int) -> Recorded:
        is_trimmed = False
        files, settled_ms, sample, earlier, descending = 0, 0, "", 0, 0
        last_time: npt.NDArray[np.int64] = np.empty(0, np.int64)
        last_entry = last_time
        is_descending = False
        for lines in self._all_lines():
            is_trimmed |= lines.limit_ms > 0
            if not len(lines.texts):
                continue
            settled = lines.times_ms[(lines.entries >= 0) & (lines.entries <= needed_after)]
            settled_ms = max(settled_ms, int(settled.max(initial=0)))
            times, entries = np.append(last_time, lines.times_ms), np.append(last_entry, lines.entries)
            goes_back = np.diff(times) < 0
            is_descending |= bool((goes_back & (np.diff(entries) == 0)).any())
            earlier, descending = earlier + len(goes_back), descending + int(goes_back.sum())
            last_time, last_entry = times[-1:], entries[-1:]
            files += len(lines.texts)
            sample = lines.paths[-1].as_py()
        return Recorded(
            files=files,
            settled_ms=settled_ms,
            sample=sample,
            needed_after=needed_after,
            position=position,
            are_descending=is_descending or descending > earlier * _DESCENDING,
            is_trimmed=is_trimmed,
        )


def names_to_read(files: Directory, log: SourceLog) -> list[str]:
    """Return the names of the files of a log that Spark reads, in order. Raise CorruptionError if one is missing."""
    if (missing_file := describe_missing(files, log)) is not None:
        raise CorruptionError(missing_file[1])
    return sorted(log.read, key=lambda name: log_number(name) or 0)


def read_lines(files: Directory, folder: str, name: str) -> Iterator[Lines]:
    """Yield the lines of a file of a log in pieces, without those that no batch reads.

    Raise CorruptionError or UnsupportedError if it is not such a file.
    """
    path = f"{folder}/{name}"
    where = f"{files.root}/{path}"
    with open_source_log(files, path) as file:
        if not (piece := file.read(_PIECE)):
            raise CorruptionError(f"{where} does not name a file")
        while piece:
            rest = file.readline(_MOST_OF_A_LINE)
            if len(rest) == _MOST_OF_A_LINE:
                raise CorruptionError(f"{where} has a line of more than {_MOST_OF_A_LINE:,} bytes")
            yield _parse(piece + rest, where)
            piece = file.read(_PIECE)


def _parse(piece: bytes, where: str) -> Lines:
    texts = piece.removesuffix(b"\n").split(b"\n")
    options = pj.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="error")
    try:
        table = pj.read_json(pa.BufferReader(piece), pj.ReadOptions(block_size=len(piece) + 1), options)
        table.validate(full=True)  # also for bytes that are not UTF-8
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"{where} has a line that is not one of the log of a file source ({error})") from error
    if table.num_rows != len(texts) or any(column.null_count for column in table.columns):
        raise CorruptionError(f"{where} has a line that does not name a file, its time and its entry")
    paths, times, entries = (column.combine_chunks() for column in table.columns)
    is_file = pc.invert(pc.ends_with(paths, pattern=UNREAD))
    limit_ms = 0
    if not pc.all(is_file).as_py():
        limit_ms = pc.max(times.filter(pc.invert(is_file))).as_py()
        texts = list(compress(texts, is_file.to_pylist()))
        paths, times, entries = (column.filter(is_file) for column in (paths, times, entries))
    return Lines(texts, paths, times.to_numpy(), entries.to_numpy(), limit_ms)
