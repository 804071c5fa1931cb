"""The files of a table: Parquet files, or those of a Delta table, which are read without a JVM."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ttlsnap.amounts import quantity
from ttlsnap.delta.features import check_protocol
from ttlsnap.delta.log import DataFile, is_table, live_files, read_table
from ttlsnap.delta.reading import has_old_calendars, read_rows, refuse_old_within
from ttlsnap.errors import CorruptionError, UnsupportedError, UsageError, require_damage
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.types import StructType
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import open_for_reading
from ttlsnap.storage.parquet import ParquetRows

DELTA = "delta:"
_NUMBER = re.compile(r"([0-9]+)")
_SUFFIX = ".parquet"
_UNFINISHED = "_temporary"  # Spark's folder for a job that has not ended
_OTHER_LOGS = ("_spark_metadata", ".hoodie")  # they say which of the files count
_STARTED, _COMMITTED = "_started_", "_committed_"  # what Databricks writes for each job


@dataclass(frozen=True)
class TableFile:
    """A file of a table below the folder ``root``, as plain data. ``delta`` is its entry in a Delta table's log.

    ``size`` is in bytes. ``columns`` are those of the Delta table, and ``by_id`` is how they are found in a file.
    """

    root: str
    path: str
    size: int
    delta: DataFile | None = None
    columns: StructType | None = None
    by_id: bool = False

    @property
    def where(self) -> str:
        return f"{self.root}/{self.path}"

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        if self.columns is not None:
            return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])
        with self._parquet() as parquet:
            return parquet.schema

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order. Raise UsageError for a file that cannot be read."""
        if self.delta is not None and self.columns is not None:
            count = 0
            try:
                for batch in read_rows(open_for_reading(self.root), self.delta, list(self.columns), by_id=self.by_id):
                    count += batch.num_rows
                    yield batch
            except CorruptionError as error:
                raise UsageError(f"the Delta table is damaged: {error}") from error
            if self.delta.rows not in (None, count):
                raise UsageError(
                    f"{self.where} has {quantity(count, 'row')}, and the table's log says {self.delta.rows:,}"
                )
            return
        with self._parquet() as parquet:
            is_old = has_old_calendars(parquet.metadata)
            for batch in parquet.batches():
                try:
                    for column in batch.columns if is_old else ():
                        refuse_old_within(column)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{self.where}: {error}") from error
                yield batch

    @contextlib.contextmanager
    def _parquet(self) -> Iterator[ParquetRows]:
        try:
            with open_for_reading(self.root).open(self.path) as stream:
                if not stream.seekable():
                    stream = io.BytesIO(stream.read())
                parquet = ParquetRows(stream, self.size, self.where)
                for field in parquet.schema:
                    _refuse_extension(self.where, field.name, field.type)
                yield parquet
        except (pa.ArrowException, OSError) as error:
            require_damage(error, self.where)
            raise UsageError(f"{self.where} is not a Parquet file that can be read: {str(error)[:200]}") from error


def _refuse_extension(where: str, name: str, kind: pa.DataType) -> None:
    """Raise UsageError for a type of Arrow's own, such as UUID, at any depth: Spark does not write them."""
    if isinstance(kind, pa.BaseExtensionType):
        raise UsageError(
            f"{where}: the column {name} has the type {kind.extension_name} of Arrow, which Spark does not have. Write "
            "its plain values"
        )
    for number in range(kind.num_fields):
        field = kind.field(number)
        _refuse_extension(where, f"{name}.{field.name}", field.type)


