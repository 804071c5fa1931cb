"""Transformers over a table's rows: one scan by ``mapInArrow``, what changes is staged, and merged by the key.

Of each row that changes there are staged: the row as it was read, whether it goes, and its new value. The ``MERGE``
touches a row only if it is still what was read. So it may be tried again, and one that the stream has written in
between is left as the stream wants it.

Dangers: a map cannot be compared in SQL, its entries can; a collated string is equal to others; a generated or an
identity column is not set, but follows.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ttlsnap import errors
from ttlsnap.delta.committing import sql_name, table_path, told
from ttlsnap.delta.cutoff import quoted
from ttlsnap.delta.entries import TableEntries
from ttlsnap.delta.log import read_table
from ttlsnap.delta.planning import Limits, TablePlan
from ttlsnap.errors import RefusedError, TtlsnapError
from ttlsnap.schema import types as T
from ttlsnap.transform import TimeSummary
from ttlsnap.transforming import StateResult, StateTransformers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "file"
_SMALL = 32 << 20  # bytes that every executor can hold
_FOLLOW = ("delta.generationExpression", "delta.identity.start", "delta.identity.step")


@dataclass(frozen=True)
class Changes:
    """What the scan found to be changed, and its counts.

    Columns go by their places, ``c0`` and so on. ``view`` is a name for it that nobody else has. ``null_keys``: some
    changed rows have a null in their key. ``size`` is in bytes.
    """

    frame: DataFrame
    result: StateResult
    null_keys: bool
    size: int
    view: str

    def parts(self, plan: TablePlan, limits: Limits) -> list[list[str] | None]:
        """The names of the files whose rows go together into a commit, cold files first; None stands for all."""
        if not limits:
            return [None]
        names = [row[0] for row in self.frame.select("file").distinct().collect()]
        known = {unquote(file.path): file for file in plan.live}
        found = [(known[unquote(name).partition(f"{plan.files.root}/")[2]], name) for name in names]
        parts: list[list[str] | None] = []
        mine: list[str] = []
        size = 0
        for file, name in sorted(found, key=lambda pair: (pair[0].modified_ms, pair[1])):
            if mine and not limits.allow(len(mine) + 1, size + file.size):
                parts.append(mine)
                mine, size = [], 0
            mine.append(name)
            size += file.size
        return [*parts, mine] if mine else []

    def statement(self, plan: TablePlan, files: Sequence[str] | None) -> str:
        """The ``MERGE`` of the changes in ``files``.

        Raises RefusedError where the table has other columns by now, of which it would know nothing.
        """
        schema = plan.table.metadata.schema
        if read_table(plan.files).metadata.schema != schema:
            raise RefusedError(f"{plan.files.root} has got other columns meanwhile; run again")
        part = self.frame if files is None else self.frame.where(self.frame["file"].isin(list(files)))
        # Else Spark, which takes the size of the cache for that of its cousins on disk, shuffles the whole table.
        (part.hint("broadcast") if self.size <= _SMALL else part).createOrReplaceTempView(self.view)
        places = {field.name: f"c{place}" for place, field in enumerate(schema)}
        equal = "<=>" if self.null_keys else "="
        key = " AND ".join(f"t.{quoted(name)} {equal} s.old.{places[name]}" for name in plan.key)
        values = plan.state.value_schema
        same = "".join(
            f" AND {_comparable(f't.{quoted(field.name)}', field.type)} <=> "
            f"{_comparable(f's.old.{places[field.name]}', field.type)}"
            for field in values
        )
        clauses = [f"WHEN MATCHED AND s.gone{same} THEN DELETE"] if self.result.dropped else []
        settable = [field.name for field in values if not any(name in field.metadata for name in _FOLLOW)]
        if self.result.rewritten and settable:
            new = ", ".join(f"t.{quoted(name)} = s.new.{places[name]}" for name in settable)
            clauses.append(f"WHEN MATCHED AND NOT s.gone{same} THEN UPDATE SET {new}")
        return f"MERGE INTO {sql_name(plan.files)} t USING {self.view} s ON {key} {' '.join(clauses)}"


@contextlib.contextmanager
def scanned(spark: SparkSession, plan: TablePlan, stage: bool, by_file: bool) -> Iterator[Changes]:
    """Run the transformers over the version that was planned with; with ``stage`` what they change is kept for a while.

    ``by_file`` is whether it has to be known of which file a row is, which costs as much as another column. Raises what
    a transformer raised, RefusedError where two changed rows have one key.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, StringType, StructField, StructType

    names = plan.table.metadata.schema.names
    places = [f"c{place}" for place in range(len(names))]
    with told(plan.files):
        table = _planned(spark, plan)
        if plan.cutoffs is not None:
            table = table.where(plan.sql)
        columns = [F.col(quoted(name)).alias(place) for name, place in zip(names, places, strict=True)]
        file = F.col("_metadata.file_path") if by_file else F.lit(None).cast("string")
        source = table.select(*columns, file.alias(_FILE))
        rows = StructType(source.schema.fields[:-1])
    values = StructType(
        [field for name, field in zip(names, rows, strict=True) if name in plan.state.value_schema.names]
    )
    schema = StructType(
        [
            StructField("told", StringType()),
            StructField("file", StringType()),
            StructField("gone", BooleanType()),
            StructField("old", rows),
            *([StructField("new", values)] if len(values) else []),
        ]
    )
    found = source.mapInArrow(_work(plan, values.names, stage), schema)
    view = f"ttlsnap_{uuid.uuid4().hex}"
    if stage:
        found = found.persist()
    try:
        with told(plan.files):
            results = [json.loads(row[0]) for row in found.where("told IS NOT NULL").select("told").collect()]
        for result in results:
            if "failure" in result:
                kind, message = result["failure"]
                raise getattr(errors, kind, TtlsnapError)(message)
        changes = Changes(
            found.where("told IS NULL").drop("told"),
            _summed(results),
            any(result["null_keys"] for result in results),
            sum(result["size"] for result in results),
            view,
        )
        if stage:
            with told(plan.files):
                _check_keys(changes.frame, [f"old.c{names.index(name)}" for name in plan.key], plan)
        yield changes
    finally:
        spark.catalog.dropTempView(view)
        if stage:
            found.unpersist()


