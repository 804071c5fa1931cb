"""The fields of a state that can hold the time of its entries, for people who choose a ``--timestamp``.

A number holds a time if most of its values are times of our days in one unit. The units are so far apart that at most
one of them fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ttlsnap.clock import EPOCH, Clock, iso, to_micros
from ttlsnap.documents import Document
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.timestamps import UNITS, TimestampField, timestamp_field
from ttlsnap.errors import UsageError
from ttlsnap.schema.fields import all_fields
from ttlsnap.schema.units import format_duration, parse_duration
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

TTL_US = parse_duration("7d")
"""The TTL whose effect is shown."""
_FIRST_US = to_micros(EPOCH.replace(year=2000))
_MOST_AHEAD_US = parse_duration("366d")
"""How far in the future a time may be, such as that of a timeout."""


@dataclass(frozen=True)
class TimeInField:
    """A field that can hold the time of an entry.

    timestamp   its name, as ``--timestamp`` takes it
    field       how to read it
    now_us      the current time, in microseconds since the epoch
    cutoff_us   the last time that expires with ``TTL_US``; None if its clock has no current time
    time        that clock: ``event`` or ``processing``
    """

    timestamp: str
    field: TimestampField
    now_us: int
    cutoff_us: int | None
    time: str | None


@dataclass
class FieldTimes(Document):
    """The times in a field of a state, or of a part of it: how many, their range, and how many expire.

    ``unlikely`` are those that are not of our days, such as a 0 for "never", or the year 9999. ``is_time`` is False for
    numbers that mostly are.
    """

    of: TimeInField
    entries: int = 0
    nulls: int = 0
    expired: int = 0
    unlikely: int = 0
    oldest_us: int | None = None
    newest_us: int | None = None
    is_time: bool = True

    def add(self, entries: StateEntries) -> None:
        """Add the entries of a batch."""
        if not self.is_time:
            return
        moments, nulls = self.of.field.read(entries)
        known = moments[~nulls]
        self.entries += len(moments)
        self.nulls += len(moments) - len(known)
        if not len(known):
            return
        oldest, newest = int(known.min()), int(known.max())
        self.oldest_us = oldest if self.oldest_us is None else min(oldest, self.oldest_us)
        self.newest_us = newest if self.newest_us is None else max(newest, self.newest_us)
        last = self.of.now_us + _MOST_AHEAD_US
        if oldest < _FIRST_US or newest > last:
            unlikely = int(((known < _FIRST_US) | (known > last)).sum())
            self.unlikely += unlikely
            self.is_time = self.of.field.unit is None or 2 * unlikely < len(known)
        if self.of.cutoff_us is not None:
            self.expired += int((known <= self.of.cutoff_us).sum())

    def __add__(self, other: FieldTimes) -> FieldTimes:
        oldest = [us for us in (self.oldest_us, other.oldest_us) if us is not None]
        newest = [us for us in (self.newest_us, other.newest_us) if us is not None]
        return replace(
            self,
            entries=self.entries + other.entries,
            nulls=self.nulls + other.nulls,
            expired=self.expired + other.expired,
            unlikely=self.unlikely + other.unlikely,
            oldest_us=min(oldest, default=None),
            newest_us=max(newest, default=None),
            is_time=self.is_time and other.is_time,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the range, and how many of the entries a ``compact --ttl 7d`` by this field would drop."""
        return {
            "timestamp": self.of.timestamp,
            "time": self.of.time,
            "oldest": iso(self.oldest_us),
            "newest": iso(self.newest_us),
            "entries": self.entries,
            "null": self.nulls,
            "unlikely": self.unlikely,
            "ttl": format_duration(TTL_US),
            "would_drop": None if self.of.cutoff_us is None else self.expired,
        }


def find_times(state: StateDescriptor, clock: Clock) -> list[FieldTimes]:
    """Return the fields of a state that can hold a time, without entries."""
    return [FieldTimes(found) for found in _candidates(state, clock)]


def _candidates(state: StateDescriptor, clock: Clock) -> Iterator[TimeInField]:
    for column in all_fields(state.key_schema, state.value_schema):
        for name in (column.name, *(f"{column.name}:{unit}" for unit in UNITS)):
            try:
                time_field = timestamp_field(state, name)
            except UsageError:
                continue
            rule = TtlTransformerFactory(StateTtlConfig(TTL_US), name)
            try:
                cutoff = rule.cutoff(state, clock)
            except UsageError:  # the clock has no current time
                yield TimeInField(name, time_field, clock.processing_us, None, None)
                continue
            if cutoff is not None:
                yield TimeInField(name, time_field, cutoff.now_us, cutoff.at_us, cutoff.time)


def merge_times(parts: Iterable[Iterable[FieldTimes]]) -> list[FieldTimes]:
    """Return the fields that hold a time in all parts of a state."""
    merged: dict[str, FieldTimes] = {}
    for part in parts:
        for times in part:
            name = times.of.timestamp
            merged[name] = merged[name] + times if name in merged else times
    return [times for times in merged.values() if times.is_time and times.oldest_us is not None]
