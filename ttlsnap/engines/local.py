"""The local engine: threads of this process, no JVM.

The loops over the bytes of a batch run without Python's lock (``ttlsnap.native``, the codecs, NumPy), so threads work
at the same time, and they start at once. A transformer in plain Python holds the lock. For a slow one, the Spark engine
has processes. Figures: ``docs/performance.md``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ttlsnap.compaction.engine import Done
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.cores import available_cores
from ttlsnap.engines.moving import Move, Moved, Part
from ttlsnap.engines.progress import WorkListener
from ttlsnap.engines.spill import Room, Spills
from ttlsnap.errors import UsageError
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.scratch import make_folder, scratch_folder

Task = TypeVar("Task")
Result = TypeVar("Result")

_WAITING = 16  # threads for a small checkpoint elsewhere: they mostly wait for the network
_SMALL = 1 << 30  # bytes of state: as many threads can hold their partitions in memory


class LocalEngine:
    """An engine of ``parallelism`` threads; by default one for each core, and more for a checkpoint elsewhere."""

    name = "local"

    def __init__(self, parallelism: int | None = None) -> None:
        if parallelism is not None and parallelism < 1:
            raise UsageError(f"parallelism is a number of threads from 1 on, not {parallelism}")
        self.parallelism = parallelism

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        threads = self.parallelism or _useful_threads(tasks)
        return spread(compact_partition, tasks, threads, done, progress)

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """See ``MovingEngine.move``."""
        threads = self.parallelism or useful_threads(move.root, move.size)

        def run(work: Callable[[Task, Progress], Result], tasks: Sequence[Task]) -> list[Result]:
            return spread(work, tasks, threads, done, progress)

        return _move(run, move)


class SharedLocalEngine:
    """A local engine for several runs at a time, which share ``parallelism`` threads until the block ends."""

    name = "local"

    def __init__(self, parallelism: int | None = None) -> None:
        self._parallelism = parallelism
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._is_stopped, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> SharedLocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self._pools.values():
            pool.shutdown()

    def stop(self) -> None:
        """Make all work in progress raise an error soon, and all later work, too."""
        self._is_stopped.set()

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """See ``Engine.run``."""
        return spread_on(self._pool(_useful_threads(tasks)), compact_partition, tasks, done, progress, self._is_stopped)

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """See ``MovingEngine.move``."""
        pool = self._pool(useful_threads(move.root, move.size))

        def run(work: Callable[[Task, Progress], Result], tasks: Sequence[Task]) -> list[Result]:
            return spread_on(pool, work, tasks, done, progress, self._is_stopped)

        return _move(run, move)

    def _pool(self, default_threads: int) -> ThreadPoolExecutor:
        threads = self._parallelism or default_threads
        with self._lock:
            pool = self._pools.get(threads) or ThreadPoolExecutor(threads)
            self._pools[threads] = pool
        return pool


def spread(
    work: Callable[[Task, Progress], Result], tasks: Sequence[Task], threads: int, done: Done, progress: Progress
) -> list[Result]:
    """Return the result of ``work`` for each task, from at most ``threads`` threads. Raise their errors."""
    if min(threads, len(tasks)) <= 1:
        results = []
        for task in tasks:
            results.append(work(task, progress))
            done()
        return results
    with ThreadPoolExecutor(min(threads, len(tasks))) as pool:
        return spread_on(pool, work, tasks, done, progress, threading.Event())


class Readable(Protocol):
    """The work of a command that only reads: ``size`` bytes on disk, in the checkpoint ``root``."""

    @property
    def root(self) -> str: ...
    @property
    def size(self) -> int: ...


@dataclass(frozen=True)
class PartitionReading:
    """The reading of one partition, ``source``. See ``Readable``."""

    source: StorePartition

    @property
    def root(self) -> str:
        """The checkpoint."""
        return self.source.root

    @property
    def size(self) -> int:
        """The size of the files, in bytes."""
        return self.source.size


ReadTask = TypeVar("ReadTask", bound=Readable)


def read_all(
    read: Callable[[ReadTask, Progress], Result],
    tasks: Sequence[ReadTask],
    parallelism: int | None,
    listener: WorkListener,
) -> list[Result]:
    """Return what ``read`` returns for each task, from ``parallelism`` threads; by default as many as are useful."""
    listener.planned(len(tasks))
    threads = parallelism or _useful_threads(tasks)
    return spread(read, tasks, threads, listener.partition_done, listener.progress)


def useful_threads(root: str, size: int) -> int:
    """Return how many threads are useful for so many bytes of state at a place."""
    cores = available_cores()
    return cores if is_local(root) or size > _SMALL else max(cores, _WAITING)


def _useful_threads(tasks: Sequence[Readable]) -> int:
    return useful_threads(tasks[0].root, sum(task.size for task in tasks)) if tasks else 1


class _Run(Protocol):
    """A function that returns the result of ``work`` for each task."""

    def __call__(self, work: Callable[[Task, Progress], Result], tasks: Sequence[Task]) -> list[Result]: ...


def _move(run: _Run, move: Move) -> Moved:
    """Carry out a move with ``run``: all sources, and then all targets."""
    sources, targets = move.sources, move.targets
    with scratch_folder(move.scratch) as folder:
        room = Room(move.room)
        spills = [Spills(folder / str(number), room) for number in range(len(sources))]

        def split(number: int, progress: Progress) -> Any:
            make_folder(spills[number].path)
            return sources[number].split(spills[number], progress)

        def build(target_number: int, progress: Progress) -> Any:
            parts = (
                Part(*entries, source_number, part)
                for source_number, (source, own_spills) in enumerate(zip(sources, spills, strict=True))
                for part, entries in enumerate(source.read(own_spills, target_number))
            )
            return targets[target_number].build(parts, folder, progress)

        source_results = run(split, range(len(sources)))
        move.check(source_results)
        return source_results, run(build, range(len(targets)))


def spread_on(
    pool: ThreadPoolExecutor,
    work: Callable[[Task, Progress], Result],
    tasks: Sequence[Task],
    done: Done,
    progress: Progress,
    is_stopped: threading.Event,
) -> list[Result]:
    """Return the results of ``work`` for each task. Threads stop at their next report after ``is_stopped`` is set."""
    one_at_a_time, failed = threading.Lock(), threading.Event()

    def report_progress(entries: int, dropped: int) -> None:
        if is_stopped.is_set() or failed.is_set():
            raise KeyboardInterrupt
        with one_at_a_time:
            progress(entries, dropped)

    def run(task: Task) -> Result:
        report_progress(0, 0)
        return work(task, report_progress)

    futures = {pool.submit(run, task): number for number, task in enumerate(tasks)}
    results: dict[int, Result] = {}
    try:
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            done()
    except BaseException:
        failed.set()
        raise
    finally:
        # After a failure the staged files are removed, so no task may still be writing.
        wait([future for future in futures if not future.cancel()])
    return [results[number] for number in range(len(tasks))]
