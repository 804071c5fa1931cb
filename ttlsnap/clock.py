"""One frozen clock for each run.

By default the time comes from the checkpoint, not from the wall clock. Processing time is the timestamp of the last
committed batch. Event time is the watermark with which that batch ran.

A wall clock would expire everything while a job is stopped. In append mode Spark emits a window and then drops it, once
the watermark of a batch has passed it. So an entry that Spark must still emit is never older than that watermark.

A single event with a wrong time moves the watermark into the future, and it never goes back. Then the watermark is not
a current time. A watermark that is behind, for example while old data is read again, is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from ttlsnap.amounts import quantity
from ttlsnap.errors import FutureWatermarkError, UsageError
from ttlsnap.keywords import public

MICROS = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_AHEAD_MS = 86_400_000
"""The most that a watermark may be ahead of the time of its batch, in milliseconds."""
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1

Moment = str | datetime
"""``checkpoint``, ``wall``, or a time, as ISO 8601 or as an object; UTC if it has no offset."""


class TimeCharacteristic(StrEnum):
    """The clock with which a timestamp is compared."""

    EVENT = "event"
    PROCESSING = "processing"


class BatchTimes(Protocol):
    """The times that the log of a batch records, in milliseconds since the epoch; a query may have no watermark."""

    @property
    def watermark_ms(self) -> int | None: ...
    @property
    def timestamp_ms(self) -> int: ...


@dataclass(frozen=True)
class Clock:
    """The current time of a run, in microseconds since the epoch, on each of the two clocks.

    ``event_us`` is None if the query has no watermark yet, and ``no_event_time`` says why. ``source`` says where the
    times come from: ``checkpoint``, ``wall`` or ``given``. ``watermark_us`` is the checkpoint's own watermark for every
    source; Spark has not yet closed what is later. ``behind_join`` has the operators with a watermark of their own,
    which the checkpoint does not record. ``ahead`` says why the watermark is not a current time; None if it is one.
    """

    event_us: int | None
    processing_us: int
    source: str
    watermark_us: int | None = None
    no_event_time: str = "the checkpoint has no watermark, so there is no event time to compare with"
    behind_join: frozenset[int] = frozenset()
    ahead: str | None = None

    def unchecked(self) -> Clock:
        """Return the same clock for reading: a watermark in the future counts as a current time."""
        return replace(self, ahead=None)

    def of(self, operator: int) -> Clock:
        """Return the clock of an operator."""
        if operator not in self.behind_join:
            return self
        return replace(
            self,
            event_us=None if self.source == "checkpoint" else self.event_us,
            watermark_us=MIN_INT64,
            no_event_time=f"operator {operator} is behind a stream-stream join, whose watermark is not recorded",
        )

    def now(self, time: TimeCharacteristic) -> int:
        """Return the time in microseconds since the epoch.

        Raise UsageError for event time without a watermark, and FutureWatermarkError if that is in the future.
        """
        if time is TimeCharacteristic.PROCESSING:
            return self.processing_us
        if self.event_us is None:
            raise UsageError(f"{self.no_event_time}; give --now a time")
        if self.ahead is not None:
            raise FutureWatermarkError(self.ahead)
        return self.event_us


@public
def clock_at(now: Moment, batch: BatchTimes) -> Clock:
    """Return the clock that ``--now`` names: ``checkpoint``, ``wall``, or a time (UTC if it has no offset).

    Raise UsageError for anything else.
    """
    watermark = None if batch.watermark_ms is None else batch.watermark_ms * MICROS
    if now == "checkpoint":
        ahead = describe_ahead(batch.watermark_ms, batch.timestamp_ms)
        if ahead is not None:
            ahead = (
                f"{ahead}. Compared with it, entries of today have expired. Nothing was changed. Repeat the command "
                f"with a time, such as that of the batch: --now {iso(batch.timestamp_ms * MICROS)} (in a policy: now)"
            )
        return Clock(watermark, batch.timestamp_ms * MICROS, "checkpoint", watermark, ahead=ahead)
    moment = moment_of(now)
    return Clock(moment, moment, "wall" if now == "wall" else "given", watermark)


def describe_ahead(watermark_ms: int | None, timestamp_ms: int, field: str = "batchWatermarkMs") -> str | None:
    """Return that the watermark of a batch, in this field of its logs, is in the future of the batch; None if not."""
    if watermark_ms is None or watermark_ms - timestamp_ms <= MOST_AHEAD_MS:
        return None
    days = (watermark_ms - timestamp_ms) // MOST_AHEAD_MS
    return (
        f"the watermark {iso(watermark_ms * MICROS)} ({field}) is {quantity(days, 'day')} ahead of the time of the "
        f"batch, {iso(timestamp_ms * MICROS)} (batchTimestampMs). Probably, an event with a wrong time moved it there"
    )


def moment_of(now: Moment) -> int:
    """Return the time that ``--now`` names without a checkpoint, in microseconds since the epoch.

    ``now`` is ``wall``, or a time (UTC if it has no offset). Raise UsageError for anything else.
    """
    if now == "wall":
        return to_micros(datetime.now(UTC))
    try:
        given = now if isinstance(now, datetime) else datetime.fromisoformat(now)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--now {now!r} is not valid; use checkpoint, wall, or an ISO 8601 time such as 2026-01-31T12:00:00Z"
        ) from error
    return to_micros(given if given.tzinfo else given.replace(tzinfo=UTC))


def to_micros(moment: datetime) -> int:
    """Return a time in microseconds since the epoch."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last time that ISO 8601 has, in the years 1 and 9999."""
_YEAR_US = 31_556_952_000_000


def year_of(micros: int) -> int:
    """Return the year of a time, which may be one that ISO 8601 does not have."""
    return 1970 + micros // _YEAR_US


def iso(micros: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC, for reports; outside the years 1 to 9999 in microseconds. None for None."""
    if micros is None:
        return None
    if not FIRST_US <= micros <= LAST_US:
        return f"{micros}us"
    seconds, rest = divmod(micros, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return moment.isoformat(timespec="milliseconds" if rest % 1000 == 0 else "microseconds").replace("+00:00", "Z")


def iso_of(moment: datetime) -> str:
    """Return a time in ISO 8601, in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
