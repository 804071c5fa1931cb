"""The result of ``sources``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ttlsnap.documents import Document, Result
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
class SourcePosition(Document):
    """The position of a source.

    name            its name, or its number if the query does not name it
    kind            the kind of source that writes such an offset; ``other`` if none is known to
    position        its offset after the last committed batch: everything before it is read. None if it has none
    next_position   the end of the batch that is planned or was begun, which the next start runs; None if there is none
    log             the size of its log, if it reads files
    """

    name: str
    kind: Kind
    position: Any
    next_position: Any
    log: SourceLogSize | None


@dataclass(frozen=True, kw_only=True)
class SourcesReport(Result):
    """The result of ``sources``.

    target          the checkpoint
    batch           the last committed batch; None if there is none
    next_batch      the batch that is planned or was begun; None if there is none
    log_version     the version of the offset log: 1 without, 2 with names of the sources
    """

    target: str
    batch: int | None
    next_batch: int | None
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
class PositionsReport(RunReport):
    """The result of ``set_positions``.

    changes          the sources that get another position
    """

    changes: tuple[PositionChange, ...]
