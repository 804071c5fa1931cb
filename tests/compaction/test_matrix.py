"""Spark is the judge: every combination of version, operator, codec, checksum, layout, and way of publishing.

Here is 4.2, see ``test_older_versions`` for the others. TTLSNAP_MATRIX=full (``make test-matrix``) leaves nothing out.
"""

from __future__ import annotations

import os

import pytest

from ..judge.queries import Query
from ..judge.spark import Judge
from .stories import LAYOUTS, Story, tell

OPERATORS = ("agg_update", "agg_append", "dedup")
CODECS = ("lz4", "zstd", "snappy", "lzf")
FULL = os.environ.get("TTLSNAP_MATRIX") == "full"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_spark_goes_on_after_a_compaction(judge: Judge, operator: str, codec: str) -> None:
    # A snapshot and deltas after it: what a codec is about. All layouts are tried with one codec.
    layouts = LAYOUTS if codec == "lz4" or FULL else ("both",)
    queries = [Query(operator, codec=codec, row_checksum=checksum) for checksum in (False, True)]
    tell(judge, *(Story(query, layouts) for query in queries))


@pytest.mark.parametrize("operator", ["agg_update_long", "agg_window_update", "dedup_plain"])
def test_other_operators_and_fields(judge: Judge, operator: str) -> None:
    tell(judge, Story(Query(operator)))


@pytest.mark.parametrize("operator", ["agg_update", "agg_append"])
def test_the_first_aggregation_state_format(judge: Judge, operator: str) -> None:
    queries = [Query(operator, aggregation_format=1, row_checksum=checksum) for checksum in (False, True)]
    tell(judge, *(Story(query, ("both",)) for query in queries))
