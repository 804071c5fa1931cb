"""Who runs the partitions. Every engine runs ``compact_partition`` once for each task, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ttlsnap.filesystem import each, open_directory
from ttlsnap.partition import PartitionResult, PartitionResults, PartitionTask, Progress, settle

Done = Callable[[], None]
"""Told once for each partition, when it has ended."""


class Engine(Protocol):
    """Runs tasks, each on one thread, several at a time."""

    name: str

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """Results in the order of ``tasks``; ``done`` is called as each ends, ``progress`` as they go on.

        A partition's own failure is in its result; whatever else goes wrong is raised.
        """
        ...


def run_tasks(engine: Engine, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResult]:
    """Run ``tasks``; the results of all their stores in order, with the new files where they are staged.

    Raises the first failure, and StorageError where a snapshot is not what the worker wrote.
    """
    results = engine.run(tasks, done, progress)
    for first, *_ in results:
        first.raise_failure()
    pairs = [(task, result) for task, mine in zip(tasks, results, strict=True) for result in mine]
    return each(open_directory(tasks[0].staging_root), lambda pair: settle(*pair), pairs) if pairs else []
