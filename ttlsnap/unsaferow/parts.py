"""``ValueBytes``: the bytes of n values in the variable part, planned first and written afterwards.

Writing takes two steps, because a row's size is known only when the sizes of all its fields are. Planning walks down
the types and adds up sizes. Writing walks down again with the positions that follow from them. The buffer is zeroed
beforehand, so padding, null words and unused space need no writing.

All positions are multiples of 8, because every part takes whole words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.gather import Bytes, Int64s

Words = npt.NDArray[np.int64]
"""The buffer being written, as 8-byte words."""


@dataclass(frozen=True, eq=False)
class ValueBytes:
    """The bytes of n values.

    ``size``   int64[n], bytes as recorded in the field's word
    ``room``   int64[n], bytes taken, ``size`` rounded up to 8
    ``write``  puts the bytes into a zeroed buffer, value i at byte position ``positions[i]``
    """

    size: Int64s
    room: Int64s
    write: Callable[[Words, Int64s], None]


def part(size: Int64s, write: Callable[[Words, Int64s], None]) -> ValueBytes:
    """Return a part of these sizes, with its room rounded up to 8."""
    return ValueBytes(size, round8(size), write)


def round8(size: Int64s) -> Int64s:
    """Return sizes in bytes, rounded up to whole words."""
    rounded: Int64s = (size + 7) & ~np.int64(7)
    return rounded


def bit(ordinal: int) -> np.int64:
    """Return the null bit of field ``ordinal`` in its word."""
    return np.uint64(1 << ordinal % 64).astype(np.int64)


def as_bytes(words: Words) -> Bytes:
    """Return the same buffer as bytes."""
    return words.view(np.uint8)


def conform(values: pa.Array, data_type: T.DataType, path: str) -> pa.Array:
    """Return ``values`` in the Arrow type of ``data_type``; raises UsageError if they cannot be cast without loss."""
    target = arrow_type(data_type)
    if values.type == target:
        return values
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise UsageError(f"field {path}: {values.type} does not fit {data_type.simple_string}: {error}") from None
