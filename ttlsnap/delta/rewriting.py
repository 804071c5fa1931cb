"""Transformers over a table's rows: one scan with ``mapInArrow``, and a ``MERGE`` of the staged changes by the key.

Spark's Python workers read the data files themselves if they can: that takes a fraction of the time in which Spark
reads them and passes each row on. If only Spark can read a column, Spark reads the files.

For each row that changes, three things are staged: the row as it was read, whether it is dropped, and its new value.
The ``MERGE`` changes a row only if it still is as it was read. So the ``MERGE`` can be repeated, and a row that the
stream has written in the meantime keeps the stream's value.

Dangers: SQL cannot compare maps, but their entries. A collated string equals other strings. Generated and identity
columns are not set; Delta computes them.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ttlsnap import errors
from ttlsnap.delta.committing import sql_name, table_path, translate_errors
from ttlsnap.delta.cutoff import quote_identifier
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.log import read_table
from ttlsnap.delta.planning import Limits, TablePlan
from ttlsnap.delta.reading import read_rows, reads_as_spark
from ttlsnap.engines.workers import on_workers
from ttlsnap.errors import RefusedError, TtlsnapError, UnsupportedError
from ttlsnap.quoting import Quoting, quote, without_keys
from ttlsnap.schema import types as T
from ttlsnap.transform.chain import StateResult, StateTransformers
from ttlsnap.transform.protocols import TimeSummary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "file"
_SMALL = 32 << 20  # bytes that every executor can hold
_TASKS, _TASK = 64, 128 << 20  # so many, or of so many bytes of files
_FOLLOW = ("delta.generationExpression", "delta.identity.start", "delta.identity.step")


@dataclass(frozen=True)
class RowChanges:
    """The changes that the scan found, and its counts.

    Columns have names by position, ``c0`` and so on. ``view`` is a unique name for the changes. ``null_keys``: some
    changed rows have a null in their key. ``size`` is in bytes.
    """

    frame: DataFrame
    result: StateResult
    null_keys: bool
    size: int
    view: str

    def parts(self, plan: TablePlan, limits: Limits) -> list[list[str] | None]:
        """Return the names of the files of each commit, oldest data first; None for all files."""
        if not limits:
            return [None]
        names = [row[0] for row in self.frame.select("file").distinct().collect()]
        file_of_path = {unquote(file.path): file for file in plan.live}
        files_and_names = [(file_of_path[unquote(name).partition(f"{plan.files.root}/")[2]], name) for name in names]
        parts: list[list[str] | None] = []
        names_of_part: list[str] = []
        size = 0
        for file, name in sorted(files_and_names, key=lambda pair: (pair[0].modified_ms, pair[1])):
            if names_of_part and not limits.allow(len(names_of_part) + 1, size + file.size):
                parts.append(names_of_part)
                names_of_part, size = [], 0
            names_of_part.append(name)
            size += file.size
        return [*parts, names_of_part] if names_of_part else []

    def read_dropped(self, files: Sequence[str] | None) -> DataFrame:
        """Return the dropped rows in ``files``, as they were read."""
        dropped_rows = self.frame.where("gone")
        return (dropped_rows if files is None else dropped_rows.where(dropped_rows["file"].isin(list(files)))).select(
            "old.*"
        )

    def statement(self, plan: TablePlan, files: Sequence[str] | None) -> str:
        """Return the ``MERGE`` of the changes in ``files``.

        Raise RefusedError if the table's columns have changed since the scan.
        """
        schema = plan.table.metadata.schema
        if read_table(plan.files).metadata.schema != schema:
            raise RefusedError(f"the columns of {plan.files.root} changed during the run; run again")
        changed_rows = self.frame if files is None else self.frame.where(self.frame["file"].isin(list(files)))
        # Else Spark, which takes the size of the cache for that of its cousins on disk, shuffles the whole table.
        (changed_rows.hint("broadcast") if self.size <= _SMALL else changed_rows).createOrReplaceTempView(self.view)
        places = {field.name: f"c{place}" for place, field in enumerate(schema)}
        equal = "<=>" if self.null_keys else "="
        key = " AND ".join(f"t.{quote_identifier(name)} {equal} s.old.{places[name]}" for name in plan.key)
        values = plan.state.value_schema
        row_condition = "".join(
            f" AND {comparable(f't.{quote_identifier(field.name)}', field.type)} <=> "
            f"{comparable(f's.old.{places[field.name]}', field.type)}"
            for field in values
        )
        clauses = [f"WHEN MATCHED AND s.gone{row_condition} THEN DELETE"] if self.result.dropped else []
        settable = [field.name for field in values if not any(name in field.metadata for name in _FOLLOW)]
        if self.result.rewritten and settable:
            assignments = ", ".join(f"t.{quote_identifier(name)} = s.new.{places[name]}" for name in settable)
            clauses.append(f"WHEN MATCHED AND NOT s.gone{row_condition} THEN UPDATE SET {assignments}")
        return f"MERGE INTO {sql_name(plan.files)} t USING {self.view} s ON {key} {' '.join(clauses)}"


@dataclass(frozen=True)
class _Source:
    """The source of the rows: ``batches`` turns the input of the workers for ``frame`` into rows of the table.

    They have all columns, with the table's names, and the name of their file. ``rows`` are their types in Spark.
    """

    frame: DataFrame
    rows: Any
    batches: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class _OnlySparkError(Exception):
    """A file has values that only Spark can read."""


@contextlib.contextmanager
def scan_table(spark: SparkSession, plan: TablePlan, stage: bool, by_file: bool) -> Iterator[RowChanges]:
    """Run the transformers over the planned version; with ``stage``, keep their changes for the ``MERGE``.

    ``by_file``: record the file of each row. Raise the errors of transformers, and RefusedError if two changed rows
    have one key.
    """
    if plan.cutoffs is None and reads_as_spark(plan.table.metadata.schema):
        try:
            with _scan(spark, plan, stage, _read_by_workers(spark, plan)) as changes:
                yield changes
            return
        except _OnlySparkError:
            pass
    with _scan(spark, plan, stage, _read_by_spark(spark, plan, by_file)) as changes:
        yield changes


@contextlib.contextmanager
def _scan(spark: SparkSession, plan: TablePlan, stage: bool, source: _Source) -> Iterator[RowChanges]:
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    names = plan.table.metadata.schema.names
    values = StructType(
        [field for name, field in zip(names, source.rows, strict=True) if name in plan.state.value_schema.names]
    )
    schema = StructType(
        [
            StructField("told", StringType()),
            StructField("file", StringType()),
            StructField("gone", BooleanType()),
            StructField("old", source.rows),
            *([StructField("new", values)] if len(values) else []),
        ]
    )
    scanned_rows = on_workers(source.frame, _work(plan, source, values.names, stage), schema)
    view = f"ttlsnap_{uuid.uuid4().hex}"
    if stage:
        scanned_rows = scanned_rows.persist()
    try:
        with translate_errors(plan.files):
            results = [json.loads(row[0]) for row in scanned_rows.where("told IS NOT NULL").select("told").collect()]
        for result in results:
            if "only_spark" in result:
                raise _OnlySparkError
            if "failure" in result:
                kind, *texts = result["failure"]
                raise getattr(errors, kind, TtlsnapError)(Quoting(*texts))
        changes = RowChanges(
            scanned_rows.where("told IS NULL").drop("told"),
            _sum_counts(results),
            any(result["null_keys"] for result in results),
            sum(result["size"] for result in results),
            view,
        )
        if stage:
            with translate_errors(plan.files):
                _check_keys(changes.frame, [f"old.c{names.index(name)}" for name in plan.key], plan)
        yield changes
    finally:
        spark.catalog.dropTempView(view)
        if stage:
            scanned_rows.unpersist()


def _read_by_spark(spark: SparkSession, plan: TablePlan, by_file: bool) -> _Source:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    names = plan.table.metadata.schema.names
    with translate_errors(plan.files):
        table = read_planned_version(spark, plan)
        if plan.cutoffs is not None:
            table = table.where(plan.sql)
        columns = [F.col(quote_identifier(name)).alias(f"c{place}") for place, name in enumerate(names)]
        # It costs as much as another column.
        file = F.col("_metadata.file_path") if by_file else F.lit(None).cast("string")
        frame = table.select(*columns, file.alias(_FILE))

    def batches(spark_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.rename_columns([*names, _FILE]) for batch in spark_batches)

    return _Source(frame, StructType(frame.schema.fields[:-1]), batches)


def _read_by_workers(spark: SparkSession, plan: TablePlan) -> _Source:
    from pyspark.sql.types import StructField, StructType

    files, live, columns = plan.files, plan.live, plan.table.metadata.schema
    by_id = plan.table.metadata.by_id
    with translate_errors(plan.files):
        types = [field.dataType for field in read_planned_version(spark, plan).schema]
    rows = StructType([StructField(f"c{place}", kind) for place, kind in enumerate(types)])

    def batches(number_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for numbers in number_batches:
            for number in numbers.column(0).to_pylist():
                name = pa.scalar(f"{files.root}/{live[number].path}")
                for batch in read_rows(files, live[number], columns.fields, by_id=by_id):
                    yield batch.append_column(_FILE, pa.repeat(name, batch.num_rows))

    tasks = max(_TASKS, sum(file.size for file in live) // _TASK)
    return _Source(spark.range(0, len(live), 1, max(min(tasks, len(live)), 1)), rows, batches)


def check_unique(spark: SparkSession, plan: TablePlan) -> None:
    """Raise RefusedError if two rows of the table have one key."""
    with translate_errors(plan.files):
        _check_keys(read_planned_version(spark, plan), [quote_identifier(name) for name in plan.key], plan)


def read_planned_version(spark: SparkSession, plan: TablePlan) -> DataFrame:
    """Return the rows of the planned version."""
    return spark.read.format("delta").option("versionAsOf", plan.table.version).load(table_path(plan.files))


def _check_keys(frame: DataFrame, names: Sequence[str], plan: TablePlan) -> None:
    repeated_rows = (
        frame.groupBy(*(frame[name].alias(f"k{number}") for number, name in enumerate(names)))
        .count()
        .where("count > 1")
    )
    repeated_keys = [dict(zip(plan.key, row[:-1], strict=True)) for row in repeated_rows.limit(3).collect()]
    if repeated_keys:
        keys_text = "; ".join(", ".join(f"{name}={value!r}" for name, value in key.items()) for key in repeated_keys)
        raise RefusedError(
            f"{plan.files.root}: {', '.join(plan.key)} is not a key: several rows have "
            + quote(keys_text)
            + ". Nothing was changed. Name the columns that identify a row with --key, or remove the duplicates"
        )


def _work(plan: TablePlan, source: _Source, values: Sequence[str], stage: bool) -> Any:
    """Return the function for ``mapInArrow``: it takes rows, and yields changed rows and at the end the counts."""
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import to_arrow_schema

    state, clock, names = plan.state, plan.clock, plan.table.metadata.schema.names
    factories = cloudpickle.dumps(plan.factories)
    key = [names.index(name) for name in plan.key]
    rows, read = list(to_arrow_schema(source.rows, timezone="UTC")), source.batches
    pack = _packer(rows, values)

    def work(spark_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transformers: StateTransformers[TableEntries] = StateTransformers(state, pickle.loads(factories), clock)
        batches = _only_spark(read(spark_batches))
        null_keys, size = False, 0
        failure: dict[str, Any] = {}
        try:
            for batch in batches:
                kept_entries = transformers.run(TableEntries.of_batch(state, batch))
                if not stage or (len(kept_entries) == batch.num_rows and not kept_entries.rewritten.any()):
                    continue
                is_dropped = np.ones(batch.num_rows, np.bool_)
                is_dropped[kept_entries.index] = False
                dropped, rewritten = np.flatnonzero(is_dropped), kept_entries.index[kept_entries.rewritten]
                old_rows = batch.take(pa.array(np.concatenate([dropped, rewritten])))
                null_keys = null_keys or any(old_rows.column(place).null_count for place in key)
                packed_rows = pack(old_rows, kept_entries.new_values, len(dropped))
                size += packed_rows.nbytes
                yield packed_rows
        except _OnlySparkError as error:
            failure = {"only_spark": str(error)}
        except TtlsnapError as error:
            kind = type(error).__name__
            name = kind if hasattr(errors, kind) else TtlsnapError.__name__
            failure = {"failure": (name, str(error), without_keys(error.text))}
        counts = {**transformers.result().to_json(), "null_keys": null_keys, "size": size}
        yield pack(None, None, 0, json.dumps(counts | failure))

    return work


def _only_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows. Raise _OnlySparkError for a file that only Spark can read."""
    try:
        yield from batches
    except UnsupportedError as error:
        raise _OnlySparkError(str(error)) from error


