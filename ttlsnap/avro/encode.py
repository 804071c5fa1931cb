"""Encoding of Arrow to Avro rows, byte for byte as Spark writes them, a whole batch at once.

``encode(values, schema)``        rows of all fields
``columns_of(values, schema)``    the same as columns of pieces, for callers that put bytes before them

Every field becomes one or two columns of pieces. An array or a map becomes three: its count, the bytes of all its
elements, and the byte that ends it. ``pieces`` joins the columns.

Dangers: map entries are written in their Arrow order. If they were read from Avro, that is the order that Spark wrote.
For other maps Spark would choose its own order, that of a Java HashMap. Spark reads any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.avro import pieces, types
from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.decimals import decimal_halves
from ttlsnap.unsaferow.encode_values import to_numpy
from ttlsnap.unsaferow.gather import Bytes, Int64s, Mask, offsets_of
from ttlsnap.unsaferow.parts import conform
from ttlsnap.unsaferow.rows import Rows


def encode(values: pa.StructArray, schema: T.StructType) -> Rows:
    """Return rows of ``schema`` that hold ``values``.

    The fields are matched by ordinal. They may be of any Arrow type that casts to the schema's type without loss.

    Raises UsageError for a null row, and for a type that does not fit. Raises UsageError for a null in a field that is
    not nullable or has no nulls in Avro. Raises UnsupportedError for a type that Spark does not write in Avro.
    """
    return pieces.side_by_side(columns_of(values, schema), len(values))


def columns_of(values: pa.StructArray, schema: T.StructType) -> list[Rows]:
    """Return the columns of pieces of all fields; raises as ``encode`` does."""
    if values.null_count:
        raise UsageError("a row cannot be null, only its fields can")
    return _fields(values, schema, "")


def _fields(values: pa.StructArray, struct: T.StructType, path: str) -> list[Rows]:
    if not pa.types.is_struct(values.type) or values.type.num_fields != len(struct):
        raise UsageError(f"field {path or '(row)'}: {values.type} is not a {struct.simple_string}")
    columns: list[Rows] = []
    for ordinal, field in enumerate(struct):
        if isinstance(T.physical(field.type), T.NullType):
            continue
        name = f"{path}.{field.name}".lstrip(".")
        columns += _column(values.field(ordinal), field.type, field.nullable, name, union=True)
    return columns


def _column(values: pa.Array, data_type: T.DataType, nullable: bool, path: str, union: bool) -> list[Rows]:
    """Return the columns of values, which can have nulls only in a ``union``."""
    data_type = T.physical(data_type)
    nulls: Mask | None = None
    if values.null_count:
        nulls = np.asarray(values.is_null())
        # Spark makes no union of the elements of an array unless they are nested. Its writer then fails on a null.
        if not (nullable and union):
            reason = "is not nullable" if not nullable else "has no nulls in Avro"
            raise UsageError(f"field {path} {reason} but value {int(np.argmax(nulls))} is null")
    if types.is_varint(data_type) or types.fixed_size(data_type) is not None:
        present = _present(values, nulls, data_type, path)
        if isinstance(data_type, T.DecimalType):
            return [pieces.fixed(_fill_nulls(_big_endian(present, data_type, path), nulls), nulls, union)]
        raw = to_numpy(present, data_type, path)
        if types.is_varint(data_type):
            return [pieces.numbers(_fill_nulls(raw.astype(np.int64, copy=False), nulls), nulls, union)]
        return [
            pieces.fixed(_fill_nulls(raw.view(np.uint8).reshape(len(raw), raw.dtype.itemsize), nulls), nulls, union)
        ]
    if isinstance(data_type, T.StringType | T.BinaryType):
        return _binary(conform(values, data_type, path), nulls, union)
    live_places = None if nulls is None else np.flatnonzero(~nulls)
    value_columns = _encode_nested(
        values if live_places is None else values.take(pa.array(live_places)), data_type, path
    )
    if live_places is not None:
        value_columns = [_spread(column, live_places, len(values)) for column in value_columns]
    return [pieces.branches(nulls, len(values)), *value_columns] if union else value_columns


def _present(values: pa.Array, nulls: Mask | None, data_type: T.DataType, path: str) -> pa.Array:
    """Return the values that are not null, in the Arrow type that they are encoded from."""
    if nulls is not None:
        values = values.filter(pa.array(~nulls))
    return conform(values, data_type, path) if len(values) else pa.array([], arrow_type(data_type))


def _fill_nulls(raw: npt.NDArray[Any], nulls: Mask | None) -> npt.NDArray[Any]:
    """Return the values in their places, with zeros for nulls."""
    if nulls is None:
        return raw
    filled = np.zeros((len(nulls), *raw.shape[1:]), raw.dtype)
    filled[~nulls] = raw
    return filled


def _big_endian(values: pa.Array, data_type: T.DecimalType, path: str) -> Bytes:
    size = types.decimal_size(data_type.precision)
    halves = np.ascontiguousarray(decimal_halves(values, data_type, path))
    return halves.view(np.uint8).reshape(len(values), 16)[:, size - 1 :: -1]


def _binary(values: pa.Array, nulls: Mask | None, union: bool) -> list[Rows]:
    """Return the lengths, and the bytes as they lie in Arrow's buffer."""
    count = len(values)
    offsets = np.frombuffer(values.buffers()[1] or bytes(8), np.int64)[values.offset : values.offset + count + 1]
    content = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    start = offsets[:count].copy()
    size = np.diff(offsets) if count else np.empty(0, np.int64)
    if nulls is not None:
        size[nulls] = 0
    return [pieces.numbers(size, nulls, union), Rows(content, start, size)]


