"""Checkpoints that change while ttlsnap works, running queries, and a second ttlsnap."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, SilentListener, inspect
from ttlsnap.cli.app import run
from ttlsnap.compaction.planned_run import PlannedRun
from ttlsnap.errors import BusyError, RefusedError, StorageError, TtlsnapError
from ttlsnap.publishing import cleanup
from ttlsnap.publishing import swap as swapping
from ttlsnap.publishing.journal import Journal
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.recording import write_journal
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import open_directory

from ..judge.queries import Query
from ..judge.spark import Judge
from .commands import Commands
from .library import compact_with
from .stories import BATCHES, LATER, compact
from .trees import end_halfway, is_fenced, tree

Change = Callable[[Path], object]


class Meanwhile(SilentListener):
    """A listener that calls a function between the scan and the publishing."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def confirm(self, report: CompactionReport) -> bool:
        self._act()
        return True


def write(path: str, data: bytes = b"v1\n{}\n{}") -> Change:
    return lambda checkpoint: (checkpoint / path).write_bytes(data)


def remove(pattern: str) -> Change:
    def act(checkpoint: Path) -> None:
        for path in (checkpoint / "state/0/1").glob(pattern):
            path.unlink()

    return act


CHANGES: dict[str, Change] = {
    "a batch is begun": write("offsets/4"),
    "the batch is committed": write("commits/3"),
    "the batch is committed and another begun": lambda at: (write("commits/3")(at), write("offsets/4")(at)),
    "the last batch is begun again": write("state/0/1/4.delta", b"another one"),
    "a delta is touched": lambda at: os.utime(at / "state/0/0/4.delta"),
    "the snapshot is written again": write("state/0/1/3.snapshot", b"another one"),
    "maintenance writes a snapshot": write("state/0/1/4.snapshot"),
    "a snapshot is removed": remove("3.snapshot"),
    "all is removed": remove("[0-9]*"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_refused_if_the_checkpoint_changes_meanwhile(
    checkpoint: Path, commands: Commands, change: str
) -> None:
    def meanwhile() -> None:
        CHANGES[change](checkpoint)
        moved_on.append(tree(checkpoint))

    moved_on: list[dict[str, str]] = []
    with pytest.raises(RefusedError, match=r"the query (is running|committed a batch)"):
        compact_with(checkpoint, listener=Meanwhile(meanwhile))
    assert tree(checkpoint) == moved_on[0]
    assert not is_fenced(checkpoint)
    assert not list(checkpoint.glob("_ttlsnap/runs/*/staged"))
    assert commands.run("recover", str(checkpoint), "--format", "json").json["outcome"] == "nothing"


@pytest.mark.parametrize("change", CHANGES)
def test_no_copy_appears_if_the_checkpoint_changes_meanwhile(checkpoint: Path, tmp_path: Path, change: str) -> None:
    def meanwhile() -> None:
        CHANGES[change](checkpoint)
        moved_on.append(tree(checkpoint))

    moved_on: list[dict[str, str]] = []
    with pytest.raises(TtlsnapError):
        compact_with(checkpoint, listener=Meanwhile(meanwhile), output=str(tmp_path / "new" / "copy"))
    assert tree(checkpoint) == moved_on[0]
    assert list((tmp_path / "new").iterdir()) == []


def test_an_offset_file_that_appears_just_before_the_fence_is_not_overwritten(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tree(checkpoint)
    write = write_journal

    def write_and_go_on(files: Directory, journal: Journal) -> None:
        write(files, journal)
        (checkpoint / journal.fence).write_bytes(b"of the query")
        found.append(checkpoint / journal.fence)

    found: list[Path] = []
    monkeypatch.setattr(swapping, "write_journal", write_and_go_on)
    with pytest.raises(BusyError, match="appeared during the run: the query is running"):
        compact_with(checkpoint)
    assert found[0].read_bytes() == b"of the query"
    found[0].unlink()
    assert tree(checkpoint) == old


def test_a_file_that_appears_behind_the_fence_is_not_overwritten(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (checkpoint / "state/0/1").glob("*3.snapshot*"):
        path.unlink()
    old = tree(checkpoint)
    check = PlannedRun.check

    def check_and_go_on(run: PlannedRun[CompactionReport]) -> None:
        check(run)
        (checkpoint / "state/0/1/3.snapshot").write_bytes(b"by maintenance")

    monkeypatch.setattr(PlannedRun, "check", check_and_go_on)
    with pytest.raises(RefusedError, match=r"state/0/1/3\.snapshot appeared during the run"):
        compact_with(checkpoint)
    assert (checkpoint / "state/0/1/3.snapshot").read_bytes() == b"by maintenance"
    (checkpoint / "state/0/1/3.snapshot").unlink()
    assert tree(checkpoint) == old


def test_ctrl_c_behind_the_fence_undoes_the_run(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tree(checkpoint)
    rename = os.rename

    def interrupted(source: str | Path, target: str | Path) -> None:
        rename(source, target)
        if str(target).endswith("backup/state/0/1/3.snapshot"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compact_with(checkpoint)
    assert tree(checkpoint) == old


def test_a_second_ttlsnap_is_refused(checkpoint: Path, commands: Commands) -> None:
    def meanwhile() -> None:
        for argv in (
            compact(checkpoint),
            ["recover", str(checkpoint)],
            ["rollback", str(checkpoint)],
            ["history", str(checkpoint), "--prune"],
        ):
            refused = commands.run(*argv)
            assert refused.code == 4
            assert f"another ttlsnap is working on {checkpoint}" in refused.err
        told.append(True)

    told: list[bool] = []
    old = tree(checkpoint)
    assert compact_with(checkpoint, listener=Meanwhile(meanwhile)).published
    assert told
    assert tree(checkpoint) != old


def age(checkpoint: Path, seconds: float) -> None:
    """Make all files of the logs this old."""
    then = time.time() - seconds
    for path in (*(checkpoint / "offsets").iterdir(), *(checkpoint / "commits").iterdir()):
        os.utime(path, (then, then))


def commit(checkpoint: Path) -> None:
    """Commit the batch that was planned."""
    (checkpoint / "commits/3").write_bytes((checkpoint / "commits/2").read_bytes())


@pytest.mark.parametrize(
    ("gap", "seconds", "refused"),
    [(0, 0, True), (0, 59, True), (0, 61, False), (10, 40, True), (100, 290, True), (100, 310, False), (0, -60, True)],
)
def test_logs_are_young_for_a_minute_and_for_three_times_the_longest_gap(
    checkpoint: Path, gap: float, seconds: float, refused: bool
) -> None:
    commit(checkpoint)
    age(checkpoint, seconds)
    for batch, earlier in ((0, 2 * gap), (1, gap), (2, gap)):
        then = time.time() - seconds - earlier
        os.utime(checkpoint / "offsets" / str(batch), (then, then))
    files = open_directory(str(checkpoint))
    if not refused:
        refuse_if_running(Runs.read(files), None)
        return
    with pytest.raises(
        BusyError, match=r"the logs of batch 3 changed .* ago, so the query may be running\. .*(stopped=True|--stopped)"
    ):
        refuse_if_running(Runs.read(files), None)
    refuse_if_running(Runs.read(files), None, stopped=True)


def test_a_run_is_refused_if_a_batch_has_just_started(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    old = tree(checkpoint)
    age(checkpoint, 3)
    argv = [word for word in compact(checkpoint) if word != "--stopped"]
    assert run(argv) == 4
    told = capsys.readouterr().err
    assert re.search(r"batch 3 was started but is not committed\. Its files last changed \d+ s ago", told), told
    assert tree(checkpoint) == old
    assert run([*argv, "--stopped"]) == 0


@pytest.mark.parametrize("change", ["offsets/4", "commits/2", "commits/4", "state/0/1/.5.delta.x.tmp"])
def test_a_changed_log_or_temporary_file_makes_the_checkpoint_young(checkpoint: Path, change: str) -> None:
    commit(checkpoint)
    age(checkpoint, 1000)
    refuse_if_running(Runs.read(open_directory(str(checkpoint))), None)
    write(change)(checkpoint)
    with pytest.raises(BusyError, match="may be running"):
        refuse_if_running(Runs.read(open_directory(str(checkpoint))), None)


@pytest.mark.parametrize("lost", ["staged", "live"])
def test_a_file_that_disappears_behind_the_fence_is_an_error(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def remove(run: PlannedRun[CompactionReport]) -> None:
        place = f"_ttlsnap/runs/{run.id}/staged/state/0/1/3.snapshot" if lost == "staged" else "state/0/1/3.snapshot"
        (checkpoint / place).unlink()

    old = tree(checkpoint)
    monkeypatch.setattr(PlannedRun, "check", remove)
    with pytest.raises(StorageError, match="disappeared"):
        compact_with(checkpoint)
    if lost == "live":
        del old["state/0/1/3.snapshot"]
    assert tree(checkpoint) == old


def test_a_slow_batch_commits_on_the_compacted_state(inputs: Judge) -> None:
    checkpoint = inputs.write(Query(codec="zstd"), BATCHES, layout="snapshot", version="4.1", uncommitted=LATER[0]).path
    deltas = {path: path.read_bytes() for path in checkpoint.glob("state/0/[01]/4.delta")}
    compact_with(end_halfway(checkpoint))
    assert len([path for path in deltas if path.exists()]) == 1
    for path, delta in deltas.items():
        if path.exists():
            assert path.read_bytes() == delta
        path.write_bytes(delta)
    commit(checkpoint)
    assert inspect(str(checkpoint), entries=1).checkpoint.version == 4


def test_a_copy_is_not_made_while_another_run_publishes(checkpoint: Path, commands: Commands) -> None:
    def meanwhile() -> None:
        told.append(commands.run(*compact(checkpoint, "--output", f"{checkpoint}-copy")))

    told: list[Any] = []
    compact_with(checkpoint, listener=Meanwhile(meanwhile))
    assert told[0].code == 4
    assert "another ttlsnap is working" in told[0].err
    assert not Path(f"{checkpoint}-copy").exists()


def test_an_old_backup_that_cannot_be_removed_is_a_warning(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise StorageError("the disk says no")

    monkeypatch.setattr(cleanup, "discard_backups", fail)
    report = compact_with(checkpoint)
    assert report.published
    assert "the disk says no" in report.warnings[0]
