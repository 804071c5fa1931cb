"""Fields with the time of an entry, and their units."""

from __future__ import annotations

import pyarrow as pa

from ttlsnap import StateDescriptor, StateEntries
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.fields import all_fields
from ttlsnap.unsaferow.encode import encode


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


def test_a_group_without_a_timeout_has_no_time() -> None:
    schema = parse_ddl("n BIGINT, timeout BIGINT")
    rows = encode(pa.array([{"n": -1, "timeout": 5}, {"n": 1, "timeout": -1}], arrow_type(schema)), schema)
    state = StateDescriptor(0, None, "default", "default", 0, parse_ddl("k INT"), schema, timeout="value.timeout:ms")
    entries = StateEntries.of(state, rows, rows)
    moments, nulls = timestamp_field(state, "value.timeout:ms").read(entries)
    assert (moments[0], nulls.tolist()) == (5000, [False, True])
    assert not timestamp_field(state, "value.n:ms").read(entries)[1].any()
