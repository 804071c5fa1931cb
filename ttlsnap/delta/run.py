"""``compact`` of a Delta state table: what has expired goes by Delta's own ``DELETE``.

Deletion vectors, change data, column mapping, constraints and the log are Delta's business: one statement, one commit,
with the run's name and its policy in the commit's ``userMetadata``. A dry run needs no Spark: the log's statistics
decide for most files, and of the others one column is read.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ttlsnap.clock import MICROS, Clock, iso, moment_of
from ttlsnap.delta.cutoff import TableCutoff, column_at, quoted
from ttlsnap.delta.log import KEY, Commit, DataFile, TableState, commits, live_files, read_table
from ttlsnap.delta.session import delta_session
from ttlsnap.delta.vectors import deleted_rows
from ttlsnap.engines.launch import first_lines
from ttlsnap.errors import CorruptionError, RefusedError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.filesystem import LocalDirectory, open_directory
from ttlsnap.plan import new_run_id
from ttlsnap.report import Counts
from ttlsnap.schema.types import StructType
from ttlsnap.state import StateDescriptor
from ttlsnap.transform import Cutoff, NamesFields, PlansStates, StatesCutoff, StateSnapshotTransformerFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "ttlsnap"
"""What our part of a commit's ``userMetadata`` goes by."""

RESTORED = "undoes"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_RETENTION = "delta.deletedFileRetentionDuration"
_TRIES = 5
_PAUSE_S = 1.0


@dataclass(frozen=True)
class TableReport:
    """A run on a table. ``version`` is the one that the run made, None where it made none.

    ``files`` are all data files, of which ``opened`` had to be read for the dry run's counts; ``decided`` were told by
    statistics. ``physically_gone_by`` is when a ``VACUUM`` may first remove the files with what was dropped, None where
    it stays in files that are still part of the table.
    """

    run: str
    target: str
    key: tuple[str, ...]
    dry_run: bool
    now_us: int
    now_source: str
    timestamp: str
    counts: Counts
    files: int
    decided: int
    opened: int
    version: int | None
    physically_gone_by: datetime | None
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def published(self) -> bool:
        """Whether there is a new version."""
        return self.version is not None

    def to_json(self) -> dict[str, Any]:
        """The document of ``compact --format json``."""
        gone = self.physically_gone_by
        return {
            "run": self.run,
            "target": self.target,
            "kind": "table",
            "dry_run": self.dry_run,
            "published": self.published,
            "engine": None if self.dry_run else "spark",
            "key": list(self.key),
            "now": iso(self.now_us),
            "now_source": self.now_source,
            "totals": self.counts.to_json(),
            "stores": [
                {
                    "operator": None,
                    "store": "table",
                    "state": "rows",
                    "role": "primary",
                    **self.counts.to_json(),
                    "timestamp": self.timestamp,
                }
            ],
            "files": {"all": self.files, "decided": self.decided, "opened": self.opened},
            "logically_gone": None if self.version is None else {"version": self.version},
            "physically_gone_by": None if gone is None else gone.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "output": None,
            "backup": None,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        }


