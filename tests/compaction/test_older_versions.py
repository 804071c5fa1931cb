"""Checkpoints of older versions of Spark, each restarted by itself and by 4.2: a thin slice, or all of it (the matrix).

In one file, so that one process alone has to start those versions.
"""

from __future__ import annotations

from itertools import product

import pytest

from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Judge
from .stories import LAYOUTS, Story, copies_lists, rocksdb, tell
from .test_matrix import CODECS, FULL, OPERATORS

SLICE = [("agg_append", "zstd", ("both",)), ("dedup", "snappy", ("snapshot",))]
OLDER = list(product(OPERATORS, CODECS, [LAYOUTS])) if FULL else SLICE


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_the_hdfs_backed_store(judge: Judge, version: str) -> None:
    tell(
        judge,
        *(
            Story(Query(operator, codec=codec), layouts, written_by=version, restarted_by=(version, NEWEST))
            for operator, codec, layouts in OLDER
        ),
    )


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"])
def test_rocksdb(judge: Judge, version: str) -> None:
    again = (version, NEWEST)
    if FULL:
        formats = (1, 2) if version == "4.1" else (1,)
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
        "4.0": Story(rocksdb("agg_append", True), ("deltas",), version, again),
        "4.1": Story(rocksdb("agg_update", True, 2), ("deltas",), version, again),
    }
    tell(judge, slices[version])


@pytest.mark.parametrize(("version", "layout"), [("4.1", "both"), ("4.0", "snapshot")])
def test_transform_with_state(judge: Judge, version: str, layout: str) -> None:
    copies_lists(judge, rocksdb("visits", True), layout, version)
