"""The UnsafeRow format: sizes and offsets, shared by reader and writer.

Row (also a nested struct), all integers little-endian::

    [null bits: ceil(fields / 64) words][one 8-byte word per field][variable part]

A set bit means null; field i has bit i % 64 of word i / 64. A fixed-width field has its value in the low bytes of its
word; the rest is zero. The word of any other field is ``offset << 32 | size``, with the offset from the row's first
byte. Its bytes lie in the variable part, where each piece is padded with zeros to a multiple of 8. The word of a null
is 0, except for the two reserving types below.

Array::

    [count: int64][null bits: ceil(count / 64) words][elements][variable part]

Fixed-width elements have their own width (1, 2, 4 or 8 bytes), and all of them together are padded to a multiple of 8.
Other elements have 8-byte words as in a row, with offsets from the array's first byte.

Map: ``[size of the key array: int64][key array][value array]``.

    decimal, precision <= 18   the unscaled value as a long in the word
    decimal, precision > 18    unscaled value, big-endian two's complement, shortest form (1 to 16 bytes);
                               a row always reserves 16 bytes, also for null (word: offset, size 0);
                               an array has only the bytes that are needed, and none for null
    interval (calendar)        16 bytes: months int32, days int32, microseconds int64;
                               a row reserves them also for null (word: offset, size 16); an array does not
    variant                    int32 length of the value, the value, the metadata

Dangers: Spark does not clear the reserved bytes of a null interval, so rows of equal content may differ there. Rows
updated in place (aggregation buffers) keep the same layout.

Source: apache/spark ``sql/catalyst/src/main/java/.../expressions/UnsafeRow.java``, ``UnsafeArrayData.java``,
``UnsafeMapData.java`` and ``codegen/UnsafeRowWriter.java``, ``UnsafeArrayWriter.java``.
"""

from __future__ import annotations

from ttlsnap.schema import types as T

WORD = 8
RESERVED = 16
"""Bytes that a wide decimal or a calendar interval takes in a row's variable part, null or not."""

_NARROW: dict[type[T.DataType], int] = {
    T.BooleanType: 1,
    T.ByteType: 1,
    T.ShortType: 2,
    T.IntegerType: 4,
    T.FloatType: 4,
    T.DateType: 4,
    T.YearMonthIntervalType: 4,
}


def value_width(data_type: T.DataType) -> int:
    """Return the bytes of a fixed-width value: its low bytes in a row's word, its element in an array.

    Any other type has a word of 8 bytes.
    """
    return _NARROW.get(type(T.physical(data_type)), WORD)


def bitset_bytes(fields: int) -> int:
    """Return the bytes of the null bits of a row (or array) with ``fields`` fields."""
    return (fields + 63) // 64 * WORD


def fixed_bytes(fields: int) -> int:
    """Return the bytes before the variable part of a row, which are the least size of a row with ``fields`` fields."""
    return bitset_bytes(fields) + WORD * fields


def reserves(data_type: T.DataType) -> bool:
    """Return whether a row reserves 16 bytes for this type even if the field is null."""
    data_type = T.physical(data_type)
    if isinstance(data_type, T.DecimalType):
        return data_type.precision > T.MAX_LONG_DIGITS
    return isinstance(data_type, T.CalendarIntervalType)