def _packer(rows: Sequence[pa.Field], values: Sequence[str]) -> Callable[..., pa.RecordBatch]:
    """Return a function that builds batches of changes; ``rows`` are Spark's types, ``values`` the other columns."""
    fields = [field for field in rows if field.name in values]
    old_type, new_type = pa.struct(rows), pa.struct(fields)

    def pack(old_rows: Any, new_rows: Any, dropped: int, result_text: str | None = None) -> pa.RecordBatch:
        if old_rows is None:
            arrays = [pa.array([result_text]), pa.nulls(1, pa.string()), pa.nulls(1, pa.bool_()), pa.nulls(1, old_type)]
            names = ["told", "file", "gone", "old"]
            if fields:
                arrays, names = [*arrays, pa.nulls(1, new_type)], [*names, "new"]
            return pa.RecordBatch.from_arrays(arrays, names)
        size = old_rows.num_rows
        is_dropped = np.arange(size) < dropped
        columns = [old_rows.column(place).cast(field.type) for place, field in enumerate(rows)]
        whole_rows = pa.StructArray.from_arrays(columns, fields=rows)
        arrays = [
            pa.nulls(size, pa.string()),
            old_rows.column(len(rows)).cast(pa.string()),
            pa.array(is_dropped),
            whole_rows,
        ]
        names = ["told", "file", "gone", "old"]
        if fields:
            new_columns = [new_rows.field(place).cast(field.type) for place, field in enumerate(fields)]
            rewritten = pa.StructArray.from_arrays(new_columns, fields=fields)
            arrays.append(pa.concat_arrays([pa.nulls(dropped, new_type), rewritten]))
            names.append("new")
        return pa.RecordBatch.from_arrays(arrays, names)

    return pack


