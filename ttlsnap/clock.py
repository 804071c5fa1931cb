"""When it is: one frozen clock per run.

The default time comes from the checkpoint and not from the wall: the last committed batch's timestamp for
processing time, the watermark that batch ran with for event time. (A wall clock would expire everything while
a job is stopped; and an append-mode window is dropped by Spark itself once the watermark of a batch has passed
it, but emitted first, so nothing that Spark has still to emit is older than that watermark.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from ttlsnap.checkpoint.logs import Batch
from ttlsnap.errors import UsageError

MICROS = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1


class TimeCharacteristic(StrEnum):
    """Which of the two clocks a timestamp is compared with."""

    EVENT = "event"
    PROCESSING = "processing"


@dataclass(frozen=True)
class Clock:
    """The moment a run takes for now, in microseconds since the epoch, on each of the two clocks.

    ``event_us`` is None when the query has no watermark yet. ``source`` says where the times come from:
    ``checkpoint``, ``wall`` or ``given``. ``watermark_us`` is the checkpoint's own watermark, whatever the source:
    what lies beyond it, Spark has not closed yet. ``no_event_time`` says why ``event_us`` is None. ``behind_join`` are
    the operators that go by a watermark of their own, which is not recorded.
    """

    event_us: int | None
    processing_us: int
    source: str
    watermark_us: int | None = None
    no_event_time: str = "the checkpoint has no watermark, so there is no event time to compare with"
    behind_join: frozenset[int] = frozenset()

    def of(self, operator: int) -> Clock:
        """The clock that an operator goes by."""
        if operator not in self.behind_join:
            return self
        return replace(
            self,
            event_us=None if self.source == "checkpoint" else self.event_us,
            watermark_us=MIN_INT64,
            no_event_time=f"operator {operator} is behind a stream-stream join, whose watermark is not recorded",
        )

    def now(self, time: TimeCharacteristic) -> int:
        """Microseconds since the epoch; raises UsageError for event time without a watermark."""
        if time is TimeCharacteristic.PROCESSING:
            return self.processing_us
        if self.event_us is None:
            raise UsageError(f"{self.no_event_time}; give --now a time, or use --time processing")
        return self.event_us


def clock_at(now: str, batch: Batch) -> Clock:
    """The clock that ``--now`` names: ``checkpoint``, ``wall``, or an ISO 8601 time (UTC if it has no offset).

    Raises UsageError for anything else.
    """
    watermark = None if batch.watermark_ms is None else batch.watermark_ms * MICROS
    if now == "checkpoint":
        return Clock(watermark, batch.timestamp_ms * MICROS, "checkpoint", watermark)
    moment = moment_of(now)
    return Clock(moment, moment, "wall" if now == "wall" else "given", watermark)


def moment_of(now: str) -> int:
    """The moment that ``--now`` names without a checkpoint: ``wall`` or an ISO 8601 time, in microseconds."""
    if now == "wall":
        return to_micros(datetime.now(UTC))
    try:
        given = datetime.fromisoformat(now)
    except ValueError as error:
        raise UsageError(
            f"--now {now!r} is neither 'checkpoint' nor 'wall' nor an ISO 8601 time such as 2026-01-31T12:00:00Z"
        ) from error
    return to_micros(given if given.tzinfo else given.replace(tzinfo=UTC))


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def iso(micros: int | None) -> str | None:
    """ISO 8601 in UTC, for reports; a moment outside the years 1 to 9999 is given as microseconds."""
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    if not -62_135_596_800 <= seconds <= 253_402_300_799:
        return f"{micros}us"
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return moment.isoformat(timespec="milliseconds" if rest % 1000 == 0 else "microseconds").replace("+00:00", "Z")
