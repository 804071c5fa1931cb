"""Repartitions that Spark did not finish, and that somebody has abandoned."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..judge.spark import Checkpoint, Judge


def cut_off(judge: Judge, checkpoint: Checkpoint, partitions: int) -> None:
    """Run a repartition that fails when it writes its last partition.

    Spark writes all partitions at the same time. If it has ended before it wrote the others, run it again.
    """
    obstacle = checkpoint.path / f"state/0/{partitions - 1}"
    obstacle.write_text("in the way")
    for _ in range(10):
        with pytest.raises(Exception, match=r"CANNOT_WRITE_STATE_STORE|FileAlreadyExists|ParentNotDirectory"):
            judge.repartition(checkpoint, partitions)
        if all(list(obstacle.with_name(str(number)).glob("*.zip")) for number in range(partitions - 1)):
            break
    obstacle.unlink()


def abandon(path: Path) -> None:
    """Abandon a repartition as users are advised to: remove the file that Spark's message names."""
    for name in ("3", ".3.crc"):
        (path / "offsets" / name).unlink()
