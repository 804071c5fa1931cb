"""Every cell of the support table (``docs/support.md``): each operator, on each state store, of each version of Spark.

Real Spark writes a checkpoint. ttlsnap inspects it and rewrites every entry of a copy without a change. A query then
restarts on the copy, and must emit what it emits on the original. Other tests drop entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from .. import support
from ..judge.processes import OLD_VERSIONS, UPGRADE, VERSIONS
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import MORE_WHOLE, WHOLE, copies_of, copy_all, rocksdb

STORES: dict[str, Callable[[str], Query]] = {
    "HDFS-backed": lambda operator: Query(operator),
    "RocksDB": lambda operator: rocksdb(operator, changelog=False),
    "RocksDB, changelogs": lambda operator: rocksdb(operator, changelog=True),
    "RocksDB, checkpoint format 2": lambda operator: rocksdb(operator, changelog=True, checkpoint_format=2),
}
EXAMPLES = {
    "aggregation": "agg_update",
    "aggregation with a watermark": "agg_append",
    "`dropDuplicates`": "dedup",
    "`dropDuplicatesWithinWatermark`": "dedup_within",
    "session window": "sessions",
    "stream-stream join": "join",
    "`flatMapGroupsWithState`": "groups_scala",
    "`applyInPandasWithState`": "groups",
    "`transformWithState` (Scala)": "for_a_day_scala",
    "`transformWithStateInPandas`, `transformWithState` (Python)": "visits",
    "several operators": "windows_of_windows",
}
assert STORES.keys() == set(support.STORES)
BEFORE_3_4 = {"several operators": "dedup_windows"}
# The state of ``limit`` is one number, which a run only copies.
assert EXAMPLES.keys() == support.OPERATORS.keys() - {"`limit`"}


def again(version: str, query: Query) -> tuple[str, ...]:
    """Return the versions that restart a query: its own, and both of the last upgrade."""
    if query.checkpoint_format == 2 and version == "4.0":
        return (version,)  # no other version reads its zips
    return tuple(dict.fromkeys([version, *UPGRADE]))


if FULL:

    @pytest.mark.parametrize(
        ("operator", "version"),
        [
            (operator, version)
            for operator, version in product(EXAMPLES, [*OLD_VERSIONS, *VERSIONS])
            if version >= support.SINCE.get(operator, "")
        ],
    )
    def test_spark_restarts(judge: Judge, operator: str, version: str) -> None:
        example = BEFORE_3_4.get(operator, EXAMPLES[operator]) if version < "3.4" else EXAMPLES[operator]
        queries = [
            query(example)
            for store, query in STORES.items()
            if version >= max(support.SINCE.get(operator, ""), support.SINCE.get(store, ""))
            and not (operator in support.ONLY_ROCKSDB and store == "HDFS-backed")
        ]
        judge.together(*(partial(restarts, judge, query, version) for query in queries))


def restarts(judge: Judge, query: Query, version: str) -> None:
    """Rewrite a checkpoint, and restart queries on copies of it."""
    layout = "both" if query.provider == "hdfs" or query.changelog else "snapshot"
    written = judge.write(query, WHOLE, layout=layout, version=version)
    for later in again(version, query):
        _, (rewritten, same) = copies_of(judge, written)
        report = copy_all(rewritten.path)
        assert report.totals.rewritten == report.totals.entries != 0
        wanted, found = (
            # The planned batch of ttlsnap is empty.
            [batch.rows for batch in judge.restart(each, MORE_WHOLE, version=later) if batch.rows]
            for each in (same, rewritten)
        )
        assert found == wanted and wanted
