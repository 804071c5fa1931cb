"""What stops Spark when a query starts. ``tests/diagnosis/test_starts.py`` compares all of it with real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.starting import describe_missing_commits, find_obstacles, newest_version, require_startable
from ttlsnap.errors import UnsupportedError
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
    lost = describe_missing_commits(files, ())
    assert "the offset log is missing" in lost
    assert lost.endswith(
        f"ttlsnap copy BACKUP {files.root} --replace --stopped. Or put the folder offsets back as before"
    )
    (Path(files.root) / "commits").rename(Path(files.root) / "lost")
    assert "the logs are missing" in describe_missing_commits(files, ())
    for path in Path(files.root).glob("state/0/*/[2-7].delta"):
        path.unlink()
    assert "no batch is committed yet" in describe_missing_commits(files, (0,))


def test_without_the_ids_of_its_files_state_is_lost(tmp_path: Path) -> None:
    files = LocalDirectory(str(sample("rocksdb-ids-4.2", tmp_path)))
    assert "so Spark does not load the state" in describe_missing_commits(files, (0, 1))
    files = LocalDirectory(str(sample(NAME, tmp_path)))
    assert f"Spark needs version {LAST + 9}" in describe_missing_commits(files, range(LAST + 10))


def test_an_unknown_version_of_a_log_is_not_damage(tmp_path: Path) -> None:
    target = sample(NAME, tmp_path)
    log = target / f"offsets/{LAST - 1}"
    log.with_name(f".{log.name}.crc").unlink()
    log.write_text(log.read_text().replace("v1", "v9", 1))
    files = LocalDirectory(str(target))
    with pytest.raises(UnsupportedError, match="log version 'v9' is unknown"):
        require_startable(files, read_logs(files))
