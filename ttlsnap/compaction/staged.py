"""The final names of a task's staged files in the staging folder."""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.errors import StorageError
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.protocols import StagedFile


def rename_staged(task: PartitionTask, result: PartitionResult) -> PartitionResult:
    """Give a task's staged files their final names. Raise StorageError if they are not what the task left."""
    staging = task.staging
    if staging is None:
        return result
    if result.expired is not None:
        settle(staging.files, result.expired, result.expired.target)
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
    files.rename(file.path, path, overwrite=True)  # nobody else writes there, and so it is one request
    return replace(file, path=path)
