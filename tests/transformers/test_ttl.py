"""The rule of expiry, durations, units and the frozen clock."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ttlsnap import StateDescriptor, StateEntries, TimeCharacteristic
from ttlsnap.checkpoint import MicroBatch
from ttlsnap.clock import MAX_INT64, MIN_INT64, Clock, clock_at, iso
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.errors import UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.fields import all_fields
from ttlsnap.transformers import CleanupStrategies, StateTtlConfig, expired, parse_duration
from ttlsnap.unsaferow.encode import encode

INT64 = st.integers(MIN_INT64, MAX_INT64)


@given(st.lists(INT64, min_size=1), st.integers(0, MAX_INT64), INT64)
@example([90, 91, MAX_INT64], 10, 100)
@example([MIN_INT64, 0, MAX_INT64], MAX_INT64, MAX_INT64)
@example([-1], MAX_INT64, MAX_INT64 - 1)
def test_expiry_does_not_overflow(timestamps: list[int], ttl: int, now: int) -> None:
    # As in Flink, a sum beyond the largest integer expires at the largest integer.
    wanted = [min(ts + ttl, MAX_INT64) <= now for ts in timestamps]
    assert expired(np.array(timestamps, np.int64), ttl, now).tolist() == wanted


def test_the_limit_is_inclusive() -> None:
    assert expired(np.array([89, 90, 91, MAX_INT64]), 10, 100).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("90s", 90_000_000),
        ("36h", 36 * 3_600_000_000),
        ("7d", 7 * 86_400_000_000),
        ("1d12h", 36 * 3_600_000_000),
        ("250ms", 250_000),
        ("2w", 14 * 86_400_000_000),
        ("P7D", 7 * 86_400_000_000),
        ("7 days", 7 * 86_400_000_000),
        ("7days", 7 * 86_400_000_000),
        ("1 Day 12 hours", 36 * 3_600_000_000),
        ("90 sec", 90_000_000),
        ("1 min", 60_000_000),
        ("PT1H30M", 5_400_000_000),
        ("P1DT0.5S", 86_400_500_000),
    ],
)
def test_durations_are_parsed(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "d",
        "-7d",
        "7 daze",
        "7 months",
        "7 M",
        "7 days ago",
        "P",
        "PT",
        "P1DT",
        "0s",
        "P0D",
        "1e3s",
        "9" * 30 + "d",
    ],
)
def test_the_error_quotes_an_invalid_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"duration|ttl") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_a_ttl_configuration_has_flinks_defaults_and_refuses_invalid_values() -> None:
    config = StateTtlConfig.of(timedelta(days=7))
    assert (config.update_type, config.visibility) == ("OnCreateAndWrite", "NeverReturnExpired")
    assert config.ttl_us == 7 * 86_400_000_000
    for ttl in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(UsageError, match="positive"):
            StateTtlConfig.of(ttl)
    with pytest.raises(UsageError, match="out of range"):
        StateTtlConfig(-1)
    with pytest.raises(UsageError, match="at least 1"):
        CleanupStrategies(incremental=0)


@pytest.mark.parametrize(
    ("cleanup", "message"),
    [
        (CleanupStrategies(full_snapshot=False), "full_snapshot=False has no effect"),
        (CleanupStrategies(incremental=1000), "incremental=1000 has no effect here; use strategy"),
        (CleanupStrategies(rocksdb=True), "rocksdb=True has no effect here; use rewrite"),
    ],
)
def test_a_cleanup_strategy_without_effect_is_refused(cleanup: CleanupStrategies, message: str) -> None:
    assert StateTtlConfig(1, cleanup=CleanupStrategies()).cleanup.full_snapshot
    with pytest.raises(UsageError, match=message):
        StateTtlConfig(1, cleanup=cleanup)


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
    with pytest.raises(UsageError, match="--now"):
        clock_at(text, BATCH)


def test_event_time_without_a_watermark_is_an_error_that_names_an_option() -> None:
    clock = clock_at("checkpoint", MicroBatch(0, None, 5_000, None))
    with pytest.raises(UsageError, match="--time processing"):
        clock.now(TimeCharacteristic.EVENT)


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


def test_nanoseconds_are_rounded_up_to_microseconds() -> None:
    schema = parse_ddl("seen BIGINT")
    rows = encode(pa.array([{"seen": 1000}, {"seen": 1001}, {"seen": -1}], arrow_type(schema)), schema)
    state = StateDescriptor(0, None, "default", "default", 0, parse_ddl("k INT"), schema)
    entries = StateEntries.of(state, rows, rows)
    moments, _ = timestamp_field(state, "value.seen:ns").read(entries)
    assert moments.tolist() == [1, 2, 0]


def test_a_colon_in_a_quoted_name_is_not_a_unit() -> None:
    schema = parse_ddl("seen BIGINT, `seen:ms` TIMESTAMP")
    state = StateDescriptor(0, None, "default", "default", 0, parse_ddl("k INT"), schema)
    assert [field.name for field in all_fields(state.key_schema, schema)][1:] == ["value.seen", "value.`seen:ms`"]
    assert timestamp_field(state, "value.seen:ms").field.path == (0,)
    assert timestamp_field(state, "value.`seen:ms`").field.path == (1,)
