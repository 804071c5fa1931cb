"""The keys with the most rows, when rows of one key are far apart and are counted in many parts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.reading import rows_by_key
from ttlsnap.reading.rows_by_key import RowsByKey, grouping_rows
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows

KEY = parse_ddl("user STRING, at BIGINT")
STATE = StateDescriptor(
    0, "symmetricHashJoin", "left", "default", None, KEY, parse_ddl("x INT"), kind="row", grouping_without_last=True
)


def keys_of(users: list[str]) -> Rows:
    return encode(pa.StructArray.from_arrays([pa.array(users), pa.array(range(len(users)))], ["user", "at"]), KEY)


@pytest.mark.parametrize("enough", [1, 7, 1 << 18])
@pytest.mark.parametrize("skew", [1.0, 1.2, 3.0])
def test_the_keys_with_the_most_rows_are_found(monkeypatch: pytest.MonkeyPatch, enough: int, skew: float) -> None:
    monkeypatch.setattr(rows_by_key, "ENOUGH", enough)
    random = np.random.default_rng(int(skew * 10))
    drawn = random.zipf(skew, 3_000) if skew > 1 else random.integers(0, 700, 3_000)
    users = [f"user-{number % 1_000}" for number in drawn.tolist()]
    sizes = random.integers(1, 1_000, len(users))
    rows, sums = Counter(users), Counter[str]()
    for user, size in zip(users, sizes.tolist(), strict=True):
        sums[user] += size
    found = RowsByKey(STATE, 5)
    for part in np.array_split(np.arange(len(users)), 40):
        batch = keys_of([users[i] for i in part])
        found.add(batch, np.ones(len(part), np.int64), sizes[part])
    result = found.result()
    assert [key.rows for key in result] == [count for _, count in rows.most_common(5)]
    grouping = grouping_rows(STATE, keys_of([*rows]))
    named = dict(zip(grouping.to_list(), rows, strict=True))
    for key in result:
        user = named[grouping_rows(STATE, Rows.of([key.key])).piece(0)]
        assert (key.rows, key.bytes) == (rows[user], sums[user])
