"""Stored keys, after the id of the column family.

    plain     00 id Avro                                  the whole key
    prefix    size: int32 LE, 00 Avro, 00 id Avro         the prefix columns, then the other columns
    ordered   0e 00 00 00, 00 number, 00 id Avro          the prefix is one bigint; then the other columns
    number    02 02 sign 02 10 moment: int64 BE           sign: 01, or 00 if negative, or 02 (and zeros) for null

The prefix has no schema id. An ordered number is an Avro record of two binary fields, whose bytes sort like the
numbers. The prefix of a map variable is the grouping key. The keys of TTL indexes and timer indexes are ordered.

Spark writes the schema id 0 on every key, because key schemas do not change. Spark itself does not check the id.

Source: apache/spark ``RocksDBStateEncoder.scala`` (``AvroStateEncoder``, ``PrefixKeyScanStateEncoder``,
``RangeKeyScanStateEncoder``) and ``StateStoreColumnFamilySchemaUtils.convertForRangeScan``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.avro import pieces
from ttlsnap.avro.decode import decode
from ttlsnap.avro.encode import columns_of, encode
from ttlsnap.avro.values import VERSION, header, split_id, without_version
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.gather import read_at
from ttlsnap.unsaferow.rows import Rows

_SIZE = 4  # bytes of the size of a prefix
# The unions and lengths of both fields are always the same bytes, so keys sort by the sign, and then by the number
# (RangeKeyScanStateEncoder).
_ORDERED = np.dtype([("head", ">u2"), ("sign", "u1"), ("middle", ">u2"), ("moment", ">i8")])
_HEAD, _MIDDLE = 0x0202, 0x0210  # of a binary field: it is not null, and has 1 byte or 8 bytes
_NEGATIVE, _POSITIVE, _NULL = 0, 1, 2


@dataclass(frozen=True)
class KeyLayout:
    """Layout of a state's keys: the first ``prefix_columns`` are stored apart, as one ``ordered`` number if set.

    Raises UnsupportedError if ``ordered`` keys have a prefix other than one bigint.
    """

    schema: T.StructType
    schema_id: int = 0
    prefix_columns: int = 0
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.ordered and (self.prefix_columns != 1 or not isinstance(self.schema.fields[0].type, T.LongType)):
            raise UnsupportedError(
                f"keys of {self.schema.simple_string} are stored in order; ttlsnap supports this only for the order of "
                "one first bigint"
            )

    @property
    def prefix(self) -> T.StructType:
        return T.StructType(self.schema.fields[: self.prefix_columns])

    @property
    def rest(self) -> T.StructType:
        return T.StructType(self.schema.fields[self.prefix_columns :])


def decode_keys(raw: Rows, layout: KeyLayout) -> pa.StructArray:
    """Return stored keys as structs of the whole key; raises CorruptionError if they are damaged."""
    if not layout.prefix_columns:
        return decode(_of_schema(raw, layout), layout.schema)
    prefix, rest = split_prefix(raw)
    prefix_columns = _moments(prefix) if layout.ordered else decode(prefix, layout.prefix).flatten()
    rest_columns = decode(_of_schema(rest, layout), layout.rest).flatten()
    return pa.Array.from_buffers(arrow_type(layout.schema), len(raw), [None], children=[*prefix_columns, *rest_columns])


def encode_keys(keys: pa.StructArray, layout: KeyLayout) -> Rows:
    """Return keys as the store has them; raises as ``encode`` does."""
    count = len(keys)
    schema_header = pieces.constant(header(layout.schema_id), count)
    if not layout.prefix_columns:
        return pieces.side_by_side([schema_header, *columns_of(keys, layout.schema)], count)
    if keys.null_count or keys.type.num_fields != len(layout.schema):
        raise UsageError(f"keys of {keys.type} do not fit {layout.schema.simple_string}")
    columns = [keys.field(ordinal) for ordinal in range(len(layout.schema))]
    prefix_struct = _struct(layout.prefix, columns[: layout.prefix_columns], count)
    rest_struct = _struct(layout.rest, columns[layout.prefix_columns :], count)
    prefix = _encode_ordered(prefix_struct.field(0)) if layout.ordered else encode(prefix_struct, layout.prefix)
    sizes = np.zeros(count, [("size", "<i4"), ("version", "u1")])
    sizes["size"], sizes["version"] = prefix.size + 1, VERSION
    framing = pieces.fixed(sizes.view(np.uint8).reshape(count, sizes.itemsize), None, union=False)
    return pieces.side_by_side([framing, prefix, schema_header, *columns_of(rest_struct, layout.rest)], count)


def split_prefix(raw: Rows) -> tuple[Rows, Rows]:
    """Return the prefixes without their size and version, and the rest of each key as it is stored.

    Raises CorruptionError if a key has no prefix.
    """
    sizes_left = raw.size - _SIZE
    is_bad = sizes_left < 0
    size = sizes_left
    if not is_bad.any():
        size = read_at(raw.data, raw.start, "<i4").astype(np.int64)
        is_bad = (size < 1) | (size > sizes_left)
    if is_bad.any():
        Trail().fail(first(is_bad), "there is no prefix of a key and no rest where they should be")
    start = raw.start + _SIZE
    prefix = without_version(Rows(raw.data, start, size))
    return prefix, Rows(raw.data, start + size, sizes_left - size)


def _of_schema(raw: Rows, layout: KeyLayout) -> Rows:
    ids, rows = split_id(without_version(raw))
    is_bad = ids != layout.schema_id
    if is_bad.any():
        place = first(is_bad)
        Trail().fail(
            place, f"a key names the schema {ids[place]}, where {layout.schema_id} is that of this state's keys"
        )
    return rows


def _moments(prefix: Rows) -> list[pa.Array]:
    """Return the numbers of ordered prefixes."""
    is_bad = prefix.size != _ORDERED.itemsize
    if not is_bad.any():
        records = read_at(prefix.data, prefix.start, f"V{_ORDERED.itemsize}").view(_ORDERED)
        moments, sign = records["moment"].astype(np.int64), records["sign"]
        expected_sign = np.where(moments < 0, _NEGATIVE, _POSITIVE)
        null = (sign == _NULL) & (moments == 0)
        # RangeKeyScanStateEncoder fills a null with zeros, so that all keys have the same size.
        is_bad = (records["head"] != _HEAD) | (records["middle"] != _MIDDLE) | ((sign != expected_sign) & ~null)
    if is_bad.any():
        Trail().fail(first(is_bad), "it does not begin with a number in order")
    validity = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return [pa.Array.from_buffers(pa.int64(), len(prefix), [validity, pa.py_buffer(moments)])]


def _encode_ordered(moments: pa.Int64Array) -> Rows:
    count = len(moments)
    nulls = np.asarray(moments.is_null())
    numbers = np.asarray(moments.fill_null(0))
    record = np.zeros(count, _ORDERED)
    record["head"], record["middle"] = _HEAD, _MIDDLE
    record["moment"] = numbers
    record["sign"] = np.where(nulls, _NULL, np.where(numbers < 0, _NEGATIVE, _POSITIVE))
    return pieces.fixed(record.view(np.uint8).reshape(count, record.itemsize), None, union=False)


def _struct(schema: T.StructType, columns: list[pa.Array], count: int) -> pa.StructArray:
    fields = [pa.field(field.name, column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.Array.from_buffers(pa.struct(fields), count, [None], children=columns)
