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
        self._before, self._at_once, self._clock = visited, at_once, clock
        self._always: list[PartitionTask] = []
        self._parts: list[tuple[Incremental, list[PartitionTask]]] = [(part or Incremental(1), []) for _, part in parts]
        for task in tasks:
            found = next((n for n, (selection, _) in enumerate(parts) if _is_about(selection, task)), None)
            limited = found is not None and parts[found][1] is not None
            (self._parts[found][1] if limited and found is not None else self._always).append(task)
        self._now: set[Visit] = set()

    def waves(self) -> Generator[list[PartitionTask], Sequence[PartitionResult], None]:
        """Yield tasks that can run at the same time. The caller sends their results before it gets the next tasks."""
        if self._always:
            yield self._always
        for part, tasks in self._parts:
            left = [task for task in tasks if _visit(task) not in self._before]
            left = left or tasks  # all were visited, so the first is visited again
            started, partitions, entries = self._clock(), 0, 0
            while left and (not partitions or part.allows(partitions, entries, self._clock() - started)):
                bounded = part.max_entries is not None or part.max_seconds is not None
                size = self._at_once if bounded else len(left)
                if part.max_partitions is not None:
                    size = min(size, part.max_partitions - partitions)
                wave, left = left[:size], left[size:]
                results = yield wave
                self._now |= {_visit(task) for task in wave}
                partitions += len(wave)
                entries += sum(result.entries for result in results)

    def find_visited(self, run: str | None) -> Visited:
        """Return the partitions visited since all of them were visited last, including those of this ``run``."""
        found = dict(self._before)
        for _, tasks in self._parts:
            mine = {_visit(task) for task in tasks}
            if mine <= self._before.keys():
                found = {turn: by for turn, by in found.items() if turn not in mine}
        return found | dict.fromkeys(self._now, run)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of partitions with a limit: visited in this run, all, and left before one is visited again."""
        mine = {_visit(task) for _, tasks in self._parts for task in tasks}
        return len(self._now & mine), len(mine), len(mine - self.find_visited(None).keys())


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
    stand = {None, *(journal.run for journal in journals)} - {journal.undoes for journal in journals if journal.undoes}
    return {turn: run for turn, run in visited.items() if run in stand}


def write_visited(files: Directory, visits: Visits, run: str | None) -> None:
    """Record the partitions that ``run`` visited, which count if it is published; None if it has nothing to publish."""
    visited = sorted(visits.find_visited(run).items())
    files.mkdirs(OWN)
    files.replace(CURSOR, json.dumps({"visited": [[*turn, run] for turn, run in visited]}).encode())


def _visits(found: object) -> Visited:
    if not isinstance(found, list):
        raise TypeError(f"{found!r} is not a list")
    visits = [(operator, store, partition, run) for operator, store, partition, run in found]
    if not all(isinstance(o, int) and isinstance(s, str) and isinstance(p, int) for o, s, p, _ in visits):
        raise ValueError("an item is not an operator, a store and a partition")
    if not all(run is None or isinstance(run, str) for *_, run in visits):
        raise ValueError("an item does not name a run")
    return {(operator, store, partition): run for operator, store, partition, run in visits}
