"""The events in the checkpoints of these tests, and the command that drops some of their entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..judge.queries import Event, stamp
from ..judge.spark import Events

T = 1_700_006_400  # a full hour
H = 3600

BATCHES: list[Events] = [
    [Event(f"k{i}", T + i * 600, i) for i in range(24)] + [Event(None, T + 5, 3), Event("n", None, 5)],
    [Event(f"k{i}", T + i * 600 + 60, 1) for i in range(0, 24, 3)],
    [Event("k1", T + 3 * H, 8), Event("at", T + 2 * H, 1), Event("after", T + 2 * H + 1, 1)],
]
LATER: list[Events] = [
    [Event(f"k{i}", T + 4 * H + i, 100) for i in range(0, 24, 2)] + [Event("new", T + 5 * H, 2)],
    [Event("at", T + 5 * H, 2), Event("after", T + 5 * H, 2), Event(None, T + 5 * H)],
]
FIELD = "value.max"
NOW = T + 4 * H


def compact(checkpoint: Path | str, *options: str, ttl: str = "2h") -> list[str]:
    """Return the command that drops the entries that are not younger than ``NOW`` minus the ttl."""
    return [
        *("compact", str(checkpoint), "--ttl", ttl, "--timestamp", FIELD, "--now", f"{stamp(NOW)}Z"),
        *("--engine", "local", "--parallelism", "1", "--stopped", "--yes", "--format", "json", *options),
    ]


def fill(checkpoint: Path | str, tables: Path) -> list[str]:
    """Return the command line of an import that replaces all state."""
    return [
        *("import", str(checkpoint), "--from", str(tables), "--mode", "replace"),
        *("--parallelism", "1", "--stopped", "--yes", "--format", "json"),
    ]


def migrate(checkpoint: Path | str, change: Sequence[str] = ("--partitions", "3")) -> list[str]:
    """Return the command that changes the number of partitions, or something else."""
    return [
        *("migrate", str(checkpoint), *change),
        *("--parallelism", "1", "--stopped", "--yes", "--format", "json"),
    ]


def restore_from(backup: Path, checkpoint: Path | str) -> list[str]:
    """Return the command that restores a checkpoint in place."""
    return [
        *("copy", str(backup), str(checkpoint), "--replace"),
        *("--parallelism", "1", "--stopped", "--yes", "--format", "json"),
    ]


def set_position(checkpoint: Path | str, position: str) -> list[str]:
    """Return the arguments that give the first source another position."""
    return ["sources", str(checkpoint), "--set", "0", "--to", position, "--stopped", "--yes", "--format", "json"]


def forget_files(checkpoint: Path | str) -> list[str]:
    """Return the arguments that let the first source read all files again."""
    words = ["sources", str(checkpoint), "--forget", "0", "--files", "/**"]
    return [*words, "--stopped", "--yes", "--format", "json"]


def name_source(checkpoint: Path | str) -> list[str]:
    """Return the arguments that give the only source a name."""
    return ["sources", str(checkpoint), "--rename", "0=visits", "--stopped", "--yes", "--format", "json"]


def rewind(checkpoint: Path | str, batch: int) -> list[str]:
    """Return the command that goes back to an earlier batch."""
    return [
        *("rewind", str(checkpoint), "--batch", str(batch)),
        *("--parallelism", "1", "--stopped", "--yes", "--format", "json"),
    ]


def repair(checkpoint: Path | str) -> list[str]:
    """Return the command that removes a torn offset."""
    return ["doctor", str(checkpoint), "--fix", "torn-offset", "--parallelism", "1", "--stopped", "--yes"]


def limit(ttl_hours: int = 2) -> int:
    """Return the time, in epoch seconds, up to which entries expire."""
    return NOW - ttl_hours * H
