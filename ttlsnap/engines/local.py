"""The local engine: processes of one thread each on this machine, no JVM.

Processes, because Python's lock bounds threads here, the work being many short NumPy calls on windows of a megabyte,
and because with a transformer in plain Python threads gain nothing (figures: ``docs/performance.md``). Starting a
process takes as long as the work on some ten megabytes of state files, so small checkpoints are not worth one. A
single task, or a parallelism of 1, runs in the calling thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import as_completed

from loky import ProcessPoolExecutor
from loky.process_executor import TerminatedWorkerError

from ttlsnap.engines import Done
from ttlsnap.engines.progress import listener, sender
from ttlsnap.errors import TtlsnapError
from ttlsnap.partition import PartitionResults, PartitionTask, Progress, compact_partition

_progress: Progress = sender(None)


# Bytes of HDFS-backed state for each process: starting one takes about as long as the work on half as many.
_WORTH_A_PROCESS = 64 << 20


class LocalEngine:
    """Runs partitions on ``parallelism`` processes; by default on no more than there are cores, or are worth it."""

    name = "local"

    def __init__(self, parallelism: int | None = None) -> None:
        self.parallelism = parallelism

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        workers = min(self.parallelism or _useful_processes(tasks), len(tasks))
        if workers <= 1:
            return [_finished(compact_partition(task, progress), done) for task in tasks]
        # loky's processes are fresh ones, not forks (Arrow and a JVM's gateway have threads, which a fork would cut
        # in two), and do not run the caller's main module again, so that scripts and notebooks need no guard.
        with (
            listener(progress) as port,
            ProcessPoolExecutor(workers, initializer=_start, initargs=(port,)) as pool,
        ):
            futures = {pool.submit(_run, task): number for number, task in enumerate(tasks)}
            results: dict[int, PartitionResults] = {}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = _finished(future.result(), done)
            except TerminatedWorkerError as error:
                raise TtlsnapError(
                    "a worker process died (out of memory?); nothing was published. Try a smaller --parallelism"
                ) from error
            except BaseException:
                pool.shutdown(kill_workers=True)
                raise
        return [results[number] for number in range(len(tasks))]


def _useful_processes(tasks: Sequence[PartitionTask]) -> int:
    size = sum(task.size * task.state_store.effort for task in tasks)
    return min(len(os.sched_getaffinity(0)), 1 + size // _WORTH_A_PROCESS)


def _finished(result: PartitionResults, done: Done) -> PartitionResults:
    done()
    return result


def _start(port: int | None) -> None:
    global _progress
    _progress = sender(port)


def _run(task: PartitionTask) -> PartitionResults:
    return compact_partition(task, _progress)
