"""A query with slow batches is not taken for stopped, even if earlier runs have moved away the logs that show it."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttlsnap import (
    LocalEngine,
    StateDescriptor,
    compact,
    doctor,
    export,
    history,
    import_state,
    migrate,
    recover,
    rollback,
)
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.clock import Clock
from ttlsnap.entries.batch import RowEntries
from ttlsnap.errors import BusyError, RefusedError, StorageError
from ttlsnap.publishing import swap as swapping
from ttlsnap.publishing.liveness import longest_gap_ms
from ttlsnap.storage.local import LocalDirectory

from ..compaction.stories import BATCHES, H, T
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..samples import sample
from .idle import ROCKSDB, await_batch
from .trees import copy, newest, tree

SLOW = ["slow-4.2", "slow-rocksdb-4.2"]
"""Batches that are minutes apart: the first two of five, and the only two."""
YOUNG_S, OLD_S = 600, 3600
"""Seconds after which such a query may still run its next batch, and after which this is unlikely."""


class DropsAFifth:
    """A factory whose transformers drop one of five shares of the keys."""

    def __init__(self, share: int) -> None:
        self.share = share

    def create(self, state: StateDescriptor, clock: Clock) -> Any:
        return self

    def filter_or_transform(self, entries: RowEntries) -> Any:
        return entries.filter(np.array([zlib.crc32(key) % 5 != self.share for key in entries.keys.to_list()], np.bool_))


def age(checkpoint: Path, seconds: float) -> None:
    """Make every file this old."""
    then = time.time() - seconds
    for path in checkpoint.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def drop_some(target: Path, *, stopped: bool) -> None:
    for share in range(5):
        report = compact(str(target), [DropsAFifth(share)], max_drop=1.0, engine=LocalEngine(1), stopped=stopped)
        if report.published:
            return
    raise AssertionError("nothing is left to drop")


def repartition(target: Path, *, stopped: bool) -> None:
    partitions = len([path for path in (target / "state/0").iterdir() if path.name.isdigit()])
    assert migrate(str(target), partitions=partitions + 1, stopped=stopped).published


def replace_all(target: Path, *, stopped: bool) -> None:
    rows = target.with_name(f"{target.name}-{time.monotonic_ns()}")
    export(str(target), str(rows))
    assert import_state(str(target), str(rows), mode="replace", stopped=stopped).published


def roll_back(target: Path, *, stopped: bool) -> None:
    rollback(str(target), stopped=stopped)


PUBLISHERS: dict[str, Callable[..., None]] = {
    "compact": drop_some,
    "migrate": repartition,
    "import": replace_all,
    "rollback": roll_back,
}


def migrated(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repartition(target, stopped=True)
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
    (target / "offsets" / str(newest(target / "offsets") + 1)).write_bytes(b"")
    doctor(str(target), fix=["torn-offset"], stopped=True)
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


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("rewrite", [migrated, migrated_twice, rolled_back, imported, repaired, recovered, copied])
def test_a_run_that_moved_logs_away_hides_no_slow_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rewrite: Callable[..., Path]
) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    target = rewrite(sample(name, tmp_path), monkeypatch)
    age(target, YOUNG_S)
    before = tree(target)
    for publish in PUBLISHERS.values():
        with pytest.raises(BusyError, match=r"10 min ago, so the query may be running.*until 1[5-9] min"):
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
    age(target, OLD_S)
    for publish in PUBLISHERS.values():
        with pytest.raises(BusyError, match=r"nothing shows how long.*an earlier version of ttlsnap.*--stopped"):
            publish(target, stopped=False)
    rollback(str(target), stopped=True)
    age(target, OLD_S)
    drop_some(target, stopped=False)  # the logs are back


def test_a_single_batch_is_no_evidence(inputs: Judge, tmp_path: Path) -> None:
    target = copy(inputs.write(Query(), BATCHES[:1]).path, tmp_path / "checkpoint")
    age(target, OLD_S)
    with pytest.raises(BusyError, match="the log has fewer than two batches of Spark"):
        drop_some(target, stopped=False)
    drop_some(target, stopped=True)


def test_damaged_logs_do_not_end_the_search(tmp_path: Path) -> None:
    target = sample("slow-4.2", tmp_path)
    (target / "offsets/0").write_bytes(b"v1\n")
    age(target, OLD_S)
    files = LocalDirectory(str(target))
    assert 0 < (longest_gap_ms(files, read_logs(files)) or 0) < 310_000


@pytest.mark.wide
def test_nothing_is_published_under_a_slow_batch(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    batches = [[Event("k1", T, 25_000)], BATCHES[0]]
    written = judge.write(Query("agg_slow", **ROCKSDB), batches, layout="snapshot")
    repartition(written.path, stopped=True)
    judge.start(written, [])
    batch = newest(written.path / "offsets") + 1
    slow = [Event("k1", T + 5 * H, 75_000), Event("late", T + 5 * H, 1)]
    judge.feed(written, slow)
    begun = written.path / "offsets" / str(batch)
    while not begun.exists() or time.time() - begun.stat().st_mtime < 62:
        time.sleep(0.1)
    before = tree(written.path)
    for publish in PUBLISHERS.values():
        with pytest.raises((BusyError, RefusedError), match=r"may be running|was committed after run"):
            publish(written.path, stopped=False)
    assert tree(written.path) == before
    await_batch(written.path, batch)
    (wanted,) = written.expected.run([slow])
    assert judge.stop(written)[-1].rows == wanted.rows
