"""The rows of a file, sorted by partition: in memory as long as there is room, and then in scratch files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from ttlsnap.migration.spill import SpillWriter, read_spill
from ttlsnap.unsaferow.gather import Int64s
from ttlsnap.unsaferow.rows import Rows

ROOM = 256 << 20  # bytes of rows that all files together keep in memory


class Room:
    """The room in memory that is left for all files. Several threads may take from it."""

    def __init__(self, size: int = ROOM) -> None:
        self._left, self._lock = size, threading.Lock()

    def take(self, size: int) -> bool:
        """Take some bytes; return False if there are not so many left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True


class SortedRows:
    """The rows of one file. ``path`` is the place for its scratch files. Use it as a context manager to add rows."""

    def __init__(self, path: Path, partitions: int, room: Room) -> None:
        self._path, self._partitions, self._room = path, partitions, room
        self._parts: list[tuple[Rows, Rows, Int64s]] = []
        self._spill: SpillWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spill is not None:
            if kind is None:
                self._spill.finish()
            self._spill.__exit__(kind, error, trace)

    def add(self, keys: Rows, values: Rows, partitions: Int64s) -> None:
        """Add rows, each with its partition."""
        # After the first rows on disk, all later ones follow them, so that the order stays.
        if self._spill is None and self._room.take(len(keys.data) + len(values.data)):
            order = np.argsort(partitions, kind="stable")
            bounds = np.searchsorted(partitions[order], np.arange(self._partitions + 1))
            self._parts.append((keys.take(order), values.take(order), bounds))
            return
        if self._spill is None:
            self._spill = SpillWriter(self._path, self._partitions)
            self._spill.__enter__()
        self._spill.add(keys, values, partitions)

    def read(self, partition: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield the rows of a partition, in the order in which they were added."""
        for keys, values, bounds in self._parts:
            mine = slice(int(bounds[partition]), int(bounds[partition + 1]))
            if mine.start < mine.stop:
                yield keys.take(mine), values.take(mine)
        if self._spill is not None:
            yield from read_spill(self._path, partition, self._partitions)
