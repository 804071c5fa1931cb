"""Records of a state file, found in whole buffers without a Python loop per record.

    file   := record* end                 (all lengths big-endian int32)
    record := klen key vlen value  |  klen key -1        -1 deletes the key; in deltas only
    end    := -1                          nothing follows it

Key and value are multiples of 4 bytes (UnsafeRows of 8, and 4 for a row checksum), so a record begins on a 4-byte word.
The position of a record depends on the lengths before it. ``_walk`` finds a block's records by pointer jumping. From
the successor of every word it computes the successor's successor, and so on. It then follows the long jumps and fills
in the short ones. Runs of records of one size, the ordinary case, are found by comparing two strided columns.

Source: Spark's ``HDFSBackedStateStoreProvider``; ``docs/hdfs-state-store.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttlsnap.errors import CorruptionError

Int64 = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]

DELETED = -1
END = np.array([-1], dtype=">i4").tobytes()
WINDOW = 1 << 20
_BLOCK_WORDS = 32 << 10
_SHORT_RUN = 64
_LEVELS = 3


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


def read_records(pieces: Iterable[bytes], where: str, window: int = WINDOW) -> Iterator[Records]:
    """Yield the records of a whole stream, about ``window`` bytes at a time.

    Raises CorruptionError for an impossible length, and for a stream that ends before the end mark or continues after
    it.
    """
    source = iter(pieces)
    base, rest, target = 0, b"", window
    while gathered := _gather(source, target):
        data = b"".join([rest, *gathered])
        words = np.frombuffer(data, dtype=">i4", count=len(data) // 4)
        starts, used, ended = _find(words, where, base)
        if len(starts):
            yield _records(data, words, starts)
        if ended:
            if used * 4 + 4 != len(data):
                raise CorruptionError(f"{where}: bytes follow the end mark at byte {base + used * 4}")
            _expect_nothing(source, where, base + len(data))
            return
        # A record that is larger than the window is gathered in steps of doubling size.
        target = window if used else 2 * len(data)
        rest = data[used * 4 :]
        base += used * 4
    raise CorruptionError(
        f"{where} is truncated: it ends at decompressed byte {base + len(rest)} without the end mark"
        + (", in the middle of a record" if rest else "")
    )


def _gather(source: Iterator[bytes], size: int) -> list[bytes]:
    """Return pieces of at least ``size`` bytes in total, fewer only at the end."""
    gathered, have = [], 0
    for piece in source:
        gathered.append(piece)
        have += len(piece)
        if have >= size:
            break
    return gathered


def _expect_nothing(pieces: Iterable[bytes], where: str, position: int) -> None:
    for piece in pieces:
        if piece:
            raise CorruptionError(f"{where}: bytes follow the end mark at decompressed byte {position}")


def _records(data: bytes, words: Words, starts: Int64) -> Records:
    key_size = words[starts].astype(np.int64)
    value_size = words[starts + 1 + (key_size >> 2)].astype(np.int64)
    return Records(np.frombuffer(data, dtype=np.uint8), starts * 4, key_size, np.maximum(value_size, DELETED))


def _find(words: Words, where: str, base: int) -> tuple[Int64, int, bool]:
    """Return word positions of the records, the word after the last whole one, and whether the end mark was found."""
    found: list[Int64] = []
    position, total = 0, len(words)
    while position < total:
        if words[position] == -1:
            return _concatenate(found), position, True
        run, after = _uniform_run(words, position)
        if after == position:
            _check_lengths(words, position, where, base)
            break
        found.append(run)
        position = after
        if len(run) >= _SHORT_RUN or position >= total:
            continue
        stop = min(total, position + _BLOCK_WORDS)
        for unit in (2, 1):
            starts, after = _walk(words, position, stop, unit)
            if after != position:
                break
        found.append(starts)
        position = after
    return _concatenate(found), position, False


def _concatenate(found: list[Int64]) -> Int64:
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _uniform_run(words: Words, position: int) -> tuple[Int64, int]:
    """Return the records from ``position`` on that have the sizes of the first one, and the word after them."""
    empty = np.empty(0, np.int64)
    key_size = int(words[position])
    if key_size < 0 or key_size & 3:
        return empty, position
    key_words = key_size >> 2
    if position + 1 + key_words >= len(words):
        return empty, position
    value_size = int(words[position + 1 + key_words])
    if value_size < -1 or (value_size > 0 and value_size & 3):
        return empty, position
    stride = 2 + key_words + (max(value_size, 0) >> 2)
    count = (len(words) - position) // stride
    if count == 0:
        return empty, position
    table = words[position : position + count * stride].reshape(count, stride)
    differs = (table[:, 0] != key_size) | (table[:, 1 + key_words] != value_size)
    if differs.any():
        count = int(differs.argmax())
    return position + stride * np.arange(count, dtype=np.int64), position + count * stride


def _walk(words: Words, start: int, stop: int, unit: int) -> tuple[Int64, int]:
    """Return the whole records, of any sizes, that begin in ``words[start:stop]``, and the word after them.

    Only every ``unit``-th word is read: 2 is valid if all lengths are multiples of 8. The walk ends before a record
    that is incomplete or has other lengths.
    """
    mask = 4 * unit - 1
    key_size = words[start:stop:unit].astype(np.int32)
    size = len(key_size)
    value_at = np.arange(start + 1, stop + 1, unit, dtype=np.int32) + (key_size >> 2)
    stuck = (key_size < 0) | (key_size & mask != 0) | (value_at >= len(words))
    value_size = words.take(value_at, mode="clip").astype(np.int32)
    stuck |= value_size < DELETED
    value_size = np.maximum(value_size, 0)
    stuck |= value_size & mask != 0
    after = value_at + 1 + (value_size >> 2)
    stuck |= after > len(words)
    # Successors in units from the start. Everything beyond the block is one place. A stuck word leads to itself.
    here = np.arange(size + 1)
    jump = np.full(size + 1, size)
    np.minimum((after - start) // unit, size, out=jump[:size])
    jump[:size][stuck] = here[:size][stuck]
    jumps = [jump]
    for _ in range(_LEVELS):
        jumps.append(jumps[-1][jumps[-1]])
    longest, position, posts = memoryview(jumps[-1].data), 0, [0]
    while (following := longest[position]) < size and following != position:
        posts.append(position := following)
    starts = np.array(posts, dtype=np.int64)
    for jump in reversed(jumps[:-1]):
        reached = jump[starts]
        starts = np.concatenate([starts, reached[(reached < size) & (reached != starts)]])
    starts.sort()
    starts = starts[~stuck[starts]]
    return starts * unit + start, int(after[starts[-1]]) if len(starts) else start


def _check_lengths(words: Words, position: int, where: str, base: int) -> None:
    """Raise CorruptionError if the record at ``position`` can never be complete; return if it only needs more bytes."""
    key_size = int(words[position])
    if key_size < 0 or key_size & 3:
        raise CorruptionError(f"{where}: impossible key length {key_size} at decompressed byte {base + position * 4}")
    value_at = position + 1 + (key_size >> 2)
    if value_at < len(words):
        value_size = int(words[value_at])
        if value_size < -1 or (value_size > 0 and value_size & 3):
            raise CorruptionError(
                f"{where}: impossible value length {value_size} at decompressed byte {base + value_at * 4}"
            )
