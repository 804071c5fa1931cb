"""Incremental cleanup, as in Flink: each run processes a bounded part of a checkpoint.

A run visits some of the partitions completely, so that its result is consistent. ``_ttlsnap/cursor.json`` records which
partitions were visited, and in which run. Every partition is visited before one is visited again. Visits of a
run that was undone or rolled back do not count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.publishing.runs import Runs
from ttlsnap.schema.strict_json import parse_json
from ttlsnap.storage.directory import OWN, Directory

CURSOR = f"{OWN}/cursor.json"
_MAX_BYTES = 64 << 20

Visit = tuple[int, str, int]
"""An operator, the first of its linked stores, and a partition."""

Visited = Mapping[Visit, str | None]
"""The visited partitions, with the run of each visit; None if there was nothing to publish, and so to undo."""


@dataclass(frozen=True)
class Incremental:
    """The limits of a run; None for no limit.

    Limits of entries and seconds are checked between partitions, so a run can exceed them by the partitions in
    progress. It visits at least one partition.
    """

    max_partitions: int | None = None
    max_entries: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        limits = (self.max_partitions, self.max_entries, self.max_seconds)
        if all(limit is None for limit in limits) or any(limit is not None and limit <= 0 for limit in limits):
            raise UsageError("incremental cleanup needs max_partitions, max_entries or max_seconds, above zero")

    def allows(self, partitions: int, entries: int, seconds: float) -> bool:
        """Return whether a run that has visited this much may visit more."""
        return (
            (self.max_partitions is None or partitions < self.max_partitions)
            and (self.max_entries is None or entries < self.max_entries)
            and (self.max_seconds is None or seconds < self.max_seconds)
        )


Parts = Sequence[tuple[Selection, Incremental | None]]
"""Selections of states with their limits, None for no limit. The first selection that includes a state counts."""


class Visits:
    """The visits of a run: all ``tasks`` without a limit, and some of the others."""

    def __init__(
        self,
        tasks: Sequence[PartitionTask],
        parts: Parts,
        visited: Visited,
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._visited_before, self._tasks_at_once, self._clock = visited, at_once, clock
        self._unlimited_tasks: list[PartitionTask] = []
        self._parts: list[tuple[Incremental, list[PartitionTask]]] = [
            (limits or Incremental(1), []) for _, limits in parts
        ]
        for task in tasks:
            part_number = next(
                (number for number, (selection, _) in enumerate(parts) if _is_about(selection, task)), None
            )
            is_limited = part_number is not None and parts[part_number][1] is not None
            (self._parts[part_number][1] if is_limited and part_number is not None else self._unlimited_tasks).append(
                task
            )
        self._visited_now: set[Visit] = set()

    def waves(self) -> Generator[list[PartitionTask], Sequence[PartitionResult], None]:
        """Yield tasks that can run at the same time. The caller sends their results before it gets the next tasks."""
        if self._unlimited_tasks:
            yield self._unlimited_tasks
        for limits, tasks in self._parts:
            tasks_left = [task for task in tasks if _visit(task) not in self._visited_before]
            tasks_left = tasks_left or tasks  # all were visited, so the first is visited again
            started, partitions, entries = self._clock(), 0, 0
            while tasks_left and (not partitions or limits.allows(partitions, entries, self._clock() - started)):
                is_bounded = limits.max_entries is not None or limits.max_seconds is not None
                wave_size = self._tasks_at_once if is_bounded else len(tasks_left)
                if limits.max_partitions is not None:
                    wave_size = min(wave_size, limits.max_partitions - partitions)
                wave, tasks_left = tasks_left[:wave_size], tasks_left[wave_size:]
                results = yield wave
                self._visited_now |= {_visit(task) for task in wave}
                partitions += len(wave)
                entries += sum(result.entries for result in results)

    def find_visited(self, run: str | None) -> Visited:
        """Return the partitions visited since all of them were visited last, including those of this ``run``."""
        visited = dict(self._visited_before)
        for _, tasks in self._parts:
            visits_of_part = {_visit(task) for task in tasks}
            if visits_of_part <= self._visited_before.keys():
                visited = {visit: old_run for visit, old_run in visited.items() if visit not in visits_of_part}
        return visited | dict.fromkeys(self._visited_now, run)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of partitions with a limit: visited in this run, all, and left before one is visited again."""
        visits = {_visit(task) for _, tasks in self._parts for task in tasks}
        return len(self._visited_now & visits), len(visits), len(visits - self.find_visited(None).keys())


def _is_about(selection: Selection, task: PartitionTask) -> bool:
    return any(selection.includes(state) for store in task.stores for state in store.states)


def _visit(task: PartitionTask) -> Visit:
    return task.operator, task.stores[0].name, task.partition


def read_visited(runs: Runs) -> Visited:
    """Return the visited partitions. Raise CorruptionError for a damaged cursor."""
    files = runs.files
    if files.stat(CURSOR) is None:
        return {}
    try:
        visited = _visits(parse_json(files.read(CURSOR, _MAX_BYTES))["visited"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{files.root}/{CURSOR} does not say which partitions were visited ({error!r}). Remove it; the next run "
            "then starts with the first partition"
        ) from error
    journals = [journal for journal in runs.journals if journal.status == "done"]
    valid_runs = {None, *(journal.run for journal in journals)} - {
        journal.undoes for journal in journals if journal.undoes
    }
    return {visit: run for visit, run in visited.items() if run in valid_runs}


def write_visited(files: Directory, visits: Visits, run: str | None) -> None:
    """Record the partitions that ``run`` visited, which count if it is published; None if it has nothing to publish."""
    visited = sorted(visits.find_visited(run).items())
    files.mkdirs(OWN)
    files.replace(CURSOR, json.dumps({"visited": [[*visit, run] for visit, run in visited]}).encode())


def _visits(items: object) -> Visited:
    if not isinstance(items, list):
        raise TypeError(f"{items!r} is not a list")
    visits = [(operator, store, partition, run) for operator, store, partition, run in items]
    if not all(
        isinstance(operator, int) and isinstance(store, str) and isinstance(partition, int)
        for operator, store, partition, _ in visits
    ):
        raise ValueError("an item is not an operator, a store and a partition")
    if not all(run is None or isinstance(run, str) for *_, run in visits):
        raise ValueError("an item does not name a run")
    return {(operator, store, partition): run for operator, store, partition, run in visits}
