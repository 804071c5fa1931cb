"""Records of a state file, found in whole buffers.

    file   := record* end                 (all lengths big-endian int32)
    record := klen key vlen value  |  klen key -1        -1 deletes the key; in deltas only
    end    := -1                          nothing follows it

Key and value are multiples of 4 bytes (UnsafeRows of 8, and 4 for a row checksum), so a record begins on a 4-byte word.
The position of a record depends on the lengths before it, and ``ttlsnap.native`` follows them. Without it, runs of
records of one size are found by comparing two strided columns, and only other records one by one.

Source: Spark's ``HDFSBackedStateStoreProvider``; ``docs/hdfs-state-store.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttlsnap import native
from ttlsnap.errors import CorruptionError
from ttlsnap.native import loops
from ttlsnap.stores.codecs import Piece

Int64 = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]

DELETED = -1
END = np.array([-1], dtype=">i4").tobytes()
WINDOW = 2 << 20
_LONG_RUN = 64
_FOLLOWED = 4096  # records that are followed one by one before the next attempt to find a run


@dataclass(frozen=True)
class Records:
    """Consecutive records in one buffer.

    ``start`` is the position of each record. ``key_size`` and ``value_size`` are in bytes; a value size of -1 is a
    delete.
    """

    data: npt.NDArray[np.uint8]
    start: Int64
    key_size: Int64
    value_size: Int64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def key_start(self) -> Int64:
        return self.start + 4

    @property
    def value_start(self) -> Int64:
        return self.start + 8 + self.key_size

    @property
    def end(self) -> Int64:
        """Positions of the byte after each record."""
        return self.value_start + np.maximum(self.value_size, 0)

    def take(self, index: npt.NDArray[np.bool_] | Int64) -> Records:
        """Return the records that a mask or an index selects, over the same buffer."""
        return Records(self.data, self.start[index], self.key_size[index], self.value_size[index])


def read_records(pieces: Iterable[Piece], where: str, window: int = WINDOW) -> Iterator[Records]:
    """Yield the records of a whole stream, about ``window`` bytes at a time.

    Raises CorruptionError for an impossible length, and for a stream that ends before the end mark or continues after
    it.
    """
    source = iter(pieces)
    bytes_before, rest_bytes, target = 0, b"", window
    while gathered_pieces := _gather(source, target):
        data = np.frombuffer(b"".join([rest_bytes, *gathered_pieces]), np.uint8)
        start, key_size, value_size, bytes_used, end = (loops.find_records if native.is_available() else _find)(data)
        if end == loops.IMPOSSIBLE:
            raise _impossible(data, bytes_used, where, bytes_before)
        if len(start):
            yield Records(data, start, key_size, value_size)
        if end == loops.ENDED:
            if bytes_used + len(END) != len(data):
                raise CorruptionError(f"{where}: bytes follow the end mark at byte {bytes_before + bytes_used}")
            _expect_nothing(source, where, bytes_before + len(data))
            return
        # A record that is larger than the window is gathered in steps of doubling size.
        target = window if bytes_used else 2 * len(data)
        rest_bytes = data[bytes_used:].tobytes()
        bytes_before += bytes_used
    raise CorruptionError(
        f"{where} is truncated: it ends at decompressed byte {bytes_before + len(rest_bytes)} without the end mark"
        + (", in the middle of a record" if rest_bytes else "")
    )


def _gather(source: Iterator[Piece], size: int) -> list[Piece]:
    """Return pieces of at least ``size`` bytes in total, fewer only at the end."""
    gathered_pieces: list[Piece] = []
    size_gathered = 0
    for piece in source:
        gathered_pieces.append(piece)
        size_gathered += len(piece)
        if size_gathered >= size:
            break
    return gathered_pieces


def _expect_nothing(pieces: Iterable[Piece], where: str, position: int) -> None:
    for piece in pieces:
        if len(piece):
            raise CorruptionError(f"{where}: bytes follow the end mark at decompressed byte {position}")


def _find(data: npt.NDArray[np.uint8]) -> tuple[Int64, Int64, Int64, int, int]:
    """Do what ``loops.find_records`` does."""
    words = np.frombuffer(data, ">i4", len(data) // 4).astype(np.int32)
    runs_of_starts = [np.empty(0, np.int64)]
    position, end = 0, None
    while end is None:
        run, position = _find_run(words, position)
        runs_of_starts.append(run)
        if len(run) < _LONG_RUN:
            followed_starts, position, end = _follow(words.data, position, _FOLLOWED)
            runs_of_starts.append(np.array(followed_starts, np.int64))
    starts = np.concatenate(runs_of_starts)
    key_size = words[starts].astype(np.int64)
    value_size = words[starts + 1 + (key_size >> 2)].astype(np.int64)
    return 4 * starts, key_size, value_size, 4 * position, end


def _find_run(words: Words, position: int) -> tuple[Int64, int]:
    """Return the records from ``position`` on that have the sizes of the first one, and the word after them."""
    first_start, next_position, _ = _follow(words.data, position, 1)
    if not first_start:
        return np.empty(0, np.int64), position
    stride = next_position - position
    value_at = 1 + (int(words[position]) >> 2)
    count = (len(words) - position) // stride
    table = words[position : position + count * stride].reshape(count, stride)
    differs = (table[:, [0, value_at]] != table[0, [0, value_at]]).any(axis=1)
    if differs.any():
        count = int(differs.argmax())
    return position + stride * np.arange(count, dtype=np.int64), position + count * stride


def _follow(words: memoryview, position: int, limit: int) -> tuple[list[int], int, int | None]:
    """Return the next ``limit`` records or fewer, the word after them, and why there are no more, or None."""
    starts: list[int] = []
    total = len(words)
    while len(starts) < limit:
        if position >= total:
            return starts, position, loops.MORE
        key_size = words[position]
        if key_size == DELETED:
            return starts, position, loops.ENDED
        if key_size < 0 or key_size & 3:
            return starts, position, loops.IMPOSSIBLE
        value_at = position + 1 + (key_size >> 2)
        if value_at >= total:
            return starts, position, loops.MORE
        value_size = words[value_at]
        # Spark accepts any size of a value, and rounds it down to a multiple of 8, because Spark before 2.3 appended 4
        # bytes by mistake (HDFSBackedStateStoreProvider.updateFromDeltaFile). The scan refuses such rows.
        if value_size < DELETED or (value_size > 0 and value_size & 3):
            return starts, position, loops.IMPOSSIBLE
        next_position = value_at + 1 + (max(value_size, 0) >> 2)
        if next_position > total:
            return starts, position, loops.MORE
        starts.append(position)
        position = next_position
    return starts, position, None


def _impossible(data: npt.NDArray[np.uint8], position: int, where: str, bytes_before: int) -> CorruptionError:
    """Return the error for the record at ``position``."""
    part_name = "key"
    (size,) = struct.unpack_from(">i", data.data, position)
    if size >= 0 and size & 3 == 0:
        part_name, position = "value", position + 4 + size
        (size,) = struct.unpack_from(">i", data.data, position)
    return CorruptionError(
        f"{where}: impossible {part_name} length {size} at decompressed byte {bytes_before + position}"
    )
