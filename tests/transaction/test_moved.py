"""A checkpoint whose metadata names the state schemas of another folder: no run changes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ttlsnap import compact, export, inspect
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..cli.running import Ttlsnap
from ..mounts import may_mount
from ..samples import bytes_of, moved_sample, sample

VISITS = "visits-4.2"
WEEK = ("--ttl", "1d", "--timestamp", "value.seen:s", "--now", "wall", "--max-drop", "100%", "--stopped", "--yes")
FIX = "Run first: ttlsnap doctor {} --fix moved-schema-paths --stopped"


def copied(folder: Path) -> Path:
    """Return a copy, as of ``cp -r``, of a checkpoint that is still there."""
    target = folder / "copied"
    shutil.copytree(sample(VISITS, folder), target)
    return target


@pytest.mark.parametrize("command", ["compact", "migrate", "import", "maintain"])
def test_every_run_refuses_a_copied_checkpoint(command: str, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = copied(tmp_path)
    export(str(target), str(tmp_path / "tables"))
    (tmp_path / "policy.toml").write_text(
        f'[[target]]\npath = "{target}"\nstopped = true\n'
        '[[target.rule]]\nttl = "1d"\ntimestamp = "value.seen:s"\nnow = "wall"\n'
    )
    words: dict[str, list[object]] = {
        "compact": [target, *WEEK],
        "migrate": [target, "--partitions", "3", "--stopped", "--yes"],
        "import": [target, "--from", tmp_path / "tables", "--mode", "replace", "--stopped", "--yes"],
        "maintain": [tmp_path / "policy.toml"],
    }
    before = bytes_of(target)
    outcome = ttlsnap(command, *words[command])
    assert outcome.code == 4
    assert FIX.format(target) in outcome.out + outcome.err
    assert {path: content for path, content in bytes_of(target).items() if "lock" not in path} == before


def test_runs_that_name_no_schemas_warn_if_the_recorded_folder_is_not_on_this_machine(
    tmp_path: Path, ttlsnap: Ttlsnap
) -> None:
    target = moved_sample(VISITS, tmp_path)
    published = ttlsnap("compact", target, *WEEK)
    assert (published.code, FIX.format(target) in published.out + published.err) == (0, True)
    assert ttlsnap("migrate", target, "--partitions", "3", "--stopped", "--yes").code == 4


def test_a_dry_run_and_inspect_warn_of_a_copied_checkpoint(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = copied(tmp_path)
    dry_run = ttlsnap("compact", target, *WEEK, "--dry-run", "--exit-code")
    assert dry_run.code == 4
    assert "a run would be refused now: " in dry_run.err and FIX.format(target) in dry_run.err
    assert FIX.format(target) in ttlsnap("inspect", target).out
    assert ttlsnap("doctor", target, "--fix", "moved-schema-paths", "--stopped").code == 0
    assert not inspect(str(target)).warnings
    assert ttlsnap("compact", target, *WEEK).code == 0


def test_a_copy_by_ttlsnap_of_a_copied_checkpoint_is_at_home(tmp_path: Path) -> None:
    target, output = moved_sample(VISITS, tmp_path), tmp_path / "output"
    rule = TtlTransformerFactory(StateTtlConfig.of("1d"), "value.seen:s")
    compact(str(target), [rule], output=str(output), stopped=True, max_drop=1)
    assert not inspect(str(output)).warnings


def test_a_checkpoint_that_was_moved_back_is_not_refused(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = sample(VISITS, tmp_path)
    target.rename(tmp_path / "away").rename(target)
    assert ttlsnap("compact", target, *WEEK).code == 0


def test_links_from_either_path_are_not_refused(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target, moved = sample(VISITS, tmp_path), tmp_path / "moved"
    (tmp_path / "link").symlink_to(target)
    assert not inspect(str(tmp_path / "link")).warnings
    target.rename(moved)
    assert inspect(str(moved)).warnings
    target.symlink_to(moved)
    assert ttlsnap("compact", moved, *WEEK).code == 0


_INSPECT = "import sys, ttlsnap; print(len(ttlsnap.inspect(sys.argv[1]).warnings))"


@may_mount
def test_another_mount_of_the_same_folder_is_not_refused(tmp_path: Path) -> None:
    target, mount = sample(VISITS, tmp_path), tmp_path / "mount"
    mount.mkdir()
    script = f'mount --bind "{target}" "{mount}" && "{sys.executable}" -c "{_INSPECT}" "{mount}"'
    shown = subprocess.run(["unshare", "-m", "sh", "-c", script], check=True, capture_output=True, text=True)
    assert shown.stdout == "0\n"
