"""``export``: write the state of a checkpoint as tables."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from ttlsnap.archives.receivers import TABLE
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.checkpoint.outside import access_outside
from ttlsnap.clock import Moment, TimeCharacteristic, clock_at
from ttlsnap.compaction.given_schemas import check_partition
from ttlsnap.compaction.task import Progress
from ttlsnap.documents import MILLISECONDS, Result, in_json, json_property
from ttlsnap.engines.local import read_all
from ttlsnap.engines.options import ReadOptions
from ttlsnap.engines.progress import SilentWorkListener, WorkListener
from ttlsnap.errors import StorageError, UsageError, tidy_after_error
from ttlsnap.keywords import takes
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.publishing.stale_snapshots import warn_of_doubtful_snapshots
from ttlsnap.reading.conditions import Condition
from ttlsnap.reading.export_plan import ExportPlan, ExportTask, TableChoice, plan_export
from ttlsnap.reading.export_sinks import DeltaTables, ParquetFolder, TableSink, TextStream, require_outside
from ttlsnap.reading.export_text import CsvLines, JsonLines
from ttlsnap.reading.opening import open_to_read
from ttlsnap.storage.access import open_private
from ttlsnap.storage.directory import Directory, scratch_name
from ttlsnap.storage.open import open_local
from ttlsnap.storage.uris import is_local

FORMATS = ("parquet", "ndjson", "csv")
_UNKNOWN_ENDINGS = (".avro", ".gz", ".orc", ".parquet", ".tsv", ".txt", ".xlsx", ".zip", ".zst")
_ENDINGS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson"}


@dataclass(frozen=True)
class ExportReport(Result):
    """The result of an export: the number of rows of each table, by its name. ``warnings`` doubt the exported state."""

    JSON_ORDER = "target to batch tables left_out warnings"

    target: str
    to: str
    batch: int
    rows: Mapping[str, int] = field(metadata=in_json(hidden=True))
    states: Mapping[str, str] = field(metadata=in_json(hidden=True))
    left_out: tuple[str, ...]
    seconds: float = field(metadata=MILLISECONDS)
    warnings: tuple[str, ...] = ()

    @property
    @json_property()
    def tables(self) -> list[dict[str, Any]]:
        """The name of each table, its state, and the number of its rows."""
        return [{"name": name, "state": self.states[name], "rows": rows} for name, rows in self.rows.items()]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which entries of a checkpoint are read as rows of tables, and which columns they have.

    ``batch`` is a retained batch, by default the last one. ``where`` has conditions that must all hold, as
    ``key.user = u1`` or ``age > 30d``. An age is the time from ``timestamp``, by default the one that Spark stores, to
    ``now``.
    """

    batch: int | None = None
    columns: Sequence[str] | None = None
    where: Sequence[str] = ()
    timestamp: str | None = None
    now: Moment = "checkpoint"

    def open(
        self,
        target: str,
        selection: Selection | AnyOf,
        tables: Sequence[str],
        time: TimeCharacteristic | None,
        schemas: Schemas | None,
    ) -> ExportPlan:
        """Return the plan to read the checkpoint ``target``. ``tables`` are names, by default all."""
        columns = tuple(self.columns) if self.columns is not None else None
        conditions = tuple(map(Condition.parse, self.where))
        table_choice = TableChoice(selection, columns, conditions, self.timestamp, time, tuple(tables))
        return open_plan(target, table_choice, batch=self.batch, now=self.now, schemas=schemas)


@dataclass(frozen=True, kw_only=True)
class ExportRequest(TableOptions, ReadOptions):
    """The arguments of ``export``."""

    target: str = field(kw_only=False)
    to: str | BinaryIO = field(kw_only=False)
    file_format: str | None = None
    tables: Sequence[str] = ()
    time: TimeCharacteristic | None = None
    escape_formulas: bool = False


@takes(ExportRequest)
def export(request: ExportRequest) -> ExportReport:
    """Write the state of the checkpoint ``target`` as tables, one for each state (see ``ttlsnap.reading.state_table``).

    ``to`` is a new folder, ``delta:`` and a new folder, a new file, or a stream of bytes. ``file_format`` is
    ``parquet`` (folders only), ``ndjson`` or ``csv``. ``batch`` is a retained batch, by default the last one.
    ``tables`` are the names of those to write, by default all. ``time`` is the clock of ``timestamp``. ``where`` has
    conditions that must all hold, as ``key.user = u1`` or ``age > 30d``. ``escape_formulas`` makes a CSV safe for
    spreadsheets.

    Raise a ``TtlsnapError``. What was written is then removed, except from a stream.
    """
    started = monotonic()
    listener = request.listener or SilentWorkListener()
    selection = request.selection or Selection()
    plan = request.open(request.target, selection, request.tables, request.time, request.schemas)
    checkpoint = plan.checkpoint
    with _open_sink(request.to, request.file_format, plan, request.escape_formulas) as sink:
        tasks = plan.tasks
        rows = Counter({table.name: 0 for table in plan.tables})
        sink.begin(plan.tables)
        with tidy_after_error(sink.discard):
            _run(tasks, sink, rows, request.parallelism, listener)
            sink.finish(plan.tables)
    states = {table.name: str(table.state) for table in plan.tables}
    left_out = tuple(map(str, plan.left_out))
    warnings = tuple(warn_of_doubtful_snapshots(checkpoint))
    place = checkpoint.target, sink.name, checkpoint.batch.id
    return ExportReport(*place, dict(rows), states, left_out, monotonic() - started, warnings)


