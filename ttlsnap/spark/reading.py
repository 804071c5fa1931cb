"""The state of a checkpoint as a distributed DataFrame of PySpark."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.engines.workers import on_workers
from ttlsnap.errors import UsageError
from ttlsnap.keywords import takes
from ttlsnap.operators.registry import Selection
from ttlsnap.publishing.stale_snapshots import warn_of_doubtful_snapshots
from ttlsnap.reading.export import TableOptions
from ttlsnap.reading.export_plan import ExportTask
from ttlsnap.schema.json import dump_type
from ttlsnap.schema.types import all_physical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class ReadStateRequest(TableOptions):
    """The arguments of ``read_state``."""

    spark: SparkSession = field(kw_only=False)
    path: str = field(kw_only=False)
    operator: int | None = None
    store: str | None = None
    state: str | None = None
    table: str | None = None
    time: str | None = None
    schemas: Schemas | None = None


@takes(ReadStateRequest)
def read_state(request: ReadStateRequest) -> DataFrame:
    """Return one state of the checkpoint ``path``, with the columns that ``ttlsnap export`` writes.

    Each partition of the state is read by a task, from the files that exist when this function is called. Executors
    must be able to import ttlsnap and to read ``path``. Checkpoints of Spark 3.1 to 4.3 can be read, and
    with ``schemas`` those of Spark 3.0, which record none.

    ``table`` is the name of a state as ``export`` prints it. Raise UsageError if the checkpoint has several states, and
    none is chosen by it or by ``operator``, ``store`` and ``state``.
    Raise another ``TtlsnapError`` for what cannot be read. Warn if a snapshot may be stale (see ``stores.stale``).
    """
    spark, path = request.spark, request.path
    selection = Selection(request.operator, request.store, request.state)
    tables = (request.table,) if request.table is not None else ()
    time = TimeCharacteristic(request.time) if request.time is not None else None
    options = replace(request, columns=request.columns or None)
    plan = options.open(path, selection, tables, time, request.schemas)
    for warning in warn_of_doubtful_snapshots(plan.checkpoint):
        warnings.warn(warning, stacklevel=3)
    if len(plan.tables) != 1:
        names = ", ".join(table.name for table in plan.tables)
        raise UsageError(f"{path} has several states: {names}. Choose one with table")
    from pyspark import cloudpickle
    from pyspark.sql.types import StructType

    (found,) = plan.tables
    tasks = [cloudpickle.dumps(task) for task in plan.tasks]
    # Without the classes of user-defined types, which PySpark would import.
    schema = StructType.fromJson(json.loads(dump_type(all_physical(found.spark_schema))))
    return on_workers(spark.range(0, len(tasks), 1, len(tasks)), _reader(tasks), schema)


def _reader(tasks: list[bytes]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task: ExportTask = pickle.loads(tasks[number])
                for _, rows in task.read():
                    yield rows.cast(_small(rows.schema))

    return read


def _small(schema: pa.Schema) -> pa.Schema:
    """Return a schema with 32-bit offsets, which every version of Spark reads."""
    return pa.schema([pa.field(field.name, _small_type(field.type)) for field in schema])


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _small_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_small_type(kind.key_type), _small_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _small_type(field.type)) for field in kind])
    return kind
