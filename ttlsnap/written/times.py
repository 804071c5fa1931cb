"""The times at which the keys of one state in one partition were last written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ttlsnap.unsaferow.gather import Int64s, Mask
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.written.hashing import Hashes, hash_keys

_MS = 1000  # microseconds


@dataclass(frozen=True, eq=False)
class WrittenTimes:
    """Times by the hashes of the keys, which are sorted and different.

    hashes    uint64[n]
    times_ms  int64[n]: milliseconds since the epoch
    older     bool[n]: whether the entry was written before that time, and nobody knows when
    rest_ms   the time of all other keys, which were written before it
    """

    hashes: Hashes
    times_ms: Int64s
    older: Mask
    rest_ms: int

    @classmethod
    def of(cls, parts: Iterable[tuple[Hashes, Int64s, Mask]], rest_ms: int) -> WrittenTimes:
        """Return the times in ``parts``, newest first: the first one that has a hash decides."""
        found = list(parts)
        if not found:
            return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.bool_), rest_ms)
        hashes, first = np.unique(np.concatenate([part[0] for part in found]), return_index=True)
        times, older = (np.concatenate([part[n] for part in found])[first] for n in (1, 2))
        return cls(hashes, times, older, rest_ms)

    def of_keys(self, keys: Rows) -> tuple[Int64s, Mask]:
        """Return when each key was written, in microseconds since the epoch, and which were written before that."""
        times, older = self.of_hashes(hash_keys(keys))
        return times * _MS, older

    def of_hashes(self, hashes: Hashes) -> tuple[Int64s, Mask]:
        """Return the same for the hashes of keys, in milliseconds."""
        if not len(self.hashes):
            return np.full(len(hashes), self.rest_ms), np.ones(len(hashes), np.bool_)
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        found = self.hashes[place] == hashes
        older: Mask = ~found | self.older[place]
        return np.where(found, self.times_ms[place], self.rest_ms), older
