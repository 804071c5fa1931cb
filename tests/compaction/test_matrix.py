"""Spark is the judge: every combination of version, operator, codec, checksum, layout, and way of publishing.

CI runs all of 4.2 and a thin slice of the older versions, each restarted by itself and by 4.2; TTLSNAP_MATRIX=full
runs all of them (``make test-matrix``).
"""

from __future__ import annotations

import os
from functools import partial
from itertools import product

import pytest

from ..judge.queries import Query
from ..judge.spark import Judge
from .stories import Story, tell

OPERATORS = ("agg_update", "agg_append", "dedup")
CODECS = ("lz4", "zstd", "snappy", "lzf")
LAYOUTS = ("snapshot", "deltas", "both")
FULL = os.environ.get("TTLSNAP_MATRIX") == "full"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_spark_goes_on_after_a_compaction(judge: Judge, operator: str, codec: str) -> None:
    stories = [
        Story(Query(operator, codec=codec, row_checksum=checksum), layout)
        for checksum, layout in product((False, True), LAYOUTS)
    ]
    judge.together(*(partial(tell, judge, story) for story in stories))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operator", ["agg_update_long", "agg_window_update", "dedup_plain"])
def test_other_operators_and_fields(judge: Judge, operator: str, layout: str) -> None:
    tell(judge, Story(Query(operator), layout))


@pytest.mark.parametrize("operator", ["agg_update", "agg_append"])
def test_the_first_aggregation_state_format(judge: Judge, operator: str) -> None:
    queries = [Query(operator, aggregation_format=1, row_checksum=checksum) for checksum in (False, True)]
    judge.together(*(partial(tell, judge, Story(query, "both")) for query in queries))


SLICE = [("agg_append", "zstd", "both"), ("dedup", "snappy", "snapshot")]
OLDER = list(product(OPERATORS, CODECS, LAYOUTS)) if FULL else SLICE


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_checkpoints_of_older_versions(judge: Judge, version: str) -> None:
    stories = [
        Story(Query(operator, codec=codec), layout, written_by=version, restarted_by=restarted_by)
        for (operator, codec, layout), restarted_by in product(OLDER, (version, "4.2"))
    ]
    for start in range(0, len(stories), 6):
        judge.together(*(partial(tell, judge, story) for story in stories[start : start + 6]))
