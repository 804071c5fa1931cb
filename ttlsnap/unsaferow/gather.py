"""Gathering of scattered bytes from one buffer: words, and pieces of any length.

Every function works on a whole batch at once. Positions are absolute byte indices into the buffer. The caller has
checked that they lie inside it; nothing here checks again.

``gather_ragged`` leaves the work to ``ttlsnap.native``. Without that, it gathers pieces of one size as ``read_at``
gathers words, about 5 ns each, and leaves others to Arrow. n pieces in rising order that do not overlap are every
second element of a binary array whose offsets are ``start0, end0, start1, end1, ...``. ``take`` then copies the pieces
with memcpy, about 13 ns each. Pieces in any other order are sorted first. NumPy copies overlapping pieces byte by byte,
because the gaps between them would have negative lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap import native
from ttlsnap.native import loops

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_LARGEST_ITEM = 4096


def read_at(data: Bytes, positions: Int64s, dtype: str) -> npt.NDArray[Any]:
    """Return the values of ``dtype`` (such as ``<i8``) at byte positions of any alignment.

    A view with a stride of one byte makes every position an index. An aligned gather is not faster.
    """
    if len(positions) == 0:
        return np.empty(0, dtype)
    return items_of(data, dtype)[positions]


def items_of(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return a view of the values of ``dtype`` that begin at each byte, for reading or writing."""
    return np.ndarray((max(len(data) - np.dtype(dtype).itemsize + 1, 0),), dtype, data, 0, (1,))


def gather_ragged(data: Bytes, start: Int64s, size: Int64s) -> pa.Buffer:
    """Return the pieces ``data[start[i] : start[i] + size[i]]``, one after the other.

    Pieces that already follow each other are not copied: the buffer then shares memory with ``data``.
    """
    count = len(start)
    if count == 0:
        return pa.py_buffer(b"")
    end = start + size
    gaps = start[1:] - end[:-1]
    lowest = int(gaps.min()) if count > 1 else 0
    if count == 1 or (lowest == 0 and int(gaps.max()) == 0):
        return pa.py_buffer(data[int(start[0]) : int(end[-1])])
    if native.is_available():
        return pa.py_buffer(loops.gather(data, start, size))
    one_size = int(size[0])
    if 0 < one_size <= _LARGEST_ITEM and int(size.min()) == int(size.max()):
        return pa.py_buffer(read_at(data, start, f"V{one_size}").view(np.uint8))
    if lowest >= 0:
        return _take(data, start, end, None)
    order = np.argsort(start, kind="stable")
    sorted_start, sorted_end = start[order], end[order]
    if int((sorted_start[1:] - sorted_end[:-1]).min()) >= 0:
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        return _take(data, sorted_start, sorted_end, rank)
    return pa.py_buffer(data[expand_ranges(start, size)])


def expand_ranges(start: Int64s, size: Int64s) -> Int64s:
    """Return ``start[0], start[0] + 1, ..., start[1], ...``: the indices of all pieces, one after the other."""
    range_ends = np.cumsum(size)
    total = int(range_ends[-1]) if len(range_ends) else 0
    return np.repeat(start - (range_ends - size), size) + np.arange(total)


def interleave(*kinds: tuple[Bytes, Int64s, Int64s | int]) -> tuple[Bytes, Int64s, Int64s]:
    """Join the first piece of each kind, then the second piece of each kind, and so on.

    A kind is the buffer that holds its pieces, the positions where they begin, and their sizes or one size for all.
    Return the joined bytes, and the start and the size of each round. Pieces of one size are copied at once, about 10
    ns each. That suffices: rows have few sizes, and where they have many, the rows are long.
    """
    size = np.zeros(len(kinds[0][1]), np.int64)
    for _, _, width in kinds:
        size += width
    place = start = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for source, starts, width in kinds:
        for places, piece_size in _by_size(width):
            items_of(data, f"V{piece_size}")[place[places]] = items_of(source, f"V{piece_size}")[starts[places]]
        place = place + width
    return data, start, size


def _by_size(size: Int64s | int) -> Iterator[tuple[Any, int]]:
    """Yield each size except 0 with the indices of its pieces: an array, or a slice if all pieces have that size."""
    if not isinstance(size, int) and len(size) and int(size.min()) == int(size.max()):
        size = int(size[0])  # np.unique would sort or hash them all
    sizes = [size] if isinstance(size, int) else np.unique(size).tolist()
    for width in filter(None, sizes):
        yield slice(None) if len(sizes) == 1 else np.flatnonzero(size == width), width


def word_columns(data: Bytes, start: Int64s, words: Int64s) -> Iterator[tuple[Any, npt.NDArray[np.uint64]]]:
    """Yield the first words of all pieces, then the second words, and so on.

    ``words`` is the number of words of each piece. Each item has the indices of the pieces that have such a word: an
    array, or a slice if all pieces have one.
    """
    shared_words = int(words.min(initial=1 << 32)) if len(words) else 0
    for word in range(shared_words):
        yield slice(None), read_at(data, start + 8 * word, "<u8")
    rows_left = np.flatnonzero(words > shared_words)
    for word in range(shared_words, int(words.max(initial=0))):
        rows_left = rows_left[words[rows_left] > word]
        yield rows_left, read_at(data, start[rows_left] + 8 * word, "<u8")


def int64_array(values: Int64s) -> pa.Int64Array:
    """Return an Arrow array in the same memory.

    ``pa.array`` would also work, but it imports pandas, if installed, to check for pandas objects. That takes half a
    second in each worker.
    """
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def offsets_of(size: Int64s) -> Int64s:
    """Return the Arrow offsets of pieces that follow each other; there is one more offset than there are sizes."""
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    return offsets


def _take(data: Bytes, start: Int64s, end: Int64s, rank: Int64s | None) -> pa.Buffer:
    count = len(start)
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2] = start
    bounds[1::2] = end
    pieces_and_gaps: Any = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    piece_numbers = np.arange(0, 2 * count, 2) if rank is None else 2 * rank
    taken_pieces = pieces_and_gaps.take(int64_array(piece_numbers))
    buffer: pa.Buffer = taken_pieces.buffers()[2] or pa.py_buffer(b"")
    # Arrow may have reserved more than it filled.
    return buffer.slice(0, int((end - start).sum()))
