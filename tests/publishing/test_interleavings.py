"""Interleavings that the model of the protocol (``protocol/``) found, with recover, rollback and a running query."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ttlsnap import doctor, prune, recover, rollback
from ttlsnap.checkpoint.logs import FENCE_MARK
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.publishing import moves
from ttlsnap.publishing import swap as swapping
from ttlsnap.transaction import steps

from .protocol.tracing import Real, words
from .trees import is_fenced, tree

SNAPSHOTS, DELTAS, UNCOMMITTED = "agg-snapshot-zstd-4.1", "agg-deltas-lz4-4.2", "uncommitted-batch-4.2"


def cut(checkpoint: Real, command: str, step: str, *, last: bool = False) -> None:
    """Kill a command before its first step with this name, or before the last one."""
    steps = checkpoint.copy(f"whole-{command}").run(command)
    begun = steps.index("fence") if "fence" in steps else 0
    places = [place for place, name in enumerate(steps) if name == step and place > begun]
    checkpoint.run(command, places[-1 if last else 0])


def newest(folder: Path, suffix: str) -> Path:
    """Return the newest state file of one partition with this suffix."""
    return max(folder.glob(f"state/0/0/*{suffix}"), key=lambda path: int(path.name.partition(".")[0]))


def newest_offsets(folder: Path) -> Path:
    return max((path for path in folder.glob("offsets/[0-9]*")), key=lambda path: int(path.name))


def test_recover_undoes_a_run_that_was_killed_before_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    old = tree(checkpoint.path)
    cut(checkpoint, "compact", "look")
    assert is_fenced(checkpoint.path)
    assert recover(str(checkpoint.path)).outcome == "undone"
    assert tree(checkpoint.path) == old


def test_recover_undoes_a_run_if_a_batch_was_committed_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(UNCOMMITTED, tmp_path, monkeypatch)
    old = tree(checkpoint.path)
    cut(checkpoint, "compact", "staged to place", last=True)
    last = max(int(path.name) for path in checkpoint.path.glob("commits/[0-9]*"))
    committed = (checkpoint.path / f"commits/{last}").read_bytes()
    (checkpoint.path / f"commits/{last + 1}").write_bytes(committed)
    assert recover(str(checkpoint.path)).outcome == "undone"
    (checkpoint.path / f"commits/{last + 1}").unlink()
    assert tree(checkpoint.path) == old


def test_recover_never_undoes_a_run_whose_fence_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(UNCOMMITTED, tmp_path, monkeypatch)
    cut(checkpoint, "compact", "journal done")
    new = tree(checkpoint.path)
    assert not is_fenced(checkpoint.path)
    assert recover(str(checkpoint.path), prefer_undo=True).outcome == "finished"
    assert tree(checkpoint.path) == new


def test_recover_plans_the_batch_at_once_if_only_the_fence_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    published = checkpoint.copy("published")
    published.run("compact")
    cut(checkpoint, "compact", "planned batch")
    newest_offsets(checkpoint.path).unlink()
    assert words(checkpoint.run("undo")) == ["planned batch", "journal done"]
    assert tree(checkpoint.path) == tree(published.path)


@pytest.mark.parametrize("undo", [False, True])
def test_recover_refuses_if_the_batch_was_set_back_without_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undo: bool
) -> None:
    # The query would run the batch again on a mixture of old and new state.
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    cut(checkpoint, "compact", "staged to place", last=True)
    newest_offsets(checkpoint.path).unlink()
    last = newest_offsets(checkpoint.path)
    last.unlink()
    (checkpoint.path / "commits" / last.name).unlink()
    before = tree(checkpoint.path)
    with pytest.raises(RefusedError, match="somebody removed the fence"):
        recover(str(checkpoint.path), prefer_undo=undo)
    assert tree(checkpoint.path) == before


def test_recover_detects_a_running_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    old = tree(checkpoint.path)
    cut(checkpoint, "compact", "staged to place", last=True)
    written, apply = checkpoint.path / "state/0/0/.9.delta.x.tmp", moves.apply

    def write_and_apply(*args: object) -> None:
        written.write_bytes(b"half")
        apply(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(swapping, "apply", write_and_apply)
    with pytest.raises(BusyError, match=r"9\.delta\.x\.tmp changed during the run.* was undone"):
        recover(str(checkpoint.path))
    written.unlink()
    assert tree(checkpoint.path) == old


@pytest.mark.parametrize("prefer_undo", [False, True])
def test_recover_refuses_while_a_snapshot_is_being_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefer_undo: bool
) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    name = newest(checkpoint.path, ".snapshot").name
    cut(checkpoint, "compact", "staged to place", last=True)
    written = checkpoint.path / f"state/0/0/.{name}.0c5e.tmp"
    written.write_bytes(b"half")
    with pytest.raises(BusyError, match="wait for 60 s and run: ttlsnap recover"):
        recover(str(checkpoint.path), prefer_undo=prefer_undo)
    assert is_fenced(checkpoint.path)
    os.utime(written, (0, 0))
    assert recover(str(checkpoint.path), prefer_undo=prefer_undo).outcome == ("undone" if prefer_undo else "finished")


def test_the_fence_of_a_rollback_replaces_the_planned_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    old = tree(checkpoint.path)
    checkpoint.run("compact")
    new, planned = tree(checkpoint.path), newest_offsets(checkpoint.path)
    cut(checkpoint, "rollback", "backup to place")
    assert newest_offsets(checkpoint.path) == planned
    assert planned.read_text().startswith(FENCE_MARK)
    undone = checkpoint.copy("undone")
    recover(str(undone.path), prefer_undo=True)
    assert tree(undone.path) == new
    recover(str(checkpoint.path))
    assert tree(checkpoint.path) == old


def test_rollback_keeps_a_planned_batch_that_spark_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(DELTAS, tmp_path, monkeypatch)
    old = tree(checkpoint.path)
    checkpoint.run("compact")
    planned = newest_offsets(checkpoint.path)
    delta = newest(checkpoint.path, ".delta")
    begun = delta.with_name(f"{int(newest(checkpoint.path, '.snapshot').stem) + 1}.delta")
    begun.write_bytes(delta.read_bytes())
    text = planned.read_bytes()
    rollback(str(checkpoint.path), stopped=True)
    assert planned.read_bytes() == text
    for path in (planned, begun):
        path.unlink()
    assert tree(checkpoint.path) == old


def test_rollback_refuses_an_old_state_with_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(DELTAS, tmp_path, monkeypatch)
    checkpoint.run("compact")
    (checkpoint.path / "state/0/0/1.delta").unlink()
    new = tree(checkpoint.path)
    with pytest.raises(RefusedError, match=r"1\.delta is missing.* cannot be rolled back"):
        rollback(str(checkpoint.path), stopped=True)
    assert tree(checkpoint.path) == new


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        (UNCOMMITTED, "state"),
        (UNCOMMITTED, "state/0"),
        (UNCOMMITTED, "state/0/0"),
        ("rocksdb-4.2", "state/0/0/SSTs"),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_a_refused_rollback_keeps_the_folders_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, gone: str, empty: bool
) -> None:
    checkpoint = Real.of(name, tmp_path, monkeypatch)
    checkpoint.run("compact")
    shutil.rmtree(checkpoint.path / gone)
    if empty:
        (checkpoint.path / gone).mkdir()
    new = tree(checkpoint.path)
    with pytest.raises(RefusedError, match=r"is missing.* cannot be rolled back"):
        rollback(str(checkpoint.path), stopped=True)
    assert tree(checkpoint.path) == new


def test_rollback_detects_a_query_that_starts_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    checkpoint.run("compact")
    new, swap = tree(checkpoint.path), swapping.swap
    written = checkpoint.path / "state/0/0/.9.delta.x.tmp"

    def write_and_swap(*args: object, **options: object) -> object:
        written.write_bytes(b"half")
        return swap(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(steps, "swap", write_and_swap)
    with pytest.raises(BusyError, match=r"9\.delta\.x\.tmp changed while ttlsnap worked"):
        rollback(str(checkpoint.path), stopped=True)
    written.unlink()
    assert tree(checkpoint.path) == new


def test_the_warning_of_a_hidden_batch_names_a_possible_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Real.of(SNAPSHOTS, tmp_path, monkeypatch)
    checkpoint.run("compact")
    planned = newest_offsets(checkpoint.path)
    set_back = int(planned.name) - 1
    for path in (planned, checkpoint.path / f"offsets/{set_back}", checkpoint.path / f"commits/{set_back}"):
        path.unlink()

    def advice() -> str:
        (hidden,) = [p for p in doctor(str(checkpoint.path)).problems if p.code == "hidden-batch"]
        return hidden.fix

    assert "ttlsnap rollback" in advice()
    prune(str(checkpoint.path))
    assert "--fix hidden-batch" in advice()
    assert doctor(str(checkpoint.path), fix=["hidden-batch"], stopped=True).fixed == ("hidden-batch",)
    assert not [p for p in doctor(str(checkpoint.path)).problems if p.code == "hidden-batch"]
