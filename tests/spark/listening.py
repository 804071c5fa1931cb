"""Queries with a listener. This module runs in a server of the judge, under each version of Spark."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

_CLASS = "org.apache.spark.sql.execution.streaming.state.{}StateStoreProvider"


_alone = threading.Lock()
"""A listener of one query also hears of the others in its process, and all share a log."""


def listen(spark: Any, **order: Any) -> dict[str, Any]:
    """Do what ``_listen`` does, while no other query has a listener."""
    with _alone:
        return _listen(spark, **order)


def _listen(
    spark: Any, packages: list[str], folder: str, provider: str, limits: dict[str, Any], fails: bool = False
) -> dict[str, Any]:
    """Run a query with two stateful operators and a listener.

    Return the words of the log, the last progress, and the calls of ``on_warning``, which raises an error if it
    ``fails``. ``packages`` are folders with ttlsnap and what it needs.
    """
    sys.path += packages
    from pyspark.sql import functions as F

    from ttlsnap.spark import StateListener

    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.stateStore.providerClass", _CLASS.format(provider))
    called: list[str] = []

    def call(warning: Any) -> None:
        called.append(f"{warning.query} {warning.operator} {warning.operator_name} {warning.limit} {warning.value}")
        if fails:
            raise ValueError("the callback failed")

    words = _Words()
    log = logging.getLogger("ttlsnap.spark")
    log.addHandler(words)
    listener = StateListener(metrics=f"{folder}/state.prom", on_warning=call, **limits)
    session.streams.addListener(listener)
    events = session.readStream.schema("key string, ts timestamp, value long").option("maxFilesPerTrigger", "1")
    unique = events.json(f"{folder}/events").withWatermark("ts", "1 hour").dropDuplicates(["key", "value", "ts"])
    counts = unique.groupBy("key").agg(F.count("*").alias("n"))
    writer = counts.writeStream.outputMode("update").format("noop").queryName("visits")
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    try:
        query.awaitTermination()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return {"log": words.lines, "called": called, "progress": query.lastProgress["stateOperators"]}
    finally:
        session.streams.removeListener(listener)
        log.removeHandler(words)
        for folder in packages:
            sys.path.remove(folder)


class _Words(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def write_events(folder: Path) -> None:
    """Write three files with 10 new keys and 20 rows each."""
    (folder / "events").mkdir(parents=True)
    for file in range(3):
        lines = [
            f'{{"key": "k{file * 10 + row % 10}", "ts": "2026-01-01T00:0{file}:{row:02}Z", "value": {row}}}'
            for row in range(20)
        ]
        (folder / "events" / f"{file}.json").write_text("\n".join(lines))
