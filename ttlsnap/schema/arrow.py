"""Arrow types of Spark types: transformers get values in these types.

    boolean, byte, short, int, long, float, double   bool_, int8, int16, int32, int64, float32, float64
    decimal(p,s)                  decimal128(p,s)
    string, char, varchar         large_string (64-bit offsets: a batch may exceed 2 GB of text)
    binary                        large_binary
    date                          date32, days since 1970-01-01
    timestamp                     timestamp('us', 'UTC')
    timestamp_ntz                 timestamp('us')
    time(p)                       time64('ns')
    interval day to second etc.   duration('us')
    interval year to month etc.   int32, **months**: Arrow's month interval has no arithmetic in pyarrow
    interval (calendar)           month_day_nano_interval
    variant                       struct<value: large_binary not null, metadata: large_binary not null>
    void                          null
    array                         large_list<element>
    map                           map, entries in the order of the bytes
    struct                        struct, fields by ordinal; names may repeat
    udt                           the type of its sqlType

All fields are nullable, even if the schema says otherwise. Spark does not check the nullability of a state schema when
it writes. Bytes that violate it must still be readable.

Dangers: a calendar interval has microseconds, and Arrow's has nanoseconds. An interval beyond some 292 years of
microseconds has no Arrow value. Dates and timestamps beyond the year 9999 are valid in Arrow and in bytes, but have no
Python object.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T

_PLAIN: dict[type[T.DataType], Any] = {
    T.NullType: pa.null(),
    T.BooleanType: pa.bool_(),
    T.ByteType: pa.int8(),
    T.ShortType: pa.int16(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.FloatType: pa.float32(),
    T.DoubleType: pa.float64(),
    T.BinaryType: pa.large_binary(),
    T.StringType: pa.large_string(),
    T.CharType: pa.large_string(),
    T.VarcharType: pa.large_string(),
    T.DateType: pa.date32(),
    T.TimestampType: pa.timestamp("us", "UTC"),
    T.TimestampNTZType: pa.timestamp("us"),
    T.TimeType: pa.time64("ns"),
    T.DayTimeIntervalType: pa.duration("us"),
    T.YearMonthIntervalType: pa.int32(),
    T.CalendarIntervalType: pa.month_day_nano_interval(),
    T.VariantType: pa.struct(
        [
            pa.field("value", pa.large_binary(), nullable=False),
            pa.field("metadata", pa.large_binary(), nullable=False),
        ]
    ),
}


def arrow_type(data_type: T.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type; raises UnsupportedError if it has none."""
    data_type = T.physical(data_type)
    match data_type:
        case T.DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case T.ArrayType(element):
            return pa.large_list(pa.field("element", arrow_type(element)))
        case T.MapType(key, value):
            if isinstance(T.physical(key), T.NullType):
                raise UnsupportedError("no Arrow type for a map whose keys are void: it can only be empty")
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value)))
        case T.StructType(fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
    plain_type = _PLAIN.get(type(data_type))
    if plain_type is None:
        raise UnsupportedError(f"no Arrow type for {data_type.simple_string!r}")
    return plain_type
