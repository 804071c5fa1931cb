"""The entries of one source, sorted by their new partitions: in memory while there is room, then in scratch files.

    <name>.data    block, block, ...
                   block: key sizes (int32 LE), value sizes (int32 LE), keys, values; each sorted by new partition
    <name>.index   for each block, four rows of int64 LE with one number for each new partition, and one more:
                   the positions in the data file where the partition's part of each of the four begins

A new partition reads its part of every block of every source. Memory is bounded by a block and the room.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ttlsnap.errors import StorageError
from ttlsnap.unsaferow.gather import Int64s, gather_ragged
from ttlsnap.unsaferow.rows import Rows

BLOCK_BYTES = 16 << 20  # keys and values
_KINDS = 4

Entries = tuple[Rows, Rows]
"""Keys and values, as a source gives them to a target: as they are stored, or as rows."""


class Room:
    """The bytes of memory that are left for all sources of a move. Several threads may take from them."""

    def __init__(self, size: int) -> None:
        self._left, self._lock = size, threading.Lock()

    def take(self, size: int) -> bool:
        """Take some bytes; return False if fewer are left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True


class _Block(NamedTuple):
    """The four kinds of bytes, and for each of them where the part of each new partition begins, int64[4, n + 1]."""

    kinds: tuple[npt.NDArray[np.uint8], ...]
    bounds: Int64s


class Spills:
    """The spills of one source, by name. Their files are in the local folder ``path``."""

    def __init__(self, path: Path, room: Room) -> None:
        self.path, self._room = path, room
        self._blocks: dict[str, list[_Block]] = {}

    def write(self, name: str, partitions: int) -> SpillWriter:
        """Return the writer of a new spill for so many new partitions, as a context manager."""
        return SpillWriter(self.path / name, partitions, self._room, self._blocks.setdefault(name, []))

    def read(self, name: str, partition: int, partitions: int) -> Iterator[Entries]:
        """Yield the entries of one new partition, in the order in which they were added."""
        for block in self._blocks[name]:
            ranges = block.bounds[:, partition : partition + 2].tolist()
            key_size, value_size, keys, values = (
                kind[start:end] for kind, (start, end) in zip(block.kinds, ranges, strict=True)
            )
            if len(key_size):
                yield _rows(keys, key_size), _rows(values, value_size)
        yield from _read_files(self.path / name, partition, partitions)


class SpillWriter:
    """A writer of a spill; the names of its files are ``path``, and .data or .index.

    ``entries`` has the number of entries of each new partition, int64[n].
    """

    def __init__(self, path: Path, partitions: int, room: Room, blocks: list[_Block]) -> None:
        self._path, self._partitions, self._room, self._blocks = path, partitions, room, blocks
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
            self._finish_block()

    def finish(self) -> None:
        """Write what is left."""
        if self._waiting_entries:
            self._finish_block()

    def _finish_block(self) -> None:
        keys, values, partitions = self._waiting_entries[0]
        if len(self._waiting_entries) > 1:
            keys = Rows.concat([part[0] for part in self._waiting_entries])
            values = Rows.concat([part[1] for part in self._waiting_entries])
            partitions = np.concatenate([part[2] for part in self._waiting_entries])
        self._waiting_entries, self._size = [], 0
        # NumPy sorts 16 bits by radix, in a third of the time that 64 bits take.
        codes = partitions.astype(np.uint16) if self._partitions <= 1 << 16 else partitions
        order = np.argsort(codes, kind="stable")
        keys, values = keys.take(order), values.take(order)
        counts = np.bincount(partitions, minlength=self._partitions)
        self.entries += counts
        ends = np.concatenate([[0], np.cumsum(counts)])
        sizes = [rows.size.astype("<i4").view(np.uint8) for rows in (keys, values)]
        contents = [_gather(rows) for rows in (keys, values)]
        bounds = [4 * ends, 4 * ends]
        bounds += [np.concatenate([[0], np.cumsum(rows.size)])[ends] for rows in (keys, values)]
        block = _Block((*sizes, *contents), np.stack(bounds))
        # After the first block on disk, all later ones follow it, so that the order stays.
        if not self._position and self._room.take(sum(len(kind) for kind in block.kinds)):
            self._blocks.append(block)
        else:
            self._append(block)

    def _append(self, block: _Block) -> None:
        """Append a block to the files."""
        with _errors(self._path):
            for kind, bounds in zip(block.kinds, block.bounds, strict=True):
                _write_all(self._index, (bounds + self._position).astype("<i8").data)
                _write_all(self._data, kind.data)
                self._position += len(kind)


def _read_files(path: Path, partition: int, partitions: int) -> Iterator[Entries]:
    """Yield the entries of one new partition that are in the files."""
    with _errors(path), _data_of(path).open("rb") as data:
        if not _index_of(path).stat().st_size:
            return
        index = np.memmap(_index_of(path), "<i8", "r").reshape(-1, _KINDS, partitions + 1)
        for block in index[:, :, partition : partition + 2]:
            key_size, value_size, keys, values = (
                np.frombuffer(_read(data, *bounds), np.uint8) for bounds in block.tolist()
            )
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


def _gather(rows: Rows) -> npt.NDArray[np.uint8]:
    """Return the bytes of rows, one after the other. They do not keep the memory of other rows alive."""
    content = np.frombuffer(gather_ragged(rows.data, rows.start, rows.size), np.uint8)
    return content.copy() if len(content) < len(rows.data) and np.may_share_memory(content, rows.data) else content


def _rows(data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.uint8]) -> Rows:
    size = sizes.view("<i4").astype(np.int64)
    return Rows(data, np.cumsum(size) - size, size)


def _data_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


def _index_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")
