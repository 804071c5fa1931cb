"""Commands in an odd process: closed or full standard streams, and a current folder that somebody has removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..maintenance.targets import fresh
from ..matrix import rotating

pytestmark = pytest.mark.slow

TTLSNAP = Path(sys.executable).with_name("ttlsnap")
RULE = 'stopped = true\n[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'


def run(command: str, *words: object, folder: Path) -> int:
    """Run a command in a shell, in a folder that is removed first. ``command`` has the redirections."""
    gone = folder / "gone"
    gone.mkdir()
    script = f'rmdir "$0"; "$@" {command}'
    done = subprocess.run(
        ["bash", "-c", script, gone, TTLSNAP, *map(str, words)], cwd=gone, timeout=120, check=False, text=True,
        env={**os.environ, "PWD": str(gone)},
    )  # fmt: skip
    return done.returncode


@pytest.mark.parametrize("streams", rotating(["<&-", "2>&-", "2>/dev/full", "<&- 2>&-", ""], 2, "closed streams"))
def test_a_command_ends_with_its_exit_code(tmp_path: Path, streams: str) -> None:
    target, policy, metrics = fresh(tmp_path, "ck"), tmp_path / "policy.toml", tmp_path / "metrics.prom"
    policy.write_text(f'[[target]]\npath = "{target}"\n{RULE}')
    assert run(f"> /dev/null {streams}", "doctor", target, folder=tmp_path) == 0
    assert run(f"> /dev/null {streams}", "inspect", tmp_path / "nothing", folder=tmp_path) == 2
    words = ("maintain", policy, "--engine", "local", "--metrics", metrics, "--log-format", "text")
    assert run(f"> /dev/null {streams}", *words, folder=tmp_path) == 0
    assert "ttlsnap_target_exit_code" in metrics.read_text()


@pytest.mark.parametrize(("streams", "code"), [(">&-", 2), ("> /dev/full", 5)])
def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path, streams: str, code: int) -> None:
    assert run(f"{streams} 2> /dev/null", "inspect", fresh(tmp_path, "ck"), folder=tmp_path) == code
