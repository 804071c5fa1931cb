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

    def move_to(self, positions: Int64s) -> Cursor:
        """Return a cursor of the same values at the ``positions``."""
        return Cursor(self.data, positions, self.end, self.trail)

    def name_field(self, name: str) -> Cursor:
        """Return a cursor at the same positions, which errors name as those of the field ``name``."""
        return Cursor(self.data, self.at, self.end, self.trail.step(name))

    def take(self, places: Int64s) -> Cursor:
        """Return a cursor of some of the values."""
        return Cursor(self.data, self.at[places], self.end[places], self.trail.step("", places))

    def skip(self, size: Int64s | int) -> Cursor:
        """Return the cursor ``size`` bytes later; raises CorruptionError if an entry ends before."""
        positions = self.at + size
        is_short = positions > self.end
        if is_short.any():
            place = first(is_short)
            bytes_needed, bytes_left = int(positions[place] - self.at[place]), int(self.end[place] - self.at[place])
            self.trail.fail(place, f"it is truncated: {bytes_needed} bytes should follow, but {bytes_left} do")
        return self.move_to(positions)

    def read_bytes(self) -> tuple[Bytes, Cursor]:
        """Read one byte of each value."""
        next_cursor = self.skip(1)
        return self.data[self.at], next_cursor

    def read_branches(self) -> tuple[Mask | None, Cursor]:
        """Read the union byte of each value, and return where it means null (None: nowhere).

        Raises CorruptionError if the byte means neither null nor a value.
        """
        branch, next_cursor = self.read_bytes()
        nulls: Mask = branch != VALUE
        if not nulls.any():
            return None, next_cursor
        is_bad = nulls & (branch != NULL)
        if is_bad.any():
            place = first(is_bad)
            self.trail.fail(place, f"the byte {branch[place]:02x} is neither null nor a value")
        return nulls, next_cursor

    def read_longs(self) -> tuple[Int64s, Cursor]:
        """Read one varint of each value."""
        words = read_at(self.data, self.at, "<u8")
        lowest = ~words & _MORE
        lowest &= -lowest  # the high bit of the last byte; 0 where that is not among the first 8
        words &= lowest - np.uint64(1)
        _close_ranks(words)
        lowest >>= np.uint64(7)
        lowest *= _PLACES
        lowest >>= np.uint64(56)
        size = lowest.view(np.int64)
        is_long = size == 0
        if is_long.any():
            self._longest(np.flatnonzero(is_long), words, size)
        end_of_numbers = self.at + size
        is_short = end_of_numbers > self.end
        if is_short.any():
            self.trail.fail(first(is_short), "it is truncated within a number")
        # Avro's reader accepts a longer form, but its writer never makes one, and a key must have the same bytes again.
        is_wasteful = words < LEAST[size]
        if is_wasteful.any():
            place = first(is_wasteful)
            self.trail.fail(place, f"a number of {size[place]} bytes that needs fewer")
        sign = words & np.uint64(1)
        words >>= np.uint64(1)
        words ^= -sign
        return words.view(np.int64), self.move_to(end_of_numbers)

    def _longest(self, places: Int64s, words: np.ndarray[tuple[int], np.dtype[np.uint64]], size: Int64s) -> None:
        """Complete the numbers of 9 and 10 bytes in ``words``, which has their first 8 bytes. Set their ``size``."""
        ninth, tenth = (read_at(self.data, self.at[places] + place, "u1").astype(np.uint64) for place in (8, 9))
        has_tenth_byte = ninth > 0x7F
        is_bad = has_tenth_byte & (tenth > 1) & (self.at[places] + LONGEST <= self.end[places])
        if is_bad.any():
            self.trail.fail(int(places[first(is_bad)]), "a number of more than 64 bits")
        words[places] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | np.where(has_tenth_byte, tenth, 0).astype(
            np.uint64
        ) << np.uint64(63)
        size[places] = 9 + has_tenth_byte

    def read_ints(self) -> tuple[Int64s, Cursor]:
        """Read one varint of each value; raises CorruptionError if it has more than 32 bits."""
        numbers, next_cursor = self.read_longs()
        is_bad = (numbers > _LARGEST_INT) | (numbers < -_LARGEST_INT - 1)
        if is_bad.any():
            self.trail.fail(first(is_bad), quote(numbers[first(is_bad)]) + " is no 32-bit number")
        return numbers, next_cursor

    def read_pieces(self) -> tuple[Rows, Cursor]:
        """Read a length of each value and as many bytes."""
        size, start = self.read_longs()
        is_bad = (size < 0) | (size > start.end - start.at)
        if is_bad.any():
            place = first(is_bad)
            self.trail.fail(
                place, f"{size[place]} bytes of text or binary, where {start.end[place] - start.at[place]} are left"
            )
        return Rows(self.data, start.at, size), start.move_to(start.at + size)

    def read_counts(self, least_size: int) -> tuple[Int64s, Cursor]:
        """Read the number of elements that follow, each of at least ``least_size`` bytes.

        Raises CorruptionError if an entry has no room for so many elements.
        """
        counts, next_cursor = self.read_longs()
        bytes_left = next_cursor.end - next_cursor.at
        # Avro also allows a negative count with the size of the block after it. Spark's encoder never writes one.
        is_bad = (counts < 0) | (counts > bytes_left // least_size)
        if is_bad.any():
            place = first(is_bad)
            self.trail.fail(place, f"{counts[place]} elements, where {bytes_left[place]} bytes are left")
        return counts, next_cursor

    def skip_end(self, counts: Int64s) -> Cursor:
        """Return the cursor after the end byte of each array or map that has elements; an empty one has no end byte.

        Raises CorruptionError if the end byte is missing.
        """
        # Avro ends an array with a block of no elements. An empty array has only that block, whose count was just read.
        has_elements = counts > 0
        next_cursor = self.skip(has_elements.astype(np.int64))
        is_bad = has_elements & (read_at(self.data, self.at, "u1") != 0)
        if is_bad.any():
            self.trail.fail(first(is_bad), "an array or a map does not end where it should")
        return next_cursor


def _close_ranks(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
    """Pack the low 7 bits of all 8 bytes side by side, in place."""
    words &= ~_MORE
    for low, high, shift in RANKS:
        moved_bits = words & np.uint64(high)
        moved_bits >>= np.uint64(shift)
        words &= np.uint64(low)
        words |= moved_bits
