"""How entries of RocksDB contain rows.

    key      [column family: int16 LE] 00 UnsafeRow
             [column family: int16 LE] size: i32 LE, 00 UnsafeRow, 00 UnsafeRow       the prefix columns, the others
             an ordered prefix is a row of one binary field: 01, or 00 before a negative number, i64 BE
             [column family: int16 LE] time, 00 UnsafeRow                             time: i64 BE, its sign bit flipped
             [column family: int16 LE] 00 UnsafeRow, time
    value    [CRC32C: u32 LE, size: i32 LE] 00 UnsafeRow        the checksum covers the whole key and the value
             or a list of such values, see ``lists``

A state that does not consist of rows is only copied.

Source: Spark's ``RocksDBStateEncoder``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.quoting import quote
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.fields import as_nullable
from ttlsnap.schema.types import StructType, is_fixed_width
from ttlsnap.stores.rocksdb.batch import RocksDbBatch
from ttlsnap.stores.rocksdb.lists import SIZE, join, split
from ttlsnap.stores.row_checksums import row_checksums
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.gather import Int64s, interleave, read_at
from ttlsnap.unsaferow.project import side_by_side, without_last_field
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows, read_numbers, read_words

FAMILY_SIZE = 2
CHECKSUM_SIZE = 8  # including the size that follows it
TIME_SIZE = 8
ENCODING = 0  # the first byte of every stored row: the version of its encoding
ORDERED_AT = 16
_ORDERED_ROW, _ORDERED_WORD = 32, ORDERED_AT << 32 | 9


def read_keys(raw: Rows, family: int, state: StateDescriptor, where: str) -> Rows:
    """Return the rows of the keys; a prefix that is stored apart is joined with the other columns."""
    if state.avro is not None:
        return state.avro.keys(Rows(raw.data, raw.start + family, raw.size - family))
    if state.key_time is not None:
        return _read_keys_with_time(raw, family, state, where)
    if not state.prefix_columns:
        return _read_rows(raw, family, raw, where)
    sizes_left = raw.size - family - 4
    is_short, size = sizes_left < 0, sizes_left
    if not is_short.any():
        size = read_at(raw.data, raw.start + family, "<i4").astype(np.int64)
        is_short = (size < 1) | (size >= sizes_left)
    if is_short.any():
        key = raw.piece(int(np.flatnonzero(is_short)[0]))
        problem = ": the key is not split into a prefix and the other columns"
        raise CorruptionError(f"{where}: key " + quote(key.hex()) + problem)
    prefix = _read_rows(Rows(raw.data, raw.start + family + 4, size), 0, raw, where)
    rest_rows = _read_rows(Rows(raw.data, raw.start + family + 4 + size, sizes_left - size), 0, raw, where)
    if state.ordered_prefix:
        prefix = _read_numbers(prefix, where)
    types = [field.type for field in state.key_schema.fields]
    return side_by_side(prefix, rest_rows, types[: state.prefix_columns], types[state.prefix_columns :])


def read_values(
    raw: Rows, head_size: int, raw_keys: Rows, state: StateDescriptor, where: str, owner: Int64s | None = None
) -> Rows:
    """Return the rows of the values, after ``head_size`` bytes; ``owner`` is the index of each one's key."""
    if state.avro is None:
        return _read_rows(raw, head_size, raw_keys, where, owner)
    return state.avro.values(Rows(raw.data, raw.start + head_size, raw.size - head_size))


def _read_keys_with_time(raw: Rows, family: int, state: StateDescriptor, where: str) -> Rows:
    """Return the rows of keys with a time before or after all other columns.

    In the schema the time is the last column.
    """
    size = raw.size - family - TIME_SIZE
    if (size < 0).any():
        key = raw.piece(int(np.flatnonzero(size < 0)[0]))
        raise CorruptionError(f"{where}: key " + quote(key.hex()) + " is too short to contain a time")
    has_time_first = state.key_time == "before"
    row = raw.start + family + (TIME_SIZE if has_time_first else 0)
    # The flipped sign bit makes negative times sort before positive ones, byte by byte
    # (TimestampAsPrefixKeyStateEncoder and TimestampAsPostfixKeyStateEncoder).
    time = read_at(raw.data, raw.start + family + (0 if has_time_first else size), ">u8") ^ np.uint64(1 << 63)
    rows = _read_rows(Rows(raw.data, row, size), 0, raw, where)
    types = [field.type for field in state.key_schema.fields]
    return side_by_side(rows, long_rows(time.astype(np.uint64).view(np.int64)), types[:-1], types[-1:])


