"""A Delta table that gets what is dropped: a run is one commit, made once, whatever is cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from ttlsnap.cli.app import run as command
from ttlsnap.compaction import compact
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.expired.writing import SCHEMA
from ttlsnap.filesystem import LocalDirectory
from ttlsnap.recovery import recover, rollback
from ttlsnap.report import CompactionReport
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample
from .test_archive import Rows, archived
from .test_archive import run as with_folder


class Killed(BaseException):
    """The process is gone."""


def run(target: Path, place: str, ttl: str = "7d", **options: Any) -> CompactionReport:
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), "value.max")
    return compact(str(target), [factory], stopped=True, max_drop=1.0, expired_to=place, **options)


def rows(table: Path) -> Rows:
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: (row["run"], row["key"]))


def versions(table: Path) -> int:
    return int(DeltaTable(table).version())


def test_it_gets_what_a_folder_would_get(tmp_path: Path) -> None:
    target, other = sample("agg-deltas-lz4-4.2", tmp_path), sample("agg-deltas-lz4-4.2", tmp_path / "other")
    table = tmp_path / "archive"
    assert run(target, f"delta:{table}", dry_run=True).expired_to == f"delta:{table}"
    assert not table.exists()
    first = run(target, f"delta:{table}", ttl="20d")
    assert versions(table) == 1, "one commit that makes it, and one for the run"
    second = run(target, str(table))  # which is one by now
    assert (first.expired_to, second.expired_to) == (f"delta:{table}",) * 2
    found = rows(table)
    for report in (first, second):
        assert sum(row["run"] == report.run for row in found) == report.totals.dropped > 0
    with_folder(other, tmp_path / "files")
    wanted = [{**row, "run": ""} for row in archived(tmp_path / "files")]
    assert sorted(({**row, "run": ""} for row in found), key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("after", ["the commit", "nothing"])
def test_a_run_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    target, table = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"

    def killed(*given: object) -> None:
        if str(given[1]).endswith("/expired") or after == "nothing":
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if after == "the commit":  # behind which what waits is removed
            patched.setattr(LocalDirectory, "remove_tree", killed)
        else:
            patched.setattr("ttlsnap.compaction.deliver", killed)
        run(target, f"delta:{table}")
    assert bool(rows(table)) is (after == "the commit")
    recover(str(target), expired_to=f"delta:{table}")
    found = rows(table)
    assert len({row["key"] for row in found}) == len(found) > 0
    recover(str(target), expired_to=f"delta:{table}")
    assert rows(table) == found


@pytest.mark.parametrize("place", ["delta:{}", "{}"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_what_is_rolled_back_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, cut_off: bool
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    first = run(target, place.format(archive), ttl="20d")
    second = run(target, place.format(archive))

    def runs() -> set[str]:
        return {row["run"] for row in (rows(archive) if "delta" in place else archived(archive))}

    assert runs() == {first.run, second.run}
    if cut_off:

        def killed(*_: object) -> None:
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr("ttlsnap.recovery.take_back_if_allowed", killed)
            rollback(str(target), stopped=True, expired_to=place.format(archive))
        assert runs() == {first.run, second.run}
        recover(str(target), expired_to=place.format(archive))
    else:
        rollback(str(target), stopped=True, expired_to=place.format(archive))
    assert runs() == {first.run}
    assert len(run(target, place.format(archive)).warnings) == 0
    assert len(runs()) == 2


def test_a_rollback_that_is_refused_takes_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    report = run(target, str(archive))
    before = bytes_of(target)

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr("ttlsnap.publish.apply", full)
        rollback(str(target), stopped=True, expired_to=str(archive))
    recover(str(target), expired_to=str(archive))
    assert {row["run"] for row in archived(archive)} == {report.run}
    assert bytes_of(target / "state") == {
        path.removeprefix("state/"): data for path, data in before.items() if path.startswith("state/")
    }


def test_what_is_no_archive_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    other, files = tmp_path / "other", tmp_path / "files"
    write_deltalake(other, SCHEMA.empty_table().select(["run", "key"]))
    files.mkdir()
    (files / "mine.parquet").touch()
    before = bytes_of(target)
    with pytest.raises(UsageError, match="is not a table for dropped entries, whose columns are run string, "):
        run(target, str(other))
    with pytest.raises(UsageError, match="files has files in it, and is no Delta table"):
        run(target, f"delta:{files}")
    (other / "_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(StorageError, match=f"delta:{other}"):
        run(target, str(other))
    assert bytes_of(target) == before


@pytest.mark.parametrize("place", ["{}", "{}/state/0", "{}/_ttlsnap/runs", "delta:{}/state/archive"])
def test_an_archive_lies_elsewhere(tmp_path: Path, place: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(UsageError, match="dropped entries go to another place"):
        run(target, place.format(target))
    with pytest.raises(UsageError, match="dropped entries go to another place"):
        run(target, str(tmp_path / "copy/expired"), output=str(tmp_path / "copy"))
    assert bytes_of(target) == before
    assert not (tmp_path / "copy").exists()


def test_what_cannot_be_delivered_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("ttlsnap.compaction.deliver", killed)
        run(target, str(archive), ttl="20d")
    archive.rmdir()
    archive.touch()
    assert "To deliver it: ttlsnap recover" in run(target, str(tmp_path / "another")).warnings[0]
    (warning,) = recover(str(target), expired_to=str(archive)).warnings
    assert "dropped is still in" in warning
    assert "to give it up, remove that" in warning
    archive.unlink()
    assert recover(str(target), expired_to=str(archive)).warnings == ()
    assert run(target, str(tmp_path / "another")).warnings == ()
    assert len(archived(archive)) > 0


def test_a_rollback_says_that_it_is_done_though_nothing_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    report = run(target, str(archive))

    def away(*_: object) -> None:
        raise StorageError("the other side is away")

    with monkeypatch.context() as patched:
        patched.setattr("ttlsnap.expired.receivers.Folder.take_back", away)
        with pytest.raises(StorageError, match=f"is away\nRun {report.run} is rolled back, but what it had dropped"):
            rollback(str(target), stopped=True, expired_to=str(archive))
    assert len(archived(archive)) > 0
    recover(str(target), expired_to=str(archive))
    assert archived(archive) == []


def test_on_the_command_line_and_in_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, table = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    monkeypatch.chdir(tmp_path)
    words = ["--ttl", "20d", "--timestamp", "value.max", "--stopped", "--yes", "--engine", "local"]
    assert command(["compact", target.name, *words, "--expired-to", "delta:archive"]) == 0
    (name,) = {row["run"] for row in rows(table)}
    assert f"What was dropped is in the Delta table {table}, run = '{name}'" in capsys.readouterr().out.replace(
        "\n", ""
    )
    rule = '[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'
    head = f'[[target]]\npath = "{target.name}"\nstopped = true\nexpired_to = "delta:archive"\n'
    (tmp_path / "policy.toml").write_text(head + rule)
    assert command(["maintain", "policy.toml", "--engine", "local", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["targets"]
    assert found["expired_to"] == f"delta:{table}"
    assert len({row["run"] for row in rows(table)}) == 2
