"""One run of a query inside a Spark session, and the state that it left.

A run reads every file of its sources, one file for each batch, in the order of their modification times. It ends when
no file is left. Two options change this:

``snapshot``  The query runs on after its last batch until maintenance has written a snapshot of that version in each
              partition. Maintenance only writes snapshots of loaded stores, so the query must not stop earlier.
``crash``     The sink raises in the run's n-th batch, after Spark has written the state of that batch. The batch is
              then planned but not committed, as after most crashes.

This module runs under Python 3.8 and Spark 3.0 and later.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from .layouts import has_snapshots, last_batch, store_folders
from .queries import ENDLESS, EVENT_SCHEMA, RATE_FROM, RATE_ROWS, RATE_STEP_S, Query
from .reported import ALL as OPERATORS
from .sources import event_files, in_partitions

_CRASH = "the judge's sink raises here"
_PATIENCE_S = 60.0
_SINK_TABLE = "judged"


@dataclass(frozen=True)
class Run:
    """The order for one run.

    ``sources`` is a glob that matches ``files`` files. ``table`` is the table of a Delta source. ``out`` is the folder
    of a file sink.
    """

    query: Query
    checkpoint: str
    sources: str
    table: str
    out: str
    files: int
    snapshot: bool = False
    crash: int | None = None
    trigger: str = ""


@dataclass(frozen=True)
class _Prepared:
    session: SparkSession
    result: DataFrame
    writer: Any
    batches: list[dict[str, Any]]


_LIVE: dict[str, tuple[_Prepared, StreamingQuery]] = {}
"""The queries that run on between requests, by their checkpoints."""


def start(root: SparkSession, order: Run) -> list[dict[str, Any]]:
    """Start a query that keeps running. Return its batches once it has read all files. ``trigger`` is an interval."""
    prepared = _prepare(root, order)
    query = prepared.writer.trigger(processingTime=order.trigger).start()
    _LIVE[order.checkpoint] = prepared, query
    if order.trigger.startswith("0"):
        query.processAllAvailable()
    else:
        _await_input(query, order.files)
    return prepared.batches


def last_words(root: SparkSession, checkpoint: str) -> str:
    """Return the error that ended a running query. Raise ``TimeoutError`` if it does not end."""
    _, query = _LIVE[checkpoint]
    try:
        query.awaitTermination(_PATIENCE_S)
    except Exception:
        # In 3.3 only the causes say what happened, and PySpark does not pass them on.
        thrown = query._jsq.exception().get()
        words = []
        while thrown is not None:
            words.append(thrown.toString())
            thrown = thrown.getCause()
        return "\n".join(words)
    query.stop()
    raise TimeoutError(f"the query went on: {query.lastProgress}")


def stop(root: SparkSession, checkpoint: str, when_done: bool = False) -> list[dict[str, Any]]:
    """Stop a running query, at once or when it has read all files. Return all its batches."""
    prepared, query = _LIVE.pop(checkpoint)
    try:
        if when_done:
            query.processAllAvailable()
    finally:
        query.stop()
    return prepared.batches


def append(root: SparkSession, sources: str, table: str) -> None:
    """Append each new file to a Delta table. Each file gets its own commit."""
    done = len(list(Path(table, "_delta_log").glob("*.json")))
    for file in event_files(sources)[done:]:
        rows = root.read.schema(EVENT_SCHEMA).json(str(file)).coalesce(1)
        rows.write.format("delta").mode("append").save(table)


def run(root: SparkSession, order: Run) -> list[dict[str, Any]]:
    """Run a query to its end. Return each batch with the rows that the sink got."""
    after = last_batch(Path(order.checkpoint))
    prepared = _prepare(root, order)
    session, result, writer, batches = prepared.session, prepared.result, prepared.writer, prepared.batches
    if order.query.operator in ENDLESS:
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            _await_input(query, order.files)
        finally:
            query.stop()
        batches = [batch for batch in batches if batch["rows"]]
    elif order.snapshot:
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            query.processAllAvailable()
            _await_snapshots(Path(order.checkpoint))
        finally:
            query.stop()
    else:
        # Spark before 3.3 has no availableNow. With a source in Python, availableNow omits a batch without data.
        # In both cases, this stops the query when no file is left.
        available_now = session.version >= "3.3" and order.query.source != "partitions"
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        if order.trigger == "once":
            available_now, trigger = True, {"once": True}
        query = writer.trigger(**trigger).start()
        try:
            query.awaitTermination() if available_now else query.processAllAvailable()
        except Exception as error:
            if order.crash is None or _CRASH not in str(error):
                raise
        else:
            if order.crash is not None:
                raise RuntimeError(f"the run ended after {len(batches)} batches, before its crash")
        finally:
            query.stop()

    if order.query.sink == "rows":
        return batches
    if order.query.sink == "memory":
        rows = [plain(row) for row in session.table(_SINK_TABLE).collect()]
        return [{"batch": last_batch(Path(order.checkpoint)), "rows": rows}]
    if order.query.sink == "delta":
        return _table_batches(session.read.format("delta").load(order.out), Path(order.out), after)
    sink = session.read.schema(result.schema).format(order.query.sink).load(order.out)
    return _sink_batches(sink, Path(order.out), after)


def _prepare(root: SparkSession, order: Run) -> _Prepared:
    session = root.newSession()
    for name, value in order.query.settings().items():
        session.conf.set(name, value)
    # Maintenance runs all the time. This setting alone decides whether it writes snapshots.
    session.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "0" if order.snapshot else "1000000")

    if order.query.source == "delta":
        append(root, order.sources, order.table)

    def read() -> DataFrame:
        return _read(session, order).withColumn("at", F.col("ts").cast("timestamp"))

    result, mode = OPERATORS[order.query.operator](read, order.query)
    writer = result.writeStream.outputMode(mode).option("checkpointLocation", order.checkpoint)
    if dict(order.query.conf).get("spark.sql.streaming.queryEvolution.enableSinkEvolution") == "true":
        writer._jwrite.name("judged")  # each sink must have a name then, and only Scala can give it
    batches: list[dict[str, Any]] = []

    def collect(frame: DataFrame, batch: int) -> None:
        rows = [plain(row) for row in frame.collect()]
        if order.crash is not None and order.crash == len(batches):
            raise RuntimeError(_CRASH)
        batches.append({"batch": batch, "rows": rows})

    if order.query.sink == "rows":
        writer = writer.foreachBatch(collect)
    elif order.query.sink == "memory":
        writer = writer.format("memory").queryName(_SINK_TABLE)
    else:
        writer = writer.format(order.query.sink).option("path", order.out)
    return _Prepared(session, result, writer, batches)


def _read(session: SparkSession, order: Run) -> DataFrame:
    stream = session.readStream
    if order.query.source == "delta":
        return stream.format("delta").option("maxFilesPerTrigger", 1).load(order.table)
    if order.query.source == "partitions":
        session.dataSource.register(in_partitions())
        return stream.format("partitions").option("sources", order.sources).load()
    if order.query.source == "rate-micro-batch":
        stream = stream.format("rate-micro-batch").option("numPartitions", 2).option("rowsPerBatch", RATE_ROWS)
        stream = stream.option("startTimestamp", RATE_FROM * 1000).option("advanceMillisPerBatch", RATE_STEP_S * 1000)
        rows = stream.load()
        return rows.selectExpr("concat('k', value % 7) AS key", "unix_seconds(timestamp) AS ts", "value")
    return stream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", 1).json(order.sources)


def _table_batches(sink: DataFrame, out: Path, after: int) -> list[dict[str, Any]]:
    """Return the batches that a Delta table got after the batch ``after``. Spark reads the rows.

    The table's log says which batch wrote which file.
    """
    batches: dict[int, list[Any]] = {}
    born: dict[str, int] = {}
    for log in sorted((out / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        (batch,) = (action["txn"]["version"] for action in actions if "txn" in action)
        if batch in batches:
            raise RuntimeError(f"batch {batch} was written twice")
        batches[batch] = []
        born.update((action["add"]["path"], batch) for action in actions if "add" in action)
    for row in sink.withColumn("_file", F.input_file_name()).collect():
        fields = plain(row)
        batches[born[fields.pop("_file").rsplit("/", 1)[1]]].append(fields)
    return [{"batch": batch, "rows": rows} for batch, rows in batches.items() if batch > after]


def _sink_batches(sink: DataFrame, out: Path, after: int) -> list[dict[str, Any]]:
    """Return the batches that a file sink got after the batch ``after``. Spark reads the rows.

    The sink's log says which batch wrote which file.
    """
    batches: dict[int, list[Any]] = {}
    born: dict[str, int] = {}
    logs = {int(path.name.split(".")[0]): path for path in (out / "_spark_metadata").glob("[0-9]*")}
    for batch in sorted(logs):
        batches[batch] = []
        # A compacted log repeats earlier logs, so a file belongs to the first batch that names it.
        for line in logs[batch].read_text().splitlines()[1:]:
            born.setdefault(json.loads(line)["path"].rsplit("/", 1)[1], batch)
    for row in sink.withColumn("_file", F.input_file_name()).collect():
        fields = plain(row)
        batches[born[fields.pop("_file").rsplit("/", 1)[1]]].append(fields)
    return [{"batch": batch, "rows": rows} for batch, rows in batches.items() if batch > after]


def _await_input(query: StreamingQuery, files: int) -> None:
    """Wait until the query has read that many files since its first start. It never ends by itself."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        last = query.lastProgress
        # Some versions return the offset as a string.
        if last is not None and re.sub(r"\D", "", str(last["sources"][0]["endOffset"])) == str(files - 1):
            return
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        if time.monotonic() > deadline:
            raise TimeoutError(f"the input was not read in {_PATIENCE_S:g} s")
        time.sleep(0.02)


