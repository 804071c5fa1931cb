"""Collecting scattered bytes of one buffer: words, and pieces of any length.

Everything is done for a whole batch at once. Positions are absolute byte indices into the buffer, and the
caller has proved that they lie inside it; nothing here checks again.

``ragged`` gathers pieces of one size as ``at`` gathers words, about 5 ns each. For others it leans on Arrow:
n pieces in rising order that do not overlap are every second element of a binary array whose offsets are
``start0, end0, start1, end1, ...``; ``take`` then copies the pieces with memcpy, about 13 ns each. Pieces in any
other order are sorted first, and pieces that overlap go byte by byte through NumPy, because the gaps between them
would have negative lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_LARGEST_ITEM = 4096


def at(data: Bytes, positions: Int64s, dtype: str) -> npt.NDArray[Any]:
    """The little-endian values of ``dtype`` (such as ``<i8``) at byte positions of any alignment.

    A view with a stride of one byte makes every position an index; an aligned gather is no faster.
    """
    if len(positions) == 0:
        return np.empty(0, dtype)
    return items_of(data, dtype)[positions]


def items_of(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """The values of ``dtype`` that begin at each byte, to be read or written."""
    return np.ndarray((max(len(data) - np.dtype(dtype).itemsize + 1, 0),), dtype, data, 0, (1,))


def ragged(data: Bytes, start: Int64s, size: Int64s) -> pa.Buffer:
    """The pieces ``data[start[i] : start[i] + size[i]]``, one after the other.

    Pieces that already lie so are not copied: the buffer then shares memory with ``data``.
    """
    n = len(start)
    if n == 0:
        return pa.py_buffer(b"")
    end = start + size
    gaps = start[1:] - end[:-1]
    lowest = int(gaps.min()) if n > 1 else 0
    if n == 1 or (lowest == 0 and int(gaps.max()) == 0):
        return pa.py_buffer(data[int(start[0]) : int(end[-1])])
    one_size = int(size[0])
    if 0 < one_size <= _LARGEST_ITEM and int(size.min()) == int(size.max()):
        return pa.py_buffer(at(data, start, f"V{one_size}").view(np.uint8))
    if lowest >= 0:
        return _take(data, start, end, None)
    order = np.argsort(start, kind="stable")
    sorted_start, sorted_end = start[order], end[order]
    if int((sorted_start[1:] - sorted_end[:-1]).min()) >= 0:
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        return _take(data, sorted_start, sorted_end, rank)
    return pa.py_buffer(data[ragged_indices(start, size)])


def ragged_indices(start: Int64s, size: Int64s) -> Int64s:
    """``start[0], start[0] + 1, ..., start[1], ...``: the indices of all pieces, one after the other."""
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(start - (ends - size), size) + np.arange(total)


def interleaved(*kinds: tuple[Bytes, Int64s, Int64s | int]) -> tuple[Bytes, Int64s, Int64s]:
    """The first piece of each kind, then the second of each, and so on: the bytes, and where those of each round begin
    and how many they are.

    A kind is given as the buffer it lies in, where its pieces begin, and their sizes, or the one of all. Pieces of one
    size are copied at once, about 10 ns each: rows have few sizes, and where they have many they are long.
    """
    size = np.zeros(len(kinds[0][1]), np.int64)
    for _, _, width in kinds:
        size += width
    place = start = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for source, begin, width in kinds:
        for which, n in _by_size(width):
            items_of(data, f"V{n}")[place[which]] = items_of(source, f"V{n}")[begin[which]]
        place = place + width
    return data, start, size


def _by_size(size: Int64s | int) -> Iterator[tuple[Any, int]]:
    """Each size but 0, with where it is: an array, or a slice where that is everywhere."""
    sizes = [size] if isinstance(size, int) else np.unique(size).tolist()
    for n in filter(None, sizes):
        yield slice(None) if len(sizes) == 1 else np.flatnonzero(size == n), n


def word_columns(data: Bytes, start: Int64s, words: Int64s) -> Iterator[tuple[Any, npt.NDArray[np.uint64]]]:
    """The first words of all pieces, then the second ones, and so on; ``words`` says how many each piece has.

    Each with the indices of the pieces that have one: an array, or a slice while that is all of them.
    """
    every = int(words.min(initial=1 << 32)) if len(words) else 0
    for word in range(every):
        yield slice(None), at(data, start + 8 * word, "<u8")
    left = np.flatnonzero(words > every)
    for word in range(every, int(words.max(initial=0))):
        left = left[words[left] > word]
        yield left, at(data, start[left] + 8 * word, "<u8")


def int64_array(values: Int64s) -> pa.Int64Array:
    """An Arrow array in the same memory.

    ``pa.array`` would do, but it imports pandas, where there is one, to see whether it was given something of its:
    half a second for each worker.
    """
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def offsets_of(size: Int64s) -> Int64s:
    """Arrow offsets (one more than there are sizes) of pieces that follow each other."""
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return offsets


def _take(data: Bytes, start: Int64s, end: Int64s, rank: Int64s | None) -> pa.Buffer:
    n = len(start)
    bounds = np.empty(2 * n, np.int64)
    bounds[0::2] = start
    bounds[1::2] = end
    pieces_and_gaps: Any = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * n - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    wanted = np.arange(0, 2 * n, 2) if rank is None else 2 * rank
    taken = pieces_and_gaps.take(int64_array(wanted))
    buffer: pa.Buffer = taken.buffers()[2] or pa.py_buffer(b"")
    # Arrow may have reserved more than it filled.
    return buffer.slice(0, int((end - start).sum()))