def _sum_counts(results: Sequence[Mapping[str, Any]]) -> StateResult:
    """Return the counts of all tasks, added up."""
    scan_fields = ("null_keys", "size")
    state_results = [
        StateResult.from_json({key: value for key, value in result.items() if key not in scan_fields})
        for result in results
    ]
    times = [result.times for result in state_results if result.times is not None]
    summary = None
    if times:
        oldest_times = [time.oldest_us for time in times if time.oldest_us is not None]
        newest_times = [time.newest_us for time in times if time.newest_us is not None]
        summary = TimeSummary(
            times[0].field,
            times[0].now_us,
            min(oldest_times, default=None),
            max(newest_times, default=None),
            sum(time.nulls for time in times),
            time=times[0].time,
            unit=times[0].unit,
            cutoff_us=times[0].cutoff_us,
        )
    counts = {
        name: sum(getattr(result, name) for result in state_results)
        for name in ("entries", "kept", "dropped", "rewritten")
    }
    return StateResult("rows", **counts, times=summary)


def comparable(value: str, kind: T.DataType) -> str:
    """Return an expression that is equal exactly if the values are."""
    match T.physical(kind):
        case T.MapType(key, item):
            entry = f"struct({comparable('e.key', key)}, {comparable('e.value', item)})"
            return f"transform(map_entries({value}), e -> {entry})"
        case T.ArrayType(element) if _needs(element):
            return f"transform({value}, e -> {comparable('e', element)})"
        case T.StructType(fields) if any(_needs(field.type) for field in fields):
            comparable_fields = ", ".join(
                comparable(f"{value}.{quote_identifier(field.name)}", field.type) for field in fields
            )
            return f"if({value} IS NULL, NULL, struct({comparable_fields}))"
        case T.VariantType():
            return f"to_json({value})"
        case T.StringType(collation) if collation != T.UTF8_BINARY:
            return f"CAST({value} AS BINARY)"
    return value


def _needs(kind: T.DataType) -> bool:
    """Return whether ``comparable`` changes values of this type, or parts of them."""
    return comparable("x", kind) != "x"
