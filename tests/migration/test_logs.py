"""The logs that a migration leaves: each batch that a query can still read has the new settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import migrate, rollback
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import PROVIDER, SHUFFLE_PARTITIONS

from ..samples import bytes_of, sample, without_own

AGG = "agg-deltas-lz4-4.2"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(autouse=True)
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust the placement of few keys, which the samples have."""
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)


def conf_of(target: Path) -> dict[int, dict[str, str]]:
    """Return the settings of each batch in the offset log."""
    paths = [path for path in (target / "offsets").iterdir() if path.name.isdecimal()]
    return {int(path.name): json.loads(path.read_text().splitlines()[1])["conf"] for path in paths}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [({"partitions": 3}, {SHUFFLE_PARTITIONS: "3"}), ({"provider": "rocksdb"}, {PROVIDER: ROCKSDB})],
)
def test_every_batch_that_is_left_has_the_new_settings(
    tmp_path: Path, changes: dict[str, Any], wanted: dict[str, str]
) -> None:
    target = sample(AGG, tmp_path)
    before = bytes_of(target)
    old = conf_of(target)
    migrate(str(target), stopped=True, **changes)
    # The batch before the last one is read when a query restarts after the last one, and batch 7 is planned.
    new = conf_of(target)
    assert set(new) == {5, 6, 7}
    assert all(conf == {**old[6], **wanted} for conf in new.values())
    assert [path.name for path in (target / "commits").iterdir() if path.name.isdecimal()] == ["6"]
    rollback(str(target), stopped=True)
    assert without_own(bytes_of(target)) == before


def test_the_planned_batch_reads_nothing(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    migrate(str(target), partitions=3, stopped=True)
    (_, last, *offsets), (_, planned, *same) = ((target / f"offsets/{n}").read_text().splitlines() for n in (6, 7))
    assert offsets == same
    times = [json.loads(text)["batchTimestampMs"] for text in (last, planned)]
    assert times[0] == times[1]


def test_the_numbers_that_a_restore_has_blocked_stay_taken(tmp_path: Path) -> None:
    """A query that was idle at batch 6 would begin batch 7, and go on with the state in its memory."""
    target, backup = sample(AGG, tmp_path), tmp_path / "backup"
    copy(str(target), str(backup))
    copy(str(backup), str(target), replace=True, last_batch=20, stopped=True)
    migrate(str(target), partitions=3, stopped=True)
    assert sorted(conf_of(target)) == [*range(7, 22)]
