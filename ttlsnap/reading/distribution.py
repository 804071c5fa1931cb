"""The distribution of many numbers in little memory, from which percentiles are read.

Numbers below 4,096 are counted exactly. Larger ones are counted in 256 steps for each doubling, so a percentile is at
most 0.4 % too high. The highest number is exact. At most a few thousand counts are kept, whatever is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ttlsnap.documents import Document
from ttlsnap.unsaferow.gather import Int64s

_EXACT_BITS, _STEP_BITS = 12, 8
_EXACT, _STEPS = 1 << _EXACT_BITS, 1 << _STEP_BITS
PERCENTILES = (50, 90, 99)


@dataclass
class Distribution(Document):
    """The counts of numbers that are not negative; ``highest`` is the highest of them, None if there are none."""

    counts: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    highest: int | None = None

    def add(self, numbers: Int64s) -> None:
        """Count these numbers."""
        if not len(numbers):
            return
        highest = int(numbers.max())
        self._add_counts(np.bincount(numbers if highest < _EXACT else _places(numbers)), highest)

    def merge(self, distribution: Distribution) -> None:
        """Add the numbers of another distribution."""
        if distribution.highest is not None:
            self._add_counts(distribution.counts, distribution.highest)

    @classmethod
    def of(cls, distributions: Iterable[Distribution]) -> Distribution:
        """Return the distribution of the numbers of all parts."""
        merged = cls()
        for distribution in distributions:
            merged.merge(distribution)
        return merged

    def percentile(self, percent: int) -> int | None:
        """Return the lowest number that at least ``percent`` % of all numbers do not exceed; None without numbers."""
        if self.highest is None:
            return None
        counts_up_to = np.cumsum(self.counts)
        rank = -(-int(counts_up_to[-1]) * percent // 100)
        return min(_upper_bound(int(np.searchsorted(counts_up_to, rank))), self.highest)

    def to_json(self) -> dict[str, Any]:
        """Return the percentiles and the maximum; the counts are too many."""
        return {**{f"p{percent}": self.percentile(percent) for percent in PERCENTILES}, "max": self.highest}

    def _add_counts(self, counts: Int64s, highest: int) -> None:
        if len(counts) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(len(counts) - len(self.counts), np.int64)])
        self.counts[: len(counts)] += counts
        self.highest = highest if self.highest is None else max(self.highest, highest)


def _places(numbers: Int64s) -> Int64s:
    """Return the place of each number's count."""
    power = np.frexp(np.maximum(numbers, _EXACT).astype(np.float64))[1].astype(np.int64) - 1
    step = (numbers >> np.maximum(power - _STEP_BITS, 0)) - _STEPS
    return np.where(numbers < _EXACT, numbers, _EXACT + (power - _EXACT_BITS) * _STEPS + step)


def _upper_bound(place: int) -> int:
    """Return the highest number that is counted at a place."""
    if place < _EXACT:
        return place
    doublings, step = divmod(place - _EXACT, _STEPS)
    return ((_STEPS + step + 1) << (_EXACT_BITS + doublings - _STEP_BITS)) - 1
