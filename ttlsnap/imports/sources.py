"""The files of a table: Parquet files, or those of a Delta table, which are read without a JVM."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ttlsnap.delta.features import check_protocol
from ttlsnap.delta.log import DataFile, is_table, live_files, read_table
from ttlsnap.delta.reading import has_old_calendars, read_rows, refuse_old_times
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import StructType
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_for_reading

DELTA = "delta:"
_BATCH = 16 << 20  # bytes, without compression
_MOST_ROWS, _FEWEST_ROWS = 1 << 18, 1 << 10
_SUFFIX = ".parquet"
_UNFINISHED = "_temporary"  # Spark's folder for a job that has not ended


@dataclass(frozen=True)
class TableFile:
    """A file of a table below the folder ``root``, as plain data. ``delta`` is its entry in a Delta table's log.

    ``size`` is in bytes. ``columns`` are those of the Delta table.
    """

    root: str
    path: str
    size: int
    delta: DataFile | None = None
    columns: StructType | None = None

    @property
    def where(self) -> str:
        return f"{self.root}/{self.path}"

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        if self.columns is not None:
            return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])
        with self._parquet() as parquet:
            return parquet.schema_arrow

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order. Raise CorruptionError for a file that cannot be read."""
        if self.delta is not None and self.columns is not None:
            yield from read_rows(open_for_reading(self.root), self.delta, list(self.columns))
            return
        with self._parquet() as parquet:
            is_old = has_old_calendars(parquet)
            for batch in parquet.iter_batches(_rows_of_batch(parquet.metadata)):
                for column in batch.columns if is_old else ():
                    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
                        refuse_old_times(column)
                yield batch

    @contextlib.contextmanager
    def _parquet(self) -> Iterator[Any]:
        try:
            with open_for_reading(self.root).open(self.path) as stream:
                if not stream.seekable():
                    stream = io.BytesIO(stream.read())
                # Spark writes INT96, which as nanoseconds would hold no more than 292 years.
                yield pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        except (pa.ArrowException, OSError) as error:
            raise CorruptionError(f"{self.where} cannot be read: {str(error)[:200]}") from error


def _rows_of_batch(metadata: Any) -> int:
    """Return the number of rows to read at once, so that wide rows do not take more memory than narrow ones."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size: int = sum(group.total_byte_size for group in groups)
    rows: int = sum(group.num_rows for group in groups)
    return min(max(_BATCH * rows // max(size, 1), _FEWEST_ROWS), _MOST_ROWS)


def find_tables(source: str) -> dict[str, str]:
    """Return the tables in a folder that ``export`` wrote, by name; none if the folder is a table itself."""
    prefix, place = (DELTA, source.removeprefix(DELTA)) if source.startswith(DELTA) else ("", source)
    files = open_for_reading(place)
    if _is_table(files):
        return {}
    found = [info.name for info in files.list("") if info.is_dir and not _is_hidden(info.name)]
    places = {name: f"{files.root}/{name}" for name in found}
    return {name: f"{prefix}{path}" for name, path in places.items() if _is_table(open_for_reading(path))}


def find_files(source: str) -> list[TableFile]:
    """Return the files of a table in order: a Parquet file, a folder of Parquet files, or a Delta table.

    Raise UsageError if there is none.
    """
    place = source.removeprefix(DELTA)
    files = open_for_reading(place)
    if is_table(files):
        return _files_of_delta(files)
    if source.startswith(DELTA):
        raise UsageError(f"--from {source}: {files.root} is not a Delta table")
    if _is_file(files):
        root, _, name = files.root.rpartition("/")
        info = open_for_reading(root or "/").stat(name)
        assert info is not None
        if not name.endswith(_SUFFIX):
            raise UsageError(f"--from {source}: a table is a Parquet file, a folder of them, or a Delta table")
        return [TableFile(root or "/", name, info.size)]
    listed = files.list("")
    if any(info.name == _UNFINISHED for info in listed):
        raise UsageError(f"--from {source}: it has {_UNFINISHED}, so it is still being written, or not complete")
    inner = [info.name for info in listed if info.is_dir and not _is_hidden(info.name)]
    found = [info for info in listed if not info.is_dir and info.name.endswith(_SUFFIX) and not _is_hidden(info.name)]
    if found and inner:
        raise UsageError(f"--from {source}: it has Parquet files and the folder {inner[0]}. Name the one that you mean")
    if not found:
        hint = "; its folders are not read: write the table without partitions" if inner else ""
        raise UsageError(f"--from {source}: there are no Parquet files{hint}")
    return [TableFile(files.root, info.name, info.size) for info in found]


def _files_of_delta(files: Directory) -> list[TableFile]:
    table = read_table(files)
    check_protocol(files, table)
    found = sorted(live_files(files, table.version), key=attrgetter("path"))
    return [TableFile(files.root, file.path, file.size, file, table.metadata.schema) for file in found]


def _is_table(files: Directory) -> bool:
    """Return whether a folder or a file is a table itself."""
    return is_table(files) or _is_file(files) or any(info.name.endswith(_SUFFIX) for info in files.list(""))


def _is_file(files: Directory) -> bool:
    found = files.stat("")
    if found is not None:
        return not found.is_dir
    return files.root.endswith(_SUFFIX) and not files.list("")  # of an object store, which has no folders


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))
