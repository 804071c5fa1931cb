"""RocksDB checkpoints in every layout, with and without row checksums, in both ways of writing, judged by Spark."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ..judge.spark import Judge
from ..matrix import FULL
from .stories import ROCKSDB_CONF, Story, rocksdb, tell

OPERATORS = ("agg_update", "agg_append", "dedup")
SLICE = [("agg_update", True), ("agg_append", False)]


@pytest.mark.parametrize(("operator", "row_checksum"), [*product(OPERATORS, (False, True))] if FULL else SLICE)
def test_spark_resumes_after_a_compaction(judge: Judge, operator: str, row_checksum: bool) -> None:
    stories = [
        Story(rocksdb(operator, False, 1, row_checksum), ("snapshot",)),
        Story(rocksdb(operator, True, 2, row_checksum)),
        Story(rocksdb(operator, False, 2, row_checksum), ("snapshot",)),
        Story(rocksdb(operator, True, 1, row_checksum)),
    ]
    if not FULL:
        stories = stories[1:2]
    if operator != "agg_update" and not FULL:  # one layout is enough to test the operator
        stories = [Story(rocksdb(operator, True, 2 if row_checksum else 1, row_checksum), ("both",))]
    tell(judge, *stories)


def test_spark_resumes_with_other_settings(judge: Judge) -> None:
    """Newer tables, changelogs with another codec, and a Spark that does not count entries."""
    settings = [("formatVersion", "6"), ("trackTotalNumberOfRows", "false")]
    conf = tuple((ROCKSDB_CONF + name, value) for name, value in settings)
    query = replace(rocksdb("agg_update", True), codec="zstd", conf=conf)
    tell(judge, Story(query, ("both",)))
