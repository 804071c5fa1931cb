"""An age belongs to the bucket that ends at it, unless that is a cut-off. Every entry is counted once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap import StateDescriptor, StateEntries
from ttlsnap.entries.timestamps import timestamp_field
from ttlsnap.reading.ages import AgeField, Ages
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.encode import encode

KEY, VALUE = parse_ddl("k INT"), parse_ddl("at TIMESTAMP")
STATE = StateDescriptor(0, None, "default", "default", 0, KEY, VALUE)
HOUR, DAY = 3_600_000_000, 86_400_000_000
NOW = 2_000 * DAY


def ages_of(ages: Sequence[int | None], cutoff_us: int | None = None) -> Ages:
    """Return the ages of entries that are so old, in microseconds; None is an entry without a time."""
    rows = [{"at": None if age is None else NOW - age} for age in ages]
    keys = encode(pa.array([{"k": number} for number in range(len(rows))], arrow_type(KEY)), KEY)
    found = Ages(AgeField(timestamp_field(STATE, "value.at"), NOW, cutoff_us))
    values = encode(pa.array(rows, arrow_type(VALUE)), VALUE)
    found.add(StateEntries.of(STATE, keys, values), np.ones(len(rows), np.int64))
    return found


def test_an_age_belongs_to_the_bucket_that_ends_at_it() -> None:
    document = ages_of([HOUR - 1, HOUR, HOUR + 1, DAY, DAY + 1, 365 * DAY, 365 * DAY + 1, None, -1]).to_json()
    counts = {bucket["up_to"]: bucket["entries"] for bucket in document["buckets"]}
    assert {name: count for name, count in counts.items() if count} == {"1h": 2, "6h": 1, "1d": 1, "3d": 1, "365d": 1}
    assert (document["older"], document["null"], document["future"]) == (1, 1, 1)


@pytest.mark.parametrize("ttl", [10 * DAY + 7, 7 * DAY])
def test_a_bucket_ends_before_the_ttl_of_a_rule_at_which_an_entry_expires(ttl: int) -> None:
    buckets = ages_of([ttl - 2, ttl - 1, ttl, ttl + 1, ttl + 2], ttl).to_sizes_json()["buckets"]
    assert [bucket["entries"] for bucket in buckets if bucket["entries"]] == [2, 3]
    (last,) = (bucket for bucket in buckets if bucket["up_to_seconds"] == ttl / 1_000_000)
    assert (last["entries"], last["bytes"]) == (2, 2)
