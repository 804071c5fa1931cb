"""What stops Spark when a query starts. ``tests/diagnosis/test_starts.py`` compares all of it with real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.starting import describe_missing_commits, find_obstacles, newest_version
from ttlsnap.storage.local import LocalDirectory

from ..samples import sample

NAME, LAST = "agg-deltas-lz4-4.2", 6


def _copy(target: Path, name: str) -> None:
    (target / name).write_bytes((target / f"offsets/{LAST}").read_bytes())


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda target: None, []),
        (lambda target: (target / f"offsets/{LAST + 1}").mkdir(), [("blocked-batch", f"offsets/{LAST + 1}")]),
        (lambda target: (target / "commits/9").mkdir(), [("blocked-batch", "commits/9")]),
        (lambda target: _copy(target, "offsets/008"), [("blocked-batch", "offsets/008")]),
        (lambda target: _copy(target, f"offsets/{LAST + 2}"), [("damaged-log", f"offsets/{LAST + 1}")]),
        (lambda target: (target / f"offsets/{LAST + 1}").touch(), [("torn-offset", f"offsets/{LAST + 1}")]),
        (lambda target: (target / f"offsets/{LAST - 1}").unlink(), [("damaged-log", f"offsets/{LAST - 1}")]),
    ],
)
def test_each_obstacle_has_its_code_and_place(
    tmp_path: Path, damage: Callable[[Path], object], found: list[tuple[str, str]]
) -> None:
    target = sample(NAME, tmp_path)
    damage(target)
    files = LocalDirectory(str(target))
    assert [(obstacle.code, obstacle.where) for obstacle in find_obstacles(files, read_logs(files))] == found


def test_missing_logs_are_told_from_a_query_that_has_just_begun(tmp_path: Path) -> None:
    files = LocalDirectory(str(sample(NAME, tmp_path)))
    assert newest_version(files) == LAST + 1
    assert "Spark runs batch 6 again" in describe_missing_commits(files, range(LAST + 1))
    assert "the logs are missing" in describe_missing_commits(files, ())
    for path in Path(files.root).glob("state/0/*/[2-7].delta"):
        path.unlink()
    assert "no batch is committed yet" in describe_missing_commits(files, (0,))
