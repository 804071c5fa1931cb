"""Which Avro type Spark writes a column as. Reader and writer both take it from here.

Every field of a struct is a union of null and its type, whatever its nullability: one byte, ``00`` for null or ``02``.
So are elements of arrays and values of maps, where they are structs, arrays or maps themselves; those of any other
type stand alone, and Spark fails on a null among them.

    void                                  nothing, not even a union's byte
    boolean                               1 byte, 00 or 01
    int, date                             varint
    bigint, timestamp, timestamp_ntz      varint
    float, double                         4 or 8 bytes, little-endian
    decimal(p,s)                          unscaled value, big-endian, in as many bytes as p digits need
    string, binary                        varint length, bytes
    struct                                its fields, one after the other
    array                                 varint count, elements, 00; of none just 00
    map                                   the same; an entry is its key, a string, and its value

A varint is the number in zigzag (0, -1, 1, -2, ...), 7 bits a byte, the lowest first, the high bit where more follow.

Spark does not take other types in Avro: tinyint, smallint, intervals, variant, time, maps of other keys. Arrays
of void exist, but their elements have no bytes to be counted by, and they are refused here.

Source: apache/spark ``SchemaConverters.toAvroTypeWithDefaults``, ``AvroSerializer`` and ``AvroDeserializer``, the same
in 4.0 to 4.2.
"""

from __future__ import annotations

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T

NULL, VALUE = 0x00, 0x02
"""A union's byte: the number of the branch, as a varint."""

INT_LIKE = (T.IntegerType, T.DateType)
LONG_LIKE = (T.LongType, T.TimestampType, T.TimestampNTZType)
_FIXED = {T.BooleanType: 1, T.FloatType: 4, T.DoubleType: 8}


def fixed_size(data_type: T.DataType) -> int | None:
    """Bytes of a value whose type alone says how many; None where the value does."""
    data_type = T.physical(data_type)
    if isinstance(data_type, T.DecimalType):
        return decimal_size(data_type.precision)
    return _FIXED.get(type(data_type))


def decimal_size(precision: int) -> int:
    """The least number of bytes that holds all decimals of so many digits, with a sign."""
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size


def is_varint(data_type: T.DataType) -> bool:
    """Whether a value is one varint."""
    return isinstance(T.physical(data_type), INT_LIKE + LONG_LIKE)


def is_nested(data_type: T.DataType) -> bool:
    """Whether elements of this type are unions."""
    return isinstance(T.physical(data_type), T.StructType | T.ArrayType | T.MapType)


def unsupported(data_type: T.DataType, path: str = "") -> str | None:
    """Why values of this type cannot be read and written in Avro, if so; for a schema, which column is at fault."""
    data_type = T.physical(data_type)
    match data_type:
        case T.StructType(fields):
            reasons = (unsupported(f.type, f"{path}.{f.name}".lstrip(".")) for f in fields)
            return next((reason for reason in reasons if reason), None)
        case T.ArrayType(element) if not isinstance(T.physical(element), T.NullType):
            return unsupported(element, f"{path}.element")
        case T.MapType(key, value) if is_text(key) and not isinstance(T.physical(value), T.NullType):
            return unsupported(value, f"{path}.value")
        case T.StringType() | T.BinaryType() | T.NullType():
            return None
    if fixed_size(data_type) is not None or is_varint(data_type):
        return None
    return f"field {path or '(row)'}: {data_type.simple_string} is no type that can be read in Avro"


def is_text(data_type: T.DataType) -> bool:
    """Whether a type is what keys of maps are."""
    return isinstance(T.physical(data_type), T.StringType)


def refuse(data_type: T.DataType, path: str) -> UnsupportedError:
    """The error for a type that ``unsupported`` tells of."""
    return UnsupportedError(unsupported(data_type, path) or f"field {path}: {data_type.simple_string}")
