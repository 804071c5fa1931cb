"""The dropped entries of a run, as Parquet files in the run's own folder.

run, operator, store, state, partition   the run, and the place of the entry; for a table's row the state is "rows",
                                         and operator, store and partition are null
key, value                               JSON, as ``json_text`` writes it
timestamp                                the time that decided about the entry, in UTC, or null
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import pyarrow as pa

from ttlsnap.amounts import quantity
from ttlsnap.checkpoint import layout
from ttlsnap.entries.batch import Int64, Mask, StateEntries
from ttlsnap.entries.json_text import json_texts
from ttlsnap.errors import CorruptionError
from ttlsnap.storage.directory import Directory

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("operator", pa.int32()),
        ("store", pa.string()),
        ("state", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.large_string()),
        ("value", pa.large_string()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
SUFFIX = ".parquet"


def folder_of(run: str) -> str:
    """Return the folder in which the dropped entries of a run wait until it is published."""
    return f"{layout.run_directory(run)}/expired"


class ExpiredWriter:
    """A writer of one partition's dropped entries to the file ``path``. Without such entries there is no file.

    Without an ``operator`` the entries are rows of a table. ``written`` is their number so far.
    """

    def __init__(
        self, files: Directory, path: str, run: str, operator: int | None = None, partition: int | None = None
    ) -> None:
        self._files, self._path = files, path
        self._run, self._operator, self._partition = run, operator, partition
        self._stack = contextlib.ExitStack()
        self._writer: ParquetWriter | None = None
        self.written = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, dropped: StateEntries, moments: tuple[Int64, Mask] | None) -> None:
        """Write entries of one state, with the times (microseconds) that decided about them, and which have none."""
        size, state = len(dropped), dropped.state
        if not size:
            return
        times = pa.nulls(size, pa.int64()) if moments is None else pa.array(moments[0], mask=moments[1])
        store = None if self._operator is None else state.store
        facts: Sequence[Any] = (self._run, self._operator, store, state.state, self._partition)
        columns = [pa.repeat(pa.scalar(fact, field.type), size) for fact, field in zip(facts, SCHEMA, strict=False)]
        columns += [json_texts(dropped.key_structs), json_texts(dropped.value_structs)]
        self._open().write_batch(pa.record_batch([*columns, times.cast(SCHEMA.field("timestamp").type)], schema=SCHEMA))
        self.written += size

    def _open(self) -> ParquetWriter:
        if self._writer is None:
            from pyarrow.parquet import ParquetWriter  # a slow import: it also imports pandas, if installed

            self._files.mkdirs(self._path.rpartition("/")[0])
            stream: BinaryIO = self._stack.enter_context(self._files.writer(self._path))
            self._writer = self._stack.enter_context(ParquetWriter(stream, SCHEMA, compression="zstd"))
        return self._writer


def rows_in(files: Directory, paths: Sequence[str]) -> int:
    """Return the number of entries in the files. Raise CorruptionError for a file that cannot be read."""
    from pyarrow.parquet import ParquetFile

    row_count = 0
    for path in paths:
        try:
            with files.open(path) as stream:
                row_count += ParquetFile(stream).metadata.num_rows
        except pa.ArrowException as error:
            raise CorruptionError(f"{files.root}/{path} cannot be read again: {str(error)[:200]}") from error
    return row_count


def check_complete(files: Directory, paths: Sequence[str], dropped: int) -> None:
    """Raise CorruptionError unless the files have as many entries as were dropped."""
    if (archived_count := rows_in(files, paths)) != dropped:
        raise CorruptionError(
            f"{quantity(dropped, 'entry was', 'entries were')} dropped, but "
            f"{quantity(archived_count, 'was', 'were')} archived. Nothing was published"
        )
