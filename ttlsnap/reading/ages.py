"""The ages of entries: a histogram in entries and bytes, and percentiles, in memory that does not depend on the state.

``--age`` prints a few wide buckets. ``--sizes`` has more, and one that ends at the TTL of the rule.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ttlsnap.clock import Clock, TimeCharacteristic, iso
from ttlsnap.documents import Document
from ttlsnap.entries.ages import AGES, AgeBuckets
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import TimestampField, WrittenField, has_time, name_for, timestamp_field
from ttlsnap.reading.distribution import Distribution
from ttlsnap.unsaferow.gather import Int64s

_SECOND = 1_000_000


@dataclass(frozen=True)
class AgeField:
    """The field with the time of an entry, and the current time in microseconds since the epoch.

    ``cutoff_us`` is the age at which the given rule drops an entry, if there is such a rule.
    """

    field: TimestampField
    now_us: int
    cutoff_us: int | None = None

    @cached_property
    def buckets(self) -> AgeBuckets:
        """The buckets in which the entries are counted."""
        return AgeBuckets(self.now_us, self.cutoff_us)


@dataclass
class Ages(Document):
    """The ages of the entries of a state, or of a part of it.

    ``entries`` and ``bytes`` have an item for each bucket, and one for what is older. ``oldest_us`` and ``newest_us``
    are the lowest and the highest time. ``seconds`` has the ages of all entries that are not in the future. ``older``
    entries were written before ``older_than_us``, where the known history begins, and count as written then.
    """

    of: AgeField
    entries: Int64s = field(init=False)
    bytes: Int64s = field(init=False)
    future: int = 0
    nulls: int = 0
    oldest_us: int | None = None
    newest_us: int | None = None
    seconds: Distribution = field(default_factory=Distribution)
    older: int = 0
    older_than_us: int | None = None

    def __post_init__(self) -> None:
        self.entries, self.bytes = np.zeros((2, len(self.of.buckets.bounds) + 1), np.int64)

    def add(self, entries: StateEntries, sizes: Int64s | None = None) -> None:
        """Count entries; ``sizes`` are their bytes."""
        moments, nulls = self.of.field.read(entries)
        self.nulls += int(nulls.sum())
        if isinstance(self.of.field, WrittenField):
            written, is_older = entries.written
            self._add_older(int(is_older.sum()), int(written[is_older].max()) if is_older.any() else None)
        is_past = ~nulls & (moments <= self.of.now_us)
        known_moments = moments[~nulls]
        self.future += len(known_moments) - int(is_past.sum())
        if len(known_moments):
            self._add_times(int(known_moments.min()), int(known_moments.max()))
        ages = self.of.buckets.ages(moments[is_past])
        bucket = self.of.buckets.find(ages)
        self.entries += np.bincount(bucket, minlength=len(self.entries))
        if sizes is not None:
            self.bytes += np.bincount(bucket, sizes[is_past], len(self.bytes)).astype(np.int64)
            self.seconds.add(ages // _SECOND)

    @classmethod
    def merged(cls, age: AgeField, parts_ages: Iterable[Ages]) -> Ages:
        """Return the ages of all parts, which have the same field."""
        merged_ages = cls(age)
        for part_ages in parts_ages:
            merged_ages.entries += part_ages.entries
            merged_ages.bytes += part_ages.bytes
            merged_ages.future += part_ages.future
            merged_ages.nulls += part_ages.nulls
            merged_ages._add_older(part_ages.older, part_ages.older_than_us)
            merged_ages.seconds.merge(part_ages.seconds)
            if part_ages.oldest_us is not None and part_ages.newest_us is not None:
                merged_ages._add_times(part_ages.oldest_us, part_ages.newest_us)
        return merged_ages

    def to_json(self) -> dict[str, Any]:
        """Return the wide buckets of ``--age``, with names; the object has many buckets, as arrays."""
        entries_up_to = np.cumsum(self.entries)
        counts = [int(entries_up_to[bisect_left(self.of.buckets.bounds, age)]) for age in AGES.values()]
        return {
            "timestamp": self.of.field.field.name,
            "now": iso(self.of.now_us),
            "future": self.future,
            "buckets": [
                {"up_to": name, "entries": count - entries_before}
                for name, entries_before, count in zip(AGES, [0, *counts[:-1]], counts, strict=True)
            ],
            "older": int(entries_up_to[-1]) - counts[-1],
            "null": self.nulls,
            **self._before_history,
        }

    @property
    def _before_history(self) -> dict[str, Any]:
        history_start = {"time": iso(self.older_than_us), "entries": self.older}
        return {"written_before_history": self.older, "written_before": history_start} if self.older else {}

    def to_sizes_json(self) -> dict[str, Any]:
        """Return all buckets with entries and bytes, and the percentiles of the ages in seconds."""
        buckets = self.of.buckets.to_json(self.entries.tolist())
        return {
            "timestamp": self.of.field.field.name,
            "now": iso(self.of.now_us),
            "oldest": iso(self.oldest_us),
            "newest": iso(self.newest_us),
            "future": self.future,
            "null": self.nulls,
            **self._before_history,
            "cutoff_seconds": self.of.buckets.cutoff_seconds,
            "seconds": self.seconds.to_json(),
            "buckets": [{**bucket, "bytes": size} for bucket, size in zip(buckets, self.bytes.tolist(), strict=True)],
        }

    def _add_older(self, older: int, than_us: int | None) -> None:
        self.older += older
        self.older_than_us = max((us for us in (self.older_than_us, than_us) if us is not None), default=None)

    def _add_times(self, oldest: int, newest: int) -> None:
        self.oldest_us = oldest if self.oldest_us is None else min(self.oldest_us, oldest)
        self.newest_us = newest if self.newest_us is None else max(self.newest_us, newest)


def age_field(
    state: StateDescriptor, names: tuple[str, ...], time: TimeCharacteristic | None, clock: Clock
) -> AgeField | None:
    """Return the field with the time of a state's entries; None if it lacks the field, or Spark stores no time.

    Raise UsageError if the field is not a time, or if its clock has no current time.
    """
    name = name_for(state, names)
    if state.opaque or name is None or not has_time(state, name):
        return None
    stored_time = state.stored_time if name == state.stored_timestamp else None
    characteristic = time or TimeCharacteristic(stored_time or TimeCharacteristic.PROCESSING)
    return AgeField(timestamp_field(state, name), clock.now(characteristic))
