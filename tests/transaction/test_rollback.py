"""Rollback restores every byte while the old state is the state of the last committed batch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ttlsnap import RollbackReport, doctor, history, inspect, prune, rollback
from ttlsnap.compaction import plan
from ttlsnap.errors import CorruptionError, RefusedError
from ttlsnap.publishing.swap import swap
from ttlsnap.transaction import rollback as rolling
from ttlsnap.transaction import steps

from ..judge.queries import Query
from ..judge.spark import Judge
from ..publishing.library import compact_with
from ..publishing.stories import BATCHES, LATER
from ..publishing.trees import copy, end_halfway, is_fenced, tree

SNAPSHOTS = ("shot", ".zip")


def roll_back(checkpoint: Path) -> RollbackReport:
    return rollback(str(checkpoint), stopped=True)


@pytest.mark.parametrize("layout", ["deltas", "both"])
def test_rollback_restores_every_byte(inputs: Judge, tmp_path: Path, layout: str) -> None:
    written = inputs.write(Query(), BATCHES, layout=layout, uncommitted=LATER[0])
    checkpoint = end_halfway(copy(written.path, tmp_path / "checkpoint"))
    old = tree(checkpoint)
    compact_with(checkpoint)
    assert tree(checkpoint) != old
    roll_back(checkpoint)
    assert tree(checkpoint) == old
    compact_with(checkpoint)
    roll_back(checkpoint)
    assert tree(checkpoint) == old


def test_rollback_restores_sidecars_and_an_uncommitted_batch(checkpoint: Path) -> None:
    old = tree(checkpoint)
    report = compact_with(checkpoint)
    assert report.published
    gone = old.keys() - tree(checkpoint).keys()
    assert {"state/0/0/3.snapshot.crc", "state/0/0/.3.snapshot.crc.crc"} <= gone
    assert "state/0/0/4.delta" not in gone, "the batch may be running yet, and need it when it commits"
    assert roll_back(checkpoint).undone == report.run
    assert tree(checkpoint) == old


def test_rollback_removes_snapshots_of_a_batch_that_started_since(checkpoint: Path) -> None:
    old = tree(checkpoint)
    compact_with(checkpoint)
    for name in ("4.snapshot", "4.snapshot.crc", "3.snapshot.crc"):
        (checkpoint / "state/0/0" / name).write_bytes(b"computed from the new state")
    roll_back(checkpoint)
    assert tree(checkpoint) == old


@pytest.mark.parametrize("has_begun", [False, True], ids=["leftovers", "begun"])
def test_files_from_before_the_run_do_not_show_that_the_planned_batch_has_begun(
    inputs: Judge, tmp_path: Path, has_begun: bool
) -> None:
    written = inputs.write(Query(), BATCHES, uncommitted=LATER[0])
    checkpoint = end_halfway(copy(written.path, tmp_path / "checkpoint"))
    for name in ("3", ".3.crc"):
        (checkpoint / "offsets" / name).unlink()  # its batch was withdrawn
    left = sorted(checkpoint.glob("state/0/*/4.delta"))
    assert left
    old = tree(checkpoint)
    compact_with(checkpoint)
    if has_begun:
        left[0].write_bytes(left[0].read_bytes() + b"of the planned batch")
    roll_back(checkpoint)
    assert (checkpoint / "offsets/3").exists() == has_begun
    if not has_begun:
        assert tree(checkpoint) == old


def test_rollback_is_refused_after_a_newer_committed_batch(checkpoint: Path) -> None:
    compact_with(checkpoint)
    (checkpoint / "commits/3").write_bytes((checkpoint / "commits/2").read_bytes())
    new = tree(checkpoint)
    with pytest.raises(RefusedError, match="the query has committed batch 3 since"):
        roll_back(checkpoint)
    assert tree(checkpoint) == new


def test_rollback_is_refused_if_a_batch_is_committed_meanwhile(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_and_swap(*args: object, **options: object) -> object:
        (checkpoint / "commits/3").write_bytes((checkpoint / "commits/2").read_bytes())
        new.append(tree(checkpoint))
        return swap(*args, **options)  # type: ignore[arg-type]

    new: list[dict[str, str]] = []
    compact_with(checkpoint)
    monkeypatch.setattr(steps, "swap", commit_and_swap)
    with pytest.raises(
        RefusedError, match=r"committed a batch while ttlsnap worked \(the last batch was 2, now it is 3\)"
    ):
        roll_back(checkpoint)
    assert tree(checkpoint) == new[0]
    assert not is_fenced(checkpoint)


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
def test_a_run_with_a_missing_file_is_reported_and_can_be_rolled_back(
    inputs: Judge, tmp_path: Path, provider: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With HDFS-backed state, Spark would load the old entries of one partition from the deltas."""
    layout = "deltas" if provider == "hdfs" else "snapshot"
    checkpoint = inputs.write(Query(provider=provider), BATCHES, layout=layout).path
    old = tree(checkpoint)
    report = compact_with(checkpoint)
    new = tree(checkpoint)
    changed = {path for path, content in new.items() if old.get(path) != content}
    removed = max(path for path in changed if path.startswith("state/0/1/") and path[-4:] in SNAPSHOTS)
    (checkpoint / removed).unlink()
    words = f"{removed} is missing, although run {report.run} published it"
    assert words in inspect(str(checkpoint)).warnings[0]
    found = doctor(str(checkpoint))
    assert "published-file-missing" in {problem.code for problem in found.problems}
    assert found.exit_code == 1
    with pytest.raises(CorruptionError, match=f"{words}.*ttlsnap copy BACKUP .*ttlsnap rollback"):
        compact_with(checkpoint)
    roll_back(checkpoint)
    assert tree(checkpoint) == old
    assert doctor(str(checkpoint)).exit_code == 0
    assert not inspect(str(checkpoint)).warnings


