"""Spark is the judge: every combination of version, operator, codec, checksum, layout, and way of publishing.

CI runs all of 4.2 and a thin slice of the older versions, each restarted by itself and by 4.2; TTLSNAP_MATRIX=full
runs all of them (``make test-matrix``).
"""

from __future__ import annotations

import os
from itertools import product

import pytest

from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Judge
from .stories import LAYOUTS, Story, tell

OPERATORS = ("agg_update", "agg_append", "dedup")
CODECS = ("lz4", "zstd", "snappy", "lzf")
FULL = os.environ.get("TTLSNAP_MATRIX") == "full"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_spark_goes_on_after_a_compaction(judge: Judge, operator: str, codec: str) -> None:
    tell(judge, *(Story(Query(operator, codec=codec, row_checksum=checksum)) for checksum in (False, True)))


@pytest.mark.parametrize("operator", ["agg_update_long", "agg_window_update", "dedup_plain"])
def test_other_operators_and_fields(judge: Judge, operator: str) -> None:
    tell(judge, Story(Query(operator)))


@pytest.mark.parametrize("operator", ["agg_update", "agg_append"])
def test_the_first_aggregation_state_format(judge: Judge, operator: str) -> None:
    queries = [Query(operator, aggregation_format=1, row_checksum=checksum) for checksum in (False, True)]
    tell(judge, *(Story(query, ("both",)) for query in queries))


SLICE = [("agg_append", "zstd", ("both",)), ("dedup", "snappy", ("snapshot",))]
OLDER = list(product(OPERATORS, CODECS, [LAYOUTS])) if FULL else SLICE


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_checkpoints_of_older_versions(judge: Judge, version: str) -> None:
    tell(
        judge,
        *(
            Story(Query(operator, codec=codec), layouts, written_by=version, restarted_by=(version, NEWEST))
            for operator, codec, layouts in OLDER
        ),
    )
