"""The queries whose copies real Spark continues."""

from __future__ import annotations

from ..compaction.stories import rocksdb
from ..judge.queries import Query

QUERIES = [
    Query("agg_update"),
    rocksdb("visits", changelog=True, checkpoint_format=2),
    rocksdb("join", changelog=False),
    rocksdb("agg_update", changelog=True),
    Query("agg_append", sink="parquet"),
]
