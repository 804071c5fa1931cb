"""Rows with fewer or more fields, as Spark's own projection makes them: what lies behind the words moves.

``without_last_field(rows, fields)``              one field less, of fixed width
``side_by_side(left, right, fields, fields)``     the fields of two rows in one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ttlsnap.schema import types as T
from ttlsnap.unsaferow.check import check_sizes
from ttlsnap.unsaferow.gather import Bytes, Int64s, at
from ttlsnap.unsaferow.layout import WORD, bitset_bytes, fixed_bytes
from ttlsnap.unsaferow.rows import Rows


def without_last_field(rows: Rows, fields: Sequence[T.DataType]) -> Rows:
    """The rows with all of ``fields`` but the last, which is of fixed width; never null, or its bit is dropped too.

    Raises CorruptionError for a row that is too short.
    """
    count = len(fields)
    check_sizes(rows, count)
    shift = fixed_bytes(count) - fixed_bytes(count - 1)
    bits, words = bitset_bytes(count - 1), WORD * (count - 1)
    start, size = rows.start, rows.size
    if bits == bitset_bytes(count) and all(map(T.is_fixed_width, fields)):
        # The word is the last one, and may stay where it is.
        return Rows(rows.data, start, size - shift)
    head = fixed_bytes(count)
    new = _rows_of(
        (rows.data, start, bits),
        (rows.data, start + bitset_bytes(count), words),
        (rows.data, start + head, size - head),
    )
    _move(new, fields[:-1], bits, np.int64(-shift))
    return new


def side_by_side(
    left: Rows, right: Rows, left_fields: Sequence[T.DataType], right_fields: Sequence[T.DataType]
) -> Rows:
    """Rows with the fields of both: row i of ``left``, then row i of ``right``.

    Raises CorruptionError for a row that is too short.
    """
    before, after = len(left_fields), len(right_fields)
    check_sizes(left, before)
    check_sizes(right, after)
    old_left, old_right, head = fixed_bytes(before), fixed_bytes(after), fixed_bytes(before + after)
    bits, nulls = bitset_bytes(before + after), _null_bytes(left, right, before, after)
    new = _rows_of(
        (nulls.ravel(), np.arange(len(left), dtype=np.int64) * bits, bits),
        (left.data, left.start + bitset_bytes(before), WORD * before),
        (right.data, right.start + bitset_bytes(after), WORD * after),
        (left.data, left.start + old_left, left.size - old_left),
        (right.data, right.start + old_right, right.size - old_right),
    )
    _move(new, left_fields, bits, np.int64(head - old_left))
    _move(new, right_fields, bits + WORD * before, head - old_right + left.size - old_left)
    return new


def _rows_of(*pieces: tuple[Bytes, Int64s, Int64s | int]) -> Rows:
    """Rows that are put together, in a buffer of their own, of one piece of each kind: of which data, from where on,
    how many bytes.

    Pieces of one size are copied at once: keys have few sizes, and a batch with many has long ones.
    """
    size = np.zeros(len(pieces[0][1]), np.int64)
    for _, _, width in pieces:
        size += width
    place = start = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for source, begin, width in pieces:
        for which, n in _by_size(width):
            _items(data, f"V{n}")[place[which]] = _items(source, f"V{n}")[begin[which]]
        place = place + width
    return Rows(data, start, size)


def _by_size(size: Int64s | int) -> Iterator[tuple[Any, int]]:
    """Each size but 0, with where it is: an array, or a slice where that is everywhere."""
    if isinstance(size, int):
        yield from [(slice(None), size)] if size else []
        return
    found = np.unique(size).tolist()
    for n in filter(None, found):
        yield slice(None) if len(found) == 1 else np.flatnonzero(size == n), n


def _items(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """What begins at each byte, to be read or written."""
    return np.ndarray((max(len(data) - np.dtype(dtype).itemsize + 1, 0),), dtype, data, 0, (1,))


def _null_bytes(left: Rows, right: Rows, before: int, after: int) -> npt.NDArray[np.uint8]:
    """The null bits of rows that lie side by side, uint8[n, bytes]."""
    sides = [
        (at(rows.data, rows.start, f"V{bitset_bytes(count)}").view(np.uint8).reshape(-1, bitset_bytes(count)), count)
        for rows, count in ((left, before), (right, after))
    ]
    if not any(found.any() for found, _ in sides):
        return np.zeros((len(left), bitset_bytes(before + after)), np.uint8)
    bits = np.zeros((len(left), 8 * bitset_bytes(before + after)), np.uint8)
    for (found, count), first in zip(sides, (0, before), strict=True):
        bits[:, first : first + count] = np.unpackbits(found, axis=1, bitorder="little")[:, :count]
    return np.packbits(bits, axis=1, bitorder="little")


def _move(rows: Rows, fields: Sequence[T.DataType], first: int, shift: npt.NDArray[np.int64] | np.int64) -> None:
    """Correct the offsets of ``fields``, whose words begin ``first`` bytes into the rows: what they mean has moved."""
    for place, field in enumerate(fields):
        if not T.is_fixed_width(field):
            position = rows.start + first + WORD * place
            word = at(rows.data, position, "<i8")
            # The word of a null is 0, but for the types that reserve room; those have their offset there.
            word += np.where(word != 0, shift << 32, 0)
            _items(rows.data, "<i8")[position] = word
