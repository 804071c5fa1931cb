"""Erasing from the disk: purge, vacuum, remaining files, and retentions below that of the table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ttlsnap.cli.app import run

from ..judge.processes import Server, SparkFailed
from ..matrix import FULL
from .tables import ALL, NOW, Table, expired


def on_disk(table: Table) -> set[str]:
    """Return the users in all data files on disk, including files that the table no longer uses."""
    found: set[str] = set()
    for path in Path(table.path).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            found |= {blob.decode() for blob in pq.ParquetFile(path).read().column("blob").to_pylist()}
    return found


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["vectors", "feed", "plain", "partitioned"] if FULL else ["vectors"])
def test_erased_rows_are_gone_from_every_file(delta_server: Server, tmp_path: Path, kind: str) -> None:
    table = Table(delta_server, tmp_path, kind=kind, rich=True)
    report = table.compact()
    week = datetime.now(UTC) + timedelta(days=7)
    if kind == "vectors":
        assert report["physically_gone_by"] is None  # the rows are only marked as deleted
    else:
        assert abs(datetime.fromisoformat(report["physically_gone_by"]) - week) < timedelta(minutes=5)
    assert on_disk(table) == ALL
    if FULL:
        # The table's retention keeps files that are so young. Their week begins now, also for marked rows.
        report = table.compact(erase=(None, False))
        assert on_disk(table) == ALL
        assert report["erased"]["left"] > 0
        assert abs(datetime.fromisoformat(report["physically_gone_by"]) - week) < timedelta(minutes=5)
    with pytest.raises(SparkFailed, match="keeps old files for interval 1 week"):
        table.compact(erase=(0, False))
    assert on_disk(table) == ALL
    (Path(table.path) / "_checkpoints").mkdir()  # VACUUM ignores this folder, which has no data
    (Path(table.path) / "_checkpoints/x").touch()
    report = table.compact(erase=(0, True))
    assert report["erased"]["left"] == 0
    assert report["physically_gone_by"] is None
    assert on_disk(table) == ALL - expired()
    assert set(table.users()) == ALL - expired()
    # The files of the old version no longer exist.
    with pytest.raises(SparkFailed, match="can no longer be rolled back"):
        table.call("rollback", path=table.path)
    assert set(table.users()) == ALL - expired()
    table.put([1, 59], at=NOW)
    table.merge()
    assert set(table.users()) == ALL - expired() | {"u059"}


def test_options_for_erasing_are_checked(
    delta_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(delta_server, tmp_path)
    policy = ["--key", "user", "--timestamp", "at", "--ttl", "7d"]
    assert run(["compact", table.path, *policy, "--erase", "--retention", "1h"]) == 2
    assert "may lose its files. To accept that, add --yes" in capsys.readouterr().err
    assert run(["compact", table.path, *policy, "--retention", "1h"]) == 2
    assert "--retention needs --erase" in capsys.readouterr().err
    assert run(["compact", table.path, *policy, "--max-bytes", "much"]) == 2
    assert "'much' is not a size" in capsys.readouterr().err
