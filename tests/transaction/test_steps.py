"""Every kind of run tells the same: what earlier runs have left, and what they have not delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import export, history, import_state, migrate, recover, rollback

from ..expired.archives import cut_off, run
from ..samples import bytes_of, sample

AGG = "agg-deltas-lz4-4.2"
OPTIONS: dict[str, Any] = {"stopped": True, "max_drop": 1.0}


def compacted(target: Path) -> Any:
    return run(target, target.parent / "other", ttl="1s")


def imported(target: Path, **options: Any) -> Any:
    folder = str(target.parent / "exported")
    export(str(target), folder)
    return import_state(str(target), folder, mode="merge", stopped=True, **options)


RUNS: dict[str, Callable[[Path], Any]] = {
    "compact": compacted,
    "import": imported,
    "migrate": lambda target: migrate(str(target), partitions=3, stopped=True),
    "rollback": lambda target: rollback(str(target), stopped=True),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_warns_of_a_backup_with_the_only_copy_of_a_file(kind: str, tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    if kind == "rollback":
        run(target, tmp_path / "archive")
    lost = target / "_ttlsnap/runs/20260101T000000Z-0123456789ab/backup/state/0/0/1.delta"
    lost.parent.mkdir(parents=True)
    lost.write_bytes(b"moved by a host that had lost its lock")
    warnings = " ".join(RUNS[kind](target).warnings)
    assert f"{lost} was not restored" in warnings
    assert lost.read_bytes() == b"moved by a host that had lost its lock"


@pytest.mark.parametrize("kind", ["import", "migrate"])
def test_a_run_without_an_archive_says_what_waits_for_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, archive = sample(AGG, tmp_path), tmp_path / "archive"
    cut_off("delivery", monkeypatch, lambda: run(target, archive))
    report = RUNS[kind](target)
    assert report.published
    (told,) = (warning for warning in report.warnings if "its dropped" in warning or "dropped are still in" in warning)
    assert f"ttlsnap recover {target} --expired-to {archive}" in told
    assert any(entry.waiting for entry in history(str(target)))
    recover(str(target), expired_to=str(archive))
    assert not any(entry.waiting for entry in history(str(target))) and list(archive.glob("*.parquet"))


@pytest.mark.parametrize("kind", ["import", "migrate"])
def test_a_dry_run_of_every_kind_is_marked_and_writes_nothing(kind: str, tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    before = bytes_of(target)
    report = imported(target, dry_run=True) if kind == "import" else migrate(str(target), partitions=3, dry_run=True)
    assert (report.dry_run, report.published, report.backup, report.output) == (True, False, None, None)
    assert bytes_of(target) == before
