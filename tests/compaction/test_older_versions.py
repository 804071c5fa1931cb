"""Checkpoints of older versions of Spark, each restarted by itself and by 4.2: a thin slice, or all of the matrix.

These tests are in one file, so that only one process has to start those versions.
"""

from __future__ import annotations

from itertools import product

import pytest

from ttlsnap.errors import UnsupportedError

from ..judge.processes import NEWEST
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import BATCHES, CODECS, LAYOUTS, OPERATORS, Story, copies_lists, drop_expired, rocksdb, settled, tell

pytestmark = pytest.mark.wide  # other versions of Spark

SLICE = [("dedup", "snappy", ("snapshot",))]
EVERYTHING = list(product(OPERATORS, CODECS, [LAYOUTS]))


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"] if FULL else ["3.5"])
def test_an_hdfs_backed_store_resumes(judge: Judge, version: str) -> None:
    tell(
        judge,
        *(
            Story(Query(operator, codec=codec), layouts, version, (version, NEWEST))
            for operator, codec, layouts in (EVERYTHING if FULL else SLICE)
        ),
    )


@pytest.mark.parametrize("version", ["3.5", "4.0", "4.1"] if FULL else ["4.1"])
def test_a_rocksdb_store_resumes(judge: Judge, version: str) -> None:
    again = (version, NEWEST)
    if FULL:
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
                for number in ((1, 2) if version == "4.1" else (1,))
                for changelog in (False, True)
            ),
        )
        if version == "4.0":
            tell(judge, *(_of_4_0(operator) for operator in OPERATORS))
        return
    tell(judge, Story(rocksdb("agg_update", True, 2), ("deltas",), version, ("4.1",)))


def _of_4_0(operator: str) -> Story:
    """Return a story of format 2 for Spark 4.0 alone: it reads only its own zips, and no other version reads them."""
    return Story(rocksdb(operator, True, 2), ("snapshot", "both") if FULL else ("both",), "4.0", ("4.0",))


if FULL:  # each costs a while

    def test_a_run_warns_that_only_4_0_reads_the_result(inputs: Judge) -> None:
        written = inputs.write(rocksdb("agg_append", True, 2), BATCHES, layout="both", version="4.0")
        settled(written.path)
        (warning,) = drop_expired(written.path, written.query).warnings
        assert warning.startswith("only Spark 4.0 reads the snapshots of this checkpoint")

    def test_a_checkpoint_of_4_0_without_a_zip_is_refused(inputs: Judge) -> None:
        written = inputs.write(rocksdb("agg_append", True, 2), BATCHES, layout="deltas", version="4.0")
        before = settled(written.path)
        with pytest.raises(UnsupportedError, match="until its maintenance has written one"):
            drop_expired(written.path, written.query)
        assert settled(written.path) == before

    @pytest.mark.parametrize(("version", "layout"), [("4.0", "snapshot"), ("4.1", "both")])
    def test_lists_of_a_processor_are_copied(judge: Judge, version: str, layout: str) -> None:
        copies_lists(judge, rocksdb("visits", True), layout, version)
