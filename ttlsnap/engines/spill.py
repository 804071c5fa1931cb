"""The entries of one source, sorted by their new partitions, in two files of the scratch folder.

    <name>.data    block, block, ...
                   block: key sizes (int32 LE), value sizes (int32 LE), keys, values; each sorted by new partition
    <name>.index   for each block, four rows of int64 LE with one number for each new partition, and one more:
                   the positions in the data file where the partition's part of each of the four begins

A new partition reads its part of every block of every source. Memory is bounded by a block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from ttlsnap.engines.moving import Entries
from ttlsnap.errors import StorageError
from ttlsnap.unsaferow.gather import Int64s, gather_ragged
from ttlsnap.unsaferow.rows import Rows

BLOCK_BYTES = 16 << 20  # keys and values
_KINDS = 4


class SpillWriter:
    """A writer of the spill at ``path`` for ``partitions`` new partitions, whose names end in .data and .index.

    ``entries`` has the number of entries of each new partition, int64[n].
    """

    def __init__(self, path: Path, partitions: int) -> None:
        self._path, self._partitions = path, partitions
        self._waiting_entries: list[tuple[Rows, Rows, Int64s]] = []
        self._size = self._position = 0
        self.entries = np.zeros(partitions, np.int64)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack, _errors(self._path):
            self._data = stack.enter_context(_data_of(self._path).open("xb", buffering=0))
            self._index = stack.enter_context(_index_of(self._path).open("xb", buffering=0))
            self._files = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, keys: Rows, values: Rows, partitions: Int64s) -> None:
        """Add entries, each with its new partition."""
        self._waiting_entries.append((keys, values, partitions))
        self._size += int(keys.size.sum() + values.size.sum())
        if self._size >= BLOCK_BYTES:
            self._write()

    def finish(self) -> None:
        """Write what is left."""
        if self._waiting_entries:
            self._write()

    def _write(self) -> None:
        keys, values, partitions = self._waiting_entries[0]
        if len(self._waiting_entries) > 1:
            keys = Rows.concat([part[0] for part in self._waiting_entries])
            values = Rows.concat([part[1] for part in self._waiting_entries])
            partitions = np.concatenate([part[2] for part in self._waiting_entries])
        self._waiting_entries, self._size = [], 0
        order = np.argsort(partitions, kind="stable")
        keys, values = keys.take(order), values.take(order)
        counts = np.bincount(partitions, minlength=self._partitions)
        self.entries += counts
        ends = np.cumsum(counts)
        for rows in (keys, values):
            self._append(rows.size.astype("<i4").data, np.full(len(rows), 4, np.int64), ends)
        for rows in (keys, values):
            self._append(gather_ragged(rows.data, rows.start, rows.size), rows.size, ends)

    def _append(self, data: object, size: Int64s, ends: Int64s) -> None:
        """Append the pieces of one kind, and to the index where each partition's part begins."""
        bounds = np.concatenate([[0], np.cumsum(size)])
        starts = np.concatenate([[0], bounds[ends]])
        with _errors(self._path):
            _write_all(self._index, (starts + self._position).astype("<i8").data)
            _write_all(self._data, data)
        self._position += int(bounds[-1])


def read_spill(path: Path, partition: int, partitions: int) -> Iterator[Entries]:
    """Yield the entries of one new partition, in the order in which they were added."""
    with _errors(path), _data_of(path).open("rb") as data:
        if not _index_of(path).stat().st_size:
            return
        index = np.memmap(_index_of(path), "<i8", "r").reshape(-1, _KINDS, partitions + 1)
        for block in index[:, :, partition : partition + 2]:
            key_size, value_size, keys, values = (_read(data, *bounds) for bounds in block.tolist())
            if len(key_size):
                yield _rows(keys, key_size), _rows(values, value_size)


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn an error of the scratch disk into a StorageError."""
    try:
        yield
    except OSError as error:
        words = f"scratch file {path}: {error.strerror or error}; name another folder with --scratch"
        raise StorageError(words) from error


def _write_all(file: RawIOBase, data: object) -> None:
    bytes_left = memoryview(data).cast("B")  # type: ignore[arg-type]
    while len(bytes_left):
        bytes_left = bytes_left[file.write(bytes_left) or 0 :]


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _rows(data: bytes, sizes: bytes) -> Rows:
    size = np.frombuffer(sizes, "<i4").astype(np.int64)
    return Rows(np.frombuffer(data, np.uint8), np.cumsum(size) - size, size)


def _data_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


def _index_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")
