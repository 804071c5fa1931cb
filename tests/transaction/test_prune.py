"""Pruning removes the backups of ended runs, but never the only copy of a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ttlsnap import compact, doctor, history, prune, rollback
from ttlsnap.errors import RefusedError
from ttlsnap.publishing.cleanup import discard_backups
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transaction.pruning import Backup, find_backups
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..cli.running import Ttlsnap
from ..samples import bytes_of, sample, without_own

DAY = TtlTransformerFactory(StateTtlConfig(parse_duration("1d")), "value.max")


def compacted(tmp_path: Path) -> Path:
    """Return a checkpoint of RocksDB after a run that has superseded its tables."""
    target = sample("rocksdb-4.2", tmp_path)
    assert compact(str(target), [DAY], stopped=True, rewrite="full").published
    return target


def lose_tables(target: Path) -> list[Path]:
    """Put the old snapshots back by hand, and remove the tables that only they name, as Spark's maintenance does.

    Return the paths of these tables.
    """
    (backup,) = target.glob("_ttlsnap/runs/*/backup")
    for path in backup.rglob("*.zip"):
        shutil.copy(path, target / path.relative_to(backup))
        (target / path.relative_to(backup)).with_name(f".{path.name}.crc").unlink(missing_ok=True)
    tables = [target / path.relative_to(backup) for path in backup.rglob("*.sst")]
    for table in tables:
        table.unlink()
    assert tables
    return tables


def test_a_table_that_only_the_backup_has_is_not_pruned(tmp_path: Path) -> None:
    target = compacted(tmp_path)
    tables = lose_tables(target)
    before = bytes_of(target)
    with pytest.raises(RefusedError, match=r"\.sst is missing, but .*\.zip needs it.* Nothing was removed"):
        prune(str(target))
    assert bytes_of(target) == before
    doctor(str(target), fix=["table-in-backup"], stopped=True)
    assert all(table.exists() for table in tables)
    assert prune(str(target))


def test_the_next_run_keeps_a_backup_with_the_only_copy_of_a_table(tmp_path: Path) -> None:
    target = compacted(tmp_path)
    (first,) = history(str(target))
    lose_tables(target)
    assert discard_backups(Runs.read(LocalDirectory(str(target))), keep="a later run") == []
    assert [(run.run, run.backup) for run in history(str(target))] == [(first.run, True)]


def test_a_pruned_run_cannot_be_rolled_back_and_the_state_stays(tmp_path: Path) -> None:
    target = compacted(tmp_path)
    before = without_own(bytes_of(target))
    (run,) = history(str(target))
    assert prune(str(target)) == [run.run]
    assert without_own(bytes_of(target)) == before
    with pytest.raises(RefusedError, match=r"the backup of run .* was removed"):
        rollback(str(target), stopped=True)
    assert prune(str(target)) == []


def commit_a_batch(target: Path) -> None:
    """Let the planned batch be committed, as by a query that restarts."""
    newest = max((path for path in (target / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    shutil.copy(newest, newest.with_name(str(int(newest.name) + 1)))


def test_the_only_undo_is_not_pruned_without_consent(tmp_path: Path) -> None:
    target = compacted(tmp_path)
    before = bytes_of(target)
    (run,) = history(str(target))
    asked: list[Backup] = []

    def refuse(backup: Backup) -> bool:
        asked.append(backup)
        return False

    assert prune(str(target), confirm=refuse) == []
    assert [(backup.run, backup.needed_to_undo) for backup in asked] == [(run.run, True)]
    assert bytes_of(target) == before
    assert prune(str(target), confirm=lambda backup: True) == [run.run]


def test_a_backup_that_undoes_nothing_is_pruned_without_a_question(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = compacted(tmp_path)
    (run,) = history(str(target))
    commit_a_batch(target)
    assert [backup.needed_to_undo for backup in find_backups(str(target))] == [False]
    pruned = ttlsnap("history", target, "--prune", "--format", "json")
    assert (pruned.code, pruned.json["pruned"]) == (0, [run.run])


def test_the_backup_of_a_rollback_is_pruned_without_a_question(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = compacted(tmp_path)
    rollback(str(target), stopped=True)
    assert ttlsnap("history", target, "--prune").code == 0
    assert not any(run.backup for run in history(str(target)))


def test_without_a_terminal_pruning_the_only_undo_needs_yes(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = compacted(tmp_path)
    before = bytes_of(target)
    (run,) = history(str(target))
    refused = ttlsnap("history", target, "--prune")
    assert (refused.code, bytes_of(target) == before) == (4, True)
    told = " ".join(refused.err.split())
    assert f"no batch was committed after run {run.run}" in told and "add --yes" in told
    assert ttlsnap("history", target, "--prune", "--yes").code == 0
    assert not any(run.backup for run in history(str(target)))


@pytest.mark.parametrize("answer", ["y", "n"])
def test_pruning_the_only_undo_asks_on_a_terminal(
    tmp_path: Path, ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    target = compacted(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, err: answer == "y")
    asked = ttlsnap("history", target, "--prune")
    assert (asked.code, "can still be rolled back" in asked.err) == (0, True)
    (run,) = history(str(target))
    assert run.backup is (answer == "n")
    assert ("Nothing was removed." in asked.err) is (answer == "n")


def test_a_dry_run_of_pruning_shows_sizes_and_removes_nothing(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    target = compacted(tmp_path)
    before = bytes_of(target)
    (run,) = history(str(target))
    (folder,) = target.glob("_ttlsnap/runs/*/backup")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    shown = ttlsnap("history", target, "--prune", "--dry-run", "--format", "json")
    facts = {"run": run.run, "files": len(sizes), "bytes": sum(sizes), "needed_to_undo": True}
    assert (shown.code, shown.json["pruned"], shown.json["to_prune"]) == (0, [], [facts])
    told = ttlsnap("history", target, "--prune", "--dry-run").out
    assert f"--prune would remove the backup of run {run.run} ({len(sizes)} files, " in told
    assert bytes_of(target) == before


@pytest.mark.parametrize("option", ["--dry-run", "--yes"])
def test_the_options_of_prune_need_it(tmp_path: Path, ttlsnap: Ttlsnap, option: str) -> None:
    refused = ttlsnap("history", sample("rocksdb-4.2", tmp_path), option)
    assert (refused.code, f"{option} needs --prune" in refused.err) == (2, True)
