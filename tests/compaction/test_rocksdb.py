"""Spark is the judge of RocksDB checkpoints: every layout, with and without row checksums, in both ways of writing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ..judge.processes import NEWEST
from ..judge.spark import Judge
from .stories import ROCKSDB_CONF, Story, rocksdb, tell
from .test_matrix import FULL

OPERATORS = ("agg_update", "agg_append", "dedup")


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("row_checksum", [False, True])
def test_spark_goes_on_after_a_compaction(judge: Judge, operator: str, row_checksum: bool) -> None:
    tell(
        judge,
        Story(rocksdb(operator, False, 1, row_checksum), ("snapshot",)),
        Story(rocksdb(operator, True, 1, row_checksum)),
        Story(rocksdb(operator, False, 2, row_checksum), ("snapshot",)),
        Story(rocksdb(operator, True, 2, row_checksum)),
    )


def test_other_settings(judge: Judge) -> None:
    """Newer tables, changelogs with another codec, and a Spark that does not count."""
    settings = [("formatVersion", "6"), ("trackTotalNumberOfRows", "false")]
    conf = tuple((ROCKSDB_CONF + name, value) for name, value in settings)
    query = replace(rocksdb("agg_update", True), codec="zstd", conf=conf)
    tell(judge, Story(query, ("both",)))


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_checkpoints_of_older_versions(judge: Judge, version: str) -> None:
    again = (version, NEWEST)
    if FULL:
        formats = (1,) if version == "3.5" else (1, 2)
        tell(
            judge,
            *(
                Story(
                    rocksdb(operator, changelog, number),
                    ("snapshot", "deltas", "both") if changelog else ("snapshot",),
                    version,
                    again,
                )
                for operator in OPERATORS
                for number in formats
                for changelog in (False, True)
            ),
        )
        return
    slices = {
        "3.5": Story(rocksdb("dedup", True), ("both",), version, again),
        "4.0": Story(rocksdb("agg_append", True, 2), ("deltas",), version, again),
        "4.1": Story(rocksdb("agg_update", False), ("snapshot",), version, again),
    }
    tell(judge, slices[version])
