"""TTLs on the timeouts of arbitrary state, with and without an old TTL."""

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
TIMEOUT = group_state.stored_time(VALUE)
assert TIMEOUT is not None
STATE = StateDescriptor(
    operator=0,
    operator_name="applyInPandasWithState",
    store="default",
    state="default",
    partition=None,
    key_schema=KEY,
    value_schema=VALUE,
    **TIMEOUT.facts,
)


def left(factory: TtlTransformerFactory, timeouts: list[int]) -> list[int]:
    """Return the timeouts of the groups that are kept."""
    transformer = factory.create(STATE, CLOCK)
    assert transformer is not None
    keys = pa.StructArray.from_arrays([pa.array([str(moment) for moment in timeouts])], ["key"])
    states = pa.array([{"n": 1} for _ in timeouts], arrow_type(VALUE.fields[0].type))
    values = pa.StructArray.from_arrays([states, pa.array(timeouts, pa.int64())], ["groupState", "timeoutTimestamp"])
    entries = StateEntries.of(STATE, encode(keys, KEY), encode(values, VALUE))
    found = transformer.filter_or_transform(entries).value_structs.to_pylist()
    return [value["timeoutTimestamp"] for value in found]


@pytest.mark.parametrize("time", list(TimeCharacteristic))
def test_a_group_that_spark_will_still_call_is_kept(time: TimeCharacteristic) -> None:
    # Spark calls groups whose timeout is before now, but not groups whose timeout is now.
    moments = [NOW_MS - 1, NOW_MS, NOW_MS + 1, -1]
    assert left(TtlTransformerFactory(time=time), moments) == [NOW_MS, NOW_MS + 1, -1]
    later = TtlTransformerFactory(StateTtlConfig(10_000), time=time)
    assert left(later, [NOW_MS - 11, NOW_MS - 10, NOW_MS]) == [NOW_MS - 10, NOW_MS]


def test_without_a_clock_the_state_is_left_alone() -> None:
    assert TtlTransformerFactory().create(STATE, CLOCK) is None
    (reason,) = TtlTransformerFactory().plan([STATE], CLOCK)
    assert "; use --time" in str(reason)


def test_an_old_ttl_gives_the_time_of_writing() -> None:
    factory = TtlTransformerFactory(StateTtlConfig(100_000), time=TimeCharacteristic.EVENT, old_ttl_us=700_000)
    # The entries were written 99, 100 and 101 ms ago.
    moments = [NOW_MS + 700 - ago for ago in (99, 100, 101)]
    assert left(factory, moments) == [NOW_MS + 700 - 99]
