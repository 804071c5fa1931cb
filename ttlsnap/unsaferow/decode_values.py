"""Decoding of values that are not containers: cells to Arrow arrays, one function for each encoding.

``layout`` has the rules. Every function takes only cells that are not null, and returns an array of as many values
without nulls. The exception is ``from_numpy``, which also takes array elements with a mask of nulls.

Dangers: text that is not UTF-8 raises a CorruptionError, although Spark itself never checks it. A calendar interval
that is too long for Arrow's nanoseconds raises an UnsupportedError.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UnsupportedError
from ttlsnap.quoting import quote
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.decimals import check_digits
from ttlsnap.unsaferow.gather import Mask, read_at
from ttlsnap.unsaferow.layout import RESERVED
from ttlsnap.unsaferow.rows import Rows

NANOS_PER_DAY = 86_400_000_000_000
MAX_INTERVAL_MICROS = (2**63 - 1) // 1000

_DTYPES: dict[type[T.DataType], str] = {
    T.BooleanType: "u1",
    T.ByteType: "i1",
    T.ShortType: "<i2",
    T.IntegerType: "<i4",
    T.DateType: "<i4",
    T.YearMonthIntervalType: "<i4",
    T.FloatType: "<f4",
    T.DoubleType: "<f8",
}


def dtype_of(data_type: T.DataType) -> str:
    """Return the NumPy dtype that a fixed-width value has in the bytes of a row."""
    return _DTYPES.get(type(T.physical(data_type)), "<i8")


def from_numpy(values: npt.NDArray[Any], data_type: T.DataType, trail: Trail, nulls: Mask | None = None) -> pa.Array:
    """Return fixed-width values, as words or elements hold them, as Arrow; ``nulls`` is true where null.

    Raises CorruptionError for a decimal with too many digits, or an impossible time of day.
    """
    data_type = T.physical(data_type)
    count = len(values)
    buffer: npt.NDArray[Any]
    validity = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    match data_type:
        case T.NullType():
            return pa.nulls(count)
        case T.BooleanType():
            # Spark stores a byte for a boolean, and Arrow a bit.
            buffer = np.packbits(values != 0, bitorder="little")
        case T.DecimalType():
            halves = np.empty((count, 2), np.int64)
            halves[:, 0] = values
            halves[:, 1] = values >> 63  # the sign, repeated
            check_digits(halves, data_type.precision, trail, nulls)
            buffer = halves
        case T.TimeType():
            is_bad = (values < 0) | (values >= NANOS_PER_DAY)
            if nulls is not None:
                is_bad &= ~nulls
            if is_bad.any():
                trail.fail(first(is_bad), quote(values[first(is_bad)]) + " nanoseconds is not a time of day")
            buffer = values
        case _:
            buffer = values
    return pa.Array.from_buffers(arrow_type(data_type), count, [validity, pa.py_buffer(buffer)])


def text(pieces: Rows, trail: Trail) -> pa.LargeStringArray:
    """Return pieces as text; raises CorruptionError if one is not UTF-8."""
    raw = pieces.to_arrow()
    try:
        # Spark's UTF8String never checks its bytes, so a query can have stored others. Arrow cannot hold them.
        return raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        low, high = 0, len(raw)  # the first bad value is in raw[low:high]
        while high - low > 1:
            middle = (low + high) // 2
            try:
                raw[low:middle].cast(pa.large_string())
                low = middle
            except pa.ArrowInvalid:
                high = middle
        start = raw[low].as_py()[:40]
        trail.fail(low, "the string is not UTF-8, it begins with " + quote(repr(start)))


def intervals(pieces: Rows, trail: Trail) -> pa.Array:
    """Return calendar intervals from pieces of months int32, days int32, microseconds int64.

    Raises CorruptionError for another size, and UnsupportedError for an interval that is too long for Arrow.
    """
    is_bad = pieces.size != RESERVED
    if is_bad.any():
        trail.fail(first(is_bad), f"an interval of {pieces.size[first(is_bad)]} bytes, it has 16")
    target = np.empty(len(pieces), [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    target["months"] = read_at(pieces.data, pieces.start, "<i4")
    target["days"] = read_at(pieces.data, pieces.start + 4, "<i4")
    micros = read_at(pieces.data, pieces.start + 8, "<i8")
    is_too_long = (micros > MAX_INTERVAL_MICROS) | (micros < -MAX_INTERVAL_MICROS)
    if is_too_long.any():
        place = first(is_too_long)
        where = f"row {trail.row_of(place)}, field {trail.path}"
        raise UnsupportedError(f"{where}: an interval of {micros[place]} microseconds has no Arrow value")
    target["nanos"] = micros * 1000
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(pieces), [None, pa.py_buffer(target)])


def variants(pieces: Rows, trail: Trail) -> pa.StructArray:
    """Return variants from pieces of the value's length as int32, the value, and the metadata up to the end.

    Raises CorruptionError for an impossible length.
    """
    is_bad = pieces.size < 4
    if is_bad.any():
        trail.fail(first(is_bad), f"a variant of {pieces.size[first(is_bad)]} bytes, it has at least 4")
    length = read_at(pieces.data, pieces.start, "<i4").astype(np.int64)
    is_bad = (length < 0) | (length > pieces.size - 4)
    if is_bad.any():
        place = first(is_bad)
        trail.fail(place, f"a variant's value of {length[place]} bytes in {pieces.size[place]}")
    value = Rows(pieces.data, pieces.start + 4, length)
    metadata = Rows(pieces.data, pieces.start + 4 + length, pieces.size - 4 - length)
    children = [value.to_arrow(), metadata.to_arrow()]
    return pa.Array.from_buffers(arrow_type(T.VariantType()), len(pieces), [None], children=children)
