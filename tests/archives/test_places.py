"""ttlsnap never writes or deletes in an archive that only the checkpoint names."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run as command
from ttlsnap.errors import UsageError
from ttlsnap.publishing.history import history
from ttlsnap.publishing.recover import recover
from ttlsnap.transaction.rollback import rollback

from ..maintenance.targets import cut_off as cut_off_while_publishing
from ..samples import bytes_of, sample
from .archives import archived, cut_off, run


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return sample("agg-deltas-lz4-4.2", tmp_path)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return a folder that belongs to someone else."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "theirs").write_text("theirs")
    return folder


def say(target: Path, place: Path | str) -> None:
    """Make the checkpoint's only report name ``place`` as the archive."""
    (report,) = (target / "_ttlsnap/runs").glob("*/report.json")
    report.write_text(json.dumps({**json.loads(report.read_text()), "expired_to": str(place)}))


def undelivered(target: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Kill a run before it delivers. Return the number of undelivered entries."""
    cut_off("delivery", monkeypatch, lambda: run(target, archive))
    (waiting,) = (target / "_ttlsnap/runs").glob("*/expired")
    return len(archived(waiting))


def test_nothing_is_delivered_to_a_place_that_only_the_checkpoint_names(
    target: Path, archive: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = undelivered(target, archive, monkeypatch)
    say(target, victim)
    before = bytes_of(victim)
    found: list[Any] = [
        recover(str(target)),
        recover(str(target), expired_to=str(archive)),
        run(target, archive),
        run(target, archive, dry_run=True),
    ]
    assert bytes_of(victim) == before and archived(archive) == []
    for report in found[:3]:
        (warning,) = report.warnings
        assert f"names {victim} as their archive, which this command does not name" in warning
        assert f"To deliver them: ttlsnap recover {target} --expired-to {victim}. To discard them" in warning
    assert [entry.waiting for entry in history(str(target))] == [True]
    assert recover(str(target), expired_to=str(victim)).warnings == ()
    assert len(archived(victim)) == count
    assert [entry.waiting for entry in history(str(target))] == [False]


def test_nothing_is_removed_from_a_place_that_only_the_checkpoint_names(
    target: Path, archive: Path, victim: Path
) -> None:
    report = run(target, archive)
    (victim / f"{report.run}-mine.parquet").write_text("not what the name says")
    say(target, victim)
    before, old = bytes_of(victim), archived(archive)
    (warning,) = rollback(str(target), stopped=True).warnings
    assert f"To remove them there: ttlsnap recover {target} --expired-to {victim}" in warning
    assert recover(str(target), expired_to=str(archive)).warnings == (warning,)
    assert (bytes_of(victim), archived(archive)) == (before, old)


@pytest.mark.parametrize("later", ["recover", "compact"])
def test_restored_entries_stay_archived_until_a_command_names_their_archive(
    target: Path, archive: Path, later: str
) -> None:
    old = bytes_of(target / "state")
    report = run(target, archive)
    (warning,) = rollback(str(target), stopped=True).warnings
    assert f"the entries that run {report.run} dropped are restored. They also stay in {archive}, which" in warning
    assert bytes_of(target / "state") == old
    assert len(archived(archive)) == report.totals.dropped
    assert [entry.waiting for entry in history(str(target))] == [True, False]
    if later == "recover":
        assert recover(str(target)).warnings == (warning,)
        assert recover(str(target), expired_to=str(archive)).warnings == ()
        assert archived(archive) == []
    else:
        again = run(target, archive)
        assert {row["run"] for row in archived(archive)} == {again.run}
        assert again.warnings == ()


@pytest.mark.parametrize("agrees", [True, False])
def test_the_archive_of_the_report_is_used_only_if_the_user_agrees(
    target: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    count = undelivered(target, archive, monkeypatch)
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return agrees

    warnings = recover(str(target), confirm=confirm).warnings
    assert [str(archive) in question for question in asked] == [True]
    assert asked[0].endswith("Archive them there?")
    assert (len(archived(archive)), len(warnings)) == ((count, 0) if agrees else (0, 1))
    recover(str(target), expired_to=str(archive))
    asked.clear()
    rollback(str(target), stopped=True, confirm=confirm)
    assert len(asked) == 1 and asked[0].endswith("Remove its entries there?")
    assert len(archived(archive)) == (0 if agrees else count)


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1)])
def test_rollback_asks_on_a_terminal_before_it_removes_entries(
    target: Path, archive: Path, answer: str, left: int
) -> None:
    run(target, archive)
    controller, terminal = pty.openpty()
    words = [sys.executable, "-m", "ttlsnap", "rollback", str(target), "--stopped"]
    process = subprocess.Popen(words, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    os.write(controller, f"{answer}\n".encode())
    _, err = process.communicate(timeout=120)
    os.close(controller)
    assert process.returncode == 0, err
    assert err.count("Remove its entries there? [y/N]") == 1
    assert bool(archived(archive)) is bool(left)
    assert ("Warning: " in err) is bool(left)


def test_rollback_and_recover_accept_the_archive_as_an_option(
    target: Path, archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(target, archive)
    monkeypatch.chdir(target.parent)
    assert command(["rollback", str(target), "--stopped"]) == 0
    assert f"Warning: the entries that run {next(iter(archived(archive)))['run']}" in capsys.readouterr().err
    assert command(["recover", str(target), "--expired-to", archive.name]) == 0
    assert archived(archive) == []
    run(target, archive)
    assert command(["rollback", str(target), "--stopped", "--expired-to", archive.name]) == 0
    assert archived(archive) == [] and capsys.readouterr().err == ""


def test_a_callback_runs_only_if_the_command_names_it(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    undelivered(target, tmp_path / "archive", monkeypatch)
    (tmp_path / "hears_of_it.py").write_text(
        "from pathlib import Path\nimport sys\n"
        "def tell(key, value):\n"
        "    with Path(__file__).with_name('heard').open('a') as file:\n        file.write('1')\n"
    )
    say(target, "hears_of_it:tell")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert command(["recover", str(target)]) == 0
    assert f"ttlsnap recover {target} --expired-to hears_of_it:tell" in capsys.readouterr().err
    assert not (tmp_path / "heard").exists() and "hears_of_it" not in sys.modules
    assert command(["recover", str(target), "--expired-to", "hears_of_it:tell"]) == 0
    assert len((tmp_path / "heard").read_text()) > 0


def test_maintain_delivers_only_to_the_archive_that_its_policy_names(
    target: Path, archive: Path, tmp_path: Path, victim: Path
) -> None:
    cut_off_while_publishing(target, "7d", "value.max", "--expired-to", str(archive))
    policy = tmp_path / "policy.toml"
    text = f'[[target]]\npath = "{target.name}"\nstopped = true\nttl = "7d"\ntimestamp = "value.max"\nexpired_to = '
    policy.write_text(f"{text}'{victim}'\n")
    before = bytes_of(victim)
    assert command(["maintain", str(policy), "--engine", "local"]) == 0
    assert (bytes_of(victim), archived(archive)) == (before, [])
    policy.write_text(f"{text}'{archive}'\n")
    assert command(["maintain", str(policy), "--engine", "local"]) == 0
    assert len(archived(archive)) > 0


def test_warnings_escape_control_characters_in_paths(
    target: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undelivered(target, archive, monkeypatch)
    say(target, "/tmp/\x1b]0;title\x07; rm -rf ~")
    (warning,) = recover(str(target)).warnings
    assert "\x1b" not in warning and r"'/tmp/\x1b]0;title\x07; rm -rf ~'" in warning


def test_recover_and_rollback_refuse_an_archive_inside_the_checkpoint(target: Path, archive: Path) -> None:
    run(target, archive)
    for call in (recover, rollback):
        with pytest.raises(UsageError, match="name a place outside it for dropped entries"):
            call(str(target), expired_to=f"{target}/state")


@pytest.mark.parametrize("spelled", ["file://{}", "{}/../archive/", "delta:{}"])
def test_all_spellings_of_a_place_name_the_same_archive(
    target: Path, archive: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    count = undelivered(target, archive, monkeypatch)
    if spelled.startswith("delta:"):
        archive.rmdir()
    assert recover(str(target), expired_to=spelled.format(archive)).warnings == ()
    if not spelled.startswith("delta:"):
        assert len(archived(archive)) == count
