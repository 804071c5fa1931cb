"""Positions of the elements of arrays and maps, which only their own bytes determine.

``elements(cursor, counts, data_type)``  a cursor at each element, array by array, and one after each array's last
``entries(cursor, counts, value_type)``  the same for the entries of maps
``skip(cursor, data_type)``              a cursor after a value

Elements of a fixed size are at known positions. A varint ends at a byte without a high bit. Searching for such bytes
pays if there is little else between the varints. Other elements are found in step: the first one of all arrays, then
the second one of the arrays that have one, and so on. When only a few arrays have further elements, those are found one
by one. For a text, a step takes NumPy 40 us for any number of arrays, and Python 0.25 us for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ttlsnap.avro import types
from ttlsnap.avro.cursor import Cursor
from ttlsnap.avro.types import NULL, VALUE
from ttlsnap.schema import types as T
from ttlsnap.unsaferow.check import first
from ttlsnap.unsaferow.gather import Int64s, expand_ranges, offsets_of

FEW = 128  # arrays
NEAR = 64  # bytes to search for each number
_MOST_BITS = 63
Skip = Callable[[Cursor], Cursor]
"""Function that returns the cursor after the values at a cursor."""
Step = Callable[[memoryview, int], int]
"""Function that returns the position after the value at a position. Raises IndexError for an impossible value."""


def elements(cursor: Cursor, counts: Int64s, data_type: T.DataType) -> tuple[Cursor, Cursor]:
    """Return a cursor at each element of ``data_type``, and a cursor after each array's last element.

    ``counts`` must come from ``Cursor.counts``, which has checked that they are possible.
    """
    size = types.fixed_size(data_type)
    if size is not None:
        elements_before = offsets_of(counts)
        starts = np.repeat(cursor.at - size * elements_before[:-1], counts) + size * np.arange(int(elements_before[-1]))
        return _inside(cursor, counts, starts), cursor.skip(size * counts)
    if types.is_varint(data_type) and _close_together(cursor, counts):
        return _numbers(cursor, counts)
    return _walk(cursor, counts, lambda element_cursor: _skip_slot(element_cursor, data_type), _slot_step(data_type))


def entries(cursor: Cursor, counts: Int64s, value_type: T.DataType) -> tuple[Cursor, Cursor]:
    """Return the same for the entries of maps from text to ``value_type``."""
    return _walk(
        cursor,
        counts,
        lambda key_cursor: _skip_slot(key_cursor.read_pieces()[1], value_type),
        _in_turn([_piece_step, _slot_step(value_type)]),
    )


def skip(cursor: Cursor, data_type: T.DataType) -> Cursor:
    """Return the cursor after values of ``data_type`` that are not null."""
    data_type = T.physical(data_type)
    size = types.fixed_size(data_type)
    if size is not None:
        return cursor.skip(size)
    if types.is_varint(data_type):
        return cursor.read_longs()[1]
    match data_type:
        case T.StringType() | T.BinaryType():
            return cursor.read_pieces()[1]
        case T.StructType(fields):
            for field in fields:
                cursor = _skip_union(cursor, field.type)
            return cursor
        case T.ArrayType(element):
            counts, cursor = cursor.read_counts(1)
            return elements(cursor, counts, element)[1].skip_end(counts)
        case T.MapType(_, value):
            counts, cursor = cursor.read_counts(1)
            return entries(cursor, counts, value)[1].skip_end(counts)
    raise types.refuse(data_type, cursor.trail.path)


def _skip_slot(cursor: Cursor, data_type: T.DataType) -> Cursor:
    """Return the cursor after array elements or map values, which are unions only if their type is nested."""
    return _skip_union(cursor, data_type) if types.is_nested(data_type) else skip(cursor, data_type)


def _skip_union(cursor: Cursor, data_type: T.DataType) -> Cursor:
    if isinstance(T.physical(data_type), T.NullType):
        return cursor
    nulls, cursor = cursor.read_branches()
    if nulls is None:
        return skip(cursor, data_type)
    live_places = np.flatnonzero(~nulls)
    positions = cursor.at.copy()
    positions[live_places] = skip(cursor.take(live_places), data_type).at
    return cursor.move_to(positions)


def _inside(cursor: Cursor, counts: Int64s, starts: Int64s) -> Cursor:
    """Return a cursor at ``starts``, which are ``counts`` positions in each array."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return Cursor(cursor.data, starts, cursor.end[owner], cursor.trail.step("", owner))


def _close_together(cursor: Cursor, counts: Int64s) -> bool:
    """Return whether it pays to search all bytes from the first array to the last one."""
    return len(cursor) > 0 and int(cursor.end.max() - cursor.at.min()) <= NEAR * int(counts.sum())


