"""The places that an export writes to: a folder of Parquet files, Delta tables, or one stream of text."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, BinaryIO, Protocol

import pyarrow as pa

from ttlsnap.checkpoint.outside import access_outside, folder_access
from ttlsnap.checkpoint.recognize import find_owner
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.extras import require_package
from ttlsnap.reading.export_plan import ExportTask
from ttlsnap.reading.export_text import CsvLines, JsonLines
from ttlsnap.reading.state_table import StateTable
from ttlsnap.storage.access import PRIVATE_FOLDER, Access, own_access
from ttlsnap.storage.directory import SCRATCH, Directory
from ttlsnap.storage.open import open_directory, open_local
from ttlsnap.storage.trees import remove_if_empty
from ttlsnap.storage.uris import is_local, is_within

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

_GROUP = 1 << 17  # rows of a row group
_SUFFIX = ".parquet"
_LOG = "_delta_log"
_FIRST_COMMIT = f"{_LOG}/00000000000000000000.json"
_MOST_OF_LOG = 64 << 20
_DONE = "_SUCCESS"  # Spark, too, writes this file when a folder is complete

Counts = Counter[str]
"""Rows by table."""


class TableSink(Protocol):
    """A place to write tables to. With ``is_parallel``, several threads may write at the same time."""

    name: str
    is_parallel: bool

    def begin(self, tables: Sequence[StateTable]) -> None:
        """Prepare the place. Raise UsageError if it cannot take these tables, or has something already."""

    def write(self, task: ExportTask) -> Iterator[Counts]:
        """Write the rows of a partition. Yield the number of new rows again and again."""

    def finish(self, tables: Sequence[StateTable]) -> None:
        """Complete the tables after all partitions."""

    def discard(self) -> None:
        """Remove what was written."""


def require_outside(place: str, source: Directory) -> None:
    """Raise UsageError if a place is inside the checkpoint, or inside another one or a Delta table."""
    if not is_local(place):
        if is_within(place, source.root):
            raise UsageError(f"{place} is inside the checkpoint. Choose another --to")
        return
    path = Path(open_local(place).root)
    if is_local(source.root) and path.is_relative_to(Path(source.root).resolve()):
        raise UsageError(f"{place} is inside the checkpoint. Choose another --to")
    if (owner := find_owner(path)) is not None:
        raise UsageError(f"{place} is inside {owner}, a checkpoint or a Delta table. Choose another --to")


class ParquetFolder:
    """A new folder, with a folder for each table, with a file for each partition that has rows of it."""

    is_parallel = True

    def __init__(self, path: str, source: Directory) -> None:
        self._folder, self._source = open_directory(path), source
        self._run = token_hex(4)  # in the names of all files, by which discard knows them
        self._tables: Sequence[StateTable] = ()  # those whose folders this run has made
        self._complete_tables: list[str] = []  # those that are marked as complete
        self._old_access: Access | None = None
        self._is_new_folder = False
        self.name = self._folder.root

    def begin(self, tables: Sequence[StateTable]) -> None:
        """See ``TableSink.begin``."""
        info = self._folder.stat("")
        if (info is not None and not info.is_dir) or self._folder.list(""):
            raise UsageError(f"{self.name} exists and is not an empty folder. Choose another --to")
        for table in tables:
            _require_writable(table)
        self._tables, self._is_new_folder, self._old_access = tables, info is None, self._folder.access("")
        self._folder.mkdirs("")
        self._folder.set_access("", own_access(PRIVATE_FOLDER))  # until everything is written
        for table in tables:
            self._folder.mkdirs(table.name)
            self._folder.set_access(table.name, own_access(PRIVATE_FOLDER))

    def write(self, task: ExportTask) -> Iterator[Counts]:
        """See ``TableSink.write``."""
        with contextlib.ExitStack() as stack:
            writers: dict[str, _PartFile] = {}
            for table, rows in task.read():
                if table.name not in writers:
                    writers[table.name] = stack.enter_context(self._part(table, task.source.partition))
                writers[table.name].add(rows)
                yield Counter({table.name: len(rows)})

    def finish(self, tables: Sequence[StateTable]) -> None:
        """See ``TableSink.finish``."""
        for table in tables:
            if not any(self._run in info.name for info in self._folder.list(table.name)):
                with self._part(table, 0):
                    pass  # an empty file has the schema
            self.complete(table)
            self._folder.sync(table.name)
            foreign_names = [info.name for info in self._folder.list(table.name) if not self._is_ours(info.name)]
            if foreign_names:
                raise StorageError(
                    f"{self.name}/{table.name}/{foreign_names[0]} was written by somebody else during the export. "
                    "Readers would take it for a part of the table. Export to a folder that nobody else uses"
                )
        self._share("", access_outside([self._source], self._old_access))

    def _is_ours(self, name: str) -> bool:
        return self._run in name or name in (_DONE, _LOG)

    def complete(self, table: StateTable) -> None:
        """Complete a table after its files."""
        if self._folder.stat(f"{table.name}/{_DONE}") is None:
            self._complete_tables.append(table.name)
            with self._folder.writer(f"{table.name}/{_DONE}"):
                pass

    def _part(self, table: StateTable, partition: int) -> _PartFile:
        return _PartFile(self._folder, table, f"part-{partition:05d}-{self._run}{_SUFFIX}")

    def _share(self, path: str, access: Access) -> None:
        """Give a folder and all below it an access; last the folder, so that nobody reads in it before."""
        for info in self._folder.list(path):
            child_path = f"{path}/{info.name}" if path else info.name
            if info.is_dir:
                self._share(child_path, access)
            else:
                self._folder.set_access(child_path, access)
        self._folder.set_access(path, folder_access(access))

    def discard(self) -> None:
        """See ``TableSink.discard``: the files of others stay."""
        for table in self._tables:
            for info in self._folder.list(table.name):
                if self._run in info.name:
                    self._folder.remove(f"{table.name}/{info.name}")
        for name in self._complete_tables:
            self._folder.remove(f"{name}/{_DONE}")
        remove_if_empty(self._folder, [table.name for table in self._tables])
        if self._is_new_folder:
            remove_if_empty(self._folder, [""])
        elif self._old_access is not None:
            self._folder.set_access("", self._old_access)


class _PartFile:
    """The rows of one table from one partition; the file has its name only when it is complete."""

    def __init__(self, folder: Directory, table: StateTable, name: str) -> None:
        self._folder, self._table = folder, table
        self._path, self._hidden_path = f"{table.name}/{name}", f"{table.name}/.{name}{SCRATCH}"
        self._stack = contextlib.ExitStack()
        self._waiting_rows: list[pa.RecordBatch] = []

    def __enter__(self) -> _PartFile:
        stream: BinaryIO = self._stack.enter_context(self._folder.writer(self._hidden_path))
        self._writer: ParquetWriter = self._stack.enter_context(_parquet_writer(stream, self._table.schema))
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._stack.__exit__(*error)  # type: ignore[arg-type]
        if error[0] is None:
            self._folder.rename(self._hidden_path, self._path)

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting_rows.append(rows)
        if sum(map(len, self._waiting_rows)) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._waiting_rows:
            rows = pa.Table.from_batches(self._waiting_rows, self._table.schema)
            self._writer.write_table(rows, row_group_size=2 * _GROUP)
            self._waiting_rows = []


def _parquet_writer(stream: BinaryIO | pa.BufferOutputStream, schema: pa.Schema) -> ParquetWriter:
    from pyarrow.parquet import ParquetWriter  # a slow import: it also imports pandas, if installed

    return ParquetWriter(stream, schema, compression="zstd")


def _require_writable(table: StateTable) -> None:
    """Raise UsageError if Parquet has no type for a column."""
    for field in table.schema:
        try:
            with _parquet_writer(pa.BufferOutputStream(), pa.schema([field])):
                pass
        except pa.ArrowException as error:
            raise UsageError(
                f"{table.state}: Parquet cannot hold the column {field.name} ({str(error)[:100]}). Leave it out with "
                "--columns, or use --file-format ndjson"
            ) from error


class DeltaTables(ParquetFolder):
    """A new folder with a Delta table for each state."""

    def __init__(self, path: str, source: Directory) -> None:
        require_package("deltalake")
        super().__init__(path, source)

    def complete(self, table: StateTable) -> None:
        """See ``ParquetFolder.complete``: the log of the table."""
        from deltalake import convert_to_deltalake
        from deltalake.exceptions import DeltaError

        options: dict[str, str] = {}
        if not is_local(self.name):
            from ttlsnap.storage.objects import storage_options

            options = storage_options(self.name)
        try:
            convert_to_deltalake(f"{self.name}/{table.name}", storage_options=options)
        except DeltaError as error:
            raise StorageError(f"cannot make the Delta table {self.name}/{table.name}: {error}") from error

    def discard(self) -> None:
        """See ``ParquetFolder.discard``: also the log, if it is of this run's files."""
        for table in self._tables:
            first_commit = f"{table.name}/{_FIRST_COMMIT}"
            if self._folder.stat(first_commit) is None:
                continue
            with self._folder.open(first_commit) as stream:
                is_of_this_run = self._run.encode() in stream.read(_MOST_OF_LOG)
            if is_of_this_run:
                self._folder.remove(first_commit)
        super().discard()


class TextStream:
    """One stream of lines, as NDJSON or CSV, partition after partition."""

    is_parallel = False

    def __init__(self, name: str, lines: JsonLines | CsvLines, stream: BinaryIO) -> None:
        self.name, self._lines, self._stream = name, lines, stream

    def begin(self, tables: Sequence[StateTable]) -> None:
        """See ``TableSink.begin``."""
        with self._errors():
            self._stream.write(self._lines.begin(tables))

    def write(self, task: ExportTask) -> Iterator[Counts]:
        """See ``TableSink.write``."""
        for table, rows in task.read(in_order=True):
            with self._errors():
                self._stream.write(self._lines.of(table, rows))
            yield Counter({table.name: len(rows)})

    def finish(self, tables: Sequence[StateTable]) -> None:
        """See ``TableSink.finish``."""
        with self._errors():
            self._stream.flush()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise  # the reader has enough
        except OSError as error:
            raise StorageError(f"cannot write to {self.name}: {error.strerror or error}") from error

    def discard(self) -> None:
        """See ``TableSink.discard``; a stream cannot take back its lines."""
