"""Queries whose state is exported."""

from __future__ import annotations

from ..compaction.stories import rocksdb
from ..judge.queries import ONLY_ROCKSDB, OPERATORS, SCALA, Query

SLICE = [
    Query("agg_window_update", row_checksum=True),
    rocksdb("agg_update", changelog=True, checkpoint_format=2),
    Query("sessions"),
    Query("dedup"),
    Query("join"),
    Query("join", provider="rocksdb", join_format=4),
    rocksdb("lists", changelog=True),
    rocksdb("alarms", changelog=True),
]
# Parquet holds no interval, and a void column is not exported.
_EXPORTED = [operator for operator in OPERATORS if operator not in (*SCALA, "dedup_interval", "dedup_void")]
EVERYTHING = [
    *SLICE,
    Query("join", provider="rocksdb", join_format=3),
    *(Query(operator) for operator in _EXPORTED if operator not in ONLY_ROCKSDB),
    *(rocksdb(operator, changelog=True) for operator in _EXPORTED),
]
