"""``copy --replace`` with sample checkpoints: what the restored checkpoint has, and how it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import diff, doctor, history, rollback
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage.open import open_directory

from ..samples import SAMPLES, bytes_of, sample

NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
AGG, VISITS, BEGUN = "agg-deltas-lz4-4.2", "visits-4.2", "uncommitted-batch-4.2"
HARMLESS = {"no-schema", "planned-batch", "uncommitted-batch"}


def content_of(checkpoint: Path) -> dict[str, str]:
    """Return the files of a checkpoint, without ttlsnap's own."""
    return {path: data for path, data in bytes_of(checkpoint).items() if path.partition("/")[0] != "_ttlsnap"}


def make_backup(checkpoint: Path, place: Path) -> int:
    """Copy the oldest batch of a checkpoint that can be restored. Return its number."""
    for batch in read_logs(open_directory(str(checkpoint))).commits:
        try:
            return copy(str(checkpoint), str(place), batch=batch).batch
        except TtlsnapError:
            continue
    raise AssertionError(f"{checkpoint} has no batch that can be restored")


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_gets_the_state_of_its_backup_and_a_rollback_takes_it_back(tmp_path: Path, name: str) -> None:
    checkpoint, backup = sample(name, tmp_path), tmp_path / "backup"
    batch = make_backup(checkpoint, backup)
    before, last = content_of(checkpoint), read_logs(open_directory(str(checkpoint)))
    # Spark cannot run a query with a global limit without data.
    has_limit = name.startswith("limit")
    report = copy(str(backup), str(checkpoint), replace=True, stopped=True, planned_batch=not has_limit)
    after = read_logs(open_directory(str(checkpoint)))
    assert (report.replaced, report.source_batch, report.batch) == (True, batch, last.commits[-1])
    assert (after.commits[-1], after.offsets[-1]) == (last.commits[-1], last.commits[-1] + (not has_limit))
    assert {problem.code for problem in doctor(str(checkpoint)).problems} <= HARMLESS
    if name != "no-schema-3.0":
        assert diff(str(backup), str(checkpoint)).differs is False
    assert [entry.kind for entry in history(str(checkpoint))][-1] == "restore"
    rollback(str(checkpoint), stopped=True)
    assert content_of(checkpoint) == before
