"""Decoding of arrays and maps, the containers within a row.

Rules: an array is ``[count: int64][null bits][elements][variable part]``. A map is ``[size of the key array: int64][key
array][value array]``. ``layout`` describes both.

The count is untrusted and decides how much memory is allocated. It is therefore compared with the available bytes
before it is used.

Elements of fixed width are copied as they lie, without an index for each element. Only elements with offsets, and
arrays with nulls, need an index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow.cells import Cells
from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.decode_values import dtype_of, from_numpy
from ttlsnap.unsaferow.gather import Bytes, Int64s, Mask, expand_ranges, gather_ragged, offsets_of, read_at
from ttlsnap.unsaferow.layout import WORD, value_width
from ttlsnap.unsaferow.nulls import spread
from ttlsnap.unsaferow.rows import Rows

Decode = Callable[[T.DataType, Cells], Any]
"""Function that decodes cells of any type. It is an argument, because arrays hold structs that hold arrays."""


def arrays(pieces: Rows, data_type: T.ArrayType, trail: Trail, decode: Decode) -> pa.LargeListArray:
    """Return pieces as arrays; raises CorruptionError for an impossible size or count."""
    counts, elements = _elements(pieces, data_type.element, trail.step("element"), decode)
    return pa.Array.from_buffers(
        arrow_type(data_type), len(pieces), [None, pa.py_buffer(offsets_of(counts))], children=[elements]
    )


def maps(pieces: Rows, data_type: T.MapType, trail: Trail, decode: Decode) -> pa.MapArray:
    """Return pieces as maps, with their entries in the order of the bytes.

    Raises CorruptionError for an impossible size or count, or a null key. Raises UnsupportedError for more entries than
    an Arrow map can hold.
    """
    is_short = pieces.size < WORD
    if is_short.any():
        trail.fail(first(is_short), f"a map of {pieces.size[first(is_short)]} bytes, it has at least 8")
    key_size = read_at(pieces.data, pieces.start, "<i8")
    is_bad = (key_size < 0) | (key_size > pieces.size - WORD)
    if is_bad.any():
        place = first(is_bad)
        trail.fail(place, f"a map's key array of {key_size[place]} bytes in {pieces.size[place]}")
    key_start = pieces.start + WORD
    keys_at = Rows(pieces.data, key_start, key_size)
    values_at = Rows(pieces.data, key_start + key_size, pieces.size - WORD - key_size)
    counts, keys = _elements(keys_at, data_type.key, trail.step("key"), decode)
    value_counts, values = _elements(values_at, data_type.value, trail.step("value"), decode)
    is_bad = counts != value_counts
    if is_bad.any():
        place = first(is_bad)
        trail.fail(place, f"a map of {counts[place]} keys and {value_counts[place]} values")
    offsets = offsets_of(counts)
    # Spark refuses a null key when it makes a map.
    if keys.null_count:
        null_place = first(np.asarray(keys.is_null()))
        trail.fail(int(np.searchsorted(offsets, null_place, "right")) - 1, "a key of a map is null")
    if int(offsets[-1]) > 2**31 - 1:
        raise UnsupportedError(f"{offsets[-1]} map entries in one batch, Arrow maps hold 2^31 - 1")
    target = arrow_type(data_type)
    entries = pa.Array.from_buffers(
        pa.struct([target.key_field, target.item_field]), len(keys), [None], children=[keys, values]
    )
    return pa.Array.from_buffers(
        target, len(pieces), [None, pa.py_buffer(offsets.astype(np.int32))], children=[entries]
    )


def _elements(pieces: Rows, element: T.DataType, trail: Trail, decode: Decode) -> tuple[Int64s, pa.Array]:
    """Return the number of elements of each array, and the elements of all arrays, one array after the other."""
    data = pieces.data
    width = value_width(element)
    counts, header = _counts(pieces, width, trail)
    nulls = _element_nulls(data, pieces.start, counts)
    owner = np.repeat(np.arange(len(pieces)), counts)
    trail = trail.step("", owner)
    if T.is_fixed_width(element):
        raw = gather_ragged(data, pieces.start + header, counts * width)
        return counts, from_numpy(np.frombuffer(raw, dtype_of(element)), element, trail, nulls)
    cells_at = _positions(pieces.start + header, counts)
    if nulls is not None:
        live_places = np.flatnonzero(~nulls)
        owner, cells_at = owner[live_places], cells_at[live_places]
        trail = trail.step("", live_places)
    fixed_size = (header + counts * WORD)[owner]
    cells = Cells(data, cells_at, pieces.start[owner], pieces.size[owner], fixed_size, trail, owner)
    values = decode(element, cells)
    return counts, values if nulls is None else spread(values, nulls)


def _counts(pieces: Rows, width: int, trail: Trail) -> tuple[Int64s, Int64s]:
    """Return the element count of each array, and its bytes before the elements."""
    is_short = pieces.size < WORD
    if is_short.any():
        trail.fail(first(is_short), f"an array of {pieces.size[first(is_short)]} bytes, it has at least 8")
    # The count is a long. Spark uses only an int of it (UnsafeArrayData.pointTo).
    counts: Int64s = read_at(pieces.data, pieces.start, "<i8")
    # An element takes at least one byte. With a larger count the sums below could overflow.
    is_bad = (counts < 0) | (counts > pieces.size)
    header: Int64s = WORD + (counts + 63) // 64 * WORD
    if not is_bad.any():
        is_bad = header + counts * width > pieces.size
    if is_bad.any():
        place = first(is_bad)
        trail.fail(place, f"an array of {counts[place]} elements in {pieces.size[place]} bytes")
    return counts, header


def _element_nulls(data: Bytes, start: Int64s, counts: Int64s) -> Mask | None:
    """Return which elements are null, or None if no element is; bits after the last element are ignored."""
    bitmaps = np.frombuffer(gather_ragged(data, start + WORD, (counts + 7) // 8), np.uint8)
    if not bitmaps.any():
        return None
    bits = np.unpackbits(bitmaps, bitorder="little")
    first_bit = 8 * offsets_of((counts + 7) // 8)[:-1]
    nulls: Mask = bits[expand_ranges(first_bit, counts)] != 0
    return nulls if nulls.any() else None


def _positions(start: Int64s, counts: Int64s) -> Int64s:
    """Return the positions of the words of all elements."""
    elements_before = offsets_of(counts)
    return np.repeat(start - WORD * elements_before[:-1], counts) + WORD * np.arange(int(elements_before[-1]))
