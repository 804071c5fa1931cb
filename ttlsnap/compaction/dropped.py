"""The archive of the entries that a task drops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast

import numpy as np

from ttlsnap.archives.writing import ExpiredWriter, folder_of
from ttlsnap.compaction.results import RowTransformers
from ttlsnap.compaction.task import PartitionTask
from ttlsnap.entries.batch import Int64, RowEntries
from ttlsnap.storage.directory import Directory, scratch_name
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import StagedFile
from ttlsnap.unsaferow.gather import Mask


class Archive:
    """The writer of a task's dropped entries."""

    def __init__(self, task: PartitionTask, files: Directory, writer: ExpiredWriter, path: str) -> None:
        self._task, self._files, self._writer, self._path = task, files, writer, path

    def add(self, transformers: RowTransformers, before: RowEntries, after: RowEntries) -> None:
        """Write the entries in ``before`` that are not in ``after``."""
        if len(after) < len(before):
            is_dropped = np.ones(len(before), np.bool_)
            is_dropped[after.index] = False
            dropped = cast(RowEntries, before.filter(is_dropped))
            self.write(dropped, transformers.moments(dropped))

    def write(self, dropped: RowEntries, moments: tuple[Int64, Mask] | None) -> None:
        """Write the entries ``dropped``."""
        self._writer.add(dropped, moments)

    def file(self) -> StagedFile | None:
        """Return the complete file; None if nothing was dropped."""
        info = self._files.stat(self._path)
        if info is None:
            return None
        name = f"{self._task.operator}-{self._task.stores[0].name}-{self._task.partition}.parquet"
        # It needs no digest, because ``check_complete`` counts its entries before it is delivered.
        return StagedFile(self._path, f"{folder_of(str(self._task.expired_of))}/{name}", info.size, "")


@contextlib.contextmanager
def archive_for(task: PartitionTask) -> Iterator[Archive | None]:
    if task.expired_of is None:
        yield None
        return
    files = open_directory(task.staging_root)
    # Two attempts at one task must not write the same file.
    path = scratch_name(f"{folder_of(task.expired_of)}/{task.operator}-{task.stores[0].name}-{task.partition}")
    with ExpiredWriter(files, path, task.expired_of, task.operator, task.partition) as writer:
        yield Archive(task, files, writer, path)
