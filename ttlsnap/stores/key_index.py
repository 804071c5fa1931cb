"""Keys that were written, some of them several times: where each was written last, and whether others are among them.

Arrow's ``is_in`` and ``dictionary_encode`` answer the same, but make their tables anew for each batch that is
looked up. Here the keys are sorted by a 64-bit hash, once. The answers are exact all the same: keys of one
hash are compared byte by byte, and where they differ, Arrow is asked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ttlsnap.unsaferow.gather import at, int64_array
from ttlsnap.unsaferow.rows import Rows

Int64 = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LONG = 512  # bytes; longer keys are hashed one by one
_SLOTS = 2  # for each key; most keys that are not among these then find a slot that is empty


class KeyIndex:
    """The keys of several writes, in their order; ``last_writes`` are the places of each key's last (int64)."""

    def __init__(self, keys: pa.LargeBinaryArray) -> None:
        hashes = hash_rows(Rows.from_arrow(keys))
        order = np.argsort(hashes)
        changes = np.flatnonzero(np.diff(hashes[order])) + 1
        self.last_writes: Int64 = _last_of_each(keys, order, np.concatenate([[0], changes])) if len(keys) else order
        hashes = hashes[self.last_writes]
        order = np.argsort(hashes)
        self._keys = keys.take(int64_array(self.last_writes[order]))
        # Sorted by hash, and so by slot, which is a hash's first bits; one more stops whoever looks on.
        self._hashes = np.append(hashes[order], np.uint64(2**64 - 1))
        bits = max(8, (_SLOTS * len(order)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._first = np.full(1 << bits, -1, np.int32)
        # Of several writes to one place NumPy keeps the last.
        self._first[self._hashes[-2::-1] >> self._shift] = np.arange(len(order))[::-1]

    def __len__(self) -> int:
        return len(self.last_writes)

    def has(self, keys: Rows) -> npt.NDArray[np.bool_]:
        """Which of ``keys`` were written."""
        hashes = hash_rows(keys)
        place = self._first[hashes >> self._shift]
        maybe = np.flatnonzero(place >= 0)
        place, hashes = place[maybe].astype(np.int64), hashes[maybe]
        while (behind := self._hashes[place] < hashes).any():
            place += behind
        alike = (self._hashes[place] == hashes) & (place < len(self))
        maybe, place = maybe[alike], place[alike]
        found = np.zeros(len(keys), np.bool_)
        asked = keys.take(maybe).to_arrow()
        same = asked.equals(self._keys.take(int64_array(place)))
        found[maybe] = True if same else np.asarray(pc.is_in(asked, value_set=self._keys))
        return found


def _last_of_each(keys: pa.LargeBinaryArray, order: Int64, first: Int64) -> Int64:
    """The last place of each key; ``order`` sorts the places by hash, and a new hash begins at each of ``first``."""
    last = np.maximum.reduceat(order, first)
    if len(last) == len(keys):
        return last
    of_hash = np.repeat(last, np.diff(first, append=len(keys)))
    again = order != of_hash
    if keys.take(int64_array(order[again])).equals(keys.take(int64_array(of_hash[again]))):
        return last
    # Two keys have one hash.
    codes = keys.dictionary_encode()
    last = np.empty(len(codes.dictionary), np.int64)
    last[np.asarray(codes.indices)] = np.arange(len(keys))
    return last


def hash_rows(rows: Rows) -> Hashes:
    """A number for each row, from its size and all its whole words; rows that are equal have the same."""
    hashes = rows.size.astype(np.uint64)
    words = rows.size >> 3
    long = np.flatnonzero(rows.size > _LONG)
    if len(long):
        words[long] = 0
        view = memoryview(rows.data)
        for i in long.tolist():
            start = int(rows.start[i])
            hashes[i] = xxhash.xxh3_64_intdigest(view[start : start + int(rows.size[i])])
    every = int(words.min(initial=_LONG))
    for word in range(every):
        hashes = _mixed(hashes, at(rows.data, rows.start + 8 * word, "<u8"))
    left = np.flatnonzero(words > every)
    for word in range(every, int(words.max(initial=0))):
        left = left[words[left] > word]
        hashes[left] = _mixed(hashes[left], at(rows.data, rows.start[left] + 8 * word, "<u8"))
    return hashes


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    words ^= hashes
    words *= _MULTIPLIER
    words ^= words >> _HALF
    return words
