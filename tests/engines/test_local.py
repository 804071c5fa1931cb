"""Threads of the local engine: each task runs once, and after a failure none is at work any more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ttlsnap.compaction.task import Progress
from ttlsnap.engines.local import spread, spread_on
from ttlsnap.errors import StorageError


def nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize("threads", [1, 3])
def test_results_have_the_order_of_their_tasks(threads: int) -> None:
    done: list[int] = []
    counts: list[int] = []

    def work(task: int, progress: Progress) -> int:
        progress(task, 0)
        return task * task

    found = spread(work, range(50), threads, lambda: done.append(1), lambda entries, dropped: counts.append(entries))
    assert found == [task * task for task in range(50)]
    assert (len(done), sum(counts)) == (50, sum(range(50)))


def test_no_task_is_at_work_after_a_failure() -> None:
    # The caller removes the staged files of a failed run, and a task must not write one again.
    events: list[str] = []
    started, over = threading.Event(), threading.Event()

    def work(task: int, progress: Progress) -> None:
        if task == 0:
            started.wait(60)
            events.append("failed")
            raise StorageError("the disk is full")
        started.set()
        over.wait(0.5)
        events.append("ended")

    with ThreadPoolExecutor(2) as shared:  # other runs use it, too, so it does not end
        with pytest.raises(StorageError, match="the disk is full"):
            spread_on(shared, work, range(2), nothing, nothing, threading.Event())
        events.append("raised")
        over.set()
    assert events == ["failed", "ended", "raised"]
