"""The result of ``sources``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ttlsnap.documents import Document, Result, in_json, json_property
from ttlsnap.positions.kinds import Kind
from ttlsnap.transaction.report import RunReport


@dataclass(frozen=True, kw_only=True)
class SourceLogSize(Document):
    """The log of a source that reads files.

    folder          its place in the checkpoint
    files, bytes    what Spark reads of it at each start
    entries         the files that the source has recorded; None if the log is large
    """

    folder: str
    files: int
    bytes: int
    entries: int | None


@dataclass(frozen=True, kw_only=True)
class PartitionRange(Document):
    """A partition of a topic of Kafka.

    position        the next offset that the query reads; None if it has none there
    first, end      the offset of its first message, and the one that the next message gets; None if it does not exist
    behind          the offsets that the query has not read; None if ``is_lost``
    is_lost         whether the query has an offset that the partition does not have any more, or not yet
    """

    topic: str
    partition: int
    position: int | None
    first: int | None
    end: int | None

    @property
    @json_property()
    def is_lost(self) -> bool:
        """Whether the query has an offset that the partition does not have."""
        if self.position is None:
            return False
        return self.first is None or self.end is None or not self.first <= self.position <= self.end

    @property
    @json_property()
    def behind(self) -> int | None:
        """The offsets that the query has not read."""
        if self.is_lost or self.end is None or self.first is None:
            return None
        return self.end - (self.first if self.position is None else self.position)


@dataclass(frozen=True, kw_only=True)
class TableVersions(Document):
    """A Delta table that a source reads.

    path, id         its place, and the id in its log
    first, newest    the versions whose changes it still has; ``first`` is larger if it has none
    behind           how many versions the query has not begun to read; None if ``is_lost``
    is_lost          whether the position is one of another table, or of a version that it does not have
    lost_file        a data file that the query would still read, and that does not exist; None if there is none
    """

    path: str
    id: str
    first: int
    newest: int
    behind: int | None
    is_lost: bool
    lost_file: str | None


@dataclass(frozen=True, kw_only=True)
class SourcePosition(Document):
    """The position of a source.

    name            its name, or its number if the query does not name it
    kind            the kind of source that writes such an offset; ``other`` if none is known to
    position        its offset after the last committed batch: everything before it is read. None if it has none
    next_position   the end of the batch that is planned or was begun, which the next start runs; None if there is none
    log             the size of its log, if it reads files
    partitions      what the topics of Kafka have; None without a connection
    table           what its Delta table has; None if its path is not given
    """

    name: str
    kind: Kind
    position: Any
    next_position: Any
    log: SourceLogSize | None
    partitions: tuple[PartitionRange, ...] | None = field(default=None, metadata=in_json(optional=True))
    table: TableVersions | None = field(default=None, metadata=in_json(optional=True))


@dataclass(frozen=True, kw_only=True)
class SourcesReport(Result):
    """The result of ``sources``.

    target          the checkpoint
    batch           the last committed batch; None if there is none
    next_batch      the batch that is planned or was begun; None if there is none
    is_planned      whether ttlsnap has planned it
    restored_batch  the batch whose state and positions ``rewind`` or a copy gave to ``batch``; None if it has its own
    log_version     the version of the offset log: 1 without, 2 with names of the sources
    """

    target: str
    batch: int | None
    next_batch: int | None
    is_planned: bool
    restored_batch: int | None
    log_version: int
    sources: tuple[SourcePosition, ...]


@dataclass(frozen=True, kw_only=True)
class PositionChange(Document):
    """Another position of a source.

    name, kind       see ``SourcePosition``
    before, after    its offsets
    meaning          what rows it reads again, and what rows it never reads, in words
    """

    name: str
    kind: Kind
    before: Any
    after: Any
    meaning: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LogChange(Document):
    """Another content of the log of a source that reads files.

    name, folder     the source, and the place of its log
    changed          how many files are recorded in another way
    before, after    how many files the log records
    meaning          what rows the source reads again, and what rows it never reads, in words
    examples         up to 10 of the files that are recorded in another way, under their paths before
    """

    name: str
    folder: str
    changed: int
    before: int
    after: int
    meaning: tuple[str, ...]
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NewName(Document):
    """Another name of a source.

    name, new_name        its old and its new name, or its number if it has no name
    kind, position        see ``SourcePosition``
    folder, new_folder    its old and its new place in the checkpoint; None if it keeps nothing there
    """

    name: str
    new_name: str
    kind: Kind
    position: Any
    folder: str | None
    new_folder: str | None


@dataclass(frozen=True, kw_only=True)
class PositionsReport(RunReport):
    """The result of ``set_positions``.

    changes          the sources that get another position
    log_changes      the sources of files whose logs change
    new_names        all sources, if one of them gets another name
    options          the options of the command that makes this change, without those of the client of Kafka
    """

    changes: tuple[PositionChange, ...]
    log_changes: tuple[LogChange, ...] = ()
    new_names: tuple[NewName, ...] = ()
    options: tuple[str, ...] = ()
