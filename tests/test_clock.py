"""The frozen clock of a run, and times as text."""

from __future__ import annotations

import pytest

from ttlsnap import TimeCharacteristic
from ttlsnap.checkpoint import MicroBatch
from ttlsnap.clock import MAX_INT64, Clock, clock_at, iso
from ttlsnap.errors import FutureWatermarkError, UsageError

BATCH = MicroBatch(id=4, watermark_ms=1_000, timestamp_ms=5_000, next_watermark_ms=2_000)


def test_the_clock_of_the_checkpoint_is_that_of_its_last_batch() -> None:
    clock = clock_at("checkpoint", BATCH)
    # The batch used this watermark. Entries between it and the next watermark may still have to be emitted.
    assert clock == Clock(1_000_000, 5_000_000, "checkpoint", watermark_us=1_000_000)


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T13:00:00+01:00"])
def test_a_given_time_without_an_offset_is_utc(text: str) -> None:
    clock = clock_at(text, BATCH)
    assert iso(clock.now(TimeCharacteristic.EVENT)) == iso(clock.now(TimeCharacteristic.PROCESSING))
    assert iso(clock.processing_us) == "2026-01-31T12:00:00.000Z"


def test_the_wall_clock_is_read_once() -> None:
    clock = clock_at("wall", BATCH)
    assert clock.event_us == clock.processing_us > clock_at("2026-01-01", BATCH).processing_us


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "1700000000"])
def test_an_invalid_time_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"^now .* is not valid"):
        clock_at(text, BATCH)


def test_event_time_without_a_watermark_is_an_error_that_names_an_option() -> None:
    clock = clock_at("checkpoint", MicroBatch(0, None, 5_000, None))
    with pytest.raises(UsageError, match="--now"):
        clock.now(TimeCharacteristic.EVENT)


DAY_MS = 86_400_000


@pytest.mark.parametrize("watermark_ms", [0, 5_000, 5_000 + DAY_MS])
def test_a_watermark_up_to_a_day_ahead_is_the_current_time(watermark_ms: int) -> None:
    clock = clock_at("checkpoint", MicroBatch(0, watermark_ms, 5_000, None))
    assert clock.now(TimeCharacteristic.EVENT) == watermark_ms * 1000


def test_a_watermark_in_the_future_is_refused_as_the_current_time() -> None:
    batch = MicroBatch(0, 5_001 + DAY_MS, 5_000, None)
    clock = clock_at("checkpoint", batch)
    with pytest.raises(FutureWatermarkError, match=r"batchWatermarkMs.*batchTimestampMs.*--now 1970-01-01T00:00:05"):
        clock.now(TimeCharacteristic.EVENT)
    assert clock.now(TimeCharacteristic.PROCESSING) == 5_000_000
    assert clock.unchecked().now(TimeCharacteristic.EVENT) == clock.watermark_us
    given = clock_at("1970-01-01T00:00:05Z", batch)
    assert given.now(TimeCharacteristic.EVENT) == 5_000_000


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (MAX_INT64, f"{MAX_INT64}us"),
        (None, None),
    ],
)
def test_times_are_shown_in_utc_or_as_numbers(micros: int | None, text: str | None) -> None:
    assert iso(micros) == text
