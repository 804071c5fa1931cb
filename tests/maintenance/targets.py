"""Targets in every condition that ``maintain`` may find, made from the sample checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..samples import sample

_CUT_OFF = """
import os, sys
from ttlsnap.cli.app import run
from ttlsnap.storage.local import LocalDirectory

rename, moves = LocalDirectory.rename, []

def last(self, source, target, **how):
    if target.startswith("state/"):
        moves.append(target)
        if len(moves) == 2:
            os._exit(9)
    rename(self, source, target, **how)

LocalDirectory.rename = last
run(["compact", *sys.argv[1:], "--engine", "local", "--stopped"])
"""


def fresh(folder: Path, name: str, source: str = "agg-deltas-lz4-4.2") -> Path:
    """Return a copy of a sample, which has expired entries."""
    folder.mkdir(exist_ok=True)
    return sample(source, folder).rename(folder / name)


def fenced(folder: Path, name: str) -> Path:
    """Return a target whose compaction was killed while it moved its second file into place."""
    target = fresh(folder, name)
    cut_off(target, "7d", "value.max")
    return target


def cut_off(target: Path, ttl: str, timestamp: str, *more: str) -> None:
    """Kill a compaction of ``target`` while it moves its second file into place."""
    words = [str(target), "--ttl", ttl, "--timestamp", timestamp, *more]
    assert subprocess.run([sys.executable, "-c", _CUT_OFF, *words], check=False).returncode == 9


def damaged(folder: Path, name: str) -> Path:
    """Return a target with a truncated state file."""
    target = fresh(folder, name)
    state = sorted((target / "state/0/0").glob("*.delta"))[-1]
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])
    return target


def unknown(folder: Path, name: str) -> Path:
    """Return a target with an unknown state store provider."""
    target = fresh(folder, name)
    for checksum in (target / "offsets").glob(".*.crc"):
        checksum.unlink()
    for offsets in (target / "offsets").iterdir():
        text = offsets.read_text()
        assert "HDFSBackedStateStoreProvider" in text
        offsets.write_text(text.replace("HDFSBackedStateStoreProvider", "MyStateStoreProvider"))
    return target
