"""Rows with fewer or more fields, as Spark's own projection makes them: what lies behind the words moves.

``without_last_field(rows, fields)``              one field less, of fixed width
``side_by_side(left, right, fields, fields)``     the fields of two rows in one
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ttlsnap.schema import types as T
from ttlsnap.unsaferow.check import check_sizes
from ttlsnap.unsaferow.gather import at, offsets_of, ragged
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
    starts = np.stack([start, start + bitset_bytes(count), start + head], axis=1)
    sizes = np.stack([np.full(len(rows), bits), np.full(len(rows), words), size - head], axis=1)
    data = np.frombuffer(ragged(rows.data, starts.ravel(), sizes.ravel()), np.uint8).copy()
    new = Rows(data, offsets_of(size - shift)[:-1], size - shift)
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
    sizes = np.stack(
        [
            np.full(len(left), bitset_bytes(before + after)),
            np.full(len(left), WORD * before),
            np.full(len(left), WORD * after),
            left.size - old_left,
            right.size - old_right,
        ],
        axis=1,
    )
    # The null bits come first, from a buffer of their own; the rest is copied as it lies, left and right in turn.
    nulls = _null_bytes(left, right, before, after)
    data = np.concatenate([nulls.ravel(), left.data, right.data])
    at_left = left.start + nulls.size
    at_right = right.start + nulls.size + len(left.data)
    starts = np.stack(
        [
            np.arange(len(left), dtype=np.int64) * nulls.shape[1],
            at_left + bitset_bytes(before),
            at_right + bitset_bytes(after),
            at_left + old_left,
            at_right + old_right,
        ],
        axis=1,
    )
    data = np.frombuffer(ragged(data, starts.ravel(), sizes.ravel()), np.uint8).copy()
    size = sizes.sum(axis=1)
    new = Rows(data, offsets_of(size)[:-1], size)
    _move(new, left_fields, bitset_bytes(before + after), np.int64(head - old_left))
    _move(new, right_fields, bitset_bytes(before + after) + WORD * before, head - old_right + left.size - old_left)
    return new


def _null_bytes(left: Rows, right: Rows, before: int, after: int) -> npt.NDArray[np.uint8]:
    """The null bits of rows that lie side by side, uint8[n, bytes]."""
    bits = np.zeros((len(left), 8 * bitset_bytes(before + after)), np.uint8)
    for rows, first, count in ((left, 0, before), (right, before, after)):
        found = rows.data[rows.start[:, None] + np.arange(bitset_bytes(count))]
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
            rows.data[position[:, None] + np.arange(WORD)] = word[:, None].view(np.uint8)
