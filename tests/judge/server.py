"""A long-lived process with one Spark session, so that a query costs a second and not a start of Spark.

Run by the interpreter of the Spark version that is wanted. Each line on stdin is a request,
``{"id", "verb", "args"}``; each line on what was stdout is an answer, ``{"id", "result"}`` or
``{"id", "error"}``, in the order in which they are done: requests run at the same time, each in a session of
its own. Whatever Spark, the JVM or a library prints goes to stderr instead.

It ends when stdin does, so it cannot outlive the process that started it; the JVM watches a pipe of its own
in the same way. The arguments are a folder for what Spark leaves lying about, one on Spark's class path, for
what is compiled here, and ``delta`` for a session with Delta.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_AT_ONCE = 4
_PARTITIONS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    "spark.databricks.delta.snapshotPartitions",
)
"""Of Delta's jobs, which have hundreds for tables of any size."""
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
    "sun.util.calendar",
)
"""Packages of java.base that Spark reaches into; before 3.3 it does not ask Java 17 for them itself."""
_LOADING = threading.Lock()


def main() -> None:
    """Serves requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    verbs = _verbs(*sys.argv[1:])
    lock = threading.Lock()

    def serve(request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["result"] = verbs[request["verb"]](**request["args"])
        except Exception:
            answer["error"] = traceback.format_exc()
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    pool = ThreadPoolExecutor(_AT_ONCE)
    for line in sys.stdin:
        pool.submit(serve, json.loads(line))
    # Whoever asked is gone: nobody waits for what still runs.
    os._exit(0)


def _verbs(scratch: str, classes: str, delta: str = "") -> dict[str, Callable[..., Any]]:
    here = Path(__file__).parent
    _load(here)
    queries, runs = importlib.import_module("judge.queries"), importlib.import_module("judge.runs")
    spark = _session(scratch, classes, bool(delta))

    def run(query: dict[str, Any], **order: Any) -> Any:
        conf = tuple((name, value) for name, value in query.pop("conf"))
        return runs.run(spark, runs.Run(query=queries.Query(conf=conf, **query), **order))

    def start(query: dict[str, Any], **order: Any) -> Any:
        conf = tuple((name, value) for name, value in query.pop("conf"))
        return runs.start(spark, runs.Run(query=queries.Query(conf=conf, **query), **order))

    def state(**order: Any) -> Any:
        return runs.dump_state(spark, **order)

    def repartition(query: dict[str, Any], **order: Any) -> None:
        conf = tuple((name, value) for name, value in query.pop("conf"))
        runs.repartition(spark, queries.Query(conf=conf, **query), **order)

    def compiled(source: str) -> None:
        # Spark's shell brings the compiler along.
        words = ["-usejavacp", "-d", classes, str(here / source)]
        args = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, len(words))
        for place, word in enumerate(words):
            args[place] = word
        if not spark._jvm.scala.tools.nsc.Main.process(args):
            raise RuntimeError(f"{source} does not compile; the log of this server has the compiler's words")

    def call(package: str, function: str, order: dict[str, Any]) -> Any:
        module, name = f"{_load(Path(package))}.{function}".rsplit(".", 1)
        return getattr(importlib.import_module(module), name)(spark, **order)

    return {
        "run": run,
        "start": start,
        "last_words": lambda **order: runs.last_words(spark, **order),
        "stop": lambda **order: runs.stop(spark, **order),
        "append": lambda **order: runs.append(spark, **order),
        "state": state,
        "compile": compiled,
        "call": call,
        "repartition": repartition,
        "version": lambda: spark.version,
    }


def _load(folder: Path) -> str:
    """Loads a folder as a package by its place: its name.

    Putting it or a parent on sys.path would let our modules stand before packages of the same names.
    """
    with _LOADING:
        if folder.name not in sys.modules:
            place = folder / "__init__.py"
            spec = importlib.util.spec_from_file_location(folder.name, place, submodule_search_locations=[str(folder)])
            assert spec is not None
            sys.modules[folder.name] = importlib.util.module_from_spec(spec)
    return folder.name


def _session(scratch: str, classes: str, delta: bool) -> Any:
    from pyspark.sql import SparkSession

    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": classes,
        # Small queries that live for a second gain nothing from the optimising compiler. Without it the JVM reserves
        # so little for code that after some minutes it throws away what it will need again.
        "spark.driver.extraJavaOptions": " ".join(
            ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC", *opens)
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": scratch + "/warehouse",
        "spark.local.dir": scratch + "/local",
        # The first store that is loaded sets this for all; see runs.run for what it finds to do.
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
        # From 4.2 on a store that lags behind is snapshotted at a commit, by the settings of whichever query
        # came first: layouts would depend on what ran before.
        "spark.sql.streaming.stateStore.coordinatorReportSnapshotUploadLag": "false",
        "spark.sql.streaming.stateStore.forceSnapshotUploadOnLag": "false",
    }
    builder = SparkSession.builder.master("local[4]").appName("judge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if delta:
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(builder)
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        for name in _PARTITIONS:
            builder = builder.config(name, "2")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
