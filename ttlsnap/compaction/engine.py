"""The interface of engines: each runs ``compact_partition`` once for each task, and nothing else.

Afterwards the staged files of the tasks get their final names in the staging folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ttlsnap.compaction.task import PartitionResult, PartitionResults, PartitionTask, Progress
from ttlsnap.errors import StorageError
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import StagedFile, Staging


def rename_staged(task: PartitionTask, result: PartitionResult) -> PartitionResult:
    """Give a task's staged files their final names. Raise StorageError if they are not what the task left."""
    staging = task.staging
    if staging is None:
        return result
    if result.expired is not None:
        settle(staging.files, result.expired, result.expired.target)
    return settle_all(staging, result)


def settle_all(staging: Staging, result: PartitionResult) -> PartitionResult:
    """Give the new files of a partition their final names. Raise StorageError if they are not what the worker left."""
    if result.staged is None:
        return result
    return replace(
        result, staged=tuple(settle(staging.files, file, staging.place(file.target)) for file in result.staged)
    )


def settle(files: Directory, file: StagedFile, path: str) -> StagedFile:
    """Give a staged file its final name. Raise StorageError if it is not what the worker left."""
    info = files.stat(file.path)
    if info is None or info.size != file.size:
        raise StorageError(
            f"{files.root}/{file.path} is {'missing' if info is None else f'{info.size:,} bytes long'}, but a worker "
            f"wrote {file.size:,} bytes. Nothing was published. Check that all workers see the same storage"
        )
    if file.path != path:
        files.rename(file.path, path, overwrite=True)  # nobody else writes there, and so it is one request
    return replace(file, path=path)


Done = Callable[[], None]
"""A callback at the end of each partition."""


class Engine(Protocol):
    """The runner of tasks, each on one thread, several at a time.

    An engine may also have a ``reason``; see ``reason_of``.
    """

    name: str

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        """Return results in the order of ``tasks``. Call ``done`` after each, and ``progress`` during the work.

        A partition's own failure is in its result; other errors are raised.
        """
        ...


def reason_of(engine: Engine) -> str | None:
    """Return why an engine was chosen, for the report: its ``reason``, if it has one."""
    reason: str | None = getattr(engine, "reason", None)
    return reason


def run_tasks(engine: Engine, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResult]:
    """Run ``tasks``. Return the results of all their stores in order, after the new files have their staged names.

    Raise the first failure, and StorageError if a snapshot is not what the worker wrote.
    """
    results = engine.run(tasks, done, progress)
    for first_result, *_ in results:
        first_result.raise_failure()
    pairs = [(task, result) for task, task_results in zip(tasks, results, strict=True) for result in task_results]
    return each(open_directory(tasks[0].staging_root), lambda pair: rename_staged(*pair), pairs) if pairs else []
