"""Decoding of Avro rows to Arrow, a whole batch at once.

``decode(rows, schema)``  all fields of every row, as ``unsaferow.decode.decode`` returns them for the same state

Method: a cursor starts at the first byte of each row, and every field moves it one value forward. A null moves it by
one byte. ``walk`` finds the elements of arrays and maps; then they are read like other values. Python loops over fields
and levels, never over rows.

Dangers: rows are untrusted. A CorruptionError names the row if a value ends after its row, is invalid for its type, or
is encoded differently than Spark encodes it. The same is true of bytes after the last field. Map entries keep the order
of the bytes, which is that of a Java HashMap. An UnsafeRow of the same state has them in insertion order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.avro import types, walk
from ttlsnap.avro.cursor import Cursor
from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow import decode_values as values
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.decimals import check_digits
from ttlsnap.unsaferow.gather import Int64s, offsets_of, read_at
from ttlsnap.unsaferow.nulls import spread
from ttlsnap.unsaferow.rows import Rows


def decode(rows: Rows, schema: T.StructType, trail: Trail | None = None) -> pa.StructArray:
    """Return all fields of every row as n structs without nulls; raises CorruptionError if the rows are damaged.

    ``trail`` leads from these rows to the rows that an error names.
    """
    structs, next_cursor = _structs(Cursor.of(rows, trail), schema)
    bytes_left = next_cursor.end - next_cursor.at
    if bytes_left.any():
        place = first(bytes_left != 0)
        next_cursor.trail.fail(place, f"{bytes_left[place]} bytes follow its last field")
    return structs


def _structs(cursor: Cursor, struct: T.StructType) -> tuple[pa.StructArray, Cursor]:
    columns, trail = [], cursor.trail
    for field in struct:
        field_cursor = Cursor(cursor.data, cursor.at, cursor.end, trail.step(field.name))
        column, cursor = _union(field_cursor, field.type)
        columns.append(column)
    next_cursor = Cursor(cursor.data, cursor.at, cursor.end, trail)
    return pa.Array.from_buffers(arrow_type(struct), len(cursor), [None], children=columns), next_cursor


def _slots(cursor: Cursor, data_type: T.DataType) -> tuple[pa.Array, Cursor]:
    """Decode elements of arrays or values of maps, which are unions only if their type is nested."""
    return _union(cursor, data_type) if types.is_nested(data_type) else _values(cursor, data_type)


def _union(cursor: Cursor, data_type: T.DataType) -> tuple[pa.Array, Cursor]:
    """Decode values that may be null."""
    if isinstance(T.physical(data_type), T.NullType):
        # Spark makes Avro's null type of a void, and no union of it, so a void has no byte at all.
        return pa.nulls(len(cursor)), cursor
    nulls, cursor = cursor.read_branches()
    if nulls is None:
        return _values(cursor, data_type)
    live_places = np.flatnonzero(~nulls)
    column, value_cursor = _values(cursor.take(live_places), data_type)
    positions = cursor.at.copy()
    positions[live_places] = value_cursor.at
    return spread(column, nulls), cursor.move_to(positions)


def _values(cursor: Cursor, data_type: T.DataType) -> tuple[pa.Array, Cursor]:
    """Decode values that are not null."""
    data_type = T.physical(data_type)
    if types.is_varint(data_type):
        is_int = isinstance(data_type, types.INT_LIKE)
        numbers, next_cursor = cursor.read_ints() if is_int else cursor.read_longs()
        raw = numbers.astype(np.int32) if is_int else numbers
        return values.from_numpy(raw, data_type, cursor.trail), next_cursor
    match data_type:
        case T.BooleanType():
            flags, next_cursor = cursor.read_bytes()
            if bool((flags > 1).any()):
                place = first(flags > 1)
                cursor.trail.fail(place, f"the byte {flags[place]:02x} is neither true nor false")
            return values.from_numpy(flags, data_type, cursor.trail), next_cursor
        case T.FloatType() | T.DoubleType():
            dtype = values.dtype_of(data_type)
            next_cursor = cursor.skip(np.dtype(dtype).itemsize)
            return values.from_numpy(read_at(cursor.data, cursor.at, dtype), data_type, cursor.trail), next_cursor
        case T.DecimalType():
            return _decimals(cursor, data_type)
        case T.StringType():
            pieces, next_cursor = cursor.read_pieces()
            return values.text(pieces, cursor.trail), next_cursor
        case T.BinaryType():
            pieces, next_cursor = cursor.read_pieces()
            return pieces.to_arrow(), next_cursor
        case T.StructType():
            return _structs(cursor, data_type)
        case T.ArrayType():
            return _arrays(cursor, data_type)
        case T.MapType():
            return _maps(cursor, data_type)
    raise types.refuse(data_type, cursor.trail.path)


def _decimals(cursor: Cursor, data_type: T.DecimalType) -> tuple[pa.Array, Cursor]:
    """Decode big-endian decimals: read one or two words of each, and shift out the bytes that are not its own."""
    size = types.decimal_size(data_type.precision)
    next_cursor = cursor.skip(size)
    halves = np.empty((len(cursor), 2), np.int64)
    if size <= 8:
        halves[:, 0] = read_at(cursor.data, cursor.at, ">i8") >> (64 - 8 * size)
        halves[:, 1] = halves[:, 0] >> 63
    else:
        halves[:, 0] = read_at(cursor.data, cursor.at + (size - 8), ">i8")
        halves[:, 1] = read_at(cursor.data, cursor.at, ">i8") >> (128 - 8 * size)
    check_digits(halves, data_type.precision, cursor.trail)
    buffers: list[Any] = [None, pa.py_buffer(halves)]
    return pa.Array.from_buffers(arrow_type(data_type), len(cursor), buffers), next_cursor


def _arrays(cursor: Cursor, data_type: T.ArrayType) -> tuple[pa.LargeListArray, Cursor]:
    _refuse_void(data_type, data_type.element, cursor)
    counts, next_cursor = cursor.read_counts(types.fixed_size(data_type.element) or 1)
    element_cursor, next_cursor = walk.elements(next_cursor, counts, data_type.element)
    elements, _ = _slots(element_cursor.name_field("element"), data_type.element)
    array = pa.Array.from_buffers(arrow_type(data_type), len(cursor), [None, _offsets(counts)], children=[elements])
    return array, next_cursor.skip_end(counts)


def _maps(cursor: Cursor, data_type: T.MapType) -> tuple[pa.MapArray, Cursor]:
    _refuse_void(data_type, data_type.value, cursor)
    counts, next_cursor = cursor.read_counts(1)
    entry_cursor, next_cursor = walk.entries(next_cursor, counts, data_type.value)
    pieces, value_cursor = entry_cursor.name_field("key").read_pieces()
    if len(pieces) > 2**31 - 1:
        raise UnsupportedError(f"{len(pieces)} map entries in one batch, Arrow maps hold 2^31 - 1")
    keys = values.text(pieces, value_cursor.trail)
    items, _ = _slots(
        Cursor(value_cursor.data, value_cursor.at, value_cursor.end, entry_cursor.trail.step("value")), data_type.value
    )
    target = arrow_type(data_type)
    entries = pa.Array.from_buffers(
        pa.struct([target.key_field, target.item_field]), len(keys), [None], children=[keys, items]
    )
    array = pa.Array.from_buffers(target, len(cursor), [None, _offsets(counts, np.int32)], children=[entries])
    return array, next_cursor.skip_end(counts)


def _offsets(counts: Int64s, dtype: npt.DTypeLike = np.int64) -> pa.Buffer:
    return pa.py_buffer(offsets_of(counts).astype(dtype, copy=False))


def _refuse_void(data_type: T.DataType, inner_type: T.DataType, cursor: Cursor) -> None:
    if types.explain_unsupported(data_type) is not None and not types.is_nested(inner_type):
        raise types.refuse(data_type, cursor.trail.path)
