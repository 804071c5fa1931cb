"""Pairs across two versions of Spark, with the same query or a changed one."""

from __future__ import annotations

from itertools import pairwise

from .pair import (
    AFTER,
    AVRO,
    BEFORE,
    BOTH_KEYS,
    BY_USER,
    CLOSING,
    JOINED,
    KEEPS,
    NEAR,
    ONCE_EACH,
    ROCKSDB,
    SESSIONS,
    STEPS,
    WINDOWS,
    WITHIN,
    Conf,
    pair,
)
from .processing import ALL, HOUR, SUMS
from .processors import transform
from .queries import Event, Query, aggregate, dedup, first_rows, join

EVERYWHERE: dict[str, tuple[Query, Conf]] = {
    "agg": (BY_USER, {}),
    "agg-rocksdb": (BY_USER, ROCKSDB),
    "windows": (WINDOWS, {}),
    "sessions": (SESSIONS, {}),
    "dedup": (ONCE_EACH, {}),
    "within": (WITHIN, {}),
    "join": (NEAR, {}),
    "join-rocksdb": (JOINED, ROCKSDB),
    "pandas": (STEPS, {}),
}
SINCE_41: dict[str, tuple[Query, Conf]] = {
    "transform": (KEEPS, ROCKSDB),
    "transform-list": (transform(ALL), ROCKSDB),
    "transform-map": (transform(SUMS), ROCKSDB),
    "transform-ttl": (transform(HOUR), ROCKSDB),
    "transform-avro": (KEEPS, AVRO),
}
ALL_VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")


def across(change: str, queries: dict[str, tuple[Query, Conf]], old: str, new: str) -> None:
    """Enter pairs of the same query, restarted on another version."""
    for name, (query, conf) in queries.items():
        after = CLOSING if name in ("windows", "sessions") else AFTER
        pair(f"{change}-{name}-{old}-{new}", change, query, query, conf=conf, versions=(old, new), after=after)


across("upgrade", EVERYWHERE, "3.5", "4.2")
across("downgrade", EVERYWHERE, "4.2", "3.5")
across("upgrade", SINCE_41, "4.1", "4.2")
across("downgrade", SINCE_41, "4.2", "4.1")
across("upgrade", SINCE_41, "4.2", "4.3")
across("downgrade", SINCE_41, "4.3", "4.2")
FEW = {name: EVERYWHERE[name] for name in ("agg", "join", "agg-rocksdb")}
for one, two in [*pairwise(ALL_VERSIONS), ("4.0", "4.2")]:
    across("upgrade", FEW, one, two)
    across("downgrade", FEW, two, one)

REST = {name: query for name, query in EVERYWHERE.items() if name not in FEW}
for one, two in (("3.5", "4.0"), ("3.5", "4.1"), ("4.0", "4.2"), ("4.1", "4.2"), ("3.5", "4.3"), ("4.2", "4.3")):
    across("upgrade", REST, one, two)
    across("downgrade", REST, two, one)

# Of more than four columns, each of these versions has an order of its own.
NAMES = ("tenant", "user", "device", "page", "action")
MANY: dict[str, tuple[Query, Conf]] = {
    "dedup-many": (
        dedup(
            NAMES,
            {
                "tenant": "concat('t', user)",
                "device": "concat('d', other)",
                "page": "concat('p', other)",
                "action": "concat('a', user)",
            },
        ),
        {},
    )
}
for one, two in (("3.5", "4.2"), ("3.5", "4.3"), ("4.1", "4.2"), ("4.2", "4.3")):
    across("upgrade", MANY, one, two)
    across("downgrade", MANY, two, one)

# A new version and a changed query at once.
for version in ("3.5", "4.0", "4.1", "4.3"):
    both = (version, "4.2") if version < "4.2" else ("4.2", version)
    pair(f"agg-key-added-{both[0]}-{both[1]}", "key added", BY_USER, BOTH_KEYS, versions=both)
    pair(
        f"agg-min-to-max-{both[0]}-{both[1]}",
        "aggregate replaced",
        aggregate(["user"], {"m": "min amount"}),
        aggregate(["user"], {"m": "max amount"}),
        versions=both,
    )
# Changes on the other versions themselves.
for version in ("3.5", "4.0", "4.1", "4.3"):
    pair(f"agg-key-added-{version}", "key added", BY_USER, BOTH_KEYS, versions=(version, version))
    pair(
        f"agg-keys-swapped-{version}",
        "keys swapped",
        BOTH_KEYS,
        aggregate(["other", "user"], {"total": "sum amount"}),
        versions=(version, version),
    )
    pair(
        f"join-inner-to-left-{version}",
        "join type",
        NEAR,
        join(["amount"], ["amount"], delay=60, within=60, how="left_outer"),
        versions=(version, version),
        rows=[(20, 30), (1, 20), (5, 8)],
    )

OLD_JOIN = {"spark.sql.streaming.join.stateFormatVersion": "1"}
pair("upgrade-join-format-1-3.5-4.2", "upgrade", NEAR, NEAR, conf=OLD_JOIN, versions=("3.5", "4.2"))
ROW_CHECKSUM = {"spark.sql.streaming.stateStore.rowChecksum.enabled": "true"}
pair("downgrade-row-checksum-4.2-4.1", "downgrade", BY_USER, BY_USER, conf=ROW_CHECKSUM, versions=("4.2", "4.1"))
pair(
    "downgrade-row-checksum-rocksdb-4.2-4.1",
    "downgrade",
    BY_USER,
    BY_USER,
    conf={**ROCKSDB, **ROW_CHECKSUM},
    versions=("4.2", "4.1"),
)
IDS = {**ROCKSDB, "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
pair("upgrade-checkpoint-format-2-4.1-4.2", "upgrade", BY_USER, BY_USER, conf=IDS, versions=("4.1", "4.2"))
pair("downgrade-checkpoint-format-2-4.2-4.1", "downgrade", BY_USER, BY_USER, conf=IDS, versions=("4.2", "4.1"))
pair("downgrade-checkpoint-format-2-4.2-3.5", "downgrade", BY_USER, BY_USER, conf=IDS, versions=("4.2", "3.5"))
JOIN_3 = {**ROCKSDB, "spark.sql.streaming.join.stateFormatVersion": "3"}
pair("downgrade-join-format-3-4.2-4.0", "downgrade", NEAR, NEAR, settings=(JOIN_3, ROCKSDB), versions=("4.2", "4.0"))
MERGE_1 = {**ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "1"}
LISTS = transform(ALL)
# RocksDB merges two values of one key in one batch at writing, and others only at reading.
MERGED = ((*BEFORE[0], *BEFORE[1]), (Event("a", "x", 40, 1, 15), Event("a", "x", 50, 1, 16)))
for conf, name in ((ROCKSDB, ""), (MERGE_1, "-merge-1")):
    pair(
        f"downgrade-transform-list-same-batch{name}-4.2-4.1",
        "downgrade",
        LISTS,
        LISTS,
        conf=conf,
        versions=("4.2", "4.1"),
        before=MERGED,
    )
pair("downgrade-transform-list-merge-1-4.2-4.1", "downgrade", LISTS, LISTS, conf=MERGE_1, versions=("4.2", "4.1"))
pair("upgrade-limit-3.5-4.2", "upgrade", first_rows(7), first_rows(7), versions=("3.5", "4.2"))
