"""Values that are lists: several rows under one key, joined by RocksDB's merge operator.

    value      element (delimiter element)*            the delimiter may have no bytes at all
    element    [CRC32C: u32 LE, size: i32 LE] size: i32 LE, 00 UnsafeRow

The position of each element depends on the sizes before it. All lists of a batch are walked in step. The few that are
longer than all the others are followed one by one, which is faster for them.

Source: Spark's ``RocksDBStateEncoder``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from ttlsnap.unsaferow.gather import Int64s, Mask, gather_ragged, offsets_of, read_at
from ttlsnap.unsaferow.rows import Rows

SIZE = 4
_size = struct.Struct("<i")
TOGETHER = 64  # lists: a step through so many at once costs no more than a step through each


@dataclass(frozen=True, eq=False)
class Elements:
    """The m elements of a batch of lists, in order.

    ``pieces`` are their stored bytes; ``owner`` says which list each one is in (int64[m]).
    """

    pieces: Rows
    owner: Int64s


def split(values: Rows, size_at: int, delimiter: bytes) -> tuple[Elements, Mask]:
    """Return the elements of each value, and a mask of the values that are not lists (bool[n]).

    The size of an element is ``size_at`` bytes after its start, and counts the bytes after the size. Elements of values
    that are not lists are meaningless.
    """
    data, end = values.data, values.start + values.size
    is_wrong = np.zeros(len(values), np.bool_)
    head_size, gap = size_at + SIZE, len(delimiter)
    separator = np.frombuffer(delimiter, np.uint8)
    owner, position = np.arange(len(values)), values.start
    owners: list[Int64s] = []
    starts: list[Int64s] = []
    sizes: list[Int64s] = []
    while len(owner) > TOGETHER or (len(owner) and not owners):
        is_inside = position + head_size <= end[owner]
        is_wrong[owner[~is_inside]] = True
        owner, position = owner[is_inside], position[is_inside]
        size = head_size + read_at(data, position + size_at, "<i4").astype(np.int64)
        is_inside = (size >= head_size) & (size <= end[owner] - position)
        is_wrong[owner[~is_inside]] = True
        owner, position, size = owner[is_inside], position[is_inside], size[is_inside]
        owners.append(owner)
        starts.append(position)
        sizes.append(size)
        # The delimiter cannot be searched for: a row may have the same byte. Only the sizes say where an element ends.
        has_more = position + size < end[owner]
        owner, position = owner[has_more], (position + size)[has_more]
        if gap:
            is_inside = position + gap <= end[owner]
            is_inside[is_inside] = (data[position[is_inside][:, None] + np.arange(gap)] == separator).all(axis=1)
            is_wrong[owner[~is_inside]] = True
            owner, position = owner[is_inside], position[is_inside] + gap
    for list_number, first_position in zip(owner.tolist(), position.tolist(), strict=True):
        element_starts = _follow(data[: int(end[list_number])].data, first_position, size_at, delimiter)
        is_wrong[list_number] = element_starts is None
        if element_starts is not None:
            owners.append(np.full(len(element_starts), list_number, np.int64))
            bounds: Int64s = np.array([*element_starts, int(end[list_number]) + gap], np.int64)
            starts.append(bounds[:-1])
            sizes.append(bounds[1:] - bounds[:-1] - gap)
    if not owners:
        return Elements(Rows.none(), np.zeros(0, np.int64)), is_wrong
    owner, start, size = np.concatenate(owners), np.concatenate(starts), np.concatenate(sizes)
    order = np.argsort(start)
    return Elements(Rows(data, start[order], size[order]), owner[order]), is_wrong


def _follow(data: memoryview, position: int, size_at: int, delimiter: bytes) -> list[int] | None:
    """Return where the elements from ``position`` to the end of ``data`` begin; None if the last does not end there."""
    element_starts, end, head_size, gap = [], len(data), size_at + SIZE, len(delimiter)
    while position + head_size <= end:
        (size,) = _size.unpack_from(data, position + size_at)
        end_of_element = position + head_size + size
        if size < 0 or end_of_element > end:
            return None
        element_starts.append(position)
        if end_of_element == end:
            return element_starts
        position = end_of_element + gap
        if gap and data[end_of_element:position] != delimiter:
            return None
    return None


def join(pieces: Rows, owner: Int64s, delimiter: bytes) -> list[bytes]:
    """Return the value of each list that has elements: its consecutive pieces, with the delimiter between them."""
    if not len(pieces):
        return []
    is_last = np.append(owner[1:] != owner[:-1], True)
    if delimiter:
        data = np.concatenate([pieces.data, np.frombuffer(delimiter * len(pieces), np.uint8)])
        start, size = np.empty((2, len(pieces), 2), np.int64)
        start[:, 0], size[:, 0] = pieces.start, pieces.size
        start[:, 1] = len(pieces.data) + len(delimiter) * np.arange(len(pieces))
        size[:, 1] = np.where(is_last, 0, len(delimiter))
        joined, size = gather_ragged(data, start.ravel(), size.ravel()), size.sum(axis=1)
    else:
        joined, size = gather_ragged(pieces.data, pieces.start, pieces.size), pieces.size
    list_ends = offsets_of(size)[1:][is_last].tolist()
    joined_bytes = joined.to_pybytes()
    return [joined_bytes[list_start:end] for list_start, end in zip([0, *list_ends[:-1]], list_ends, strict=True)]
