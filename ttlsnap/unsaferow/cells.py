"""``Cells``: positions of the values of one type, one cell for each value that is not null.

A cell is the 8-byte word of a field, or the place of an element in an array. It belongs to a *container*: the row or
array from whose first byte its offsets count. Besides null bits and the sizes of arrays, only the words of cells decide
what is read next, so they are checked here.

Rules for a word ``offset << 32 | size``: the piece begins after the container's fixed part and ends within the
container. The pieces of one array together are at most as large as the array. Otherwise damaged offsets could make a
small file decode to a huge column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ttlsnap.unsaferow.check import Trail, first
from ttlsnap.unsaferow.gather import Bytes, Int64s, read_at
from ttlsnap.unsaferow.rows import Rows


@dataclass(frozen=True, eq=False)
class Cells:
    """n cells; all arrays are int64[n], in bytes.

    ``at``     index in ``data`` of the cell's first byte
    ``base``   index in ``data`` of its container
    ``size``   size of its container
    ``fixed``  size of its container's fixed part
    ``owner``  index of its container, rising; None if each container has at most one cell here
    """

    data: Bytes
    at: Int64s
    base: Int64s
    size: Int64s
    fixed: Int64s
    trail: Trail
    owner: Int64s | None = None

    def __len__(self) -> int:
        return len(self.at)

    def values(self, dtype: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        """Return the low bytes of the cells as ``dtype``."""
        return read_at(self.data, self.at, dtype)

    def pieces(self) -> Rows:
        """Return the variable-length pieces that the words point to; raises CorruptionError if one is out of place."""
        words = read_at(self.data, self.at, "<i8")
        offset = words >> 32
        size = words & 0xFFFFFFFF
        is_bad = (offset < self.fixed) | (offset + size > self.size)
        if is_bad.any():
            place = first(is_bad)
            where = f"{size[place]} bytes at offset {offset[place]}"
            allowed_bytes = f"the bytes {self.fixed[place]} to {self.size[place]} of what holds it"
            self.trail.fail(place, f"the value's {where} do not lie within {allowed_bytes}")
        if self.owner is not None and len(self):
            total = np.bincount(self.owner, size)[self.owner]
            too_much = total > self.size - self.fixed
            if too_much.any():
                place = first(too_much)
                self.trail.fail(place, f"elements of {int(total[place])} bytes in an array of {self.size[place]}")
        return Rows(self.data, self.base + offset, size)