def test_a_run_cannot_be_rolled_back_twice(checkpoint: Path) -> None:
    with pytest.raises(RefusedError, match="no run to roll back"):
        roll_back(checkpoint)
    compact_with(checkpoint)
    roll_back(checkpoint)
    old = tree(checkpoint)
    with pytest.raises(RefusedError, match="no run to roll back"):
        roll_back(checkpoint)
    assert tree(checkpoint) == old


def test_the_next_run_removes_the_backup(checkpoint: Path) -> None:
    first = compact_with(checkpoint, hours=3)
    between = tree(checkpoint)
    second = compact_with(checkpoint)
    assert {entry.run: entry.backup for entry in history(str(checkpoint))} == {first.run: False, second.run: True}
    roll_back(checkpoint)
    assert tree(checkpoint) == between
    with pytest.raises(RefusedError, match="no run to roll back"):
        roll_back(checkpoint)


def test_pruning_removes_the_backup(checkpoint: Path) -> None:
    run = compact_with(checkpoint).run
    new = tree(checkpoint)
    assert prune(str(checkpoint)) == [run]
    assert prune(str(checkpoint)) == []
    with pytest.raises(RefusedError, match=r"backup of run .* was removed"):
        roll_back(checkpoint)
    assert tree(checkpoint) == new


def test_rollback_is_refused_if_the_backup_lacks_a_file(checkpoint: Path) -> None:
    run = compact_with(checkpoint).run
    (checkpoint / f"_ttlsnap/runs/{run}/backup/state/0/1/.3.snapshot.crc").unlink()
    new = tree(checkpoint)
    with pytest.raises(RefusedError, match=r"backup of run .* was removed"):
        roll_back(checkpoint)
    assert tree(checkpoint) == new


def test_rollback_undoes_the_last_run_even_if_the_clock_was_set_back(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(f"20230101T0000{second:02}Z-abcdef" for second in range(9, 0, -1))
    monkeypatch.setattr(plan, "new_run_id", lambda: next(names))
    monkeypatch.setattr(rolling, "new_run_id", lambda: next(names))
    compact_with(checkpoint, hours=3)
    between = tree(checkpoint)
    compact_with(checkpoint)
    roll_back(checkpoint)
    assert tree(checkpoint) == between
    with pytest.raises(RefusedError, match="no run to roll back"):
        roll_back(checkpoint)


def test_runs_are_known_although_the_clock_was_ahead_during_an_earlier_one(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plan, "new_run_id", lambda: "20990101T000000Z-abcdefabcdef")
        compact_with(checkpoint, hours=3)
    journal = checkpoint / "_ttlsnap/runs/20990101T000000Z-abcdefabcdef/journal.json"
    journal.write_text(journal.read_text().replace('"batch": 2', '"batch": 0'))
    for log in ("offsets/0", "commits/0", "offsets/3"):  # Spark removes old logs, and here the planned batch is gone
        for path in checkpoint.glob(log.replace("/", "/*")):
            path.unlink()
    between = tree(checkpoint)
    compact_with(checkpoint)
    assert "offsets/3" in tree(checkpoint)
    roll_back(checkpoint)
    assert tree(checkpoint) == between


def test_rollback_is_refused_if_the_query_may_be_running(checkpoint: Path) -> None:
    compact_with(checkpoint)
    new = tree(checkpoint)
    os.utime(checkpoint / "offsets/3")
    with pytest.raises(RefusedError, match=r"batch 3 was started but is not committed"):
        rollback(str(checkpoint))
    assert tree(checkpoint) == new


def test_rollback_refuses_a_backup_that_is_not_the_old_file(checkpoint: Path) -> None:
    # The size is the same, so only the digest shows it.
    run = compact_with(checkpoint).run
    backup = checkpoint / f"_ttlsnap/runs/{run}/backup/state/0/0/3.snapshot"
    backup.write_bytes(bytes(byte ^ 1 for byte in backup.read_bytes()))
    new = tree(checkpoint)
    with pytest.raises(RefusedError, match=rf"{backup} is not the file that run {run} replaced .*Nothing was changed"):
        roll_back(checkpoint)
    assert tree(checkpoint) == new


def test_a_run_whose_journal_does_not_identify_the_old_files_is_rolled_back(checkpoint: Path) -> None:
    old = tree(checkpoint)
    run = compact_with(checkpoint).run
    journal = checkpoint / f"_ttlsnap/runs/{run}/journal.json"
    document = json.loads(journal.read_text())
    assert document.pop("replaced")
    journal.write_text(json.dumps(document))
    roll_back(checkpoint)
    assert tree(checkpoint) == old
