"""Encoding of Arrow lists, maps and structs as arrays, maps and rows, as ``layout`` describes them.

``struct_part`` also makes top-level rows, which are structs without a parent.

The content of a null slot in an Arrow array is never read: each level first selects the values that are not null. A
null where the schema allows none raises a UsageError.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.encode_values import to_numpy, to_words, value_part
from ttlsnap.unsaferow.gather import Int64s, Mask, expand_ranges, offsets_of
from ttlsnap.unsaferow.layout import (
    RESERVED,
    WORD,
    bitset_bytes,
    fixed_bytes,
    reserves,
    value_width,
)
from ttlsnap.unsaferow.parts import ValueBytes, Words, conform, part


@dataclass(frozen=True, eq=False)
class _Column:
    """One field of n structs: where it is null, and its encoded values elsewhere."""

    nulls: Mask | None
    live: Int64s | slice
    words: Int64s | None  # of the live values, for a fixed-width field
    part: ValueBytes | None  # of the live values, for any other field
    room: Int64s  # int64[n]
    null_size: int | None  # the size in a null's word where space is reserved for it


def struct_part(values: pa.StructArray, struct: T.StructType, path: str = "") -> ValueBytes:
    """Return the part of structs that are not null: their rows."""
    if not pa.types.is_struct(values.type) or values.type.num_fields != len(struct):
        raise UsageError(f"field {path or '(row)'}: {values.type} is not a {struct.simple_string}")
    columns = []
    for ordinal, field in enumerate(struct):
        columns.append(_column(values.field(ordinal), field.type, field.nullable, f"{path}.{field.name}".lstrip(".")))
    fixed_size = fixed_bytes(len(struct))
    sizes = np.full(len(values), fixed_size, np.int64)
    for column in columns:
        sizes += column.room

    def write(target: Words, positions: Int64s) -> None:
        cursor = positions + fixed_size
        for ordinal, column in enumerate(columns):
            if column.nulls is not None:
                target[(positions[column.nulls] >> 3) + ordinal // 64] |= np.uint64(1 << ordinal % 64).astype("i8")
            word = (positions >> 3) + (bitset_bytes(len(struct)) // WORD + ordinal)
            if column.words is not None:
                target[word[column.live]] = column.words
            if column.part is not None:
                positions_of_values = cursor[column.live]
                target[word[column.live]] = (positions_of_values - positions[column.live]) << 32 | column.part.size
                column.part.write(target, positions_of_values)
            if column.nulls is not None and column.null_size is not None:
                target[word[column.nulls]] = (cursor - positions)[column.nulls] << 32 | column.null_size
            cursor = cursor + column.room

    return ValueBytes(sizes, sizes, write)


def array_part(counts: Int64s, elements: pa.Array, element: T.DataType, nullable: bool, path: str) -> ValueBytes:
    """Return the part of arrays of ``counts`` elements each; ``elements`` has those of all arrays, in order."""
    nulls, live = _nulls(elements, element, nullable, path)
    header = WORD + (counts + 63) // 64 * WORD
    fixed_sizes = header + (counts * value_width(element) + 7 & ~np.int64(7))
    size = fixed_sizes
    values: ValueBytes | None = None
    if T.is_fixed_width(element):
        raw = to_numpy(_present(elements, nulls, element, path), element, path)
        if nulls is not None:
            live_values, raw = raw, np.zeros(len(elements), raw.dtype)
            raw[live] = live_values
    else:
        values = _part(_present(elements, nulls, element, path), element, path)
        sizes_before = np.zeros(len(elements) + 1, np.int64)
        # UnsafeArrayWriter reserves nothing for a null, unlike UnsafeRowWriter.
        sizes_before[1:][live] = values.room
        np.cumsum(sizes_before, out=sizes_before)
        bounds = offsets_of(counts)
        size = fixed_sizes + sizes_before[bounds[1:]] - sizes_before[bounds[:-1]]

    def write(target: Words, positions: Int64s) -> None:
        target[positions >> 3] = counts
        if nulls is not None:
            # One bit for each element, and unused bits up to whole words in each array.
            bit_room = header - WORD << 3
            bits = np.zeros(int(bit_room.sum()), np.bool_)
            bits[expand_ranges(offsets_of(bit_room)[:-1], counts)] = nulls
            words = np.packbits(bits, bitorder="little").view("<i8")
            target[expand_ranges((positions >> 3) + 1, bit_room >> 6)] = words
        if values is None:
            width = raw.dtype.itemsize
            target.view(raw.dtype)[expand_ranges((positions + header) // width, counts)] = raw
            return
        array_positions = np.repeat(positions, counts)
        cells = expand_ranges((positions + header) >> 3, counts)
        # The pieces of an array follow its words, in the order of its elements.
        owner_start = np.repeat(positions + fixed_sizes - sizes_before[bounds[:-1]], counts)
        positions_of_values = (owner_start + sizes_before[:-1])[live]
        target[cells[live]] = (positions_of_values - array_positions[live]) << 32 | values.size
        values.write(target, positions_of_values)

    return ValueBytes(size, size, write)


def _part(values: pa.Array, data_type: T.DataType, path: str) -> ValueBytes:
    """Return the part of variable-length values of any type, none of them null."""
    data_type = T.physical(data_type)
    match data_type:
        case T.StructType():
            return struct_part(values, data_type, path)
        case T.ArrayType(element, contains_null):
            counts, elements = _flatten(values)
            return array_part(counts, elements, element, contains_null, f"{path}.element")
        case T.MapType(key, value, value_contains_null):
            counts, entries = _flatten(values)
            keys = array_part(counts, entries.field(0), key, False, f"{path}.key")
            items = array_part(counts, entries.field(1), value, value_contains_null, f"{path}.value")
            return _map_part(keys, items)
    return value_part(values, data_type, path)


def _map_part(keys: ValueBytes, values: ValueBytes) -> ValueBytes:
    def write(target: Words, positions: Int64s) -> None:
        target[positions >> 3] = keys.size
        keys.write(target, positions + WORD)
        values.write(target, positions + WORD + keys.size)

    return part(WORD + keys.size + values.size, write)


def _column(values: pa.Array, data_type: T.DataType, nullable: bool, path: str) -> _Column:
    nulls, live = _nulls(values, data_type, nullable, path)
    present = _present(values, nulls, data_type, path)
    sizes = np.zeros(len(values), np.int64)
    if T.is_fixed_width(data_type):
        return _Column(nulls, live, to_words(present, data_type, path), None, sizes, None)
    value_bytes = _part(present, data_type, path)
    null_size = None
    sizes[live] = value_bytes.room
    if reserves(data_type):
        sizes[:] = RESERVED
        # For a null, UnsafeRowWriter sets the size of an interval to 16, and that of a decimal to 0.
        null_size = RESERVED if isinstance(T.physical(data_type), T.CalendarIntervalType) else 0
    return _Column(nulls, live, None, value_bytes, sizes, null_size)


def _nulls(values: pa.Array, data_type: T.DataType, nullable: bool, path: str) -> tuple[Mask | None, Int64s | slice]:
    """Return where values are null (None: nowhere), and an index of the values that are not.

    Raises UsageError for a null in a field that is not nullable.
    """
    if not values.null_count:
        return None, slice(None)
    nulls: Mask = np.asarray(values.is_null())
    # A void is always null, even where a schema says that it cannot be.
    if not nullable and not isinstance(T.physical(data_type), T.NullType):
        raise UsageError(f"field {path} is not nullable but value {int(np.argmax(nulls))} is null")
    return nulls, np.flatnonzero(~nulls)


def _present(values: pa.Array, nulls: Mask | None, data_type: T.DataType, path: str) -> pa.Array:
    """Return the values that are not null, in the Arrow type that they are encoded from."""
    data_type = T.physical(data_type)
    if nulls is not None:
        values = values.filter(pa.array(~nulls))
    if len(values) == 0:
        return pa.array([], arrow_type(data_type))
    if isinstance(data_type, T.StructType):
        return values
    if isinstance(data_type, T.ArrayType | T.MapType):
        return _list_like(values, data_type, path)
    return conform(values, data_type, path)


def _list_like(values: pa.Array, data_type: T.DataType, path: str) -> pa.Array:
    is_map = isinstance(data_type, T.MapType)
    kind = values.type
    is_list_like = pa.types.is_map(kind) if is_map else pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list_like:
        raise UsageError(f"field {path}: {kind} does not fit {data_type.simple_string}")
    return values


def _flatten(values: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return the lengths of lists (none null), and the elements of all lists."""
    offsets = np.asarray(values.offsets).astype(np.int64)
    first_offset, last_offset = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return np.diff(offsets), values.values[first_offset:last_offset]
