"""The snapshots that a run has published, and damage to them."""

from __future__ import annotations

from pathlib import Path

from ..judge.spark import Checkpoint


def published_snapshots(checkpoint: Checkpoint) -> list[Path]:
    """Return the snapshots of the version after the last committed batch."""
    last = max(int(path.name) for path in (checkpoint.path / "commits").glob("[0-9]*"))
    found = sorted((checkpoint.path / "state").rglob(f"{last + 1}[_.]*"))
    return [path for path in found if path.suffix in (".snapshot", ".zip")]


def damage(snapshot: Path) -> bytes:
    """Cut a snapshot off, and return its bytes."""
    whole = snapshot.read_bytes()
    snapshot.write_bytes(whole[: len(whole) // 2])
    return whole