def find_tables(source: str) -> dict[str, str]:
    """Return the tables in a folder that ``export`` wrote, by name; none if the folder is a table itself."""
    prefix, place = (DELTA, source.removeprefix(DELTA)) if source.startswith(DELTA) else ("", source)
    files = open_for_reading(place)
    if _is_table(files):
        return {}
    names = [info.name for info in files.list("") if info.is_dir and not _is_hidden(info.name)]
    if any("=" in name for name in names):
        raise UsageError(f"--from {source}: its folders are partitions of a table. Write the table without partitionBy")
    places = {name: f"{files.root}/{name}" for name in names}
    tables = {name: f"{prefix}{path}" for name, path in places.items() if _is_table(open_for_reading(path))}
    if tables and (incomplete := [name for name in names if name not in tables]):
        raise UsageError(
            f"--from {source}: {incomplete[0]} has no Parquet files, so it is not a complete table as the others"
        )
    return tables


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
    if files.stat("") is None and not files.list(""):
        raise UsageError(f"--from {source}: {files.root} does not exist")
    if _is_file(files):
        root, _, name = files.root.rpartition("/")
        info = open_for_reading(root or "/").stat(name)
        assert info is not None
        if not name.endswith(_SUFFIX):
            raise UsageError(
                f"--from {source}: a table is a Parquet file, a folder of them, or a Delta table. Convert "
                "any other file to Parquet"
            )
        return [TableFile(root or "/", name, info.size)]
    if isinstance(files, LocalDirectory):
        _refuse_broken_links(source, Path(files.root))
    infos = files.list("")
    if any(info.name == _UNFINISHED for info in infos):
        raise UsageError(f"--from {source}: it has {_UNFINISHED}, so it is still being written, or not complete")
    _refuse_other_logs(source, [info.name for info in infos])
    folders = [info.name for info in infos if info.is_dir and not _is_hidden(info.name)]
    other_names = [
        file_info.name
        for file_info in infos
        if not file_info.is_dir and not file_info.name.endswith(_SUFFIX) and not _is_hidden(file_info.name)
    ]
    if other_names:
        raise UsageError(f"--from {source}: {other_names[0]} is not a Parquet file, whose name ends with {_SUFFIX}")
    parquet = [info for info in infos if not info.is_dir and info.name.endswith(_SUFFIX) and not _is_hidden(info.name)]
    if parquet and folders:
        raise UsageError(
            f"--from {source}: it has Parquet files and the folder {folders[0]}. Name the one that you mean"
        )
    if not parquet:
        hint = "; its folders are not read: write the table without partitions" if folders else ""
        raise UsageError(f"--from {source}: there are no Parquet files{hint}")
    return [TableFile(files.root, info.name, info.size) for info in sorted(parquet, key=lambda info: _order(info.name))]


def _refuse_broken_links(source: str, folder: Path) -> None:
    """Raise UsageError for a link to nothing, which no listing has: a part of the table is missing."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.exists() and not _is_hidden(path.name):
            raise UsageError(f"--from {source}: {path.name} is a symbolic link to a file that does not exist")


def _refuse_other_logs(source: str, names: Sequence[str]) -> None:
    """Raise UsageError if only some of the files in a folder count, or if it is not known which."""
    for log in _OTHER_LOGS:
        if log in names:
            raise UsageError(
                f"--from {source}: its {log} says which of the files count, and ttlsnap does not read that. Read the "
                "table with Spark, and write the rows to a new folder"
            )
    started, committed = (
        {name.removeprefix(mark) for name in names if name.startswith(mark)} for mark in (_STARTED, _COMMITTED)
    )
    if started - committed or len(committed) > 1:
        problem = "several jobs have written here" if len(committed) > 1 else "a job has not ended"
        raise UsageError(f"--from {source}: {problem}. Write the rows to a new folder")


def _order(name: str) -> list[tuple[bool, int, str]]:
    """Return a name for sorting: numbers in it are compared as numbers."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _NUMBER.split(name)]


def _files_of_delta(files: Directory) -> list[TableFile]:
    table = read_table(files)
    check_protocol(files, table)
    data_files = sorted(live_files(files, table.version), key=lambda file: _order(file.path))
    metadata = table.metadata
    return [TableFile(files.root, file.path, file.size, file, metadata.schema, metadata.by_id) for file in data_files]


def _is_table(files: Directory) -> bool:
    """Return whether a folder or a file is a table itself."""
    return is_table(files) or _is_file(files) or any(info.name.endswith(_SUFFIX) for info in files.list(""))


def _is_file(files: Directory) -> bool:
    info = files.stat("")
    if info is not None:
        return not info.is_dir
    return files.root.endswith(_SUFFIX) and not files.list("")  # of an object store, which has no folders


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))
