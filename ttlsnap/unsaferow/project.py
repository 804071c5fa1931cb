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
    bits, words_size = bitset_bytes(count - 1), WORD * (count - 1)
    start, size = rows.start, rows.size
    # Offsets count from the row's first byte, so a row with variable parts changes when a word is removed before them.
    if bits == bitset_bytes(count) and all(map(T.is_fixed_width, fields)):
        # The removed word is the last one, so shorter rows in the same bytes are enough.
        return Rows(rows.data, start, size - shift)
    fixed_size = fixed_bytes(count)
    new_rows = Rows(
        *interleave(
            (rows.data, start, bits),
            (rows.data, start + bitset_bytes(count), words_size),
            (rows.data, start + fixed_size, size - fixed_size),
        )
    )
    _move(new_rows, fields[:-1], bits, np.int64(-shift))
    return new_rows


def side_by_side(
    left: Rows, right: Rows, left_fields: Sequence[T.DataType], right_fields: Sequence[T.DataType]
) -> Rows:
    """Return rows with the fields of both: those of row i of ``left``, then those of row i of ``right``.

    Raises CorruptionError for a row that is too short.
    """
    left_count, right_count = len(left_fields), len(right_fields)
    check_sizes(left, left_count)
    check_sizes(right, right_count)
    old_left, old_right, fixed_size = (
        fixed_bytes(left_count),
        fixed_bytes(right_count),
        fixed_bytes(left_count + right_count),
    )
    bits, nulls = bitset_bytes(left_count + right_count), _null_bytes(left, right, left_count, right_count)
    new_rows = Rows(
        *interleave(
            (nulls.ravel(), np.arange(len(left), dtype=np.int64) * bits, bits),
            (left.data, left.start + bitset_bytes(left_count), WORD * left_count),
            (right.data, right.start + bitset_bytes(right_count), WORD * right_count),
            (left.data, left.start + old_left, left.size - old_left),
            (right.data, right.start + old_right, right.size - old_right),
        )
    )
    _move(new_rows, left_fields, bits, np.int64(fixed_size - old_left))
    _move(new_rows, right_fields, bits + WORD * left_count, fixed_size - old_right + left.size - old_left)
    return new_rows


def _null_bytes(left: Rows, right: Rows, left_count: int, right_count: int) -> npt.NDArray[np.uint8]:
    """Return the null bits of rows with the fields of both sides, uint8[n, bytes]."""
    nulls_of_sides = [
        (
            read_at(rows.data, rows.start, f"V{bitset_bytes(count)}").view(np.uint8).reshape(-1, bitset_bytes(count)),
            count,
        )
        for rows, count in ((left, left_count), (right, right_count))
    ]
    if not any(null_bytes.any() for null_bytes, _ in nulls_of_sides):
        return np.zeros((len(left), bitset_bytes(left_count + right_count)), np.uint8)
    bits = np.zeros((len(left), 8 * bitset_bytes(left_count + right_count)), np.uint8)
    for (null_bytes, count), first_bit in zip(nulls_of_sides, (0, left_count), strict=True):
        bits[:, first_bit : first_bit + count] = np.unpackbits(null_bytes, axis=1, bitorder="little")[:, :count]
    return np.packbits(bits, axis=1, bitorder="little")


def _move(rows: Rows, fields: Sequence[T.DataType], fields_at: int, shift: npt.NDArray[np.int64] | np.int64) -> None:
    """Correct the offsets of ``fields``, whose words begin ``fields_at`` bytes into the rows: the pieces moved."""
    for place, field in enumerate(fields):
        if not T.is_fixed_width(field):
            position = rows.start + fields_at + WORD * place
            words = read_at(rows.data, position, "<i8")
            # The word of a null is 0, except for types that reserve room: their word has an offset.
            words += np.where(words != 0, shift << 32, 0)
            items_of(rows.data, "<i8")[position] = words
