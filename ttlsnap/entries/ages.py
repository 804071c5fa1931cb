"""The buckets of ages in which entries are counted.

An age is the current time minus the time of the entry. A bucket has the entries up to its own age, and older than the
bucket before. One bucket ends at the cut-off of a rule: an entry that is exactly so old has expired, and is in the next
bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ttlsnap.clock import MIN_INT64
from ttlsnap.schema.units import format_duration

Int64 = npt.NDArray[np.int64]

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
AGES = {"1h": _HOUR, "6h": 6 * _HOUR, "1d": _DAY, "3d": 3 * _DAY, "7d": 7 * _DAY, "30d": 30 * _DAY, "90d": 90 * _DAY,
        "365d": 365 * _DAY}  # fmt: skip
_BOUNDS = (
    *(minutes * _MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 3, 5, 7, 10, 14, 21, 30, 45, 60, 90, 120, 180, 270, 365, 545, 730, 1095, 1825)),
)
_OLDEST = 1 << 62  # microseconds: this limit keeps the difference of two times within int64


@dataclass(frozen=True)
class AgeBuckets:
    """The buckets of ages at ``now_us``, in microseconds since the epoch.

    ``cutoff_us`` is the age at which the given rule drops an entry, if there is such a rule.
    """

    now_us: int
    cutoff_us: int | None = None

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The ages at which buckets end, in microseconds, ascending. One more bucket has what is older."""
        return _BOUNDS if self.cutoff_us is None else tuple(sorted({*_BOUNDS, self.cutoff_us}))

    @cached_property
    def _highest(self) -> Int64:
        """The highest age in each bucket but the last one."""
        return np.array([end - (end == self.cutoff_us) for end in self.bounds], np.int64)

    @cached_property
    def first_moments(self) -> list[int]:
        """The first time in the future, and the first time in each bucket but the last one."""
        return [max(self.now_us - highest, MIN_INT64) for highest in (-1, *self._highest.tolist())]

    def ages(self, moments: Int64) -> Int64:
        """Return the ages of times that are not in the future."""
        return self.now_us - np.maximum(moments, self.now_us - _OLDEST)

    def find(self, ages: Int64) -> Int64:
        """Return the number of each age's bucket."""
        return np.searchsorted(self._highest, ages).astype(np.int64, copy=False)

    def to_json(self, entries: Sequence[int]) -> list[dict[str, Any]]:
        """Return the buckets with the number of entries in each."""
        return [
            {
                "up_to": None if end is None else format_duration(end),
                "up_to_seconds": None if end is None else in_seconds(end),
                "entries": count,
            }
            for end, count in zip((*self.bounds, None), entries, strict=True)
        ]

    @property
    def cutoff_seconds(self) -> float | None:
        """The age at which the rule drops an entry, in seconds."""
        return None if self.cutoff_us is None else in_seconds(self.cutoff_us)


@dataclass(frozen=True)
class AgeCounts:
    """The numbers of entries by age, as plain data: those in the ``future``, and those in each bucket."""

    now_us: int
    cutoff_us: int | None = None
    future: int = 0
    entries: tuple[int, ...] = ()

    @property
    def buckets(self) -> AgeBuckets:
        """The buckets that are counted."""
        return AgeBuckets(self.now_us, self.cutoff_us)

    @classmethod
    def of(cls, buckets: AgeBuckets, moments: Int64) -> AgeCounts:
        """Count entries with these times.

        Comparing all of them with each bound is faster than finding the bucket of each.
        """
        oldest, newest = (moments.min(), moments.max()) if len(moments) else (0, 0)

        def count_from(first: int) -> int:
            if first <= oldest or first > newest:
                return len(moments) if first <= oldest else 0
            return int(np.count_nonzero(moments >= first))

        future, *up_to = map(count_from, buckets.first_moments)
        counts = (end - start for start, end in pairwise((future, *up_to, len(moments))))
        return cls(buckets.now_us, buckets.cutoff_us, future, tuple(counts))

    @classmethod
    def merged(cls, parts: Iterable[AgeCounts | None]) -> AgeCounts | None:
        """Return the counts of all parts; None without parts, or if their rules drop entries at different ages."""
        counts = [part for part in parts if part is not None]
        if len({part.cutoff_us for part in counts}) != 1:
            return None
        totals = tuple(map(sum, zip(*(part.entries for part in counts), strict=True)))
        return replace(counts[0], future=sum(part.future for part in counts), entries=totals)


def in_seconds(micros: int) -> float:
    """Return microseconds as seconds: a whole number if it is one."""
    return micros // _SECOND if micros % _SECOND == 0 else micros / _SECOND