def _numbers(cursor: Cursor, counts: Int64s) -> tuple[Cursor, Cursor]:
    """Return the same as ``elements`` for varints, which are found by their last bytes."""
    has_elements = counts > 0
    start_of_data, end_of_data = int(cursor.at.min()), int(cursor.end.max())
    lasts = np.flatnonzero(cursor.data[start_of_data:end_of_data] < 0x80) + start_of_data
    first_numbers = np.searchsorted(lasts, cursor.at)
    is_short = first_numbers + counts > len(lasts)
    if is_short.any():
        cursor.trail.fail(first(is_short), f"{counts[first(is_short)]} numbers are truncated")
    positions_after = cursor.at.copy()
    # Maybe after the entry's end: then reading them fails.
    positions_after[has_elements] = lasts[(first_numbers + counts - 1)[has_elements]] + 1
    starts = np.empty(int(counts.sum()), np.int64)
    starts[1:] = lasts[expand_ranges(first_numbers, counts)[:-1]] + 1
    starts[offsets_of(counts)[:-1][has_elements]] = cursor.at[has_elements]
    return _inside(cursor, counts, starts), cursor.move_to(positions_after)


def _walk(cursor: Cursor, counts: Int64s, skip_one: Skip, step: Step) -> tuple[Cursor, Cursor]:
    offsets = offsets_of(counts)
    starts = np.empty(int(offsets[-1]), np.int64)
    order = np.argsort(-counts, kind="stable")  # longest first, so that arrays with a further element lead
    active_cursor, slots, negative_counts = cursor.take(order), offsets[order], -counts[order]
    positions = active_cursor.at
    elements_done, active = 0, int(np.count_nonzero(counts))
    while active > FEW:
        starts[slots[:active] + elements_done] = positions[:active]
        leading = Cursor(active_cursor.data, positions[:active], active_cursor.end[:active], active_cursor.trail)
        positions[:active] = skip_one(leading).at
        elements_done += 1
        active = int(np.searchsorted(negative_counts, -elements_done))
    view = cursor.data.data
    for place in range(active):
        start_of_list = int(positions[place])
        places = _places(
            view[start_of_list : int(active_cursor.end[place])], int(-negative_counts[place]) - elements_done, step
        )
        if places is None:
            active_cursor.trail.fail(place, "its elements are truncated or damaged")
        starts[slots[place] + elements_done : slots[place] - negative_counts[place]] = (
            np.array(places[:-1], np.int64) + start_of_list
        )
        positions[place] = start_of_list + places[-1]
    positions_after = np.empty_like(positions)
    positions_after[order] = positions
    return _inside(cursor, counts, starts), cursor.move_to(positions_after)


def _places(view: memoryview, count: int, step: Step) -> list[int] | None:
    """Return where ``count`` consecutive values begin, and where the last one ends; None if they do not fit."""
    places = [0]
    try:
        for _ in range(count):
            places.append(step(view, places[-1]))
    except IndexError:
        return None
    return places if places[-1] <= len(view) else None


def _slot_step(data_type: T.DataType) -> Step:
    return _union_step(data_type) if types.is_nested(data_type) else _step(data_type)


def _union_step(data_type: T.DataType) -> Step:
    if isinstance(T.physical(data_type), T.NullType):
        return lambda view, position: position
    step = _step(data_type)

    def union(view: memoryview, position: int) -> int:
        branch = view[position]
        if branch == VALUE:
            return step(view, position + 1)
        if branch != NULL:
            raise IndexError
        return position + 1

    return union


def _step(data_type: T.DataType) -> Step:
    data_type = T.physical(data_type)
    size = types.fixed_size(data_type)
    if size is not None:
        return _fixed_step(size)
    if types.is_varint(data_type):
        return lambda view, position: _number(view, position)[1]
    match data_type:
        case T.StringType() | T.BinaryType():
            return _piece_step
        case T.StructType(fields):
            return _in_turn([_union_step(field.type) for field in fields])
        case T.ArrayType(element):
            return _repeat(_slot_step(element))
        case T.MapType(_, value):
            return _repeat(_in_turn([_piece_step, _slot_step(value)]))
    raise types.refuse(data_type, "")


def _in_turn(steps: Sequence[Step]) -> Step:
    def all_of_them(view: memoryview, position: int) -> int:
        for step in steps:
            position = step(view, position)
        return position

    return all_of_them


def _repeat(step: Step) -> Step:
    def array(view: memoryview, position: int) -> int:
        count, position = _number(view, position)
        if count == 0:
            return position
        # Each element takes at least one byte, so an impossible count fails at the end of the entry.
        for _ in range(count):
            position = step(view, position)
        return position + 1

    return array


def _fixed_step(size: int) -> Step:
    def fixed(view: memoryview, position: int) -> int:
        view[position + size - 1]  # raises IndexError, which ends an impossible count
        return position + size

    return fixed


def _piece_step(view: memoryview, position: int) -> int:
    size, position = _number(view, position)
    if size < 0:
        raise IndexError
    return position + size


def _number(view: memoryview, position: int) -> tuple[int, int]:
    """Return the varint at a position, and the position after it."""
    byte = view[position]
    number, bits = byte & 0x7F, 7
    while byte > 0x7F:
        position += 1
        byte = view[position]
        number |= (byte & 0x7F) << bits
        bits += 7
        if bits > _MOST_BITS + 7:
            raise IndexError
    return number >> 1 ^ -(number & 1), position + 1
