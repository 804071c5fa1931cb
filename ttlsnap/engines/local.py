"""The local engine: processes of one thread each on this machine, no JVM.

It uses processes because Python's lock limits threads: the work is many short NumPy calls on windows of a megabyte, and
with a transformer in plain Python, threads gain nothing (figures: ``docs/performance.md``). Starting a process takes as
long as the work on about 30 MB of state files, so small checkpoints need none. A single task, or a parallelism
of 1, runs in the calling thread. The partitions of a small checkpoint elsewhere mostly wait for the network, so they
run in threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed, wait
from functools import partial
from typing import TypeVar

from loky import ProcessPoolExecutor
from loky.process_executor import TerminatedWorkerError

from ttlsnap.compaction.engine import Done
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.engines.progress import listener, sender
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage.uris import is_local

Task = TypeVar("Task")
Result = TypeVar("Result")

_progress: Progress = sender(None)


# The bytes of HDFS-backed state for each process. Starting a process takes as long as the work on about half of them.
_WORTH_A_PROCESS = 64 << 20
# The number of threads for a checkpoint elsewhere: they mostly wait for the network.
_WAITING = 16


class LocalEngine:
    """An engine of ``parallelism`` processes; by default at most one for each core, and only as many as are useful."""

    name = "local"

    def __init__(self, parallelism: int | None = None) -> None:
        self.parallelism = parallelism

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        workers = self.parallelism or useful_processes(measure_work(tasks))
        if self.parallelism is None and workers == 1 and _wait_for_a_network(tasks):
            return _in_threads(tasks, done, progress)
        return spread(compact_partition, tasks, workers, done, progress)


class SharedLocalEngine:
    """A local engine for several runs at a time, which share ``parallelism`` processes.

    While the requested work is too small for processes, the requesting threads do it, one partition at a time in all
    threads. For a checkpoint elsewhere they do several, unless ``parallelism`` is given. After that, the processes do
    all work. They exist until the end of the block.
    """

    name = "local"

    def __init__(self, parallelism: int | None = None) -> None:
        self._bounded = parallelism is not None
        self._processes = parallelism or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None
        self._asked = 0
        self._is_stopped = False
        self._here, self._counting = threading.Lock(), threading.Lock()

    def __enter__(self) -> SharedLocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(kill_workers=True)

    def stop(self) -> None:
        """Make all work in progress raise an error soon, and all later work, too."""
        self._is_stopped = True
        pool = self._pool
        if pool is not None:
            pool.shutdown(wait=False, kill_workers=True)

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``. The processes do not report progress within partitions."""

        def unless_stopped(entries: int, dropped: int) -> None:
            if self._is_stopped:
                raise KeyboardInterrupt
            progress(entries, dropped)

        with self._counting:
            self._asked += measure_work(tasks)
            worth_it = self._processes > 1 and useful_processes(self._asked) > 1
        if not (self._bounded or worth_it or self._pool) and _wait_for_a_network(tasks):
            return _in_threads(tasks, done, unless_stopped)
        results: list[PartitionResults] = []
        for number, task in enumerate(tasks):
            with self._here:
                if worth_it and not self._is_stopped:
                    self._pool = self._pool or ProcessPoolExecutor(self._processes)
                unless_stopped(0, 0)
                if self._pool is None:
                    results.append(_finish(compact_partition(task, unless_stopped), done))
                    continue
            try:
                return results + _spread_on(self._pool, partial(_run, compact_partition), tasks[number:], done)
            except TerminatedWorkerError as error:
                with self._here:
                    self._pool = None  # it accepts no more tasks; the next target starts new processes
                raise _worker_error() from error
        return results


def spread(
    work: Callable[[Task, Progress], Result], tasks: Sequence[Task], workers: int, done: Done, progress: Progress
) -> list[Result]:
    """Return the result of ``work``, a function of a module, for each task, from at most ``workers`` processes.

    Raise the errors of workers, and TtlsnapError for a worker that died.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [_finish(work(task, progress), done) for task in tasks]
    # loky starts new processes. A fork would copy Arrow and a JVM's gateway without their threads. loky's processes do
    # not run the caller's main module again, so scripts and notebooks need no guard.
    with (
        listener(progress) as port,
        ProcessPoolExecutor(workers, initializer=_start, initargs=(port,)) as pool,
    ):
        try:
            return _spread_on(pool, partial(_run, work), tasks, done, partial(pool.shutdown, kill_workers=True))
        except TerminatedWorkerError as error:
            raise _worker_error() from error
        except BaseException:
            pool.shutdown(kill_workers=True)
            raise


def _in_threads(tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
    one_at_a_time, stopped = threading.Lock(), threading.Event()

    def told(entries: int, dropped: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        with one_at_a_time:
            progress(entries, dropped)

    with ThreadPoolExecutor(_WAITING) as pool:
        return _spread_on(pool, lambda task: compact_partition(task, told), tasks, done, stopped.set)


def _wait_for_a_network(tasks: Sequence[PartitionTask]) -> bool:
    return any(not is_local(task.root) for task in tasks)


def _spread_on(
    pool: Executor,
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    done: Done,
    stop: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Return the results of ``work`` for each task; call ``stop`` if the user or the system ends the process."""
    futures = {pool.submit(work, task): number for number, task in enumerate(tasks)}
    results: dict[int, Result] = {}
    try:
        for future in as_completed(futures):
            results[futures[future]] = _finish(future.result(), done)
    except KeyboardInterrupt:
        stop()
        raise
    finally:
        # After a failure the staged files are removed, so no task may still be writing.
        wait([future for future in futures if not future.cancel()])
    return [results[number] for number in range(len(tasks))]


def _worker_error() -> TtlsnapError:
    return TtlsnapError("a worker process died (out of memory?); nothing was published. Try a smaller --parallelism")


def measure_work(tasks: Sequence[PartitionTask]) -> int:
    """Return how much work the tasks are, as bytes of HDFS-backed state files."""
    return sum(task.size * task.state_store.relative_cost for task in tasks)


def useful_processes(size: int) -> int:
    """Return how many processes are useful for the work on ``size`` bytes of HDFS-backed state."""
    return min(len(os.sched_getaffinity(0)), 1 + size // _WORTH_A_PROCESS)


def _finish(result: Result, done: Done) -> Result:
    done()
    return result


def _start(port: int | None) -> None:
    global _progress
    _progress = sender(port)


def _run(work: Callable[[Task, Progress], Result], task: Task) -> Result:
    return work(task, _progress)
