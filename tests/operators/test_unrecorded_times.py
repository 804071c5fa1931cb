"""The times by which Spark may evict although the schema records no watermark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ttlsnap import StateDescriptor, StateEntries, TimeCharacteristic
from ttlsnap.clock import Clock
from ttlsnap.operators import aggregation, session_window
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.encode import encode

WINDOW = "STRUCT<start: TIMESTAMP, end: TIMESTAMP>"
NOTHING = parse_ddl("count BIGINT")


@pytest.mark.parametrize(
    ("key", "times"),
    [
        (f"window {WINDOW}, key STRING", ("key.window.end",)),
        ("key STRING, at TIMESTAMP", ("key.at",)),
        (f"window {WINDOW}, at TIMESTAMP", ("key.window.end", "key.at")),
        ("key STRING, day DATE, seconds BIGINT, local TIMESTAMP_NTZ", ()),
        ("period STRUCT<begin: TIMESTAMP, end: TIMESTAMP>, inner STRUCT<at: TIMESTAMP>", ()),
    ],
)
def test_timestamps_and_windows_of_the_key_may_have_a_watermark(key: str, times: tuple[str, ...]) -> None:
    assert aggregation.unrecorded_times(parse_ddl(key), parse_ddl("max TIMESTAMP")) == times


def test_the_buffers_of_a_session_have_none() -> None:
    value = parse_ddl(f"session_window {WINDOW}, max TIMESTAMP")
    key = parse_ddl("key STRING, start TIMESTAMP")
    assert session_window.unrecorded_times(key, value) == ("value.session_window.end",)


def test_a_group_is_closed_if_the_watermark_has_reached_all_times_that_may_be_its_own() -> None:
    key = parse_ddl("at TIMESTAMP, other TIMESTAMP")
    times = aggregation.unrecorded_times(key, NOTHING)
    state = StateDescriptor(
        *(0, "stateStoreSave", "default", "default", None, key, NOTHING), unrecorded_times=times, emits_on_close=True
    )
    clock = Clock(100, 1_000, "checkpoint", 100)
    factory = TtlTransformerFactory(StateTtlConfig(1), "key.at")
    transformer = factory.create(state, clock)
    assert transformer is not None
    moments = [(1, 1), (1, 101), (101, 1), (1, 100)]
    columns = [pa.array(column, pa.timestamp("us", "UTC")) for column in zip(*moments, strict=True)]
    keys = pa.StructArray.from_arrays(columns, ["at", "other"])
    values = pa.StructArray.from_arrays([pa.array([1] * 4)], ["count"])
    entries = StateEntries.of(state, encode(keys, key), encode(values, NOTHING))
    assert transformer.unclosed(entries).tolist() == [False, True, True, False]
    # Both are on the clock of the watermark, and not on that of the batch.
    assert len(transformer.filter_or_transform(entries)) == 1
    late = TtlTransformerFactory(StateTtlConfig(1), "key.at", TimeCharacteristic.PROCESSING).create(state, clock)
    assert late is not None and len(late.filter_or_transform(entries)) == 0