def _encode_nested(values: pa.Array, data_type: T.DataType, path: str) -> list[Rows]:
    """Return the columns of structs, arrays or maps that are not null."""
    match data_type:
        case T.StructType():
            return _fields(values, data_type, path)
        case T.ArrayType(element, contains_null) if types.explain_unsupported(data_type, path) is None:
            counts, elements = _flatten(values, path)
            element_columns = _column(elements, element, contains_null, f"{path}.element", types.is_nested(element))
            return _encode_lists(counts, element_columns, len(elements))
        case T.MapType(key, value, contains_null) if types.explain_unsupported(data_type, path) is None:
            counts, entries = _flatten(values, path, pa.types.is_map)
            element_columns = _column(entries.field(0), key, False, f"{path}.key", union=False)
            element_columns += _column(entries.field(1), value, contains_null, f"{path}.value", types.is_nested(value))
            return _encode_lists(counts, element_columns, len(entries))
    raise types.refuse(data_type, path)


def _encode_lists(counts: Int64s, element_columns: list[Rows], count: int) -> list[Rows]:
    """Return counts, elements and end bytes of lists; ``element_columns`` are those of all ``count`` elements."""
    elements = pieces.side_by_side(element_columns, count)
    bounds = np.append(elements.start, len(elements.data))[offsets_of(counts)]
    end = np.zeros((len(counts), 1), np.uint8)
    return [
        pieces.numbers(counts, None, union=False),
        Rows(elements.data, bounds[:-1], np.diff(bounds)),
        pieces.matrix(end, (counts > 0).astype(np.int64)),
    ]


def _flatten(values: pa.Array, path: str, is_list_like: Any = None) -> tuple[Int64s, pa.Array]:
    """Return the lengths of lists, and the elements of all lists."""
    kind = values.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list_like(kind) if is_list_like else is_list):
        raise UsageError(f"field {path}: {kind} is not {'a map' if is_list_like else 'an array'}")
    offsets = np.asarray(values.offsets).astype(np.int64)
    first_offset, last_offset = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    counts: Int64s = np.diff(offsets) if len(offsets) else np.empty(0, np.int64)
    return counts, values.values[first_offset:last_offset]


def _spread(column: Rows, live_places: Int64s, count: int) -> Rows:
    """Return a column of ``count`` pieces: the given ones at ``live_places``, and empty ones elsewhere."""
    size = np.zeros(count, np.int64)
    size[live_places] = column.size
    # An empty piece starts where the piece before it ends, because starts must rise.
    start = np.zeros(count, np.int64)
    start[live_places] = column.start
    end = start + size
    return Rows(column.data, np.where(size > 0, start, np.maximum.accumulate(end)), size)
