"""Timeouts of arbitrary state, and what a ttl can be taken off."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ttlsnap import StateDescriptor, StateEntries
from ttlsnap.clock import Clock, TimeCharacteristic
from ttlsnap.operators import group_state
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.encode import encode

NOW_MS = 1_000
CLOCK = Clock(NOW_MS * 1000, NOW_MS * 1000, "given", 0)
KEY, VALUE = parse_ddl("key STRING"), parse_ddl("groupState STRUCT<n: BIGINT>, timeoutTimestamp BIGINT")
STATE = StateDescriptor(
    operator=0,
    operator_name="applyInPandasWithState",
    store="default",
    state="default",
    partition=None,
    key_schema=KEY,
    value_schema=VALUE,
    stored_timestamp=group_state.stored_timestamp(VALUE),
)


def left(factory: TtlTransformerFactory, timeouts: list[int]) -> list[int]:
    """Which of groups with these timeouts stay."""
    transformer = factory.create(STATE, CLOCK)
    assert transformer is not None
    keys = pa.StructArray.from_arrays([pa.array([str(moment) for moment in timeouts])], ["key"])
    states = pa.array([{"n": 1} for _ in timeouts], arrow_type(VALUE.fields[0].type))
    values = pa.StructArray.from_arrays([states, pa.array(timeouts, pa.int64())], ["groupState", "timeoutTimestamp"])
    entries = StateEntries.of(STATE, encode(keys, KEY), encode(values, VALUE))
    found = transformer.filter_or_transform(entries).value_structs.to_pylist()
    return [value["timeoutTimestamp"] for value in found]


@pytest.mark.parametrize("time", list(TimeCharacteristic))
def test_a_group_that_spark_has_still_to_call_stays(time: TimeCharacteristic) -> None:
    """Spark calls those whose moment lies before now, not those whose moment it is."""
    moments = [NOW_MS - 1, NOW_MS, NOW_MS + 1, -1]
    assert left(TtlTransformerFactory(time=time), moments) == [NOW_MS, NOW_MS + 1, -1]
    later = TtlTransformerFactory(StateTtlConfig(10_000), time=time)
    assert left(later, [NOW_MS - 11, NOW_MS - 10, NOW_MS]) == [NOW_MS - 10, NOW_MS]


def test_without_a_clock_it_is_left_alone() -> None:
    assert TtlTransformerFactory().create(STATE, CLOCK) is None
    (reason,) = TtlTransformerFactory().plan([STATE], CLOCK)
    assert "say which with --time" in str(reason)


def test_an_old_ttl_gives_the_moment_of_writing() -> None:
    factory = TtlTransformerFactory(StateTtlConfig(100_000), time=TimeCharacteristic.EVENT, old_ttl_us=700_000)
    # Written 99, 100 and 101 ms ago.
    moments = [NOW_MS + 700 - ago for ago in (99, 100, 101)]
    assert left(factory, moments) == [NOW_MS + 700 - 99]
