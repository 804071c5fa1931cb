"""``Rows``: a batch of UnsafeRows anywhere in one buffer.

A state file is read into one buffer, and its rows stay in it; a batch is only three arrays. Rows may have any order,
gaps between them (lengths, checksums) and any alignment. Spark's files put them at multiples of 4.

``Rows`` checks the range of every row against the buffer when it is created. Code that decodes a row then checks only
against that row.

Dangers: ``take`` shares the buffer, and so does ``to_arrow`` if the rows already follow each other. Nobody may write to
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ttlsnap import native
from ttlsnap.errors import CorruptionError
from ttlsnap.native import loops
from ttlsnap.unsaferow.gather import Bytes, Int64s, gather_ragged, offsets_of


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows in one buffer.

    ``data``   uint8, 1-D, contiguous
    ``start``  int64[n], index in ``data`` of each row's first byte
    ``size``   int64[n], bytes of each row

    Raises CorruptionError if a row does not lie within ``data``.
    """

    data: Bytes
    start: Int64s
    size: Int64s

    def __post_init__(self) -> None:
        if self.data.dtype != np.uint8 or self.data.ndim != 1 or not self.data.flags.c_contiguous:
            raise TypeError("data must be a contiguous 1-D array of uint8")
        if self.start.shape != self.size.shape or not self.start.dtype == self.size.dtype == np.int64:
            raise TypeError("start and size must be int64 arrays of one length")
        if len(self.start) == 0:
            return
        data_size = len(self.data)
        number = (loops.find_outside if native.is_available() else _find_outside)(self.start, self.size, data_size)
        if number is not None:
            raise CorruptionError(
                f"row {number}: {self.size[number]} bytes at {self.start[number]} "
                f"do not lie within a buffer of {data_size}"
            )

    @classmethod
    def none(cls) -> Rows:
        """Return a batch without rows."""
        no_numbers = np.empty(0, np.int64)
        return cls(np.empty(0, np.uint8), no_numbers, no_numbers)

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Rows:
        """Return rows with these bytes, copied into one buffer."""
        try:
            # Twice as fast as a list of integers, but only for sizes below 256. Most rows are short.
            size: Int64s = np.frombuffer(bytes(map(len, pieces)), np.uint8).astype(np.int64)
        except ValueError:
            size = np.array(list(map(len, pieces)), np.int64)
        return cls(np.frombuffer(b"".join(pieces), np.uint8), offsets_of(size)[:-1], size)

    @classmethod
    def concat(cls, all_rows: Sequence[Rows]) -> Rows:
        """Return the rows of all parts, copied into one buffer."""
        arrow = [rows.to_arrow() for rows in all_rows if len(rows)]
        return cls.from_arrow(pa.concat_arrays(arrow)) if arrow else cls.none()

    def __len__(self) -> int:
        return len(self.start)

    def take(self, places: npt.NDArray[Any] | slice) -> Rows:
        """Return the rows that a mask, an array of indices in its order, or a slice selects; no bytes are copied."""
        # These rows were checked before, so the constructor is skipped.
        taken_rows = object.__new__(Rows)
        for name, value in (("data", self.data), ("start", self.start[places]), ("size", self.size[places])):
            object.__setattr__(taken_rows, name, value)
        return taken_rows

    def replace(self, places: npt.NDArray[Any], new: Rows) -> Rows:
        """Return the rows with ``new`` ones in the places that a mask or an array of indices selects."""
        if not len(new):
            return self
        start, size = self.start.copy(), self.size.copy()
        start[places], size[places] = new.start + len(self.data), new.size
        return Rows(np.concatenate([self.data, new.data]), start, size)

    def zip(self, other_rows: Rows) -> Rows:
        """Return the first row, the first of the ``other_rows``, the second row, and so on.

        No bytes are copied if both are in one buffer.
        """
        is_same_data = self.data is other_rows.data
        data = self.data if is_same_data else np.concatenate([self.data, other_rows.data])
        other_start = other_rows.start if is_same_data else other_rows.start + len(self.data)
        return Rows(
            data, np.stack((self.start, other_start), 1).ravel(), np.stack((self.size, other_rows.size), 1).ravel()
        )

    def piece(self, number: int) -> bytes:
        """Return the bytes of one row."""
        return self.data[self.start[number] : self.start[number] + self.size[number]].tobytes()

    def to_list(self) -> list[bytes]:
        """Return the bytes of all rows."""
        data = gather_ragged(self.data, self.start, self.size).to_pybytes()
        return [data[start:end] for start, end in pairwise(offsets_of(self.size).tolist())]

    def to_arrow(self) -> pa.LargeBinaryArray:
        """Return the rows as binary values, one after the other."""
        offsets = pa.py_buffer(offsets_of(self.size))
        values = gather_ragged(self.data, self.start, self.size)
        array: pa.LargeBinaryArray = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self), [None, offsets, values]
        )
        return array

    @classmethod
    def from_arrow(cls, array: pa.LargeBinaryArray | pa.BinaryArray) -> Rows:
        """Return the values of a binary array as rows, without copying them.

        Raises CorruptionError if a value is null.
        """
        if array.null_count:
            number = int(np.flatnonzero(np.asarray(array.is_null()))[0])
            raise CorruptionError(f"row {number}: the value is null, not a row")
        _, offset_buffer, value_buffer = array.buffers()
        width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
        if len(array) == 0 or offset_buffer is None:
            return cls.none()
        offsets = np.frombuffer(offset_buffer, width)[array.offset : array.offset + len(array) + 1]
        data = np.frombuffer(value_buffer if value_buffer is not None else b"", np.uint8)
        start = offsets[:-1].astype(np.int64)
        return cls(data, start, offsets[1:].astype(np.int64) - start)


def _find_outside(start: Int64s, size: Int64s, data_size: int) -> int | None:
    """Do what ``loops.find_outside`` does."""
    lowest = min(int(start.min()), int(size.min()))
    highest = max(int(start.max()), int(size.max()))
    # The sum cannot overflow once both of its parts are known to be within the buffer's length.
    if lowest >= 0 and highest <= data_size and int((start + size).max()) <= data_size:
        return None
    return int(np.flatnonzero((start < 0) | (size < 0) | (size > data_size) | (start > data_size - size))[0])