def _read_numbers(ordered_rows: Rows, where: str) -> Rows:
    """Return rows of one long, from rows of one ordered number."""
    if not bool((ordered_rows.size == _ORDERED_ROW).all()):
        raise CorruptionError(f"{where}: a key does not begin with an ordered number")
    marker = read_at(ordered_rows.data, ordered_rows.start + ORDERED_AT, "u1")
    numbers = read_at(ordered_rows.data, ordered_rows.start + ORDERED_AT + 1, ">i8").astype(np.int64)
    words = read_at(ordered_rows.data, ordered_rows.start + 8, "<i8")
    # The sign comes first, because RocksDB compares bytes without a sign (RangeKeyScanStateEncoder). 02 would be null,
    # but no index has a null time.
    if ((words != _ORDERED_WORD) | (marker != (numbers >= 0))).any():
        raise CorruptionError(f"{where}: a key does not begin with an ordered number")
    return long_rows(numbers)


def _read_rows(raw: Rows, head_size: int, raw_keys: Rows, where: str, owner: Int64s | None = None) -> Rows:
    """Return the rows after ``head_size`` bytes and the encoding byte; ``owner`` is the index of each one's key."""
    is_short = raw.size <= head_size
    if not is_short.any():
        is_short = read_at(raw.data, raw.start + head_size, "u1") != ENCODING
    if is_short.any():
        place = int(np.flatnonzero(is_short)[0])
        key = raw_keys.piece(place if owner is None else int(owner[place]))
        raise CorruptionError(f"{where}: key " + quote(key.hex()) + ": its row has an unknown encoding")
    return Rows(raw.data, raw.start + head_size + 1, raw.size - head_size - 1)


def write_keys(rows: Rows, state: StateDescriptor, family: int | None = None) -> Rows:
    """Return the keys as they are stored, from their rows. ``family`` is the id of the column family, if keys have one.

    Raise UnsupportedError for a state whose rows ttlsnap cannot read.
    """
    if state.opaque:
        raise UnsupportedError(f"{state}: {state.opaque}; its keys cannot be written from rows")
    if state.avro is not None:
        keys = state.avro.stored_keys(rows)
    elif state.key_time is not None:
        keys = _write_keys_with_time(rows, state)
    elif state.prefix_columns:
        keys = _write_keys_with_prefix(rows, state)
    else:
        keys = _with_encoding(rows)
    return keys if family is None else _with_head(np.array([family], "<i2").view(np.uint8), keys)


def _write_keys_with_prefix(rows: Rows, state: StateDescriptor) -> Rows:
    types, prefix = [field.type for field in state.key_schema.fields], state.prefix_columns
    if prefix == len(types) - 1 and is_fixed_width(types[-1]):
        last_numbers, nulls = read_words(rows, len(types), prefix)
        if nulls.any():
            raise UnsupportedError(f"{state}: the last column of a key is null, which ttlsnap cannot write")
        prefix_rows, rest_rows = without_last_field(rows, types), long_rows(last_numbers)
    else:
        columns = decode(rows, state.key_schema).flatten()
        prefix_rows, rest_rows = (
            encode(_struct(columns[part], schema, len(rows)), schema)
            for part in (slice(prefix), slice(prefix, None))
            for schema in [as_nullable(StructType(state.key_schema.fields[part]))]
        )
    if state.ordered_prefix:
        prefix_rows = _write_numbers(read_numbers(prefix_rows, 1, 0))
    prefix_rows, rest_rows = _with_encoding(prefix_rows), _with_encoding(rest_rows)
    sizes, place = _numbers(prefix_rows.size.astype("<i4"))
    return Rows(
        *interleave(
            (sizes, place, SIZE),
            (prefix_rows.data, prefix_rows.start, prefix_rows.size),
            (rest_rows.data, rest_rows.start, rest_rows.size),
        )
    )


def _struct(columns: list[pa.Array], schema: StructType, count: int) -> pa.StructArray:
    return pa.Array.from_buffers(arrow_type(schema), count, [None], children=columns)


def _write_keys_with_time(rows: Rows, state: StateDescriptor) -> Rows:
    """Return keys with their last column, a time, before or after all others; see ``_read_keys_with_time``."""
    types = [field.type for field in state.key_schema.fields]
    time = read_numbers(rows, len(types), len(types) - 1).view(np.uint64) ^ np.uint64(1 << 63)
    other_columns = _with_encoding(without_last_field(rows, types))
    times, row = (
        np.arange(len(rows), dtype=np.int64) * TIME_SIZE,
        (other_columns.data, other_columns.start, other_columns.size),
    )
    moments = (time.astype(">u8").view(np.uint8), times, TIME_SIZE)
    return Rows(*(interleave(moments, row) if state.key_time == "before" else interleave(row, moments)))


def _write_numbers(numbers: Int64s) -> Rows:
    """Return rows of one ordered number each; see ``_read_numbers``."""
    row = np.zeros((len(numbers), _ORDERED_ROW), np.uint8)
    row[:, 8:ORDERED_AT] = np.array([_ORDERED_WORD], "<i8").view(np.uint8)
    row[:, ORDERED_AT] = numbers >= 0
    row[:, ORDERED_AT + 1 : ORDERED_AT + 9] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    start = np.arange(len(numbers), dtype=np.int64) * _ORDERED_ROW
    return Rows(row.ravel(), start, np.full(len(numbers), _ORDERED_ROW, np.int64))


