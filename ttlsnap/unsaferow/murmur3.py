"""Spark's hash of a row (Murmur3), on whole columns: it decides in which partition a key lies.

The hash of one column is the seed of the next, and the first seed is 42. A null leaves the hash as it is. Structs,
arrays and maps hash their parts in order. The partition is the hash, a signed 32-bit number, modulo the number of
partitions, and never negative.

    boolean, tinyint to int, date, months                  one 32-bit word
    bigint, timestamp, interval, decimal of <= 18 digits   two 32-bit words, the low one first
    float, double                                          their bits; -0.0 counts as 0.0, and all NaNs are one
    string, binary, decimal of > 18 digits                 whole 32-bit words, then each byte that is left as a word
    calendar interval                                      microseconds, months

Dangers: a string with another collation than ``UTF8_BINARY`` has another hash, which is not known here. From Spark 4.3
on (SPARK-58236), the hash of a calendar interval is that of the microseconds, days and months: ``with_days``. Earlier
versions have it, too, where they do not generate code (``spark.sql.codegen.factoryMode``).

Source: apache/spark ``HashExpression``, ``Murmur3HashFunction``, ``Murmur3_x86_32`` (``hashUnsafeBytes``),
``HashPartitioning.partitionIdExpression``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap import native
from ttlsnap.errors import UnsupportedError
from ttlsnap.native import loops
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.decimals import wide_decimal_bytes
from ttlsnap.unsaferow.gather import Int64s, read_at
from ttlsnap.unsaferow.rows import Rows

SEED = 42
Hashes = npt.NDArray[np.uint32]
_WORD, _WORDS = 4, 8
_INTS = (T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.DateType, T.YearMonthIntervalType)
_LONGS = (T.LongType, T.TimestampType, T.TimestampNTZType, T.TimeType, T.DayTimeIntervalType)


def hash_columns(
    columns: Sequence[pa.Array], types: Sequence[T.DataType], seeds: Hashes, *, with_days: bool = False
) -> Hashes:
    """Return the hashes of rows with these columns, uint32[n], in the columns' order; ``seeds`` are those before them.

    The hash of a calendar interval is that of Spark before 4.3, or the one ``with_days`` of Spark 4.3 and later.

    Raises UnsupportedError for a type whose hash is not known.
    """
    for column, kind in zip(columns, types, strict=True):
        seeds = hash_column(column, kind, seeds, with_days=with_days)
    return seeds


def has_two_hashes(kind: T.DataType) -> bool:
    """Return whether values of this type have another hash from Spark 4.3 on."""
    return T.contains(kind, T.CalendarIntervalType)


def hash_column(column: pa.Array, kind: T.DataType, seeds: Hashes, *, with_days: bool = False) -> Hashes:
    """Return the hashes after one more column; see ``hash_columns``."""
    if not column.null_count:
        return _hash(column, T.physical(kind), seeds, with_days)
    valid_places = np.flatnonzero(np.asarray(column.is_valid()))
    hashes = seeds.copy()
    hashes[valid_places] = _hash(column.drop_null(), T.physical(kind), seeds[valid_places], with_days)
    return hashes


def first_seeds(rows: int) -> Hashes:
    """Return the seeds of so many rows."""
    return np.full(rows, SEED, np.uint32)


def partitions_of(hashes: Hashes, partitions: int) -> Int64s:
    """Return the partition of each row, int64[n]."""
    # NumPy's remainder is never negative, as that of Spark's Pmod.
    numbers: Int64s = hashes.view(np.int32).astype(np.int64) % partitions
    return numbers


def _hash(column: pa.Array, kind: T.DataType, seeds: Hashes, with_days: bool) -> Hashes:
    """Return the hashes after a column without nulls."""
    match kind:
        case T.NullType():
            return seeds
        # Texts that the collation takes for equal have the same hash, whatever their bytes are.
        case T.StringType() if kind.collation != T.UTF8_BINARY:
            raise UnsupportedError(f"the hash of {kind.simple_string} is not known")
        case T.StringType() | T.CharType() | T.VarcharType() | T.BinaryType():
            return hash_bytes(Rows.from_arrow(column.cast(pa.large_binary())), seeds)
        case T.DecimalType() if kind.precision > T.MAX_LONG_DIGITS:
            # Spark hashes the bytes of the unscaled value, which are as few as possible, and not the 16 that a row
            # reserves.
            return hash_bytes(wide_decimal_bytes(column, kind), seeds)
        case T.DecimalType():
            return _hash_long(_values(column, "<i8", 2)[:, 0], seeds)
        case T.FloatType():
            floats = np.asarray(column) + np.float32(0)  # -0.0 becomes 0.0
            return _hash_int(np.where(np.isnan(floats), np.float32("nan"), floats).view(np.uint32), seeds)
        case T.DoubleType():
            doubles = np.asarray(column) + 0.0
            return _hash_long(np.where(np.isnan(doubles), np.nan, doubles).view(np.int64), seeds)
        case T.CalendarIntervalType():
            interval_fields = _values(column, [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
            seeds = _hash_long(interval_fields["nanos"] // 1000, seeds)
            for name in ("days", "months") if with_days else ("months",):
                seeds = _hash_int(interval_fields[name].astype(np.uint32), seeds)
            return seeds
        case T.StructType():
            types = [field.type for field in kind.fields]
            return hash_columns(column.flatten(), types, seeds, with_days=with_days)
        case T.ArrayType():
            return _hash_lists(column, [column.values], [kind.element], seeds, with_days)
        case T.MapType():
            return _hash_lists(column, [column.keys, column.items], [kind.key, kind.value], seeds, with_days)
        case T.BooleanType():
            return _hash_int(np.asarray(column.cast(pa.uint8())).astype(np.uint32), seeds)
    if isinstance(kind, _INTS):
        width = column.type.bit_width // 8
        return _hash_int(_values(column, f"<i{width}").astype(np.int32).view(np.uint32), seeds)
    if isinstance(kind, _LONGS):
        return _hash_long(_values(column, "<i8"), seeds)
    raise UnsupportedError(f"the hash of {kind.simple_string} is not known")


def _values(column: pa.Array, dtype: Any, width: int = 1) -> npt.NDArray[Any]:
    """Return the values of a fixed-width column as they are stored; ``width`` is the number of items of one value."""
    values = np.frombuffer(column.buffers()[1] or b"", dtype)
    if width > 1:
        values = values.reshape(-1, width)
    return values[column.offset : column.offset + len(column)]


def _hash_lists(
    column: pa.Array, children: Sequence[pa.Array], types: Sequence[T.DataType], seeds: Hashes, with_days: bool
) -> Hashes:
    """Return the hashes after a column of lists: the first element of every list, then the second, and so on."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    start, size = offsets[:-1], np.diff(offsets)
    hashes, lists_left, element_number = seeds.copy(), np.flatnonzero(size > 0), 0
    while len(lists_left):
        # The entries of a map are hashed in their stored order, as Spark does.
        index = pa.array(start[lists_left] + element_number)
        elements = [child.take(index) for child in children]
        hashes[lists_left] = hash_columns(elements, types, hashes[lists_left], with_days=with_days)
        element_number += 1
        lists_left = lists_left[size[lists_left] > element_number]
    return hashes


