"""The choice of the engine: Spark if something asks for it or the state is large, otherwise workers on this machine.

Starting Spark takes longer than the whole work on most states. ``docs/performance.md`` has the measurement.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ttlsnap.compaction.engine import Done
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.engines.launch import find_session
from ttlsnap.engines.local import LocalEngine
from ttlsnap.engines.moving import Move, Moved, MovingEngine
from ttlsnap.engines.spark import SparkEngine

LARGE = 16 << 30
"""The bytes of HDFS-backed state files from which Spark finishes sooner, including its start."""

_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")


class AutoEngine:
    """An engine that runs each state on ``spark`` or on ``local``. ``name`` and ``reason`` describe the last choice."""

    def __init__(self, local: MovingEngine, spark: MovingEngine, *, master: str | None = None) -> None:
        self._local, self._spark, self._master = local, spark, master
        self.name = "auto"
        self.reason: str | None = None

    @classmethod
    def of(cls, master: str | None = None, parallelism: int | None = None) -> AutoEngine:
        """Return an engine that starts Spark on ``master``, or at most ``parallelism`` workers, when needed."""
        spark = SparkEngine(master=master, parallelism=parallelism)
        return cls(LocalEngine(parallelism), spark, master=master)

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        work = sum(task.size * task.state_store.relative_cost for task in tasks)
        return self._choose(work).run(tasks, done, progress)

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """See ``MovingEngine.move``."""
        return self._choose(move.size * move.state_store.relative_cost).move(move, done, progress)

    def _choose(self, work: int) -> MovingEngine:
        """Return the engine for so much ``work``, as bytes of HDFS-backed state files."""
        wants_spark = self._what_asks_for_spark()
        is_large = work >= LARGE
        engine = self._spark if wants_spark or is_large else self._local
        self.name = engine.name
        self.reason = wants_spark or ("the state is large" if is_large else "the state is not large")
        return engine

    def _what_asks_for_spark(self) -> str | None:
        if self._master is not None:
            return f"the master is {self._master}"
        submitted = next((name for name in _SUBMITTED if name in os.environ), None)
        if submitted is not None:
            return f"{submitted} is set, as by spark-submit"
        return "a Spark session is active" if find_session() is not None else None
