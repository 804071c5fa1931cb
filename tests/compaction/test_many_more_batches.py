"""Spark runs more than twenty batches after a compaction, while its watermark advances.

Each batch equals the model: kept entries continue and close in their time, and dropped ones start over. No dropped
entry returns from stale files, while Spark writes new files and removes old ones. These tests cover the operators
that have a model. Joins, sessions, groups and transformWithState run as long in their own tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..judge.processes import VERSIONS
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import BATCHES, MANY_MORE, drop_expired, settled, unwanted
from .unseen import Case

OPERATORS = ("agg_update", "agg_append", "agg_window_update", "dedup", "dedup_plain", "dedup_within")
STORES: list[dict[str, Any]] = [
    {"provider": "hdfs"},
    {"provider": "rocksdb"},
    {"provider": "rocksdb", "changelog": True},
]
RETAIN_TWO = (("spark.sql.streaming.minBatchesToRetain", "2"),)
CASES = [
    Case(Query(operator, conf=RETAIN_TWO, **settings), version, version)
    for version in VERSIONS
    for operator in OPERATORS
    for settings in STORES
]

if FULL:  # each costs a quarter of a minute

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_spark_resumes_for_many_batches(judge: Judge, case: Case) -> None:
        query = case.query
        layout = "both" if query.provider == "hdfs" or query.changelog else "snapshot"
        checkpoint = judge.write(query, BATCHES, layout=layout, version=case.version)
        settled(checkpoint.path)
        report = drop_expired(checkpoint.path, query)
        model = checkpoint.expected
        assert report.totals.dropped == model.drop(unwanted(query)) > 0
        assert report.totals.kept == len(model.state()) > 0
        # In the first half Spark writes snapshots. Then another process resumes from those.
        half = len(MANY_MORE) // 2
        assert judge.restart(checkpoint, MANY_MORE[:half], snapshot=True) == model.run(MANY_MORE[:half])
        assert judge.restart(checkpoint, MANY_MORE[half:], fresh=True) == model.run(MANY_MORE[half:])
        if case.version != "3.5":
            assert judge.state(checkpoint) == model.state()