def check_unique(spark: SparkSession, plan: TablePlan) -> None:
    """Raises RefusedError where two rows of the table have one key."""
    with told(plan.files):
        _check_keys(_planned(spark, plan), [quoted(name) for name in plan.key], plan)


def _planned(spark: SparkSession, plan: TablePlan) -> DataFrame:
    """The version that was planned with."""
    return spark.read.format("delta").option("versionAsOf", plan.table.version).load(table_path(plan.files))


def _check_keys(frame: DataFrame, names: Sequence[str], plan: TablePlan) -> None:
    twice = frame.groupBy(*(frame[name].alias(f"k{n}") for n, name in enumerate(names))).count().where("count > 1")
    found = [dict(zip(plan.key, row[:-1], strict=True)) for row in twice.limit(3).collect()]
    if found:
        shown = "; ".join(", ".join(f"{name}={value!r}" for name, value in key.items()) for key in found)
        raise RefusedError(
            f"{plan.files.root}: {', '.join(plan.key)} is no key of it, there are several rows of {shown}. Name the "
            "columns that tell rows apart (--key), or remove the duplicates. Nothing was changed"
        )


def _work(plan: TablePlan, values: Sequence[str], stage: bool) -> Any:
    """The function that ``mapInArrow`` runs: rows in, changed rows out, and at the end what was counted."""
    state, factories, clock, names = plan.state, plan.factories, plan.clock, plan.table.metadata.schema.names
    key = [names.index(name) for name in plan.key]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        transformers: StateTransformers[TableEntries] = StateTransformers(state, factories, clock)
        pack: Callable[..., pa.RecordBatch] | None = None
        null_keys, size = False, 0
        failure: dict[str, Any] = {}
        try:
            for batch in batches:
                pack = pack or _packer(batch.schema, values)
                after = transformers.run(TableEntries.of_batch(state, batch.rename_columns([*names, _FILE])))
                if not stage or (len(after) == batch.num_rows and not after.rewritten.any()):
                    continue
                gone = np.ones(batch.num_rows, np.bool_)
                gone[after.index] = False
                dropped, rewritten = np.flatnonzero(gone), after.index[after.rewritten]
                old = batch.take(pa.array(np.concatenate([dropped, rewritten])))
                null_keys = null_keys or any(old.column(place).null_count for place in key)
                packed = pack(old, after.new_values, len(dropped))
                size += packed.nbytes
                yield packed
        except TtlsnapError as error:
            kind = type(error).__name__
            failure = {"failure": (kind if hasattr(errors, kind) else TtlsnapError.__name__, str(error))}
        if pack is not None:
            counts = {**asdict(transformers.result()), "null_keys": null_keys, "size": size}
            yield pack(None, None, 0, json.dumps(counts | failure))

    return work


