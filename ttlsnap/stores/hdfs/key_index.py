"""Index of written keys: the last write of each key, and a lookup of other keys.

Arrow's ``is_in`` and ``dictionary_encode`` give the same answers, but build their tables again for each batch that is
looked up. Here the keys are sorted once, by a 64-bit hash. The answers are still exact: keys with the same hash are
compared byte by byte, and Arrow decides if they differ.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ttlsnap import native
from ttlsnap.native import loops
from ttlsnap.unsaferow.gather import int64_array, word_columns
from ttlsnap.unsaferow.rows import Rows

Int64 = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
LONG = 512  # bytes; longer keys are hashed one by one
_SLOTS = 2  # for each key; most keys that were not written then find an empty slot


class KeyIndex:
    """Index of the keys of several writes, in their order.

    ``last_writes`` has the place of each key's last write, in any order.
    """

    def __init__(self, keys: pa.LargeBinaryArray) -> None:
        self._keys = keys
        self._written = Rows.from_arrow(keys)
        hashes = hash_rows(self._written)
        order = np.argsort(hashes)
        hashes = hashes[order]
        first_places = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(keys)])
        self.last_writes: Int64 = np.maximum.reduceat(order, first_places) if len(keys) else order
        self._hashes = hashes[first_places]
        if not self._hashes_tell_all(order, first_places):
            self.last_writes = _last_occurrences(keys)
            hashes[order] = hashes.copy()
            order = np.argsort(hashes[self.last_writes])
            self.last_writes = self.last_writes[order]
            self._hashes = hashes[self.last_writes]

    def _hashes_tell_all(self, order: Int64, first_places: Int64) -> bool:
        """Return whether all writes with one hash have the same key."""
        if len(first_places) == len(order):
            return True
        last_writes = np.repeat(self.last_writes, np.diff(first_places, append=len(order)))
        is_overwritten = order != last_writes
        are_same: bool = self._keys_at(order[is_overwritten]).equals(self._keys_at(last_writes[is_overwritten]))
        return are_same

    def _keys_at(self, places: Int64) -> pa.LargeBinaryArray:
        return self._keys.take(int64_array(places))

    def __len__(self) -> int:
        return len(self.last_writes)

    @cached_property
    def _shift(self) -> np.uint64:
        """The number of bits to shift a hash to the right, so that the number of a slot is left."""
        return np.uint64(64 - max(8, (_SLOTS * len(self)).bit_length()))

    @cached_property
    def _slots(self) -> npt.NDArray[np.int32]:
        """The index of the first hash in each slot; -1 for an empty slot."""
        slots = np.full(1 << int(64 - self._shift), -1, np.int32)
        # NumPy keeps the last of several writes to one place.
        slots[self._hashes[::-1] >> self._shift] = np.arange(len(self))[::-1]
        return slots

    @cached_property
    def _rows(self) -> Rows:
        """The last written keys, in the order of their hashes."""
        return self._written.take(self.last_writes)

    def has(self, keys: Rows) -> npt.NDArray[np.bool_]:
        """Return which of ``keys`` were written, bool[n]."""
        hashes = hash_rows(keys)
        if native.is_available():
            asked_keys, own_keys = ((rows.data, rows.start, rows.size) for rows in (keys, self._rows))
            return loops.find_keys(asked_keys, hashes, own_keys, self._hashes, self._slots, int(self._shift))
        number = self._slots[hashes >> self._shift]
        candidates = np.flatnonzero(number >= 0)
        number, hashes = number[candidates].astype(np.int64), hashes[candidates]
        last_number = len(self) - 1
        while (is_behind := (self._hashes[number] < hashes) & (number < last_number)).any():
            number += is_behind
        is_same_hash = self._hashes[number] == hashes
        candidates, number = candidates[is_same_hash], number[is_same_hash]
        has_key = np.zeros(len(keys), np.bool_)
        asked_keys = keys.take(candidates).to_arrow()
        are_same = asked_keys.equals(self._keys_at(self.last_writes[number]))
        has_key[candidates] = True if are_same else np.asarray(pc.is_in(asked_keys, value_set=self._keys))
        return has_key


def _last_occurrences(keys: pa.LargeBinaryArray) -> Int64:
    codes = keys.dictionary_encode()
    last_places = np.empty(len(codes.dictionary), np.int64)
    last_places[np.asarray(codes.indices)] = np.arange(len(keys))  # again, NumPy keeps the last
    return last_places


def hash_rows(rows: Rows) -> Hashes:
    """Return a hash of each row's size and whole words (uint64[n]); equal rows have equal hashes."""
    if native.is_available():
        return loops.hash_pieces(rows.data, rows.start, rows.size)
    hashes = rows.size.astype(np.uint64)
    words = rows.size >> 3
    long_rows = np.flatnonzero(rows.size > LONG)
    if len(long_rows):
        words[long_rows] = 0
        view = rows.data.data
        for number in long_rows.tolist():
            start = int(rows.start[number])
            hashes[number] = xxhash.xxh3_64_intdigest(view[start : start + int(rows.size[number])])
    for rows_with_word, column in word_columns(rows.data, rows.start, words):
        column ^= hashes[rows_with_word]
        column *= _MULTIPLIER
        column ^= column >> _HALF
        hashes[rows_with_word] = column
    return hashes
