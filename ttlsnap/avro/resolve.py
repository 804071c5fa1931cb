"""Conversion of values of an older schema to the current schema, as Spark does it when it reads them.

Avro's rules apply. Spark also uses them to decide whether it accepts the new schema. Fields are matched by name. A
field that was not written becomes null, and a removed field is dropped. int becomes bigint, float or double; bigint
becomes float or double; float becomes double. String and binary become each other.

Dangers: Avro considers only how a value is encoded. A bigint becomes a timestamp of as many microseconds. A decimal
whose scale changes keeps its digits if its size in bytes stays the same. This module does the same, so its values are
those that Spark continues with.

Source: Avro's ``SchemaCompatibility`` and ``ResolvingGrammarGenerator`` (1.12), apache/spark
``StateSchemaCompatibilityChecker``, ``AvroStateEncoder.decodeValue``; tested with Spark 4.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.avro import types
from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.check import Trail
from ttlsnap.unsaferow.decimals import check_digits

_BINARY = (T.StringType, T.BinaryType)
_FLOATS = (T.FloatType, T.DoubleType)


def resolve(values: pa.StructArray, written: T.StructType, target_schema: T.StructType) -> pa.StructArray:
    """Return ``values``, just decoded with the schema ``written``, as values of ``target_schema``.

    Raises UnsupportedError if Spark would have rejected the new schema.
    """
    return _resolve(values, written, target_schema, "")


def _resolve(values: pa.Array, written: T.DataType, target_type: T.DataType, path: str) -> pa.Array:
    written, target_type = T.physical(written), T.physical(target_type)
    target = arrow_type(target_type)
    if values.type == target:
        return values
    if isinstance(written, T.NullType):
        return pa.nulls(len(values), target)
    match written, target_type:
        case T.StructType(), T.StructType():
            places = {field.name: place for place, field in enumerate(written)}
            children = [
                _resolve(
                    values.field(places[field.name]),
                    written.fields[places[field.name]].type,
                    field.type,
                    f"{path}.{field.name}",
                )
                if field.name in places
                else pa.nulls(len(values), arrow_type(field.type))
                for field in target_type
            ]
            return _rebuilt(values, target, 1, children)
        case T.ArrayType(), T.ArrayType():
            return _rebuilt(
                values, target, 2, [_resolve(values.values, written.element, target_type.element, f"{path}.element")]
            )
        case T.MapType(), T.MapType():
            items = _resolve(values.items, written.value, target_type.value, f"{path}.value")
            entries = pa.StructArray.from_arrays([values.keys, items], fields=[target.key_field, target.item_field])
            return _rebuilt(values, target, 2, [entries])
        case T.DecimalType(), T.DecimalType():
            if types.fixed_size(written) == types.fixed_size(target_type):
                return _same_digits(values, target_type, path)
    converted_values = _convert(values, written, target_type)
    if converted_values is None:
        names = f"{written.simple_string} cannot be read as {target_type.simple_string}"
        raise UnsupportedError(f"field {path.lstrip('.')}, written with an older schema: {names}")
    return converted_values


def _rebuilt(values: pa.Array, target: pa.DataType, own_buffers: int, children: list[pa.Array]) -> pa.Array:
    """Return the same array with other children; decoded arrays have no offset."""
    assert values.offset == 0
    return pa.Array.from_buffers(
        target, len(values), values.buffers()[:own_buffers], values.null_count, children=children
    )


def _convert(values: pa.Array, written: T.DataType, target_type: T.DataType) -> pa.Array | None:
    if isinstance(written, _BINARY) and isinstance(target_type, _BINARY):
        return values.cast(arrow_type(target_type))
    if isinstance(written, T.FloatType) and isinstance(target_type, T.DoubleType):
        return values.cast(pa.float64())
    if not types.is_varint(written):
        return None
    is_int = isinstance(written, types.INT_LIKE)
    numbers = values.view(pa.int32() if is_int else pa.int64())
    if isinstance(target_type, _FLOATS):
        # Java converts a long to a double without an error, even if digits are lost.
        return numbers.cast(arrow_type(target_type), safe=False)
    if isinstance(target_type, types.LONG_LIKE):
        return numbers.cast(pa.int64()).view(arrow_type(target_type))
    return numbers.view(arrow_type(target_type)) if is_int and isinstance(target_type, types.INT_LIKE) else None


def _same_digits(values: pa.Array, target_type: T.DecimalType, path: str) -> pa.Array:
    buffers: list[Any] = values.buffers()
    halves = np.frombuffer(buffers[1] or b"", "<i8").reshape(-1, 2)[: len(values)]
    check_digits(halves, target_type.precision, Trail(path.lstrip(".")), np.asarray(values.is_null()))
    return pa.Array.from_buffers(arrow_type(target_type), len(values), buffers, values.null_count)