def compact_table(
    target: str,
    transformers: Sequence[StateSnapshotTransformerFactory],
    *,
    key: Sequence[str] = (),
    now: str = "checkpoint",
    dry_run: bool = False,
    session: SparkSession | None = None,
    jars: str | None = None,
    master: str | None = None,
    confirm: Callable[[TableReport], bool] | None = None,
) -> TableReport:
    """Run ``transformers`` over the rows of the Delta table ``target``.

    ``key`` are the columns that a row goes by; left out, those that the table remembers. ``now`` is ``checkpoint`` (the
    moment of the last commit that is not ttlsnap's own), ``wall``, or an ISO 8601 time. ``confirm`` is asked, with
    what a dry run would say, before anything is deleted.

    Raises a ``TtlsnapError``; the table is then as it was.
    """
    started = time.monotonic()
    files = open_directory(target)
    table = read_table(files)
    plan = _plan(files, table, transformers, key, now)
    if table.metadata.properties.get("delta.appendOnly", "").lower() == "true":
        raise RefusedError(
            f"{files.root} takes no deletes: its property delta.appendOnly is true. If rows are to expire: "
            "ALTER TABLE ... SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
        )
    live = live_files(files)
    decided = [_decision(plan.cutoffs, file) for file in live]
    report = TableReport(
        run=new_run_id(),
        target=files.root,
        key=plan.key,
        dry_run=dry_run,
        now_us=plan.cutoffs[0][0].now_us,
        now_source=plan.clock.source,
        timestamp=", ".join(dict.fromkeys(cutoff.timestamp.field.name for cutoff, _ in plan.cutoffs)),
        counts=Counts(_sum(file.rows for file in live), None, 0, 0, _sum(file.size for file in live), None),
        files=len(live),
        decided=sum(decision is not None for decision in decided),
        opened=0,
        version=None,
        physically_gone_by=None,
        seconds=0.0,
    )
    if dry_run or all(decision is False for decision in decided):
        return replace(_counted(files, plan, report, live, decided), seconds=time.monotonic() - started)
    if confirm is not None and not confirm(_counted(files, plan, report, live, decided)):
        return replace(report, seconds=time.monotonic() - started)
    with delta_session(session, jars=jars, master=master) as spark:
        _remember_key(spark, files, plan)
        _delete(spark, files, plan, report)
    return replace(_published(files, report), seconds=time.monotonic() - started)


@dataclass(frozen=True)
class _Plan:
    """What goes: each cutoff as the transformer states it, and as the table has it."""

    key: tuple[str, ...]
    state: StateDescriptor
    clock: Clock
    cutoffs: tuple[tuple[Cutoff, TableCutoff], ...]
    remembered: bool

    @property
    def sql(self) -> str:
        return " OR ".join(table.sql for _, table in self.cutoffs)


def _plan(
    files: LocalDirectory,
    table: TableState,
    transformers: Sequence[StateSnapshotTransformerFactory],
    key: Sequence[str],
    now: str,
) -> _Plan:
    schema = table.metadata.schema
    named = tuple(key) or table.metadata.key
    if not named:
        raise UsageError(
            f"{files.root}: say which columns a row goes by, --key COLUMN; the table remembers it "
            f"(its property {KEY}). Its columns are {', '.join(schema.names)}"
        )
    for name in named:
        if name not in schema.names:
            raise UsageError(f"{files.root} has no column {name} for a key; its columns are {', '.join(schema.names)}")
    state = describe(schema, named)
    clock = _clock(files, now)
    cutoffs = []
    for factory in transformers:
        if isinstance(factory, NamesFields):
            factory = factory.with_names(lambda name: _in_columns(name, state))
        if isinstance(factory, PlansStates):
            factory.plan([state], clock)
        cutoff = factory.cutoff(state, clock) if isinstance(factory, StatesCutoff) else None
        if cutoff is None:
            raise UnsupportedError(
                f"{files.root} is a Delta table, of which only --ttl with --timestamp makes something"
            )
        names = _names(state, cutoff.timestamp.field.side, cutoff.timestamp.field.path)
        cutoffs.append((cutoff, TableCutoff.of(cutoff, column_at(schema, names))))
    return _Plan(named, state, clock, tuple(cutoffs), table.metadata.key == named)


def describe(schema: StructType, key: Sequence[str]) -> StateDescriptor:
    """A table's rows as a state: the key's columns, and all others."""
    return StateDescriptor(
        operator=0,
        operator_name="table",
        store="default",
        state="default",
        partition=None,
        key_schema=StructType(tuple(field for field in schema if field.name in key)),
        value_schema=StructType(tuple(field for field in schema if field.name not in key)),
    )


def _in_columns(name: str, state: StateDescriptor) -> str:
    """A column's name, as the table has it, with the side that it is on; one that has it already as it is."""
    top = name.split(".", 1)[0].split(":", 1)[0].strip("`")
    if top in state.key_schema.names:
        return f"key.{name}"
    return f"value.{name}" if top in state.value_schema.names or not name.startswith(("key.", "value.")) else name


