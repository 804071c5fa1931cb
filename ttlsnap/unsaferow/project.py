"""Rows with fewer or more fields, as Spark's own projection makes them: the variable part moves.

``without_last_field(rows, fields)``              rows without their last field, which has a fixed width
``side_by_side(left, right, fields, fields)``     rows with the fields of two rows
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ttlsnap.schema import types as T
from ttlsnap.unsaferow.check import check_sizes
from ttlsnap.unsaferow.gather import interleave, items_of, read_at
from ttlsnap.unsaferow.layout import WORD, bitset_bytes, fixed_bytes
from ttlsnap.unsaferow.rows import Rows


def without_last_field(rows: Rows, fields: Sequence[T.DataType]) -> Rows:
    """Return the rows with all of ``fields`` except the last.

    The last field must have a fixed width and must not be null. Its null bit is removed only if the null bits shrink by
    a word.

    Raises CorruptionError for a row that is too short.
    """
    count = len(fields)
    check_sizes(rows, count)
    shift = fixed_bytes(count) - fixed_bytes(count - 1)
    bits, words = bitset_bytes(count - 1), WORD * (count - 1)
    start, size = rows.start, rows.size
    # Offsets count from the row's first byte, so a row with variable parts changes when a word is removed before them.
    if bits == bitset_bytes(count) and all(map(T.is_fixed_width, fields)):
        # The removed word is the last one, so shorter rows in the same bytes are enough.
        return Rows(rows.data, start, size - shift)
    head = fixed_bytes(count)
    new = Rows(
        *interleave(
            (rows.data, start, bits),
            (rows.data, start + bitset_bytes(count), words),
            (rows.data, start + head, size - head),
        )
    )
    _move(new, fields[:-1], bits, np.int64(-shift))
    return new


def side_by_side(
    left: Rows, right: Rows, left_fields: Sequence[T.DataType], right_fields: Sequence[T.DataType]
) -> Rows:
    """Return rows with the fields of both: those of row i of ``left``, then those of row i of ``right``.

    Raises CorruptionError for a row that is too short.
    """
    before, after = len(left_fields), len(right_fields)
    check_sizes(left, before)
    check_sizes(right, after)
    old_left, old_right, head = fixed_bytes(before), fixed_bytes(after), fixed_bytes(before + after)
    bits, nulls = bitset_bytes(before + after), _null_bytes(left, right, before, after)
    new = Rows(
        *interleave(
            (nulls.ravel(), np.arange(len(left), dtype=np.int64) * bits, bits),
            (left.data, left.start + bitset_bytes(before), WORD * before),
            (right.data, right.start + bitset_bytes(after), WORD * after),
            (left.data, left.start + old_left, left.size - old_left),
            (right.data, right.start + old_right, right.size - old_right),
        )
    )
    _move(new, left_fields, bits, np.int64(head - old_left))
    _move(new, right_fields, bits + WORD * before, head - old_right + left.size - old_left)
    return new


def _null_bytes(left: Rows, right: Rows, before: int, after: int) -> npt.NDArray[np.uint8]:
    """Return the null bits of rows with the fields of both sides, uint8[n, bytes]."""
    sides = [
        (
            read_at(rows.data, rows.start, f"V{bitset_bytes(count)}").view(np.uint8).reshape(-1, bitset_bytes(count)),
            count,
        )
        for rows, count in ((left, before), (right, after))
    ]
    if not any(found.any() for found, _ in sides):
        return np.zeros((len(left), bitset_bytes(before + after)), np.uint8)
    bits = np.zeros((len(left), 8 * bitset_bytes(before + after)), np.uint8)
    for (found, count), first in zip(sides, (0, before), strict=True):
        bits[:, first : first + count] = np.unpackbits(found, axis=1, bitorder="little")[:, :count]
    return np.packbits(bits, axis=1, bitorder="little")


def _move(rows: Rows, fields: Sequence[T.DataType], first: int, shift: npt.NDArray[np.int64] | np.int64) -> None:
    """Correct the offsets of ``fields``, whose words begin ``first`` bytes into the rows: their pieces have moved."""
    for place, field in enumerate(fields):
        if not T.is_fixed_width(field):
            position = rows.start + first + WORD * place
            word = read_at(rows.data, position, "<i8")
            # The word of a null is 0, except for types that reserve room: their word has an offset.
            word += np.where(word != 0, shift << 32, 0)
            items_of(rows.data, "<i8")[position] = word
