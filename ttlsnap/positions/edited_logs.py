"""The log of a file source, read and written again in pieces.

The files of the log keep their names. A file that lost all of its lines gets one that no batch reads, because without
any it would look truncated. The last line of each file has the number of an entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.checkpoint.log_lines import Lines, names_to_read, read_lines, readable
from ttlsnap.checkpoint.source_logs import (
    COMPACT,
    UNREAD,
    SourceLog,
    line_of,
    log_number,
)
from ttlsnap.errors import UsageError
from ttlsnap.positions.log_edits import LogEdit
from ttlsnap.positions.log_rules import Recorded, common_folder, rules_of
from ttlsnap.positions.report import LogChange
from ttlsnap.storage.directory import Directory

_VERSION = b"v1"
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
        self._files, self._log, self._edit = files, log, rules_of(edit)
        self._names = names_to_read(files, log)
        self.recorded = self._examine(position, needed_after)
        self._rule = self._edit.rule(self.recorded)
        self._added = self._edit.added(self.recorded, self._all_lines)
        self.counts = {name: self._count(name) for name in self._names}
        others = {name for name in log.files if log_number(name) is not None} - set(self._names)
        self._earlier = {name: self._count(name) for name in sorted(others) if self._edit.is_for_earlier}
        # One of these is the first file that Spark reads, also as of an earlier batch.
        every_name = sorted({*self._names, *others}, key=lambda name: log_number(name) or 0)
        self._firsts = {name for name in every_name if name.endswith(COMPACT) or name == every_name[0]}
        last = self._names[-1]
        if self.changed and log_number(last) == 0 and not self.counts[last].after:
            raise UsageError(
                f"{files.root}/{log.folder}: the source has only one entry, and Spark cannot read a log without any "
                "file. Leave a file in it"
            )
        if not self.changed and (mistake := self._edit.describe_nothing(self.recorded)) is not None:
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
        files, newest_ms, settled_ms, sample, earlier, descending = 0, 0, 0, "", 0, 0
        ends: list[str] = []
        last_time: npt.NDArray[np.int64] = np.empty(0, np.int64)
        last_entry = last_time
        is_descending = False
        for lines in self._all_lines():
            is_trimmed |= lines.limit_ms > 0
            newest_ms = max(newest_ms, lines.limit_ms, int(lines.times_ms.max(initial=0)))
            if not len(lines.texts):
                continue
            ends += pc.min_max(lines.paths).as_py().values()
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
            newest_ms=newest_ms,
            settled_ms=settled_ms,
            sample=sample,
            folder=common_folder(map(readable, ends)),
            needed_after=needed_after,
            position=position,
            are_descending=is_descending or descending > earlier * _DESCENDING,
            is_trimmed=is_trimmed,
        )
