"""TTL on tables that a real stream has merged into: expired rows are dropped, and other rows stay unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap.cli.app import run
from ttlsnap.delta.history import table_history

from ..judge.processes import Server, SparkFailed
from ..matrix import FULL
from .tables import ALL, KINDS, NOW, TIMES, USERS, Table, expired

EVERYTHING = [
    *((time, "plain") for time in TIMES),
    *(("timestamp", kind) for kind in KINDS if kind != "plain"),
    ("nested", "vectors"),
]


@pytest.mark.parametrize(("time", "kind"), EVERYTHING if FULL else [("nested", "vectors")])
def test_expired_rows_are_dropped_and_the_stream_continues(
    delta_server: Server, tmp_path: Path, time: str, kind: str
) -> None:
    table = Table(delta_server, tmp_path, time, kind)
    gone = expired(day=time == "date")
    before = table.users()
    assert set(before) == ALL
    dry = table.compact(dry_run=True)
    assert (dry["totals"]["entries"], dry["totals"]["dropped"]) == (USERS, len(gone))
    assert table.users() == before
    report = table.compact()
    assert report["totals"]["dropped"] == len(gone)
    assert set(table.users()) == ALL - gone
    assert table.users(report["logically_gone"]["version"] - 1) == before
    # A second run has nothing to drop, and commits no version.
    assert table.compact()["published"] is False
    # A dropped key starts afresh, and a kept key continues.
    kept = sorted(ALL - gone)[0]
    table.put([int(min(gone)[1:]), int(kept[1:])], at=NOW, visits=1000)
    table.merge()
    assert set(table.users()) == ALL - gone | {min(gone)}


def test_rollback_restores_the_rows_and_history_lists_it(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path)
    before = table.users()
    report = table.compact()
    assert table.compact(key=[], dry_run=True)["key"] == ["user"]  # the table remembers its key
    (first,) = table_history(table.path)
    assert (first.run, first.dropped) == (report["run"], len(expired()))
    table.call("rollback", path=table.path)
    assert table.users() == before
    assert [entry.kind for entry in table_history(table.path)] == ["compact", "rollback"]
    if FULL:
        table.compact()
        table.put([1], at=NOW)
        table.merge()
        with pytest.raises(SparkFailed, match="would lose their changes"):
            table.call("rollback", path=table.path)


def test_maintenance_does_not_advance_the_clock(delta_server: Server, tmp_path: Path) -> None:
    # While a stream is stopped, its rows must not expire because of an OPTIMIZE.
    table = Table(delta_server, tmp_path)
    now = table.compact(now="checkpoint", dry_run=True)["now"]
    table.sql(f"OPTIMIZE delta.`{table.path}`", f"ALTER TABLE delta.`{table.path}` ADD COLUMN more INT")
    assert table.compact(now="checkpoint", dry_run=True)["now"] == now
    table.compact()
    assert table.compact(now="checkpoint", dry_run=True)["now"] == now


if FULL:

    def test_rollback_fails_if_another_writer_commits(delta_server: Server, tmp_path: Path) -> None:
        table = Table(delta_server, tmp_path)
        table.compact()
        with pytest.raises(SparkFailed, match="another writer is active"):
            table.call("undone_late", path=table.path)
        assert set(table.users()) == ALL - expired() | {"late"}
        # A second rollback has undone the first one.
        assert [run.kind for run in table_history(table.path)] == ["compact", "rollback", "rollback"]
        with pytest.raises(SparkFailed, match="would lose their changes"):
            table.call("rollback", path=table.path)


def test_bad_input_leaves_a_table_unchanged(
    delta_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(delta_server, tmp_path)
    with pytest.raises(SparkFailed, match="name the columns of the table's key"):
        table.compact(key=[])
    # A dry run does not need Spark.
    options = ["--key", "user", "--timestamp", "at", "--ttl", "7d", "--now", NOW.isoformat(), "--dry-run"]
    assert run(["compact", table.path, *options, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["totals"]["dropped"]) == ("table", len(expired()))
    assert run(["compact", table.path, *options]) == 0
    assert "Dry run: nothing was changed" in capsys.readouterr().out
    for wrong, words in (
        ([*options, "--output", "x"], "--output is for checkpoints"),
        (options[2:], "--key"),
        (["--key", "nosuch", *options[2:]], "has no column nosuch"),
        (["--key", "user", "--timestamp", "nosuch", *options[4:]], "has no field value.nosuch"),
        (["--key", "user", *options[6:]], "for which Spark stores no times; use --ttl and --timestamp"),
        ([*options, "--engine", "local"], "--engine local is for checkpoints"),
        ([*options, "--max-files", "0"], "max-files"),
    ):
        assert run(["compact", table.path, *wrong]) in (2, 3)
        assert words in capsys.readouterr().err
    assert run(["history", table.path]) == 0
    assert "no runs" in capsys.readouterr().out
    assert run(["history", table.path, "--prune"]) == 2
    assert run(["rollback", table.path]) == 4
    table.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(SparkFailed, match=r"delta\.appendOnly"):
        table.compact()
    assert set(table.users()) == ALL
