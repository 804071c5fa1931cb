"""``Part``: what n values put into the variable part, planned first and written afterwards.

Writing goes in two steps because a row's size is known only when all its fields' sizes are: planning
walks down the types and adds up sizes, writing walks down again with the positions that follow from
them. The buffer is zeroed beforehand, so padding, null words and unused space need no writing.

All positions are multiples of 8: every part takes whole words.
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
class Part:
    """The bytes of n values.

    ``size``   int64[n], bytes as the field's word tells them
    ``room``   int64[n], bytes taken, ``size`` rounded up to 8
    ``write``  puts the bytes into a zeroed buffer, value i at byte position ``positions[i]``
    """

    size: Int64s
    room: Int64s
    write: Callable[[Words, Int64s], None]


def part(size: Int64s, write: Callable[[Words, Int64s], None]) -> Part:
    """A part of these sizes, rounded up to 8."""
    return Part(size, round8(size), write)


def round8(size: Int64s) -> Int64s:
    """Sizes rounded up to whole words."""
    rounded: Int64s = (size + 7) & ~np.int64(7)
    return rounded


def bit(ordinal: int) -> np.int64:
    """The null bit of field ``ordinal`` in its word."""
    return np.uint64(1 << ordinal % 64).astype(np.int64)


def as_bytes(out: Words) -> Bytes:
    """The same buffer as bytes."""
    return out.view(np.uint8)


def conform(values: pa.Array, data_type: T.DataType, path: str) -> pa.Array:
    """``values`` in the Arrow type of ``data_type``; UsageError if they cannot be that without loss."""
    target = arrow_type(data_type)
    if values.type == target:
        return values
    try:
        return values.cast(target)
    except pa.ArrowException as e:
        raise UsageError(f"field {path}: {values.type} is no {data_type.simple_string}: {e}") from None
