"""Checkpoints of Spark 4.3: a slice of what other tests do with 4.2, and formats that only 4.3 writes.

``TTLSNAP_NEWEST=4.3`` lets 4.3 judge all other tests in place of 4.2.
"""

from __future__ import annotations

import pytest

from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import BATCHES, CODECS, OPERATORS, Story, rocksdb, tell

pytestmark = pytest.mark.wide  # another version of Spark

SPARK = "4.3"
UPGRADES = UPGRADE[0], UPGRADE[1:]
NAMED_SINK = (("spark.sql.streaming.queryEvolution.enableSinkEvolution", "true"),)


if FULL:

    @pytest.mark.parametrize("operator", OPERATORS)
    def test_4_3_resumes_what_4_2_wrote(judge: Judge, operator: str) -> None:
        queries = [
            *(Query(operator, codec=codec) for codec in CODECS),
            *(rocksdb(operator, changelog, number) for changelog in (False, True) for number in (1, 2)),
        ]
        tell(judge, *(Story(query, ("both",) if query.changelog else ("snapshot",), *UPGRADES) for query in queries))


@pytest.mark.parametrize("written_by", [NEWEST, SPARK])
def test_4_3_resumes(judge: Judge, written_by: str) -> None:
    tell(
        judge,
        Story(Query("agg_append"), ("deltas",), written_by, (SPARK,)),
        Story(rocksdb("dedup", True), ("both",), written_by, (SPARK,)),
    )


@pytest.mark.parametrize(
    "query", [Query(conf=NAMED_SINK), Query(provider="rocksdb", checkpoint_format=2, conf=NAMED_SINK)], ids=["v1", "v2"]
)
def test_a_commit_log_of_version_3_is_read(judge: Judge, query: Query) -> None:
    story = Story(query, ("snapshot",), SPARK, (SPARK,))
    tell(judge, story)
    written = judge.write(query, BATCHES[:1], layout="snapshot", version=SPARK)
    assert (written.path / "commits" / "0").read_text().startswith("v3\n")
