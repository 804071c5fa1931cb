"""Rows without their last field, as Spark's projection makes them.

What goes is a fixed-width field: one word, and with every 64th field a word of null bits. What follows moves up, and
the offsets in the words before it with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    variable = [place for place, field in enumerate(fields[:-1]) if not T.is_fixed_width(field)]
    bits, words = bitset_bytes(count - 1), WORD * (count - 1)
    start, size = rows.start, rows.size
    if not variable and bits == bitset_bytes(count):
        # The word is the last one, and may stay where it is.
        return Rows(rows.data, start, size - shift)
    head = fixed_bytes(count)
    starts = np.stack([start, start + bitset_bytes(count), start + head], axis=1)
    sizes = np.stack([np.full(len(rows), bits), np.full(len(rows), words), size - head], axis=1)
    data = np.frombuffer(ragged(rows.data, starts.ravel(), sizes.ravel()), np.uint8).copy()
    new = Rows(data, offsets_of(size - shift)[:-1], size - shift)
    for place in variable:
        position = new.start + bits + WORD * place
        word = at(data, position, "<i8")
        # The word of a null is 0, but for the types that reserve room; those have their offset there.
        word -= np.where(word != 0, shift << 32, 0)
        data[position[:, None] + np.arange(WORD)] = word[:, None].view(np.uint8)
    return new