def _names(state: StateDescriptor, side: str, path: Sequence[int]) -> list[str]:
    schema: Any = state.key_schema if side == "key" else state.value_schema
    names = []
    for place in path:
        names.append(schema.fields[place].name)
        schema = schema.fields[place].type
    return names


def _clock(files: LocalDirectory, now: str) -> Clock:
    if now == "checkpoint":
        last = next((c for c in commits(files) if c.timestamp_ms is not None and metadata_of(c) is None), None)
        if last is None or last.timestamp_ms is None:
            raise UsageError(f"{files.root}: no commit says when it was made; give --now wall or a time")
        moment = last.timestamp_ms * MICROS
    else:
        moment = moment_of(now)
    return Clock(moment, moment, now if now in ("wall", "checkpoint") else "given")


def metadata_of(commit: Commit) -> Mapping[str, Any] | None:
    """What a run has left in its commit; None for a commit that is no run's."""
    try:
        found = json.loads(commit.user_metadata or "")
    except ValueError:
        return None
    mine = found.get(METADATA) if isinstance(found, dict) else None
    return mine if isinstance(mine, dict) else None


def _decision(cutoffs: Sequence[tuple[Cutoff, TableCutoff]], file: DataFile) -> bool | None:
    """Whether a file goes whole (True) or stays whole (False), by any of the cutoffs; None where it has to be read."""
    answers = [table.decide(file) for _, table in cutoffs]
    if True in answers:
        return True
    return None if None in answers else False


def _counted(
    files: LocalDirectory, plan: _Plan, report: TableReport, live: Sequence[DataFile], decided: Sequence[bool | None]
) -> TableReport:
    """What a run would drop, by the files' statistics and, where these do not decide, by reading the column."""
    entries, dropped, opened = 0, 0, 0
    for file, decision in zip(live, decided, strict=True):
        rows = file.rows
        if decision is None or rows is None:
            gone, rows = _read(files, plan, file)
            opened += 1
        else:
            gone = rows if decision else 0
        entries, dropped = entries + rows, dropped + gone
    counts = replace(report.counts, entries=entries, kept=entries - dropped, dropped=dropped)
    return replace(report, counts=counts, opened=opened)


def _read(files: LocalDirectory, plan: _Plan, file: DataFile) -> tuple[int, int]:
    """How many rows of a file would go, and how many it has."""
    path = unquote(file.path)
    if "://" in path or path.startswith("/"):
        raise UnsupportedError(
            f"{files.root}: a data file outside the table, {path}: a shallow clone cannot be read here"
        )
    try:
        with files.open(path) as stream:
            parquet = pq.ParquetFile(stream)
            total = parquet.metadata.num_rows
            gone = np.zeros(total, np.bool_)
            for _, table in plan.cutoffs:
                gone |= _mask(parquet, table, file, total)
    except (pa.ArrowException, OSError) as error:
        raise CorruptionError(f"{files.root}/{path} cannot be read: {str(error)[:200]}") from error
    if file.vector is not None:
        there = np.ones(total, np.bool_)
        there[deleted_rows(files, file.vector)] = False
        return int((gone & there).sum()), int(there.sum())
    return int(gone.sum()), total


def _mask(parquet: pq.ParquetFile, cutoff: TableCutoff, file: DataFile, rows: int) -> Any:
    first, *rest = cutoff.column.physical
    if first in file.partition:
        raise UnsupportedError(f"the partition value {file.partition[first]!r} of {file.path} is in no known form")
    if first not in parquet.schema_arrow.names:
        return np.zeros(rows, np.bool_)  # the column came later: all null
    column = parquet.read(columns=[".".join(cutoff.column.physical)]).column(first)
    for name in rest:
        flat = column.combine_chunks()
        names = [field.name for field in flat.type]
        if name not in names:
            return np.zeros(rows, np.bool_)
        column = pa.compute.struct_field(flat, [names.index(name)])
    return cutoff.mask(column)


def _remember_key(spark: SparkSession, files: LocalDirectory, plan: _Plan) -> None:
    if not plan.remembered:
        with _told(files):
            spark.sql(f"ALTER TABLE {sql_name(files)} SET TBLPROPERTIES ('{KEY}' = '{','.join(plan.key)}')")


