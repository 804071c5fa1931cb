"""The lines of the logs of sources that read files, in pieces: a log can have millions of them.

See ``ttlsnap.checkpoint.source_logs`` for the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ttlsnap.checkpoint.source_logs import UNREAD, SourceLog, describe_missing, log_number, open_source_log
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory

_PIECE = 8 << 20
_MOST_OF_A_LINE = 1 << 20
_FIELDS = pa.schema([("path", pa.string()), ("timestamp", pa.int64()), ("batchId", pa.int64())])


@dataclass(frozen=True)
class Lines:
    """Some lines of a log: their texts, and the paths, times in milliseconds, and numbers of entries in them.

    ``limit_ms`` is the newest time of a line beside them that ttlsnap has written, and that names no file.
    """

    texts: Sequence[bytes]
    paths: pa.StringArray
    times_ms: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]
    limit_ms: int = 0

    @cached_property
    def names(self) -> list[str]:
        """The paths as a person writes them: not encoded, and local ones without their scheme."""
        return [readable(path) for path in self.paths.to_pylist()]

    def without(self, mask: npt.NDArray[np.bool_]) -> tuple[list[bytes], npt.NDArray[np.bool_]]:
        """Return the texts of the lines for which the mask is false, and the mask."""
        return list(compress(self.texts, ~mask)), mask


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


def readable(path: str) -> str:
    """Return a recorded path as a person writes it."""
    return without_scheme(unquote(path) if "%" in path else path)


def without_scheme(path: str) -> str:
    """Return a path without the scheme of local files."""
    return re.sub("^file:(//)?(?=/)", "", path)
