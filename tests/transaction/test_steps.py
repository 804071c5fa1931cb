"""Every kind of run tells the same: what earlier runs have left, and what they have not delivered."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import doctor, export, history, import_state, migrate, recover, rollback
from ttlsnap.errors import RefusedError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory

from ..archives.archives import cut_off, run
from ..samples import bytes_of, sample
from .killing import killed

AGG = "agg-deltas-lz4-4.2"


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
    (told,) = (warning for warning in report.warnings if "dropped are still in" in warning)
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


COMPACT = """
rule = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
compact({0!r}, [rule], stopped=True, max_drop=1.0, expired_to={1!r})
"""


def test_a_repair_that_is_killed_before_its_journal_is_no_copy(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    shutil.copy(target / "state/0/0/1.delta", target / "state/0/0/9.snapshot")  # of a withdrawn batch
    killed("ttlsnap.publishing.swap:write_journal", f"doctor({str(target)!r}, fix=['stale-snapshot'], stopped=True)")
    assert list(target.glob("_ttlsnap/runs/*/report.json")) and not list(target.glob("_ttlsnap/runs/*/journal.json"))
    assert history(str(target)) == []
    runs = Runs.read(LocalDirectory(str(target)))
    assert [runs.report_of_copy(run) for run in runs.ids] == [None]
    with pytest.raises(RefusedError, match=r"there is no run to roll back$"):
        rollback(str(target), stopped=True)
    doctor(str(target), fix=["stale-snapshot"], stopped=True)
    assert [entry.kind for entry in history(str(target))] == ["repair"]


def test_entries_of_a_run_whose_journal_is_lost_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, archive = sample(AGG, tmp_path), tmp_path / "archive"
    cut_off("delivery", monkeypatch, lambda: run(target, archive))
    (journal,) = target.glob("_ttlsnap/runs/*/journal.json")
    journal.unlink()
    entries = list(journal.parent.glob("expired/*.parquet"))
    (target / "offsets/7").unlink()  # the planned batch, which nothing explains any more
    report = run(target, archive, ttl="9999d")
    assert entries and all(path.exists() for path in entries)
    assert f"{journal} is missing" in " ".join(report.warnings)


def test_entries_of_a_run_that_was_not_published_reach_no_archive(tmp_path: Path) -> None:
    target, archive = sample(AGG, tmp_path), tmp_path / "archive"
    killed("ttlsnap.publishing.swap:write_journal", COMPACT.format(str(target), str(archive)))
    (folder,) = target.glob("_ttlsnap/runs/*")
    assert list(folder.glob("expired/*.parquet"))
    # With the only copy of a file, the folder of the run stays.
    (folder / "backup/state/0/0").mkdir(parents=True, exist_ok=True)
    (folder / "backup/state/0/0/3.snapshot").write_bytes(b"nowhere else")
    report = run(target, archive, ttl="9999d")
    assert any("was not restored" in warning for warning in report.warnings)
    assert folder.exists() and not list(archive.glob("*.parquet"))


def test_a_rollback_that_is_killed_before_its_journal_leaves_nothing_to_settle(tmp_path: Path) -> None:
    target, archive = sample(AGG, tmp_path), tmp_path / "archive"
    run(target, archive)
    code = f"rollback({str(target)!r}, stopped=True, expired_to={str(archive)!r})"
    killed("ttlsnap.publishing.swap:write_journal", code)
    assert list(target.glob("_ttlsnap/runs/*/expired/*"))
    assert [entry.waiting for entry in history(str(target))] == [False]
    assert recover(str(target)).settled == ()
    rollback(str(target), stopped=True, expired_to=str(archive))
    assert not list(archive.glob("*.parquet"))