def open_plan(
    target: str,
    table_choice: TableChoice,
    *,
    batch: int | None = None,
    now: Moment = "checkpoint",
    schemas: Schemas | None = None,
) -> ExportPlan:
    """Return the plan of an export of the checkpoint ``target``; see ``export``."""
    checkpoint = open_to_read(target, batch, schemas)
    plan = plan_export(checkpoint, table_choice, clock_at(now, checkpoint.batch).unchecked())
    for task in plan.tasks if schemas else ():
        (table, *_) = task.tables
        if (table.state.operator, table.state.store) in (schemas or {}):
            with task.source.open(checkpoint.files, None) as stored_partition:
                check_partition(stored_partition, table.state, task.source.partition)
    return plan


def _run(
    tasks: Sequence[ExportTask], sink: TableSink, rows: Counter[str], parallelism: int | None, listener: WorkListener
) -> None:
    one_at_a_time = threading.Lock()

    def work(task: ExportTask, progress: Progress) -> None:
        for counts in sink.write(task):
            with one_at_a_time:
                rows.update(counts)
            progress(counts.total(), 0)

    read_all(work, tasks, parallelism if sink.is_parallel else 1, listener)


@contextlib.contextmanager
def _open_sink(
    to: str | BinaryIO, file_format: str | None, plan: ExportPlan, escape_formulas: bool
) -> Iterator[TableSink]:
    if file_format not in (None, *FORMATS):
        raise UsageError(f"unknown file format {file_format}; use one of {', '.join(FORMATS)}")
    if not isinstance(to, str):
        yield TextStream("-", _lines(file_format or "ndjson", escape_formulas), to)
        return
    is_table, ending = to.startswith(TABLE), _ENDINGS.get(Path(to).suffix)
    if Path(to).suffix in _UNKNOWN_ENDINGS and file_format is None:
        raise UsageError(f"--to {to}: export writes a folder, or a file that ends with {', '.join(_ENDINGS)}")
    chosen_format = file_format or ("parquet" if is_table else ending or "parquet")
    if chosen_format == "parquet":
        if escape_formulas:
            raise UsageError("--escape-formulas is for CSV")
        if ending is not None and not is_table:
            raise UsageError(f"--to {to}: Parquet needs a folder, one file for each partition")
        source, place = plan.checkpoint.files, to.removeprefix(TABLE)
        require_outside(place, source)
        with _make_parents(Path(open_local(place).root)) if is_local(place) else contextlib.nullcontext():
            yield DeltaTables(place, source) if is_table else ParquetFolder(place, source)
        return
    if is_table or not is_local(to):
        raise UsageError(f"--to {to}: {chosen_format} needs a local file, or - for the standard output")
    require_outside(to, plan.checkpoint.files)
    path = Path(open_local(to).root)
    if path.exists():
        raise UsageError(f"--to {to} exists. Choose another name")
    with _make_parents(path), _new_file(path, plan.checkpoint.files) as stream:
        yield TextStream(str(path), _lines(chosen_format, escape_formulas), stream)


@contextlib.contextmanager
def _new_file(path: Path, source: Directory) -> Iterator[BinaryIO]:
    """Open a file that has its name only when it is complete, and that is no more readable than the checkpoint."""
    hidden_path = path.with_name(scratch_name(f".{path.name}"))
    try:
        with open(hidden_path, "xb", opener=open_private) as stream:
            yield stream
        open_local(str(path.parent)).set_access(hidden_path.name, access_outside([source]))
        _give_name(hidden_path, path)
    except FileExistsError:
        raise UsageError(f"--to {path} was made by somebody else during the export. Choose another name") from None
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        hidden_path.unlink(missing_ok=True)


def _give_name(hidden_path: Path, path: Path) -> None:
    """Give a file its name. Raise FileExistsError if another one has it, which a rename would replace."""
    try:
        path.hardlink_to(hidden_path)
    except FileExistsError:
        raise
    except OSError:  # not every file system has links
        if path.exists():
            raise FileExistsError from None
        hidden_path.rename(path)


@contextlib.contextmanager
def _make_parents(path: Path) -> Iterator[None]:
    """Make the folders above a path that are missing. After an error, remove them again."""
    missing_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as error:
        for folder in missing_folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise StorageError(f"cannot make the folder {path.parent}: {error.strerror or error}") from error
        raise


def _lines(file_format: str, escape_formulas: bool) -> JsonLines | CsvLines:
    if file_format == "parquet":
        raise UsageError("Parquet needs a folder; use ndjson or csv for a stream")
    if file_format == "csv":
        return CsvLines(escape_formulas=escape_formulas)
    if escape_formulas:
        raise UsageError("--escape-formulas is for CSV")
    return JsonLines()
