"""The Spark engine: one Spark task for each partition, with only PySpark's public DataFrame API.

``mapInArrow`` over ``spark.range`` with one row for each partition runs the same function as the local engine, on
``local[*]``, on any master, inside ``spark-submit`` and over Spark Connect. Executors must be able to import
ttlsnap and read the checkpoint's path.

Without a session the engine starts one, and the output of its JVM goes to a log file instead of the terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ttlsnap.compaction.engine import Done
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResult, PartitionResults, PartitionTask, Progress
from ttlsnap.engines.launch import SessionSource, build_session, find_session, first_lines, launch_session
from ttlsnap.engines.moving import Move, Moved
from ttlsnap.engines.progress import listener, sender
from ttlsnap.engines.shuffle import move_on_spark, take
from ttlsnap.engines.workers import ADVICE, on_workers
from ttlsnap.errors import TtlsnapError, UsageError, explain_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WRONG_PYTHON = (
    "No module named",
    "must be installed",
    "PACKAGE_NOT_INSTALLED",
    "PYTHON_VERSION",
    "Cannot run program",
)
"""Parts of Spark's messages about workers whose Python lacks something."""


class SparkEngine:
    """An engine of Spark tasks, on ``session``, the active one, or one started on ``master``.

    ``session`` can be a function that returns the session when it is needed.
    """

    name = "spark"

    def __init__(
        self, session: SessionSource = None, master: str | None = None, parallelism: int | None = None
    ) -> None:
        self._session, self._master, self._parallelism = session, master, parallelism

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        if not tasks:
            return []
        with self._running(len(tasks), done, progress) as (session, port):
            work = _work(list(tasks), port)
            numbers = session.range(0, len(tasks), 1, len(tasks))
            frame = on_workers(numbers, work, "number long, result string")
            rows = {row["number"]: row["result"] for row in frame.collect()}
        return [
            tuple(PartitionResult.from_json(result) for result in json.loads(rows[number]))
            for number in range(len(tasks))
        ]

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """See ``MovingEngine.move``. The check comes after the targets are built, but before they are returned."""
        with self._running(len(move.sources) + len(move.targets), done, progress) as (session, port):
            outcomes = move_on_spark(session, move, port)
        source_results = take(outcomes[0])
        move.check(source_results)
        return source_results, take(outcomes[1])

    @contextlib.contextmanager
    def _running(self, tasks: int, done: Done, progress: Progress) -> Iterator[tuple[SparkSession, int | None]]:
        """Yield a session, and the port for the progress of ``tasks``. Raise TtlsnapError if Spark fails."""
        partitions_reported = 0

        def ended() -> None:
            nonlocal partitions_reported
            partitions_reported += 1
            done()

        with self._find_or_start() as session, listener(progress, ended) as port:
            try:
                yield session, port if _on_this_machine(session) else None
            except Exception as error:
                message = first_lines(error, 20)
                if ADVICE not in message and any(sign in message for sign in _WRONG_PYTHON):
                    message += f"\nThe workers' Python may be another one than yours. {ADVICE}"
                raise TtlsnapError(f"Spark could not run the partitions; nothing was published.\n{message}") from error
        # Datagrams can be lost, and other machines send none.
        for _ in range(tasks - partitions_reported):
            done()

    @contextlib.contextmanager
    def _find_or_start(self) -> Iterator[SparkSession]:
        """Yield a session; stop it if it was started here."""
        session = find_session(self._session)
        if session is not None:
            yield session
            return
        with start_engine(self._master, self._parallelism) as session:
            yield session


@contextlib.contextmanager
def start_engine(master: str | None, parallelism: int | None) -> Iterator[SparkSession]:
    """Yield a session on ``master``, by default on this machine with ``parallelism`` threads; stop it at the end."""
    with explain_errors("--engine local needs no Spark", UsageError):
        builder = build_session()
    if master is None and "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = f"local[{parallelism or '*'}]"
    if master is not None:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)

    def failure(message: str) -> str:
        return (
            f"Spark could not be started on {master or 'its default master'}. Nothing was changed. Check that Java 17 "
            f"is installed, and that the master can be reached; --engine local needs neither.\n{message}"
        )

    with launch_session(builder, failure) as session:
        yield session


def cancel_jobs(session: SparkSession) -> None:
    """Cancel all Spark jobs of this application."""
    interrupt = getattr(session, "interruptAll", None)  # only Spark Connect supports it; elsewhere it raises
    context = getattr(session, "_sc", None)
    if context is not None:
        context.cancelAllJobs()
    elif interrupt is not None:
        interrupt()


def _work(tasks: list[PartitionTask], port: int | None) -> Any:
    """Return the function for ``mapInArrow``: it takes partition numbers, and yields results as JSON.

    Spark sends it to every task. There the transformers and one partition's task are unpickled, not all tasks.
    """
    from pyspark import cloudpickle

    factories = cloudpickle.dumps(tasks[0].factories)
    pickled = [pickle.dumps(replace(task, factories=())) for task in tasks]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        send = sender(port)
        transformers = pickle.loads(factories)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = replace(pickle.loads(pickled[number]), factories=transformers)
                result = json.dumps([result.to_json() for result in compact_partition(task, send)])
                send(0, 0, ended=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([result])], ["number", "result"]
                )

    return work


def _on_this_machine(session: SparkSession) -> bool:
    """Return whether datagrams of a task reach this process, as in Spark's local mode."""
    try:
        return str(session.conf.get("spark.master", "")).startswith("local")
    except Exception:  # a Connect server may not say; then progress is shown only by partition
        return False