def _packer(schema: pa.Schema, values: Sequence[str]) -> Callable[..., pa.RecordBatch]:
    """What makes batches of changes of rows that have ``schema``."""
    columns = [field for field in schema if field.name != _FILE]
    fields = [field for field in columns if field.name in values]
    old_type, new_type = pa.struct(columns), pa.struct(fields)

    def pack(old: Any, new: Any, dropped: int, told: str | None = None) -> pa.RecordBatch:
        if old is None:
            parts = [pa.array([told]), pa.nulls(1, pa.string()), pa.nulls(1, pa.bool_()), pa.nulls(1, old_type)]
            names = ["told", "file", "gone", "old"]
            if fields:
                parts, names = [*parts, pa.nulls(1, new_type)], [*names, "new"]
            return pa.RecordBatch.from_arrays(parts, names)
        size = old.num_rows
        gone = np.arange(size) < dropped
        whole = pa.StructArray.from_arrays([old.column(field.name) for field in columns], fields=columns)
        parts = [pa.nulls(size, pa.string()), old.column(_FILE).cast(pa.string()), pa.array(gone), whole]
        names = ["told", "file", "gone", "old"]
        if fields:
            made = [new.field(place).cast(field.type) for place, field in enumerate(fields)]
            rewritten = pa.StructArray.from_arrays(made, fields=fields)
            parts.append(pa.concat_arrays([pa.nulls(dropped, new_type), rewritten]))
            names.append("new")
        return pa.RecordBatch.from_arrays(parts, names)

    return pack


def _summed(results: Sequence[Mapping[str, Any]]) -> StateResult:
    """The counts of all tasks."""
    own = ("null_keys", "size")
    made = [StateResult.from_json({k: v for k, v in result.items() if k not in own}) for result in results]
    times = [result.times for result in made if result.times is not None]
    summary = None
    if times:
        oldest = [time.oldest_us for time in times if time.oldest_us is not None]
        newest = [time.newest_us for time in times if time.newest_us is not None]
        summary = TimeSummary(
            times[0].field,
            times[0].now_us,
            min(oldest, default=None),
            max(newest, default=None),
            sum(time.nulls for time in times),
            time=times[0].time,
        )
    counts = {
        name: sum(getattr(result, name) for result in made) for name in ("entries", "kept", "dropped", "rewritten")
    }
    return StateResult("rows", **counts, times=summary)


def _comparable(value: str, kind: T.DataType) -> str:
    """An expression that is equal just where the values are."""
    match T.physical(kind):
        case T.MapType(key, item):
            entry = f"struct({_comparable('e.key', key)}, {_comparable('e.value', item)})"
            return f"transform(map_entries({value}), e -> {entry})"
        case T.ArrayType(element) if _needs(element):
            return f"transform({value}, e -> {_comparable('e', element)})"
        case T.StructType(fields) if any(_needs(field.type) for field in fields):
            parts = ", ".join(_comparable(f"{value}.{quoted(field.name)}", field.type) for field in fields)
            return f"if({value} IS NULL, NULL, struct({parts}))"
        case T.VariantType():
            return f"to_json({value})"
        case T.StringType(collation) if collation != T.UTF8_BINARY:
            return f"CAST({value} AS BINARY)"
    return value


def _needs(kind: T.DataType) -> bool:
    """Whether ``_comparable`` makes something of values of this type, or of what is in them."""
    return _comparable("x", kind) != "x"