def _await_snapshots(checkpoint: Path) -> None:
    version = last_batch(checkpoint) + 1
    deadline = time.monotonic() + _PATIENCE_S
    while not has_snapshots(checkpoint, version):
        if time.monotonic() > deadline:
            raise TimeoutError(f"maintenance wrote no snapshot {version} of {checkpoint} in {_PATIENCE_S:g} s")
        time.sleep(0.02)


def dump_state(
    root: SparkSession, checkpoint: str, batch: int | None = None, checkpoint_format: int = 1
) -> list[dict[str, Any]]:
    """Return every entry of a checkpoint's state, read by Spark's ``statestore`` reader (Spark 4.0 and later)."""
    session = root.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # The reader finds files with ids only with this setting.
    session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", str(checkpoint_format))
    # This starts the StateStoreCoordinator, which the reader needs. A session without queries has none.
    _ = session.streams.active
    entries = []
    for operator, store in _stores(Path(checkpoint)):
        reader = session.read.format("statestore").option("operatorId", operator).option("storeName", store)
        if batch is not None:
            reader = reader.option("batchId", batch)
        for row in reader.load(checkpoint).select("partition_id", "key", "value").collect():
            entry = {"operator": operator, "store": store, "partition": row["partition_id"]}
            entries.append({**entry, "key": plain(row["key"]), "value": plain(row["value"])})
    return entries


def repartition(root: SparkSession, query: Query, checkpoint: str, partitions: int) -> None:
    """Repartition the state by Spark's offline repartitioning (Spark 4.2 and later, RocksDB only)."""
    session = root.newSession()
    for name, value in query.settings().items():
        session.conf.set(name, value)
    # See dump_state.
    _ = session.streams.active
    # A query that never ends by itself may have begun another batch.
    session._streamingCheckpointManager.repartition(checkpoint, partitions, query.operator not in ENDLESS)


def _stores(checkpoint: Path) -> list[Any]:
    state = checkpoint / "state"
    places = {folder.relative_to(state).parts for folder in store_folders(checkpoint)}
    return sorted({(int(place[0]), place[2] if len(place) > 2 else "default") for place in places})


def plain(value: Any) -> Any:
    """Return a value of Spark as lossless JSON. Later fields with the same name get a number."""
    if isinstance(value, Row):
        fields: dict[str, Any] = {}
        for place, name in enumerate(value.__fields__):
            namesakes = value.__fields__[: place + 1].count(name)
            fields[name if namesakes == 1 else f"{name}#{namesakes}"] = plain(value[place])
        return fields
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return sorted([plain(key), plain(item)] for key, item in value.items())
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    return value
