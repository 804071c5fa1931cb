"""Pruning removes the backups of ended runs, but never the only copy of a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ttlsnap import compact, doctor, history, prune, rollback
from ttlsnap.errors import RefusedError
from ttlsnap.publishing.cleanup import discard_backups
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

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
    assert discard_backups(LocalDirectory(str(target)), keep="a later run") == []
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