def _hash_int(values: Hashes, seeds: Hashes) -> Hashes:
    return _finish(_mix(seeds, values), np.uint32(_WORD))


def _hash_long(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
    return _finish(_mix(_mix(seeds, words[:, 0]), words[:, 1]), np.uint32(_WORDS))


def hash_bytes(pieces: Rows, seeds: Hashes) -> Hashes:
    """Return the hashes after pieces of any length: words as long as any piece has one more, then bytes."""
    if native.is_available():
        return loops.murmur3_pieces(pieces.data, pieces.start, pieces.size, seeds)
    hashes, words = seeds.copy(), pieces.size // _WORD
    rows_left = np.flatnonzero(words > 0)
    for number in range(int(words.max(initial=0))):
        values = read_at(pieces.data, pieces.start[rows_left] + _WORD * number, "<u4")
        hashes[rows_left] = _mix(hashes[rows_left], values)
        rows_left = rows_left[words[rows_left] > number + 1]
    tail_sizes = pieces.size % _WORD
    for number in range(_WORD - 1):
        rows_left = np.flatnonzero(tail_sizes > number)
        # Standard Murmur3 joins the last bytes to one word. Spark mixes each of them as a signed word
        # (Murmur3_x86_32.hashUnsafeBytes), and cannot change that.
        values = read_at(pieces.data, pieces.start[rows_left] + _WORD * words[rows_left] + number, "i1")
        hashes[rows_left] = _mix(hashes[rows_left], values.astype(np.int32).view(np.uint32))
    return _finish(hashes, pieces.size.astype(np.uint32))


def _mix(hashes: Hashes, words: Hashes) -> Hashes:
    words = _rotate(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotate(hashes ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotate(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finish(hashes: Hashes, length: Any) -> Hashes:
    hashes = hashes ^ length
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
