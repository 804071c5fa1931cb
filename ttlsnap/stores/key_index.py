"""Which keys are among many others: exactly, and without hashing the others anew for every question.

Arrow's ``is_in`` is exact too, but makes its table of the many for each batch that is looked up. Here they are
sorted by a 64-bit hash, once; a hash that is among theirs points at one key, and the bytes of the two are then
compared. Only where those differ, two keys having one hash, ``is_in`` is asked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ttlsnap.unsaferow.gather import at
from ttlsnap.unsaferow.rows import Rows

Hashes = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_SPARSENESS = 16  # places in the table of what may be there, for each key that is
_LONG = 512  # bytes; longer keys are hashed one by one


class KeyIndex:
    """Many keys, each once, for looking others up among them."""

    def __init__(self, keys: pa.LargeBinaryArray) -> None:
        hashes = hash_rows(Rows.from_arrow(keys))
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._keys = keys.take(pa.array(order))
        bits = max(8, (_SPARSENESS * len(keys)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._taken = np.zeros(1 << bits, np.bool_)
        self._taken[self._hashes >> self._shift] = True

    def has(self, keys: Rows) -> npt.NDArray[np.bool_]:
        """Which of ``keys`` are among the many."""
        hashes = hash_rows(keys)
        # Most are told apart by this table alone, which is small enough to be cached.
        maybe = np.flatnonzero(self._taken[hashes >> self._shift])
        place = np.searchsorted(self._hashes, hashes[maybe])
        place[place == len(self._hashes)] = 0
        alike = self._hashes[place] == hashes[maybe]
        maybe, place = maybe[alike], place[alike]
        found = np.zeros(len(keys), np.bool_)
        asked = keys.take(maybe).to_arrow()
        same = np.asarray(pc.equal(asked, self._keys.take(pa.array(place))))
        found[maybe] = same if same.all() else np.asarray(pc.is_in(asked, value_set=self._keys))
        return found


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
