"""A query with slow batches is not taken for stopped, even if earlier runs have moved away the logs that show it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from ttlsnap import (
    history,
    migrate,
    recover,
    rollback,
)
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.errors import BusyError, RefusedError, StorageError
from ttlsnap.publishing import swap as swapping
from ttlsnap.publishing.liveness import longest_gap_ms
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory

from ..compaction.stories import BATCHES, H, T
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..matrix import rotating
from ..samples import sample
from .idle import ROCKSDB, await_batch
from .publishers import (
    PUBLISHERS,
    age,
    drop_some,
    remove_plan,
    repair,
    repartition,
    replace_all,
    roll_back,
    tear_offsets,
)
from .trees import copy, newest, tree

pytestmark = pytest.mark.slow

SLOW = ["slow-4.2", "slow-rocksdb-4.2"]
"""Batches that are minutes apart: the first two of five, and the only two."""
YOUNG_S, OLD_S = 600, 3600
"""Seconds after which such a query may still run its next batch, and after which this is unlikely."""


def migrated(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repartition(target, stopped=True)
    remove_plan(target)
    return target


def migrated_twice(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return migrated(migrated(target, monkeypatch), monkeypatch)


def rolled_back(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The last run must be one that a rollback can undo.
    drop_some(target, stopped=True)
    roll_back(migrated(target, monkeypatch), stopped=True)
    drop_some(target, stopped=True)
    return target


def imported(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    replace_all(migrated(target, monkeypatch), stopped=True)
    return target


def repaired(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tear_offsets(target)
    repair(target, stopped=True)
    return migrated(target, monkeypatch)


def recovered(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(swapping, "replace_fence", fail)
        with pytest.raises(StorageError, match="ttlsnap recover"):
            repartition(target, stopped=True)
    assert recover(str(target)).outcome != "nothing"
    return target


def copied(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = target.with_name("made")
    migrate(str(migrated(target, monkeypatch)), partitions=5, output=str(made), stopped=True)
    return migrated(made, monkeypatch)


REWRITES = [migrated, migrated_twice, rolled_back, imported, repaired, recovered, copied]


@pytest.mark.parametrize(("name", "rewrite"), rotating(list(product(SLOW, REWRITES)), 4, "moved logs"))
def test_a_run_that_moved_logs_away_hides_no_slow_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rewrite: Callable[..., Path]
) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    target = rewrite(sample(name, tmp_path), monkeypatch)
    remove_plan(target)  # which a query may be running, however old the files are
    age(target, YOUNG_S)
    before = tree(target)
    for publish in PUBLISHERS.values():
        with pytest.raises(BusyError, match=r"10 min ago, so the query may be running.*or without it in [5-9] min"):
            publish(target, stopped=False)
        assert tree(target) == before
    for number, publish in enumerate(PUBLISHERS.values()):
        old = copy(target, tmp_path / f"old-{number}")
        age(old, OLD_S)
        publish(old, stopped=False)
        assert len(history(str(old))) == len(history(str(target))) + 1


def test_logs_that_an_earlier_version_has_moved_away_leave_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    target = migrated(sample("agg-deltas-lz4-4.2", tmp_path), monkeypatch)
    (journal,) = target.glob("_ttlsnap/runs/*/journal.json")
    document = json.loads(journal.read_text())
    assert document.pop("longest_gap_ms") > 5000
    journal.write_text(json.dumps(document))
    remove_plan(target)
    age(target, OLD_S)
    for publish in PUBLISHERS.values():
        with pytest.raises(BusyError, match=r"nothing shows how long.*an earlier version of ttlsnap.*stopped=True"):
            publish(target, stopped=False)
    rollback(str(target), stopped=True)
    age(target, OLD_S)
    drop_some(target, stopped=False)  # the logs are back


def test_a_single_batch_is_no_evidence(inputs: Judge, tmp_path: Path) -> None:
    target = copy(inputs.write(Query(), BATCHES[:1]).path, tmp_path / "checkpoint")
    age(target, YOUNG_S / 100)
    with pytest.raises(BusyError, match=r"the query may be running\. .* stopped=True$"):  # waiting never helps
        drop_some(target, stopped=False)
    age(target, OLD_S)
    with pytest.raises(BusyError, match="the log has fewer than two batches of Spark"):
        drop_some(target, stopped=False)
    drop_some(target, stopped=True)


def test_damaged_logs_do_not_end_the_search(tmp_path: Path) -> None:
    target = sample("slow-4.2", tmp_path)
    (target / "offsets/0").write_bytes(b"v1\n")
    age(target, OLD_S)
    files = LocalDirectory(str(target))
    assert 0 < (longest_gap_ms(Runs.read(files), read_logs(files)) or 0) < 310_000


@pytest.mark.wide
def test_nothing_is_published_under_a_slow_batch(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    batches = [[Event("k1", T, 25_000)], BATCHES[0]]
    written = judge.write(Query("agg_slow", **ROCKSDB), batches, layout="snapshot")
    repartition(written.path, stopped=True)
    judge.start(written, [])
    batch = newest(written.path / "offsets") + 1
    slow = [Event("k1", T + 5 * H, 30_000), Event("late", T + 5 * H, 1)]
    judge.feed(written, slow)
    begun = written.path / "offsets" / f".{batch}.crc"  # Spark renames the checksum after its file
    while not begun.exists():
        time.sleep(0.1)
    age(written.path, OLD_S)
    before = tree(written.path)
    for publish in PUBLISHERS.values():
        with pytest.raises((BusyError, RefusedError), match=r"may be running|has committed batch"):
            publish(written.path, stopped=False)
    assert tree(written.path) == before
    await_batch(written.path, batch)
    (wanted,) = written.expected.run([slow])
    assert judge.stop(written)[-1].rows == wanted.rows
