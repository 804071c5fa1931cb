"""Encoding of Arrow values that are not containers; the counterpart of ``decode_values``.

Every function takes an array without nulls, in the type's own Arrow type (``parts.conform``). As in Spark, every NaN
becomes the one canonical NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.decimals import decimal_halves, wide_decimal_part
from ttlsnap.unsaferow.decode_values import dtype_of
from ttlsnap.unsaferow.gather import Int64s, expand_ranges
from ttlsnap.unsaferow.layout import RESERVED
from ttlsnap.unsaferow.parts import ValueBytes, Words, as_bytes, part, round8


def to_numpy(values: pa.Array, data_type: T.DataType, path: str) -> npt.NDArray[Any]:
    """Return fixed-width values in their own width, as elements of an array have them."""
    data_type = T.physical(data_type)
    if isinstance(data_type, T.NullType):
        return np.zeros(len(values), np.int64)
    if isinstance(data_type, T.BooleanType):
        return np.asarray(values.cast(pa.uint8()))
    if isinstance(data_type, T.DecimalType):
        return decimal_halves(values, data_type, path)[:, 0]
    raw: npt.NDArray[Any] = np.frombuffer(values.buffers()[1] or b"", dtype_of(data_type))
    raw = raw[values.offset : values.offset + len(values)]
    if isinstance(data_type, T.FloatType | T.DoubleType):
        # -0.0 stays: Spark normalizes it only in keys, before it makes rows of them.
        raw = np.where(np.isnan(raw), raw.dtype.type(np.nan), raw)
    return raw


def to_words(values: pa.Array, data_type: T.DataType, path: str) -> Int64s:
    """Return fixed-width values as 8-byte words: the value in the low bytes, the others zero."""
    raw = to_numpy(values, data_type, path)
    words: Int64s = np.ascontiguousarray(raw).view(f"<u{raw.dtype.itemsize}").astype(np.int64)
    return words


def value_part(values: pa.Array, data_type: T.DataType, path: str) -> ValueBytes:
    """Return the part of variable-length values; raises UnsupportedError for a type without a known layout."""
    match data_type:
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return _binary(values)
        case T.DecimalType():
            return wide_decimal_part(values, data_type, path)
        case T.CalendarIntervalType():
            return _intervals(values, path)
        case T.VariantType():
            return _variants(values)
    raise UnsupportedError(f"no known layout for {data_type.simple_string!r}")


def _binary(values: pa.Array) -> ValueBytes:
    values = values.cast(pa.large_binary())
    size = _lengths(values)
    value_count = len(values)

    def write(target: Words, positions: Int64s) -> None:
        # Each value followed by its padding fills whole words, so the words of all values are consecutive.
        padding = pa.array([bytes(length) for length in range(8)], pa.large_binary())
        value_and_padding = np.empty(2 * value_count, np.int64)
        value_and_padding[0::2] = np.arange(value_count)
        value_and_padding[1::2] = value_count + (-size & 7)
        padded_values = pa.concat_arrays([values, padding]).take(pa.array(value_and_padding))
        count = round8(size) >> 3
        words = np.frombuffer(padded_values.buffers()[2] or b"", np.uint8)[: 8 * int(count.sum())].view("<i8")
        target[expand_ranges(positions >> 3, count)] = words

    return part(size, write)


def _intervals(values: pa.Array, path: str) -> ValueBytes:
    layout = [("months_and_days", "<i8"), ("nanos", "<i8")]
    raw = np.frombuffer(values.buffers()[1] or b"", layout)[values.offset : values.offset + len(values)]
    if (raw["nanos"] % 1000 != 0).any():
        raise UsageError(f"field {path}: an interval has nanoseconds, Spark keeps microseconds")

    def write(target: Words, positions: Int64s) -> None:
        target[positions >> 3] = raw["months_and_days"]
        target[(positions >> 3) + 1] = raw["nanos"] // 1000

    return part(np.full(len(values), RESERVED, np.int64), write)


def _variants(values: pa.Array) -> ValueBytes:
    value, metadata = values.field(0), values.field(1)
    value_size, metadata_size = _lengths(value), _lengths(metadata)

    def write(target: Words, positions: Int64s) -> None:
        # The length is written as a whole word; then the value overwrites the last 4 bytes of that word.
        target[positions >> 3] = value_size
        target_bytes = as_bytes(target)
        for pieces, start, size in (
            (value, positions + 4, value_size),
            (metadata, positions + 4 + value_size, metadata_size),
        ):
            target_bytes[expand_ranges(start, size)] = _content(pieces)

    return part(4 + value_size + metadata_size, write)


def _offsets(values: pa.Array) -> Int64s:
    raw = np.frombuffer(values.buffers()[1] or bytes(8), np.int64)
    return raw[values.offset : values.offset + len(values) + 1]


def _lengths(values: pa.Array) -> Int64s:
    lengths: Int64s = np.diff(_offsets(values)) if len(values) else np.empty(0, np.int64)
    return lengths


def _content(values: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values, one after the other."""
    if len(values) == 0:
        return np.empty(0, np.uint8)
    offsets = _offsets(values)
    content: npt.NDArray[np.uint8] = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    return content[offsets[0] : offsets[-1]]