def _delete(spark: SparkSession, files: LocalDirectory, plan: _Plan, report: TableReport) -> None:
    """One commit; where another writer was faster, again, after a while that grows."""
    policy = [
        {"timestamp": cutoff.timestamp.field.name, "at": iso(cutoff.at_us), "time": cutoff.time}
        for cutoff, _ in plan.cutoffs
    ]
    words = {METADATA: {"run": report.run, "now": iso(report.now_us), "drop": policy}}
    for attempt in range(_TRIES):
        try:
            with committing(spark, files, words):
                spark.sql(f"DELETE FROM {sql_name(files)} WHERE {plan.sql}")
            return
        except _ConflictError as conflict:
            if attempt == _TRIES - 1:
                raise RefusedError(
                    f"{files.root}: another writer was faster {_TRIES} times, and nothing was changed. Run again when "
                    f"the stream that writes is less busy, or is stopped.\n{conflict}"
                ) from conflict
            time.sleep(_PAUSE_S * 2**attempt * (0.5 + random.random()))


@contextmanager
def committing(spark: SparkSession, files: LocalDirectory, words: Mapping[str, Any]) -> Iterator[None]:
    """What is committed within has ``words`` as its user metadata; what Delta raises becomes an error of our own."""
    before = spark.conf.get(_USER_METADATA, None)
    spark.conf.set(_USER_METADATA, json.dumps(words))
    try:
        with _told(files):
            yield
    finally:
        if before is None:
            spark.conf.unset(_USER_METADATA)
        else:
            spark.conf.set(_USER_METADATA, before)


class _ConflictError(TtlsnapError):
    """Another writer has committed what this transaction had read."""


@contextmanager
def _told(files: LocalDirectory) -> Iterator[None]:
    """What Delta raises, as errors of our own."""
    try:
        yield
    except Exception as error:
        text = first_lines(error, 6)
        if "DELTA_CONCURRENT" in text or "Concurrent" in type(error).__name__:
            raise _ConflictError(text) from error
        kind = (
            UnsupportedError
            if "DELTA_UNSUPPORTED_FEATURES" in text or "DELTA_INVALID_PROTOCOL" in text
            else TtlsnapError
        )
        raise kind(f"Delta refuses it, and {files.root} is as it was: {text}") from error


def sql_name(files: LocalDirectory) -> str:
    """The table's name in SQL."""
    return f"delta.{quoted(files.root)}"


def _published(files: LocalDirectory, report: TableReport) -> TableReport:
    """The report with what the run's commit says; nothing was expired after all where there is none."""
    mine = next((c for c in commits(files) if (metadata_of(c) or {}).get("run") == report.run), None)
    if mine is None:
        counts = replace(report.counts, kept=report.counts.entries, bytes_after=report.counts.bytes_before)
        return replace(report, counts=counts)
    dropped = int(mine.metrics.get("numDeletedRows", "0"))
    table, live = read_table(files), live_files(files)
    entries = report.counts.entries
    counts = Counts(
        entries,
        None if entries is None else entries - dropped,
        dropped,
        0,
        report.counts.bytes_before,
        _sum(file.size for file in live),
    )
    vectors = int(mine.metrics.get("numDeletionVectorsAdded", "0"))
    days = _retention(table.metadata.properties.get(_RETENTION, "interval 1 week"))
    gone = None
    if not vectors and days is not None and mine.timestamp_ms is not None:
        gone = datetime.fromtimestamp(mine.timestamp_ms / 1000, UTC) + days
    return replace(report, counts=counts, version=mine.version, physically_gone_by=gone)


def _retention(text: str) -> timedelta | None:
    """A Delta interval such as ``interval 1 week``; None for one of another form."""
    words = text.lower().removeprefix("interval").split()
    if len(words) != 2 or not words[0].isdigit():
        return None
    unit = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}.get(words[1].rstrip("s"))
    return None if unit is None else timedelta(seconds=int(words[0]) * unit)


def _sum(values: Iterator[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value for value in found if value is not None)
