"""Threads of the local engine: each task runs once, and after a failure none is at work any more."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ttlsnap.compaction.task import Progress
from ttlsnap.engines.local import _spread_on, spread
from ttlsnap.errors import StorageError


def nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize("threads", [1, 3])
def test_results_have_the_order_of_their_tasks(threads: int) -> None:
    done: list[int] = []

    def work(task: int, progress: Progress) -> int:
        time.sleep(0.01 * (5 - task))
        progress(1, 0)
        return task * task

    counts: list[int] = []
    found = spread(work, range(5), threads, lambda: done.append(1), lambda entries, dropped: counts.append(entries))
    assert (found, len(done), sum(counts)) == ([0, 1, 4, 9, 16], 5, 5)


def test_no_task_is_at_work_after_a_failure() -> None:
    # The caller removes the staged files of a failed run, and a task must not write one again.
    started, at_work = threading.Event(), threading.Event()

    def work(task: int, progress: Progress) -> None:
        if task == 0:
            started.wait(10)
            raise StorageError("the disk is full")
        at_work.set()
        started.set()
        time.sleep(0.3)
        at_work.clear()

    with ThreadPoolExecutor(2) as shared:  # other runs use it, too, so it does not end
        with pytest.raises(StorageError, match="the disk is full"):
            _spread_on(shared, work, range(2), nothing, nothing, threading.Event())
        assert not at_work.is_set()
