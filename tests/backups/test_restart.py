"""Real Spark restarts on checkpoints that were restored in place, also when a query was idle then."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap import diff, migrate, rollback
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.positions.rewinding import rewind
from ttlsnap.storage.open import open_directory

from ..compaction.stories import MORE_WHOLE, WHOLE, rocksdb, settled
from ..copies.queries import QUERIES
from ..judge.outcomes import Batch
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import narrow
from ..publishing.idle import ends_untouched


def numbered_from(batches: list[Batch], first: int) -> list[Batch]:
    """Return batches with other numbers."""
    return [replace(batch, batch=first + number) for number, batch in enumerate(batches)]


@pytest.mark.parametrize("query", narrow(QUERIES, 0, 1), ids=lambda query: f"{query.operator}-{query.provider}")
def test_a_query_goes_on_from_its_backup(judge: Judge, tmp_path: Path, query: Query) -> None:
    checkpoint = judge.write(query, WHOLE, layout="snapshot")
    backup, clone = tmp_path / "backup", judge.at(checkpoint, tmp_path / "clone")
    copy(str(checkpoint.path), str(backup))
    if checkpoint.out.exists():
        clone.out = Path(shutil.copytree(checkpoint.out, tmp_path / "out"))
    before = judge.restart(checkpoint, MORE_WHOLE)
    copy(str(backup), str(clone.path), new_id=True)
    report = copy(str(backup), str(checkpoint.path), replace=True, stopped=True)
    assert report.batch > report.source_batch
    planned, *found = judge.restart(checkpoint, [])
    wanted = judge.restart(clone, MORE_WHOLE)
    assert (planned.batch, planned.rows) == (report.batch + 1, ())
    assert before and found == numbered_from(wanted, report.batch + 2)
    assert diff(str(checkpoint.path), str(clone.path)).differs is False


@pytest.mark.wide
@pytest.mark.parametrize("query", narrow(QUERIES, 1, 0), ids=lambda query: f"{query.operator}-{query.provider}")
def test_a_query_goes_on_from_an_earlier_batch(judge: Judge, tmp_path: Path, query: Query) -> None:
    checkpoint = judge.write(query, WHOLE, layout="snapshot")
    clone = judge.at(checkpoint, tmp_path / "clone")
    if checkpoint.out.exists():
        clone.out = Path(shutil.copytree(checkpoint.out, tmp_path / "out"))
    copied = copy(str(checkpoint.path), str(clone.path), new_id=True)
    before = judge.restart(checkpoint, MORE_WHOLE)
    report = rewind(str(checkpoint.path), copied.batch, stopped=True)
    assert report.batch > report.source_batch == copied.batch
    planned, *found = judge.restart(checkpoint, [])
    wanted = judge.restart(clone, MORE_WHOLE)
    assert (planned.batch, planned.rows) == (report.batch + 1, ())
    assert before and found == numbered_from(wanted, report.batch + 2)
    assert diff(str(checkpoint.path), str(clone.path)).differs is False


@pytest.mark.parametrize(
    ("query", "rewinds"),
    narrow(
        [
            (rocksdb("agg_update", changelog=True), False),
            (Query("agg_update"), True),
            (rocksdb("visits", changelog=False, checkpoint_format=2), False),
            (rocksdb("visits", changelog=False, checkpoint_format=2), True),
        ]
    ),
    ids=str,
)
def test_an_idle_query_stops_and_its_successor_reads_again_what_came_after_the_backup(
    judge: Judge, tmp_path: Path, query: Query, rewinds: bool
) -> None:
    deltas = query.provider == "hdfs" or query.changelog
    checkpoint = judge.write(query, WHOLE[:-2], layout="deltas" if deltas else "snapshot")
    backup, clone = tmp_path / "backup", judge.at(checkpoint, tmp_path / "clone")
    batch = copy(str(checkpoint.path), str(backup)).batch
    judge.start(checkpoint, WHOLE[-2:])
    settled(checkpoint.path)
    if rewinds:
        report = rewind(str(checkpoint.path), batch, stopped=True)
    else:
        report = copy(str(backup), str(checkpoint.path), replace=True, stopped=True)
    ends_untouched(judge, checkpoint, list(MORE_WHOLE[0]))
    judge.restart(checkpoint, MORE_WHOLE[1:])
    copy(str(backup), str(clone.path), new_id=True)
    # The log of the source had the new file already.
    judge.restart(clone, [MORE_WHOLE[0], *WHOLE[-2:], *MORE_WHOLE[1:]])
    assert diff(str(checkpoint.path), str(clone.path)).differs is False
    for work in (
        lambda: copy(str(backup), str(checkpoint.path), replace=True, stopped=True),
        lambda: migrate(str(checkpoint.path), settings={"codec": "zstd"}, stopped=True),
    ):
        work()
        # A query that is idle since before the first restore still finds its next batch taken, though it was run.
        assert report.batch + 1 in read_logs(open_directory(str(checkpoint.path))).blocked
        rollback(str(checkpoint.path), stopped=True)
        assert diff(str(checkpoint.path), str(clone.path)).differs is False
