"""A plain Avro writer, one value after the other, as ``docs/rocksdb-state-store.md`` describes the format."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any

from ttlsnap.schema import types as T

NESTED = (T.StructType, T.ArrayType, T.MapType)


def number(value: int) -> bytes:
    """Return a number as a varint."""
    zigzag = 2 * value if value >= 0 else -2 * value - 1
    written = bytearray()
    while zigzag > 0x7F:
        written.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def row(value: dict[str, Any], schema: T.StructType) -> bytes:
    """Return a record: all fields, each a union."""
    return b"".join(union(value[f.name], f.type) for f in schema)


def union(value: Any, data_type: T.DataType) -> bytes:
    """Return the union of null and a type."""
    if isinstance(data_type, T.NullType):
        return b""
    return b"\x00" if value is None else b"\x02" + plain(value, data_type)


def plain(value: Any, data_type: T.DataType) -> bytes:
    """Return a value that is not null. A moment is given as its number."""
    match data_type:
        case T.BooleanType():
            return bytes([value])
        case T.FloatType():
            return struct.pack("<f", value)
        case T.DoubleType():
            return struct.pack("<d", value)
        case T.DecimalType(precision, scale):
            unscaled = int(Decimal(value).scaleb(scale, Context(prec=60)))
            size = next(size for size in range(1, 17) if 2 ** (8 * size - 1) >= 10**precision)
            return unscaled.to_bytes(size, "big", signed=True)
        case T.StringType():
            text: bytes = value.encode()
            return number(len(text)) + text
        case T.BinaryType():
            return number(len(value)) + bytes(value)
        case T.StructType():
            return row(value, data_type)
        case T.ArrayType(element):
            return _block([_slot(each, element) for each in value])
        case T.MapType(key, item):
            return _block([plain(k, key) + _slot(v, item) for k, v in value])
    return number(value)


def _slot(value: Any, data_type: T.DataType) -> bytes:
    return union(value, data_type) if isinstance(data_type, NESTED) else plain(value, data_type)


def _block(items: list[bytes]) -> bytes:
    return number(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"
