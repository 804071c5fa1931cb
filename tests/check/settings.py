"""Pairs of one query under two settings."""

from __future__ import annotations

from typing import Any

from .effects import pinned, written
from .pair import (
    AVRO,
    BOTH_KEYS,
    BY_USER,
    CLOSING_BOTH,
    HDFS,
    JOINED,
    KEEPS,
    NEAR,
    ONCE_EACH,
    ROCKSDB,
    STEPS,
    Conf,
    pair,
)
from .queries import Query, join

STORE = "spark.sql.streaming.stateStore."
ROCKS = STORE + "rocksdb."
CHANGELOG, FORMAT = ROCKS + "changelogCheckpointing.enabled", STORE + "checkpointFormatVersion"


def changed(
    name: str, change: str, query: Query, setting: str, old: str, new: str, conf: Conf | None = None, **rest: Any
) -> None:
    """Enter a pair for a setting that Spark writes to the offset log, which shows whether it took effect."""
    rest.setdefault("effect", pinned(setting, new))
    pair("set-" + name, change, query, query, conf={**(conf or {}), setting: old}, now={setting: new}, **rest)


HDFS_CLASS, ROCKSDB_CLASS = HDFS[STORE + "providerClass"], ROCKSDB[STORE + "providerClass"]
changed("provider-to-rocksdb", "provider", BY_USER, STORE + "providerClass", HDFS_CLASS, ROCKSDB_CLASS)
changed("provider-to-hdfs", "provider", BY_USER, STORE + "providerClass", ROCKSDB_CLASS, HDFS_CLASS)
changed("provider-to-rocksdb-join", "provider", JOINED, STORE + "providerClass", HDFS_CLASS, ROCKSDB_CLASS)
changed("provider-to-hdfs-pandas", "provider", STEPS, STORE + "providerClass", ROCKSDB_CLASS, HDFS_CLASS)
changed("provider-to-hdfs-transform", "provider", KEEPS, STORE + "providerClass", ROCKSDB_CLASS, HDFS_CLASS)
changed("partitions-more", "partitions", BY_USER, "spark.sql.shuffle.partitions", "2", "4")
changed("partitions-fewer", "partitions", ONCE_EACH, "spark.sql.shuffle.partitions", "3", "1")
changed("partitions-rocksdb", "partitions", KEEPS, "spark.sql.shuffle.partitions", "2", "3", ROCKSDB)
changed("codec-zstd", "codec", BY_USER, STORE + "compression.codec", "lz4", "zstd")
changed("codec-snappy", "codec", JOINED, STORE + "compression.codec", "zstd", "snappy")
changed("encoding-avro", "encoding", BY_USER, STORE + "encodingFormat", "unsaferow", "avro", ROCKSDB)
changed("encoding-unsaferow-transform", "encoding", KEEPS, STORE + "encodingFormat", "avro", "unsaferow", ROCKSDB)
changed("encoding-avro-transform", "encoding", KEEPS, STORE + "encodingFormat", "unsaferow", "avro", ROCKSDB)
changed("encoding-avro-on-hdfs", "encoding", BY_USER, STORE + "encodingFormat", "unsaferow", "avro")
changed("row-checksum-on", "row checksum", BY_USER, STORE + "rowChecksum.enabled", "false", "true")
changed("row-checksum-off", "row checksum", BY_USER, STORE + "rowChecksum.enabled", "true", "false")
changed("row-checksum-on-rocksdb", "row checksum", ONCE_EACH, STORE + "rowChecksum.enabled", "false", "true", ROCKSDB)
changed("merge-operator", "rocksdb format", KEEPS, ROCKS + "mergeOperatorVersion", "1", "2", ROCKSDB)
changed("merge-operator-older", "rocksdb format", KEEPS, ROCKS + "mergeOperatorVersion", "2", "1", ROCKSDB)
changed("rocksdb-format", "rocksdb format", BY_USER, ROCKS + "formatVersion", "5", "4", ROCKSDB)
changed(
    "aggregation-format-1", "state format", BOTH_KEYS, "spark.sql.streaming.aggregation.stateFormatVersion", "2", "1"
)
changed(
    "aggregation-format-2", "state format", BOTH_KEYS, "spark.sql.streaming.aggregation.stateFormatVersion", "1", "2"
)
changed("join-format-1", "join format", NEAR, "spark.sql.streaming.join.stateFormatVersion", "2", "1")
changed("join-format-3", "join format", NEAR, "spark.sql.streaming.join.stateFormatVersion", "2", "3", ROCKSDB)
changed("join-format-3-to-2", "join format", NEAR, "spark.sql.streaming.join.stateFormatVersion", "3", "2", ROCKSDB)
changed(
    "pandas-format-1", "state format", STEPS, "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion", "2", "1"
)
UNEVEN = join(["amount"], ["amount"], within=60, delays=(60, 30))
changed(
    "watermark-policy",
    "watermark policy",
    UNEVEN,
    "spark.sql.streaming.multipleWatermarkPolicy",
    "min",
    "max",
    after=CLOSING_BOTH,
    rows=[(20, 30), (1, 20), (5, 8)],
)

# No log records these settings, but the state files show some of them.
changed("changelog-on", "changelog", BY_USER, CHANGELOG, "false", "true", ROCKSDB, effect=written(".changelog"))
changed("changelog-off", "changelog", BY_USER, CHANGELOG, "true", "false", ROCKSDB, effect=written(".zip"))
changed("changelog-off-transform", "changelog", KEEPS, CHANGELOG, "true", "false", ROCKSDB, effect=written(".zip"))
changed("checkpoint-format-2", "checkpoint format", BY_USER, FORMAT, "1", "2", ROCKSDB, effect=None)
changed("checkpoint-format-1", "checkpoint format", BY_USER, FORMAT, "2", "1", ROCKSDB, effect=None)
changed(
    "checkpoint-format-2-changelog",
    "checkpoint format",
    ONCE_EACH,
    FORMAT,
    "1",
    "2",
    {**ROCKSDB, CHANGELOG: "true"},
    effect=None,
)
changed("checkpoint-format-2-hdfs", "checkpoint format", BY_USER, FORMAT, "1", "2", effect=None)
changed("schema-check-off", "schema check", BY_USER, STORE + "stateSchemaCheck", "true", "false", effect=None)
changed("schema-check-off-avro", "schema check", KEEPS, STORE + "stateSchemaCheck", "true", "false", AVRO, effect=None)
