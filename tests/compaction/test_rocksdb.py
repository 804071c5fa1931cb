"""Spark is the judge of RocksDB checkpoints: every layout, with and without row checksums, in both ways of writing."""

from __future__ import annotations

import pytest

from ..judge.queries import Query
from ..judge.spark import Judge
from .stories import Story, tell

OPERATORS = ("agg_update", "agg_append", "dedup")


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("row_checksum", [False, True])
def test_spark_goes_on_after_a_compaction(judge: Judge, operator: str, row_checksum: bool) -> None:
    def query(changelog: bool, checkpoint_format: int) -> Query:
        return Query(
            operator,
            provider="rocksdb",
            row_checksum=row_checksum,
            changelog=changelog,
            checkpoint_format=checkpoint_format,
        )

    tell(
        judge,
        Story(query(False, 1), ("snapshot",)),
        Story(query(True, 1)),
        Story(query(False, 2), ("snapshot",)),
        Story(query(True, 2)),
    )
