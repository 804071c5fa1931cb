"""The Avro encoding of each Spark type, shared by reader and writer.

Every field of a struct is a union of null and its type, even if it is not nullable. The union byte is ``00`` for null,
else ``02``. Elements of arrays and values of maps are unions only if they are structs, arrays or maps. Other elements
have no union byte, and Spark fails if one of them is null.

    void                                  nothing, not even a union byte
    boolean                               1 byte, 00 or 01
    int, date                             varint
    bigint, timestamp, timestamp_ntz      varint
    float, double                         4 or 8 bytes, little-endian
    decimal(p,s)                          unscaled value, big-endian, in as many bytes as p digits need
    string, binary                        varint length, bytes
    struct                                its fields, one after the other
    array                                 varint count, elements, 00; an empty array is just 00
    map                                   the same; an entry is its key, a string, and its value

A varint is the number in zigzag (0, -1, 1, -2, ...), 7 bits per byte, the lowest bits first. The high bit of a byte is
set if more bytes follow.

Spark does not write other types in Avro: tinyint, smallint, intervals, variant, time, maps with other keys. Arrays of
void exist. They are refused here, because their elements have no bytes to count them by.

Source: apache/spark ``SchemaConverters.toAvroTypeWithDefaults``, ``AvroSerializer`` and ``AvroDeserializer``, the same
in 4.0 to 4.2.
"""

from __future__ import annotations

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T

NULL, VALUE = 0x00, 0x02
"""The union byte: the number of the branch, as a varint."""

INT_LIKE = (T.IntegerType, T.DateType)
LONG_LIKE = (T.LongType, T.TimestampType, T.TimestampNTZType)
_FIXED = {T.BooleanType: 1, T.FloatType: 4, T.DoubleType: 8}


def fixed_size(data_type: T.DataType) -> int | None:
    """Return the size of a value in bytes if its type determines it, else None."""
    data_type = T.physical(data_type)
    if isinstance(data_type, T.DecimalType):
        return decimal_size(data_type.precision)
    return _FIXED.get(type(data_type))


def decimal_size(precision: int) -> int:
    """Return the least number of bytes that holds every decimal of ``precision`` digits, with its sign."""
    size = 1
    # Spark stores a decimal as a fixed of this size, and not in as few bytes as each number needs.
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size


def is_varint(data_type: T.DataType) -> bool:
    """Return whether a value of this type is one varint."""
    return isinstance(T.physical(data_type), INT_LIKE + LONG_LIKE)


def is_nested(data_type: T.DataType) -> bool:
    """Return whether array elements and map values of this type are unions."""
    return isinstance(T.physical(data_type), T.StructType | T.ArrayType | T.MapType)


def explain_unsupported(data_type: T.DataType, path: str = "") -> str | None:
    """Return why values of this type cannot be read and written in Avro, or None if they can.

    For a struct, the reason names the column.
    """
    data_type = T.physical(data_type)
    match data_type:
        case T.StructType(fields):
            reasons = (explain_unsupported(field.type, f"{path}.{field.name}".lstrip(".")) for field in fields)
            return next((reason for reason in reasons if reason), None)
        case T.ArrayType(element) if not isinstance(T.physical(element), T.NullType):
            return explain_unsupported(element, f"{path}.element")
        case T.MapType(key, value) if is_text(key) and not isinstance(T.physical(value), T.NullType):
            return explain_unsupported(value, f"{path}.value")
        case T.StringType() | T.BinaryType() | T.NullType():
            return None
    if fixed_size(data_type) is not None or is_varint(data_type):
        return None
    return f"field {path or '(row)'}: the type {data_type.simple_string} is unknown in Avro"


def is_text(data_type: T.DataType) -> bool:
    """Return whether a type is a string, the only type of map keys in Avro."""
    return isinstance(T.physical(data_type), T.StringType)


def refuse(data_type: T.DataType, path: str) -> UnsupportedError:
    """Return the error for a type that ``unsupported`` rejects."""
    return UnsupportedError(explain_unsupported(data_type, path) or f"field {path}: {data_type.simple_string}")
