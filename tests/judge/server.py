"""A long-lived process with one Spark session, so that a query takes a second and does not have to start Spark.

The interpreter of the wanted Spark version runs this file. The process listens on a Unix socket, whose path it writes
to the file ``address`` in its folder once the session exists. Any number of test processes may connect. Each connection
starts with a line from the server: the version of Spark. Each line from a client is a request: ``{"id", "verb",
"args"}``. Each further line from the server is an answer: ``{"id", "result"}`` or ``{"id", "error"}``. Requests run at
the same time, each in its own session, so the answers can be in another order. A function that changes something of the
whole process, such as a patched module, has the attribute ``alone``: it runs while no other function runs. Everything
that Spark, the JVM or a library prints is redirected to stderr.

The process ends when its last client disconnects, so it cannot outlive the tests. The JVM watches a pipe from this
process in the same way. The arguments are the process's folder, a folder on Spark's class path for compiled classes,
and ``delta`` for a session with Delta.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_AT_ONCE = 8
_FIRST_CLIENT_S = 60.0
_PARTITIONS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    "spark.databricks.delta.snapshotPartitions",
)
"""Settings for the partitions of Delta's jobs, which by default have hundreds even for small tables."""
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
    "sun.util.calendar",
)
"""Packages of java.base that Spark accesses by reflection. Before 3.3, Spark does not open them in Java 17 itself."""
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Java's options to load classes without verifying their code."""
_LIGHT_FORK = "-Djdk.lang.Process.launchMechanism=VFORK"
"""Java's option to start a process without a helper. Hadoop starts several for each file that it renames."""
_LOADING = threading.Lock()


def main() -> None:
    """Serve requests until no client is connected."""
    scratch, classes = sys.argv[1:3]
    verbs = _verbs(scratch, classes, "delta" in sys.argv[3:])
    with tempfile.TemporaryDirectory(prefix="ttlsnap-judge-") as short:  # the path of a socket must be short
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{short}/socket")
        listener.listen()
        begun = Path(scratch, "address.new")
        begun.write_text(f"{short}/socket")
        begun.rename(begun.with_name("address"))
        _serve(listener, verbs)
    # Nobody waits for the requests that still run.
    os._exit(0)


def _serve(listener: socket.socket, verbs: dict[str, Callable[..., Any]]) -> None:
    """Answer the requests of all clients. Return when the last one has disconnected, or when none ever connects."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    clients: set[socket.socket] = set()
    lock = threading.Lock()
    listener.settimeout(_FIRST_CLIENT_S)

    def serve(client: socket.socket) -> None:
        own = threading.Lock()

        def answer(request: dict[str, Any]) -> None:
            told: dict[str, Any] = {"id": request["id"]}
            try:
                told["result"] = verbs[request["verb"]](**request["args"])
            except BaseException:
                told["error"] = traceback.format_exc()
            with own, contextlib.suppress(OSError):  # of a client that has disconnected
                client.sendall(json.dumps(told).encode() + b"\n")

        client.sendall(verbs["version"]().encode() + b"\n")
        with contextlib.suppress(OSError), client.makefile("rb") as lines:
            for line in lines:
                pool.submit(answer, json.loads(line))
        with lock:
            clients.discard(client)
            if not clients:
                closing.set()  # a client that is just connecting gets no first line, and starts another server
                listener.shutdown(socket.SHUT_RDWR)

    closing = threading.Event()
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        listener.settimeout(None)
        client.settimeout(None)
        with lock:
            if closing.is_set():
                return
            clients.add(client)
        threading.Thread(target=serve, args=(client,), daemon=True).start()


class _Calls:
    """The functions that run now: several at once, or one alone."""

    def __init__(self) -> None:
        self._running = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run while no function runs alone."""
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for the functions that run, and let none begin until the block ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
            yield


def _verbs(scratch: str, classes: str, delta: bool) -> dict[str, Callable[..., Any]]:
    here = Path(__file__).parent
    _load(here)
    queries, runs = importlib.import_module("tests_judge.queries"), importlib.import_module("tests_judge.runs")
    spark = _session(scratch, classes, delta)
    calls = _Calls()

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
        # The compiler is part of Spark's shell.
        words = ["-usejavacp", "-d", classes, str(here / source)]
        args = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, len(words))
        for place, word in enumerate(words):
            args[place] = word
        if not spark._jvm.scala.tools.nsc.Main.process(args):
            raise RuntimeError(f"{source} does not compile; the log of this server has the compiler's words")

    def call(package: str, function: str, order: dict[str, Any]) -> Any:
        module, name = f"{_load(Path(package))}.{function}".rsplit(".", 1)
        called = getattr(importlib.import_module(module), name)
        with calls.alone() if getattr(called, "alone", False) else calls.together():
            return called(spark, **order)

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
        "process": os.getpid,
    }


def _load(folder: Path) -> str:
    """Load a folder as a package by its path, and return its name.

    With the folder or its parent on sys.path, our modules would hide packages with the same names. So would a package
    with the name of the folder: ``delta`` is also the package of delta-spark.
    """
    name = f"tests_{folder.name}"
    with _LOADING:
        if name not in sys.modules:
            place = folder / "__init__.py"
            spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[str(folder)])
            assert spec is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
    return name


def _session(scratch: str, classes: str, delta: bool) -> Any:
    from pyspark.sql import SparkSession

    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": classes,
        # Queries that run for a second gain nothing from the optimising compiler. Without this compiler, the JVM
        # reserves a small code cache, and discards code after some minutes that it needs again.
        "spark.driver.extraJavaOptions": " ".join(
            (
                "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
                _UNVERIFIED,
                _LIGHT_FORK,
                *opens,
            )
        ),
        # Compiling Java code for every plan takes longer than running it without. The full matrix does compile.
        "spark.sql.codegen.wholeStage": str(os.environ.get("TTLSNAP_MATRIX") == "full").lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": scratch + "/warehouse",
        "spark.local.dir": scratch + "/local",
        # The first loaded store sets this interval for all stores. runs.run decides what maintenance does.
        "spark.sql.streaming.stateStore.maintenanceInterval": "200ms",
        # From 4.2 on, a commit writes a snapshot of a store that lags behind, by the settings of the first query.
        # Layouts would then depend on earlier queries.
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
