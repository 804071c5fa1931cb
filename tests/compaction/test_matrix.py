"""Every combination of operator, codec, checksum, layout and way of publishing, judged by real Spark.

This file has Spark 4.2. See ``test_older_versions`` for the others.
"""

from __future__ import annotations

from itertools import product

import pytest

from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import CODECS, LAYOUTS, OPERATORS, Story, tell

# Other tests cover the first codec.
SLICE = list(zip(OPERATORS, CODECS[1:], strict=True))


@pytest.mark.parametrize(("operator", "codec"), [*product(OPERATORS, CODECS)] if FULL else SLICE)
def test_spark_resumes_after_a_compaction(judge: Judge, operator: str, codec: str) -> None:
    # A snapshot and deltas after it use the codec in both kinds of files.
    layouts = LAYOUTS if FULL else ("both",)
    plain, summed = (Story(Query(operator, codec=codec, row_checksum=checksum), layouts) for checksum in (False, True))
    tell(judge, *((plain, summed) if FULL else (plain,) if operator == "agg_append" else (summed,)))


@pytest.mark.parametrize("operator", ["agg_update_long", "agg_window_update", "dedup_plain"])
def test_spark_resumes_with_other_operators_and_fields(judge: Judge, operator: str) -> None:
    tell(judge, Story(Query(operator), LAYOUTS if FULL else ("snapshot",)))


@pytest.mark.parametrize("operator", ["agg_update", "agg_append"] if FULL else ["agg_append"])
def test_spark_resumes_with_the_first_aggregation_state_format(judge: Judge, operator: str) -> None:
    checksums = (False, True) if FULL else (True,)
    queries = [Query(operator, aggregation_format=1, row_checksum=checksum) for checksum in checksums]
    tell(judge, *(Story(query, ("both",)) for query in queries))
