"""The counts by partition and by key are those of Spark's own ``statestore`` source."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ttlsnap import inspect

from ..compaction.stories import BATCHES, WHOLE, rocksdb, settled
from ..judge.queries import Query
from ..judge.spark import Judge


@pytest.mark.parametrize(
    ("query", "state", "options"),
    [
        (
            Query("join", provider="rocksdb", join_format=4),
            ("default", "left-keyWithTsToValues"),
            {"joinSide": "left"},
        ),
        (rocksdb("lists", changelog=True), ("default", "all"), {"stateVarName": "all"}),
    ],
    ids=["join", "lists"],
)
def test_counts_are_those_of_spark(judge: Judge, query: Query, state: tuple[str, str], options: dict[str, str]) -> None:
    is_join = query.operator == "join"
    written = judge.write(query, BATCHES if is_join else WHOLE, layout="snapshot" if is_join else "both")
    settled(written.path)
    counted = judge.call_in(
        Path(__file__).parent,
        written.version,
        "counting.count_rows",
        checkpoint=str(written.path),
        options=options,
    )
    sizes = inspect(str(written.path), sizes=True).sizes
    assert sizes is not None
    (found,) = [each for each in sizes.states if (each.store, each.state) == state]
    by_partition: Counter[int] = Counter()
    for partition, _, count in counted:
        by_partition[partition] += count
    assert {part.partition: part.entries for part in found.parts if part.entries} == by_partition
    assert found.with_rows is not None
    rows = {(partition, key): count for partition, key, count in counted}
    assert [key.rows for key in found.with_rows] == sorted(rows.values(), reverse=True)[:5]
    for key in found.with_rows:
        assert rows[key.partition, json.dumps(key.key, sort_keys=True)] == key.rows
    assert found.with_rows[0].rows > 1
