"""ttlsnap does not treat files as its own that others wrote during a run or after it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import prune, recover, rollback
from ttlsnap.cli.app import run
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.publishing import moves
from ttlsnap.publishing import swap as swapping
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.open import open_directory
from ttlsnap.transaction import steps

from ..compaction.stories import BATCHES as EVENTS
from ..compaction.stories import MORE, drop_expired, settled
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from .commands import Commands
from .faults import KILL, Point, Workshop
from .interventions import put_zips_back
from .library import compact_with
from .stories import compact
from .trees import end_halfway, is_fenced, tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW = "state/0/1/3.snapshot"


def write_over(path: Path) -> None:
    """Replace a file with another one of the same length."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def test_rollback_refuses_a_published_file_that_differs(checkpoint: Path) -> None:
    run = compact_with(checkpoint).run
    write_over(checkpoint / NEW)
    found = tree(checkpoint)
    with pytest.raises(RefusedError, match=rf"{NEW} is not the file that run {run} published"):
        rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == found


def test_rollback_accepts_published_files_with_other_times(checkpoint: Path) -> None:
    old = tree(checkpoint)
    compact_with(checkpoint)
    for path in checkpoint.rglob("*"):
        os.utime(path)
    rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == old


def test_recover_refuses_to_finish_a_run_with_a_file_that_differs(
    commands: Commands, rich: Checkpoint, tmp_path: Path
) -> None:
    workshop = Workshop(commands, tmp_path)
    step = workshop.step("compact", rich.path, compact)
    moves = [call for call in step.calls if call.name == "rename" and call.path.endswith("/3.snapshot")]
    path, _ = workshop.cut(step, Point(moves[-1], KILL))
    new = next(place for place in (path / "state/0/0/3.snapshot", path / NEW) if place.exists())
    write_over(new)
    found = tree(path)
    with pytest.raises(RefusedError, match=rf"{new} is not the file that run .* wrote .* --undo"):
        recover(str(path))
    assert is_fenced(path) and tree(path) == found
    foreign = new.read_bytes()
    (warning,) = recover(str(path), prefer_undo=True).warnings
    assert tree(path) == step.old
    assert foreign in [kept.read_bytes() for kept in (path / "_ttlsnap").rglob("3.snapshot")], warning


@pytest.mark.parametrize("change", ["state/0/1/.5.delta.x.tmp", "state/0/0/9.delta"])
def test_a_query_that_restarts_during_a_run_is_detected(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    # The query's batch was planned before the run, so the logs do not change.
    check = swapping.refuse_if_changed

    def restart(*args: Any, **options: Any) -> None:
        (checkpoint / change).write_bytes(b"half")
        check(*args, **options)

    old = tree(checkpoint)
    monkeypatch.setattr(steps, "refuse_if_changed", restart)
    with pytest.raises(BusyError, match=rf"{change} changed while ttlsnap worked"):
        compact_with(checkpoint)
    (checkpoint / change).unlink()
    assert tree(checkpoint) == old


def test_a_run_is_undone_if_a_published_snapshot_is_overwritten_at_once(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Maintenance of an idle query had begun to write the snapshot before publishing began.
    apply = moves.apply

    def apply_and_write(files: Any, journal: Any) -> None:
        apply(files, journal)
        (checkpoint / NEW).write_bytes(b"by maintenance")

    old = tree(checkpoint)
    monkeypatch.setattr(swapping, "apply", apply_and_write)
    with pytest.raises(BusyError, match=rf"{NEW} was overwritten just after"):
        compact_with(checkpoint)
    assert tree(checkpoint) == old


def test_a_leftover_snapshot_moves_to_the_backup_in_all_partitions(inputs: Judge, tmp_path: Path) -> None:
    # This includes partitions without dropped entries: the batch runs again on another state, and writes only deltas.
    written = inputs.write(Query("windows_of_windows", delay_s=7200), EVENTS, layout="deltas", uncommitted=MORE[0])
    settled(written.path)
    version = len(list((written.path / "commits").glob("[0-9]*"))) + 1
    end_halfway(written.path)  # the last partition of the first operator
    left = [written.path / f"state/{folder}/{version}.snapshot" for folder in ("0/0", "1/0", "1/1")]
    for path in left:
        path.write_bytes(path.with_suffix(".delta").read_bytes())
    old = tree(written.path)
    assert drop_expired(written.path, Query("agg_append")).published
    assert not [path for path in left if path.exists()]
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == old


@pytest.mark.parametrize("rewrite", ["full", "tombstones"])
def test_a_compaction_leaves_the_old_tables_in_place(inputs: Judge, rewrite: Any) -> None:
    written = inputs.write(Query(provider="rocksdb"), EVENTS, layout="snapshot")
    old = tree(written.path)
    tables = [path for path in old if "/SSTs/" in path]
    run = drop_expired(written.path, written.query, rewrite=rewrite).run
    assert tables and all((written.path / path).exists() for path in tables)
    # Spark's maintenance removes tables that no snapshot names. The backup still has them.
    backup = written.path / f"_ttlsnap/runs/{run}/backup"
    orphans = [path.relative_to(backup) for path in backup.glob("state/0/*/SSTs/*")]
    assert bool(orphans) == (rewrite == "full")
    for path in orphans:
        (written.path / path).unlink()
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == old


def test_doctor_restores_a_table_that_only_a_backup_has(judge: Judge, capsys: pytest.CaptureFixture[str]) -> None:
    # Somebody has put the old zips back by hand, and Spark's maintenance has removed the tables that no zip named.
    written = judge.write(Query(provider="rocksdb"), EVENTS, layout="snapshot")
    run_id = drop_expired(written.path, written.query, rewrite="full").run
    put_zips_back(written.path, run_id)
    target = str(written.path)
    with pytest.raises(RefusedError, match="The only copy is in the backup"):
        prune(target)
    assert run(["doctor", target]) == 1
    told = capsys.readouterr().out
    assert "table-in-backup" in told and "published-file-damaged" not in told
    assert run(["doctor", target, "--fix", "table-in-backup", "--stopped"]) == 0, capsys.readouterr()
    assert run(["doctor", target]) == 0, capsys.readouterr().out
    assert run_id in prune(target)
    assert run(["doctor", target]) == 0
    model = written.expected
    assert judge.restart(written, MORE, fresh=True) == model.run(MORE)


def test_a_query_of_this_application_is_detected_in_every_thread(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.newSession().readStream.format("rate").load().groupBy("value").count()
    query = (
        rows.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(tmp_path / "ck")).start()
    )
    told: list[Exception] = []

    def look() -> None:
        try:
            refuse_if_running(Runs.read(open_directory(str(tmp_path / "ck"))), query.id, stopped=True)
        except BusyError as error:
            told.append(error)

    try:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert "is running in this Spark application" in str(told[0])
    finally:
        query.stop()
    refuse_if_running(Runs.read(open_directory(str(tmp_path / "ck"))), query.id, stopped=True)
