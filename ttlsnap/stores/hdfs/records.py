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
    base, rest, target = 0, b"", window
    while gathered := _gather(source, target):
        data = np.frombuffer(b"".join([rest, *gathered]), np.uint8)
        start, key_size, value_size, used, end = (loops.find_records if native.is_available() else _find)(data)
        if end == loops.IMPOSSIBLE:
            raise _impossible(data, used, where, base)
        if len(start):
            yield Records(data, start, key_size, value_size)
        if end == loops.ENDED:
            if used + len(END) != len(data):
                raise CorruptionError(f"{where}: bytes follow the end mark at byte {base + used}")
            _expect_nothing(source, where, base + len(data))
            return
        # A record that is larger than the window is gathered in steps of doubling size.
        target = window if used else 2 * len(data)
        rest = data[used:].tobytes()
        base += used
    raise CorruptionError(
        f"{where} is truncated: it ends at decompressed byte {base + len(rest)} without the end mark"
        + (", in the middle of a record" if rest else "")
    )


def _gather(source: Iterator[Piece], size: int) -> list[Piece]:
    """Return pieces of at least ``size`` bytes in total, fewer only at the end."""
    gathered: list[Piece] = []
    have = 0
    for piece in source:
        gathered.append(piece)
        have += len(piece)
        if have >= size:
            break
    return gathered


def _expect_nothing(pieces: Iterable[Piece], where: str, position: int) -> None:
    for piece in pieces:
        if len(piece):
            raise CorruptionError(f"{where}: bytes follow the end mark at decompressed byte {position}")


def _find(data: npt.NDArray[np.uint8]) -> tuple[Int64, Int64, Int64, int, int]:
    """Do what ``loops.find_records`` does."""
    words = np.frombuffer(data, ">i4", len(data) // 4).astype(np.int32)
    found = [np.empty(0, np.int64)]
    position, end = 0, None
    while end is None:
        run, position = _find_run(words, position)
        found.append(run)
        if len(run) < _LONG_RUN:
            followed, position, end = _follow(words.data, position, _FOLLOWED)
            found.append(np.array(followed, np.int64))
    starts = np.concatenate(found)
    key_size = words[starts].astype(np.int64)
    value_size = words[starts + 1 + (key_size >> 2)].astype(np.int64)
    return 4 * starts, key_size, value_size, 4 * position, end


def _find_run(words: Words, position: int) -> tuple[Int64, int]:
    """Return the records from ``position`` on that have the sizes of the first one, and the word after them."""
    one, after, _ = _follow(words.data, position, 1)
    if not one:
        return np.empty(0, np.int64), position
    stride = after - position
    value_at = 1 + (int(words[position]) >> 2)
    count = (len(words) - position) // stride
    table = words[position : position + count * stride].reshape(count, stride)
    differs = (table[:, [0, value_at]] != table[0, [0, value_at]]).any(axis=1)
    if differs.any():
        count = int(differs.argmax())
    return position + stride * np.arange(count, dtype=np.int64), position + count * stride


def _follow(words: memoryview, position: int, most: int) -> tuple[list[int], int, int | None]:
    """Return the next ``most`` records or fewer, the word after them, and why there are no more, or None."""
    starts: list[int] = []
    total = len(words)
    while len(starts) < most:
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
        after = value_at + 1 + (max(value_size, 0) >> 2)
        if after > total:
            return starts, position, loops.MORE
        starts.append(position)
        position = after
    return starts, position, None


def _impossible(data: npt.NDArray[np.uint8], position: int, where: str, base: int) -> CorruptionError:
    """Return the error for the record at ``position``."""
    what = "key"
    (size,) = struct.unpack_from(">i", data.data, position)
    if size >= 0 and size & 3 == 0:
        what, position = "value", position + 4 + size
        (size,) = struct.unpack_from(">i", data.data, position)
    return CorruptionError(f"{where}: impossible {what} length {size} at decompressed byte {base + position}")