def write_values(keys: Rows, rows: Rows, state: StateDescriptor, *, checksums: bool) -> Rows:
    """Return the values as they are stored, from their rows and the stored keys."""
    values = _stored_values(rows, state)
    return with_checksums(keys, values) if checksums else values


def write_lists(
    keys: Rows, rows: Rows, owner: Int64s, state: StateDescriptor, delimiter: bytes, *, checksums: bool
) -> Rows:
    """Return lists as they are stored: the element of each row is in the list with the number ``owner``.

    ``keys`` are the stored keys of the lists, in the order of these numbers.
    """
    values = _stored_values(rows, state)
    sizes, place = _numbers(values.size.astype("<i4"))
    elements = Rows(*interleave((sizes, place, SIZE), (values.data, values.start, values.size)))
    if checksums:
        elements = with_checksums(keys.take(np.unique(owner, return_inverse=True)[1]), elements)
    return Rows.of(join(elements, owner, delimiter))


def _stored_values(rows: Rows, state: StateDescriptor) -> Rows:
    return _with_encoding(rows) if state.avro is None else state.avro.stored_values(rows)


def with_checksums(keys: Rows, values: Rows) -> Rows:
    """Return values with their checksums and sizes before them; ``keys`` are the stored keys, one for each."""
    heads = np.empty((len(values), 2), "<u4")
    heads[:, 0] = row_checksums(keys, values)
    heads[:, 1] = values.size
    head_bytes = heads.view(np.uint8).ravel()
    place = np.arange(len(values), dtype=np.int64) * CHECKSUM_SIZE
    return Rows(*interleave((head_bytes, place, CHECKSUM_SIZE), (values.data, values.start, values.size)))


def change_checksums(batch: RocksDbBatch, delimiter: bytes, *, before: bool, after: bool) -> Rows:
    """Return the stored values of a batch with checksums, or without them.

    Raise UnsupportedError for entries without rows, which may be lists of values with a checksum each.
    """
    if batch.rows is None:
        raise UnsupportedError(f"state {batch.state}: ttlsnap cannot read its rows, so their checksums must stay")
    elements = batch.elements
    payloads, keys = (
        (batch.raw_values, batch.raw_keys)
        if elements is None
        else (elements.pieces, batch.raw_keys.take(elements.owner))
    )
    if before:
        payloads = Rows(payloads.data, payloads.start + CHECKSUM_SIZE, payloads.size - CHECKSUM_SIZE)
    if after:
        payloads = with_checksums(keys, payloads)
    return payloads if elements is None else Rows.of(join(payloads, elements.owner, delimiter))


def _with_encoding(rows: Rows) -> Rows:
    """Return the rows, each after the byte for its encoding."""
    return _with_head(np.full(1, ENCODING, np.uint8), rows)


def _with_head(head_bytes: npt.NDArray[np.uint8], rows: Rows) -> Rows:
    """Return the rows, each after the same bytes."""
    return Rows(
        *interleave((head_bytes, np.zeros(len(rows), np.int64), len(head_bytes)), (rows.data, rows.start, rows.size))
    )


def _numbers(numbers: Int64s) -> tuple[np.ndarray, Int64s]:
    """Return the bytes of numbers, and where each of them begins."""
    return numbers.view(np.uint8), np.arange(len(numbers), dtype=np.int64) * numbers.itemsize


def verify_values(keys: Rows, values: Rows, delimiter: bytes | None, where: str) -> None:
    """Raise CorruptionError unless the checksum of every value, or of each of its elements, matches.

    Without a ``delimiter``, no value is a list.
    """
    is_wrong = values.size < CHECKSUM_SIZE
    if not is_wrong.any():
        owner = np.arange(len(values))
        is_wrong = read_at(values.data, values.start + 4, "<i4") != values.size - CHECKSUM_SIZE
        if is_wrong.any() and delimiter is not None:
            elements, is_wrong = split(values, CHECKSUM_SIZE - SIZE, delimiter)
            owner, values = elements.owner, elements.pieces
        payload = Rows(values.data, values.start + CHECKSUM_SIZE, values.size - CHECKSUM_SIZE)
        # The checksum covers the stored key with its family, not only the row in it.
        is_wrong[owner[read_at(values.data, values.start, "<u4") != row_checksums(keys.take(owner), payload)]] = True
    if is_wrong.any():
        key = keys.piece(int(np.flatnonzero(is_wrong)[0])).hex()
        raise CorruptionError(
            f"{where}: {int(is_wrong.sum())} of {len(is_wrong)} rows do not match their checksums; the first has the "
            "key " + quote(key)
        )
