"""The Spark engine: one Spark task per partition, through PySpark's public DataFrame API alone.

``mapInArrow`` over ``spark.range`` with one row per partition runs the same function as the local engine, on
``local[*]``, on any master, inside ``spark-submit`` and over Spark Connect. Executors must be able to import
ttlsnap and see the checkpoint's path.

Without a session one is started, and its JVM's chatter goes to a log file instead of the terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ttlsnap.engines import Done
from ttlsnap.engines.launch import SessionSource, first_lines, given, launched, own_session
from ttlsnap.engines.progress import listener, sender
from ttlsnap.errors import TtlsnapError
from ttlsnap.partition import PartitionResult, PartitionResults, PartitionTask, Progress, compact_partition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Runs partitions as Spark tasks, on ``session`` or the active one, else on one started on ``master``.

    A ``session`` may be had when it is needed, by a call.
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
        told = 0

        def ended() -> None:
            nonlocal told
            told += 1
            done()

        with self._running() as session, listener(progress, ended) as port:
            session_port = port if _on_this_machine(session) else None
            work = _work(list(tasks), session_port)
            try:
                frame = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, "number long, result string")
                rows = {row["number"]: row["result"] for row in frame.collect()}
            except Exception as error:
                raise TtlsnapError(
                    f"Spark could not run the partitions; nothing was published.\n{first_lines(error, 20)}"
                ) from error
        # A datagram can be lost, and none comes from another machine.
        for _ in range(len(tasks) - told):
            done()
        return [
            tuple(PartitionResult.from_json(result) for result in json.loads(rows[number]))
            for number in range(len(tasks))
        ]

    @contextlib.contextmanager
    def _running(self) -> Iterator[SparkSession]:
        """A session; one that was started here is stopped again."""
        from pyspark.sql import SparkSession

        session = given(self._session) or SparkSession.getActiveSession()
        if session is not None:
            yield session
            return
        with started(self._master, self._parallelism) as session:
            yield session


@contextlib.contextmanager
def started(master: str | None, parallelism: int | None) -> Iterator[SparkSession]:
    """A session on ``master``, by default on this machine with ``parallelism`` threads; it is stopped again."""
    builder = own_session()
    if master is None and "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = f"local[{parallelism or '*'}]"
    if master is not None:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)

    def failure(told: str) -> str:
        return (
            f"Spark could not be started on {master or 'its default master'}; nothing was changed. Is there a Java "
            f"17, and can the master be reached? --engine local needs neither.\n{told}"
        )

    with launched(builder, failure) as session:
        yield session


def cancel_jobs(session: SparkSession) -> None:
    """Have Spark give up all that it is at work on for this application."""
    interrupt = getattr(session, "interruptAll", None)  # Spark Connect's; elsewhere it raises
    context = getattr(session, "_sc", None)
    if context is not None:
        context.cancelAllJobs()
    elif interrupt is not None:
        interrupt()


def _work(tasks: list[PartitionTask], port: int | None) -> Any:
    """The function that ``mapInArrow`` runs: partition numbers in, results as JSON out."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        send = sender(port)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = json.dumps([result.to_json() for result in compact_partition(tasks[number], send)])
                send(0, 0, ended=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([result])], ["number", "result"]
                )

    return work


def _on_this_machine(session: SparkSession) -> bool:
    """Whether datagrams from a task reach this process: Spark's local mode."""
    try:
        return str(session.conf.get("spark.master", "")).startswith("local")
    except Exception:  # a Connect server may not tell; progress is then shown by partition only
        return False
