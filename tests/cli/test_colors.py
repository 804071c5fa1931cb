"""Colours mark errors, warnings and dropped entries: on a terminal only, and never with ``NO_COLOR``."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ..samples import sample

pytestmark = pytest.mark.slow

RED, YELLOW = "\x1b[1;31m", "\x1b[33m"
NAME = "agg-deltas-lz4-4.2"


def _on_terminal(arguments: list[str], **environment: str) -> str:
    """Return the output of a command whose standard streams are a terminal."""
    ours, theirs = pty.openpty()
    terminal = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "ttlsnap", *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=terminal
    )
    os.close(theirs)
    output = b""
    with os.fdopen(ours, "rb", buffering=0) as stream:
        while True:
            try:
                read = stream.read(65536)
            except OSError:  # the terminal is closed
                break
            if not read:
                break
            output += read
    process.wait()
    return output.decode()


def _damaged(folder: Path) -> str:
    target = sample(NAME, folder)
    (target / "state/0/1/2.delta").write_bytes(b"")
    return str(target)


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        ("inspect /nowhere", f"{RED}Error:"),
        ("doctor {damaged}", f"{RED}error:"),
        ("compact {whole} --ttl 1h --timestamp value.max --dry-run --engine local", YELLOW),
    ],
)
def test_colors_mark_errors_and_dropped_entries(tmp_path: Path, command: str, mark: str) -> None:
    names = {"damaged": _damaged(tmp_path / "damaged"), "whole": str(sample(NAME, tmp_path / "whole"))}
    arguments = command.format(**names).split()
    assert mark in _on_terminal(arguments)
    assert "\x1b[3" not in _on_terminal(arguments, NO_COLOR="1")
    done = subprocess.run([sys.executable, "-m", "ttlsnap", *arguments], capture_output=True, text=True, check=False)
    assert "\x1b" not in done.stdout + done.stderr
