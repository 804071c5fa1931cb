"""``Cursor``: positions of n values that are being read, each in its own entry.

All entries are read in step. Every method reads one thing at each position, and returns the cursor after it. It raises
a CorruptionError that names the entry if a value would end after its entry. It does the same for a number that has more
bytes than it needs.

Speed: about 20 ns for a varint, in batches that fit into a processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttlsnap.avro.types import NULL, VALUE
from ttlsnap.quoting import quote
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.gather import Bytes, Int64s, Mask, read_at
from ttlsnap.unsaferow.rows import Rows

_PADDING = 16  # bytes after the last entry, so that a whole word can be read there
_MORE = np.uint64(0x8080808080808080)  # the high bit of each byte: set if the number continues
_LARGEST_INT = 2**31 - 1
# Multiplied with 2 ** (8 * k), this has k + 1 in its highest byte.
_PLACES = np.uint64(0x0102030405060708)
LONGEST = 10  # bytes of a number of 64 bits
LEAST = np.array([0, 0, *(1 << 7 * (size - 1) for size in range(2, LONGEST + 1))], np.uint64)
"""The least zigzag number that takes n bytes, by n."""
RANKS = (
    (0x007F007F007F007F, 0x7F007F007F007F00, 1),
    (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
    (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
)
"""Steps that pack the low 7 bits of 8 bytes side by side: the bits that stay, those that move, and how far."""


@dataclass(frozen=True, eq=False)
class Cursor:
    """Positions of n values in one buffer, each in its own entry.

    ``data``   the buffer of all entries
    ``at``     int64[n], index in ``data`` of the next byte of each value
    ``end``    int64[n], index in ``data`` of the byte after each value's entry
    ``trail``  the origin of the values, for errors
    """

    data: Bytes
    at: Int64s
    end: Int64s
    trail: Trail

    @classmethod
    def of(cls, rows: Rows, trail: Trail | None = None) -> Cursor:
        """Return a cursor at the first byte of each row."""
        data, end = rows.data, rows.start + rows.size
        if len(rows) and int(end.max()) > len(data) - _PADDING:
            data = np.concatenate([data, np.zeros(_PADDING, np.uint8)])
        return cls(data, rows.start, end, trail or Trail())

    def __len__(self) -> int:
        return len(self.at)

    def move_to(self, to: Int64s) -> Cursor:
        """Return a cursor of the same values at the positions ``to``."""
        return Cursor(self.data, to, self.end, self.trail)

    def name_field(self, name: str) -> Cursor:
        """Return a cursor at the same positions, which errors name as those of the field ``name``."""
        return Cursor(self.data, self.at, self.end, self.trail.step(name))

    def take(self, which: Int64s) -> Cursor:
        """Return a cursor of some of the values."""
        return Cursor(self.data, self.at[which], self.end[which], self.trail.step("", which))

    def skip(self, size: Int64s | int) -> Cursor:
        """Return the cursor ``size`` bytes later; raises CorruptionError if an entry ends before."""
        to = self.at + size
        short = to > self.end
        if short.any():
            i = first(short)
            missing, left = int(to[i] - self.at[i]), int(self.end[i] - self.at[i])
            self.trail.fail(i, f"it is truncated: {missing} bytes should follow, but {left} do")
        return self.move_to(to)

    def read_bytes(self) -> tuple[Bytes, Cursor]:
        """Read one byte of each value."""
        after = self.skip(1)
        return self.data[self.at], after

    def read_branches(self) -> tuple[Mask | None, Cursor]:
        """Read the union byte of each value, and return where it means null (None: nowhere).

        Raises CorruptionError if the byte means neither null nor a value.
        """
        branch, after = self.read_bytes()
        nulls: Mask = branch != VALUE
        if not nulls.any():
            return None, after
        bad = nulls & (branch != NULL)
        if bad.any():
            i = first(bad)
            self.trail.fail(i, f"the byte {branch[i]:02x} is neither null nor a value")
        return nulls, after

    def read_longs(self) -> tuple[Int64s, Cursor]:
        """Read one varint of each value."""
        word = read_at(self.data, self.at, "<u8")
        lowest = ~word & _MORE
        lowest &= -lowest  # the high bit of the last byte; 0 where that is not among the first 8
        word &= lowest - np.uint64(1)
        _close_ranks(word)
        lowest >>= np.uint64(7)
        lowest *= _PLACES
        lowest >>= np.uint64(56)
        size = lowest.view(np.int64)
        long = size == 0
        if long.any():
            self._longest(np.flatnonzero(long), word, size)
        after = self.at + size
        short = after > self.end
        if short.any():
            self.trail.fail(first(short), "it is truncated within a number")
        # Avro's reader accepts a longer form, but its writer never makes one, and a key must have the same bytes again.
        wasteful = word < LEAST[size]
        if wasteful.any():
            i = first(wasteful)
            self.trail.fail(i, f"a number of {size[i]} bytes that needs fewer")
        sign = word & np.uint64(1)
        word >>= np.uint64(1)
        word ^= -sign
        return word.view(np.int64), self.move_to(after)

    def _longest(self, which: Int64s, word: np.ndarray[tuple[int], np.dtype[np.uint64]], size: Int64s) -> None:
        """Complete the numbers of 9 and 10 bytes in ``word``, which has their first 8 bytes, and set their ``size``."""
        ninth, tenth = (read_at(self.data, self.at[which] + place, "u1").astype(np.uint64) for place in (8, 9))
        more = ninth > 0x7F
        bad = more & (tenth > 1) & (self.at[which] + LONGEST <= self.end[which])
        if bad.any():
            self.trail.fail(int(which[first(bad)]), "a number of more than 64 bits")
        word[which] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | np.where(more, tenth, 0).astype(
            np.uint64
        ) << np.uint64(63)
        size[which] = 9 + more

    def read_ints(self) -> tuple[Int64s, Cursor]:
        """Read one varint of each value; raises CorruptionError if it has more than 32 bits."""
        numbers, after = self.read_longs()
        bad = (numbers > _LARGEST_INT) | (numbers < -_LARGEST_INT - 1)
        if bad.any():
            self.trail.fail(first(bad), quote(numbers[first(bad)]) + " is no 32-bit number")
        return numbers, after

    def read_pieces(self) -> tuple[Rows, Cursor]:
        """Read a length of each value and as many bytes."""
        size, start = self.read_longs()
        bad = (size < 0) | (size > start.end - start.at)
        if bad.any():
            i = first(bad)
            self.trail.fail(i, f"{size[i]} bytes of text or binary, where {start.end[i] - start.at[i]} are left")
        return Rows(self.data, start.at, size), start.move_to(start.at + size)

    def read_counts(self, least_size: int) -> tuple[Int64s, Cursor]:
        """Read the number of elements that follow, each of at least ``least_size`` bytes.

        Raises CorruptionError if an entry has no room for so many elements.
        """
        counts, after = self.read_longs()
        left = after.end - after.at
        # Avro also allows a negative count with the size of the block after it. Spark's encoder never writes one.
        bad = (counts < 0) | (counts > left // least_size)
        if bad.any():
            i = first(bad)
            self.trail.fail(i, f"{counts[i]} elements, where {left[i]} bytes are left")
        return counts, after

    def skip_end(self, counts: Int64s) -> Cursor:
        """Return the cursor after the end byte of each array or map that has elements; an empty one has no end byte.

        Raises CorruptionError if the end byte is missing.
        """
        # Avro ends an array with a block of no elements. An empty array has only that block, whose count was just read.
        some = counts > 0
        after = self.skip(some.astype(np.int64))
        bad = some & (read_at(self.data, self.at, "u1") != 0)
        if bad.any():
            self.trail.fail(first(bad), "an array or a map does not end where it should")
        return after


def _close_ranks(word: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
    """Pack the low 7 bits of all 8 bytes side by side, in place."""
    word &= ~_MORE
    for low, high, shift in RANKS:
        moved = word & np.uint64(high)
        moved >>= np.uint64(shift)
        word &= np.uint64(low)
        word |= moved
