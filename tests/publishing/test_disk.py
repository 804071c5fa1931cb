"""Full disks, and folders without write permission."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import Commands, Ended
from .stories import compact
from .trees import Tree, copy, is_fenced, tree

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on which ``mount`` mounts a small disk. Unmount it after the test."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root; full disks are also tested by injected errors")
    folder = tmp_path / "disk"
    folder.mkdir()
    yield folder
    while folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)


def mount(folder: Path, options: str) -> None:
    """Mount a new disk in place of the last one."""
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], check=True)
    told = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "ttlsnap", str(folder)], capture_output=True)
    if told.returncode:
        pytest.skip(f"no disk can be mounted here: {told.stderr.decode()}; injected errors test full disks, too")


def is_whole(checkpoint: Path, old: Tree) -> bool:
    """Return whether a checkpoint is unchanged and not fenced."""
    return tree(checkpoint) == old and not is_fenced(checkpoint)


def says(ended: Ended, words: str) -> bool:
    """Return whether a command ended with exit code 5 and an error with these words."""
    return ended.code == 5 and ended.err.startswith("Error: ") and words in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize(("kind", "words"), [("size={}k", "No space left"), ("nr_inodes={}", "No space left")])
def test_a_disk_that_fills_up_changes_nothing(
    commands: Commands, checkpoint: Path, small_disk: Path, kind: str, words: str
) -> None:
    # The first disk has no free space. Each further disk has a little more, until the run succeeds.
    old = tree(checkpoint)
    entries = list(checkpoint.rglob("*"))
    blocks = sum(-(-path.stat().st_size // 4096) for path in entries if path.is_file())
    least, step = (blocks * 4, 4) if "size" in kind else (len(entries) + 2, 1)
    ends = []
    for room in range(200):
        mount(small_disk, kind.format(least + room * step))
        path = copy(checkpoint, small_disk / "checkpoint")
        ended = commands.run(*compact(path))
        ends.append(ended.code)
        if ended.code == 0:
            break
        assert says(ended, words)
        assert is_whole(path, old)
        assert commands.run("recover", str(path), "--format", "json").json["outcome"] == "nothing"
        assert not list(path.glob("_ttlsnap/runs/*/staged")), "what was staged takes up room"
    assert ends[-1] == 0 and len(ends) > 5
    assert tree(path) != old


def test_a_run_beyond_the_file_size_limit_changes_nothing(commands: Commands, checkpoint: Path) -> None:
    old = tree(checkpoint)
    commands.run(*compact(checkpoint))
    sizes = sorted(path.stat().st_size for path in checkpoint.glob("_ttlsnap/runs/*/*.json"))
    commands.run("rollback", str(checkpoint))
    assert is_whole(checkpoint, old)
    for most in (600, sizes[-1] - 1):  # the output of a command is written to files, too, and must fit
        assert says(commands.run(*compact(checkpoint), file_size_limit=most), "File too large")
        assert is_whole(checkpoint, old)
    assert commands.run(*compact(checkpoint)).code == 0


@pytest.mark.parametrize("place", [".", "offsets", "state/0/0", "state/0/1", "_ttlsnap", "_ttlsnap/runs"])
def test_a_run_without_write_permission_changes_nothing(commands: Commands, checkpoint: Path, place: str) -> None:
    old = tree(checkpoint)
    folder = checkpoint / place
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o555)
    assert says(commands.run(*compact(checkpoint), obey_modes=True), "Permission denied")
    if folder.exists():  # ttlsnap removes its own folder if it is empty
        folder.chmod(0o755)
    assert is_whole(checkpoint, old)
    assert commands.run(*compact(checkpoint), obey_modes=True).code == 0
    if place == ".":
        return
    folder.chmod(0o555)
    new = tree(checkpoint)
    assert says(commands.run("rollback", str(checkpoint), obey_modes=True), "Permission denied")
    folder.chmod(0o755)
    assert is_whole(checkpoint, new)
    assert commands.run("rollback", str(checkpoint), obey_modes=True).code == 0
    assert tree(checkpoint) == old
