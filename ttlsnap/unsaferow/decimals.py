"""Decimals: 128-bit numbers in Arrow, longs or big-endian bytes in a row.

Rule: with a precision of up to 18, the word has the unscaled value as a long. With a larger precision, the row has the
unscaled value as Java's ``BigInteger.toByteArray`` returns it. That is big-endian two's complement in the fewest bytes
that hold all bits and a sign, 1 to 16 of them.

In this module a number is a pair of int64 ("halves"), the low one first, as in Arrow.

Dangers: Arrow does not check whether a number has more digits than its type. Spark refuses such a number when it reads
it. This module refuses it when reading and when writing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.gather import Int64s, Mask, expand_ranges, gather_ragged, read_at
from ttlsnap.unsaferow.layout import RESERVED, WORD
from ttlsnap.unsaferow.parts import ValueBytes, Words, as_bytes, part
from ttlsnap.unsaferow.rows import Rows

Halves = npt.NDArray[np.int64]
"""int64[n, 2]: low and high word of n numbers."""


def wide_decimals(pieces: Rows, data_type: T.DecimalType, trail: Trail) -> pa.Array:
    """Return pieces as decimals; raises CorruptionError for an impossible size or value."""
    size = pieces.size
    # BigInteger.toByteArray returns at least one byte, also for zero.
    is_bad = (size < 1) | (size > RESERVED)
    if is_bad.any():
        trail.fail(first(is_bad), f"a decimal of {size[first(is_bad)]} bytes, it has 1 to 16")
    count = len(pieces)
    negative = read_at(pieces.data, pieces.start, "i1") < 0
    big_endian = np.repeat(np.where(negative, 0xFF, 0).astype(np.uint8), RESERVED)
    digits = np.frombuffer(gather_ragged(pieces.data, pieces.start, size), np.uint8)
    big_endian[_align_right(size)] = digits
    halves = np.ascontiguousarray(big_endian.reshape(count, RESERVED)[:, ::-1]).view("<i8")
    check_digits(halves, data_type.precision, trail)
    return pa.Array.from_buffers(arrow_type(data_type), count, [None, pa.py_buffer(halves)])


def check_digits(halves: Halves, precision: int, trail: Trail, nulls: Mask | None = None) -> None:
    """Raise CorruptionError if a number has more digits than ``precision``; nulls may hold anything."""
    is_bad = _too_long(halves, precision)
    if nulls is not None:
        is_bad &= ~nulls
    if is_bad.any():
        low, high = halves[first(is_bad)].tolist()
        unscaled = high << 64 | low & 2**64 - 1
        trail.fail(first(is_bad), "a decimal of unscaled value " + quote(unscaled) + f", more than {precision} digits")


def decimal_halves(values: pa.Array, data_type: T.DecimalType, path: str) -> Halves:
    """Return the numbers of an Arrow array without nulls; raises UsageError if one has too many digits."""
    raw = np.frombuffer(values.buffers()[1] or b"", "<i8").reshape(-1, 2)
    halves = raw[values.offset : values.offset + len(values)]
    if _too_long(halves, data_type.precision).any():
        raise UsageError(f"field {path}: a number has more digits than {data_type.simple_string}")
    return halves


def wide_decimal_bytes(values: pa.Array, data_type: T.DecimalType) -> Rows:
    """Return decimals of an Arrow array without nulls as a row holds them."""
    plan = wide_decimal_part(values, data_type, data_type.simple_string)
    target = np.zeros(RESERVED // WORD * len(values), "<i8")
    start = RESERVED * np.arange(len(values), dtype=np.int64)
    plan.write(target, start)
    return Rows(as_bytes(target), start, plan.size)


def wide_decimal_part(values: pa.Array, data_type: T.DecimalType, path: str) -> ValueBytes:
    """Return the part of decimals, each in the fewest bytes."""
    halves = decimal_halves(values, data_type, path)
    low, high = _magnitude(halves)
    size = np.ones(len(values), np.int64)
    for bits in range(7, 127, 8):
        if bits < 64:
            size += (high != 0) | (low >= np.uint64(1 << bits))
        else:
            size += high >= np.uint64(1 << (bits - 64))

    def write(target: Words, positions: Int64s) -> None:
        big_endian = np.ascontiguousarray(halves).view(np.uint8).reshape(-1, RESERVED)[:, ::-1].reshape(-1)
        as_bytes(target)[expand_ranges(positions, size)] = big_endian[_align_right(size)]

    return part(size, write)


def _magnitude(halves: Halves) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the low and high word of ``v`` for v >= 0, of ``-v - 1`` for v < 0: the bits without the sign."""
    sign = halves[:, 1] >> 63
    return (halves[:, 0] ^ sign).view(np.uint64), (halves[:, 1] ^ sign).view(np.uint64)


def _too_long(halves: Halves, precision: int) -> Mask:
    low, high = _magnitude(halves)
    largest = 10**precision - 1
    # A negative number's magnitude is one less than its absolute value.
    largest_low = np.uint64(largest & 2**64 - 1) - (halves[:, 1] < 0).astype(np.uint64)
    largest_high = np.uint64(largest >> 64)
    too_long: Mask = (high > largest_high) | ((high == largest_high) & (low > largest_low))
    return too_long


def _align_right(size: Int64s) -> Int64s:
    """Return the indices of the last ``size[i]`` bytes of each 16."""
    return expand_ranges(RESERVED * np.arange(1, len(size) + 1) - size, size)
