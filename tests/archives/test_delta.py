"""A Delta table as the archive: each run is exactly one commit, even if the run was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from ttlsnap import compact
from ttlsnap.archives.writing import SCHEMA
from ttlsnap.cli.app import run as command
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.publishing.recover import recover
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transaction.rollback import rollback
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample
from .archives import Rows, archived
from .archives import run as with_folder


class Killed(BaseException):
    """Stand-in for the death of the process."""


def run(target: Path, place: str, ttl: str = "7d", **options: Any) -> CompactionReport:
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), "value.max")
    return compact(str(target), [factory], stopped=True, max_drop=1.0, expired_to=place, **options)


def rows(table: Path) -> Rows:
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: (row["run"], row["key"]))


def versions(table: Path) -> int:
    return int(DeltaTable(table).version())


def test_table_gets_the_same_entries_as_a_folder(tmp_path: Path) -> None:
    target, other = sample("agg-deltas-lz4-4.2", tmp_path), sample("agg-deltas-lz4-4.2", tmp_path / "other")
    table = tmp_path / "archive"
    assert run(target, f"delta:{table}", dry_run=True).expired_to == f"delta:{table}"
    assert not table.exists()
    first = run(target, f"delta:{table}", ttl="20d")
    assert versions(table) == 1, "one commit that makes it, and one for the run"
    second = run(target, str(table))  # the path is a Delta table now
    assert (first.expired_to, second.expired_to) == (f"delta:{table}",) * 2
    found = rows(table)
    for report in (first, second):
        assert sum(row["run"] == report.run for row in found) == report.totals.dropped > 0
    with_folder(other, tmp_path / "files")
    wanted = [{**row, "run": ""} for row in archived(tmp_path / "files")]
    assert sorted(({**row, "run": ""} for row in found), key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("after", ["the commit", "nothing"])
def test_a_killed_run_is_archived_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    target, table = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"

    def killed(*given: object) -> None:
        if str(given[1]).endswith("/expired") or after == "nothing":
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if after == "the commit":  # undelivered files are removed after the commit
            patched.setattr(LocalDirectory, "remove_tree", killed)
        else:
            patched.setattr("ttlsnap.compaction.runner.deliver", killed)
        run(target, f"delta:{table}")
    assert bool(rows(table)) is (after == "the commit")
    recover(str(target), expired_to=f"delta:{table}")
    found = rows(table)
    assert len({row["key"] for row in found}) == len(found) > 0
    recover(str(target), expired_to=f"delta:{table}")
    assert rows(table) == found


@pytest.mark.parametrize("place", ["delta:{}", "{}"])
@pytest.mark.parametrize("cut_off", [False, True])
def test_rollback_removes_the_entries_of_its_run_from_the_archive(
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
            patched.setattr("ttlsnap.transaction.rollback.take_back_if_allowed", killed)
            rollback(str(target), stopped=True, expired_to=place.format(archive))
        assert runs() == {first.run, second.run}
        recover(str(target), expired_to=place.format(archive))
    else:
        rollback(str(target), stopped=True, expired_to=place.format(archive))
    assert runs() == {first.run}
    assert len(run(target, place.format(archive)).warnings) == 0
    assert len(runs()) == 2


def test_a_failed_rollback_leaves_the_archive_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    report = run(target, str(archive))
    before = bytes_of(target)

    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr("ttlsnap.publishing.swap.apply", full)
        rollback(str(target), stopped=True, expired_to=str(archive))
    recover(str(target), expired_to=str(archive))
    assert {row["run"] for row in archived(archive)} == {report.run}
    assert bytes_of(target / "state") == {
        path.removeprefix("state/"): data for path, data in before.items() if path.startswith("state/")
    }


def test_unsuitable_tables_and_folders_are_refused_before_any_change(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    other, files = tmp_path / "other", tmp_path / "files"
    write_deltalake(other, SCHEMA.empty_table().select(["run", "key"]))
    files.mkdir()
    (files / "mine.parquet").touch()
    before = bytes_of(target)
    with pytest.raises(
        UsageError, match="is not a table for dropped entries; such a table has the columns run string, "
    ):
        run(target, str(other))
    with pytest.raises(UsageError, match="files contains files, and is not a Delta table"):
        run(target, f"delta:{files}")
    (other / "_delta_log/00000000000000000000.json").write_text("{")
    with pytest.raises(StorageError, match=f"delta:{other}"):
        run(target, str(other))
    assert bytes_of(target) == before


@pytest.mark.parametrize("place", ["{}", "{}/state/0", "{}/_ttlsnap/runs", "delta:{}/state/archive"])
def test_an_archive_inside_the_checkpoint_is_refused(tmp_path: Path, place: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(UsageError, match="name a place outside it for dropped entries"):
        run(target, place.format(target))
    with pytest.raises(UsageError, match="name a place outside it for dropped entries"):
        run(target, str(tmp_path / "copy/expired"), output=str(tmp_path / "copy"))
    assert bytes_of(target) == before
    assert not (tmp_path / "copy").exists()


def test_undeliverable_entries_do_not_stop_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("ttlsnap.compaction.runner.deliver", killed)
        run(target, str(archive), ttl="20d")
    archive.rmdir()
    archive.touch()
    assert "To deliver them: ttlsnap recover" in run(target, str(tmp_path / "another")).warnings[0]
    (warning,) = recover(str(target), expired_to=str(archive)).warnings
    assert "dropped are still in" in warning
    assert "to discard them, remove that folder" in warning
    archive.unlink()
    assert recover(str(target), expired_to=str(archive)).warnings == ()
    assert run(target, str(tmp_path / "another")).warnings == ()
    assert len(archived(archive)) > 0


def test_the_error_says_that_the_rollback_is_complete_if_the_archive_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    report = run(target, str(archive))

    def away(*_: object) -> None:
        raise StorageError("the other side is away")

    with monkeypatch.context() as patched:
        patched.setattr("ttlsnap.archives.receivers.Folder.take_back", away)
        with pytest.raises(
            StorageError, match=f"is away\nRun {report.run} is rolled back, but the entries that it dropped"
        ):
            rollback(str(target), stopped=True, expired_to=str(archive))
    assert len(archived(archive)) > 0
    recover(str(target), expired_to=str(archive))
    assert archived(archive) == []


def test_compact_and_maintain_archive_into_a_delta_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, table = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    monkeypatch.chdir(tmp_path)
    words = ["--ttl", "20d", "--timestamp", "value.max", "--stopped", "--yes", "--engine", "local"]
    assert command(["compact", target.name, *words, "--expired-to", "delta:archive"]) == 0
    (name,) = {row["run"] for row in rows(table)}
    assert (
        f"The dropped entries are archived in the Delta table {table}, run = '{name}'"
        in capsys.readouterr().out.replace("\n", "")
    )
    rule = '[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'
    head = f'[[target]]\npath = "{target.name}"\nstopped = true\nexpired_to = "delta:archive"\n'
    (tmp_path / "policy.toml").write_text(head + rule)
    assert command(["maintain", "policy.toml", "--engine", "local", "--format", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["targets"]
    assert found["expired_to"] == f"delta:{table}"
    assert len({row["run"] for row in rows(table)}) == 2
