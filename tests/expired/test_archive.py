"""What expired is not lost: each dropped entry is in the archive once, and only those of runs that stand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ttlsnap.compaction import compact
from ttlsnap.errors import StorageError, UsageError
from ttlsnap.expired.delivery import deliver
from ttlsnap.expired.receivers import Folder
from ttlsnap.filesystem import LocalDirectory
from ttlsnap.inspection import inspect
from ttlsnap.recovery import recover, rollback
from ttlsnap.report import CompactionReport
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import COMPACTABLE, bytes_of, sample

Rows = list[dict[str, Any]]
AFTER_ALL = "2100-01-01"


def run(target: Path, archive: Path, field: str = "value.max", ttl: str = "7d", **options: Any) -> CompactionReport:
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), field)
    return compact(str(target), [factory], quiet_period=0, expired_to=str(archive), **options)


def archived(archive: Path) -> Rows:
    rows: Rows = []
    for path in sorted(archive.glob("*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


def entries(target: Path) -> Counter[str]:
    """Each entry of the primary states: where it is, its key and value."""
    found = inspect(str(target), entries=10**6).samples or []
    return Counter(_spelled(e["operator"], e["store"], e["state"], e["partition"], e["key"], e["value"]) for e in found)


def _spelled(*facts: Any) -> str:
    return json.dumps(facts, sort_keys=True)


def told(rows: Rows) -> Counter[str]:
    """The same of what is archived, with times in the form that inspect has for whole seconds."""
    places = ("operator", "store", "state", "partition")
    found = (_spelled(*map(row.get, places), json.loads(row["key"]), json.loads(row["value"])) for row in rows)
    return Counter(text.replace(".000000", ".000") for text in found)


@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "rocksdb-4.2", "visits-4.2", "dedup-within-4.2"])
def test_what_is_dropped_is_in_the_archive(tmp_path: Path, name: str) -> None:
    target, archive = sample(name, tmp_path), tmp_path / "archive"
    before = entries(target)
    dry = run(target, archive, COMPACTABLE[name], now=AFTER_ALL, dry_run=True)
    assert not archive.exists()
    report = run(target, archive, COMPACTABLE[name], now=AFTER_ALL)
    rows = archived(archive)
    assert len(rows) == report.totals.dropped == dry.totals.dropped > 0
    assert {row["run"] for row in rows} == {report.run}
    assert all(row["timestamp"] is not None for row in rows)
    if name == "agg-deltas-lz4-4.2":  # whose times inspect has in one form
        kept = entries(target)
        gone = before - kept
        assert told(rows) == gone
        assert all(f"{row['timestamp']:%Y-%m-%d %H:%M:%S}" in row["value"] for row in rows)
    assert not (target / "_ttlsnap/runs" / report.run / "expired").exists()
    assert json.loads((target / "_ttlsnap/runs" / report.run / "report.json").read_text())["expired_to"] == str(archive)


def test_runs_share_a_folder_and_one_that_drops_nothing_adds_nothing(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    first = run(target, archive, ttl="20d")
    assert run(target, archive, ttl="20d").published is False
    second = run(target, archive, ttl="7d")
    found = Counter(row["run"] for row in archived(archive))
    assert found == {r.run: r.totals.dropped for r in (first, second) if r.totals.dropped}
    assert len(found) == 2


def test_what_is_rolled_back_is_taken_back(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    first = run(target, archive, ttl="20d")
    run(target, archive, ttl="7d")
    rollback(str(target), quiet_period=0)
    assert {row["run"] for row in archived(archive)} == {first.run}


def test_a_copy_brings_its_own(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = bytes_of(target)
    report = run(target, archive, output=str(tmp_path / "new"))
    assert len(archived(archive)) == report.totals.dropped > 0
    assert bytes_of(target) == before


def cut_off(at: str, monkeypatch: pytest.MonkeyPatch, run_it: Callable[[], object]) -> None:
    """Stop a run as it begins to deliver, or as it puts its first file into the archive."""

    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    from ttlsnap import compaction

    rename = LocalDirectory.rename

    def rename_once(self: LocalDirectory, source: str, to: str) -> None:
        rename(self, source, to)
        if to.endswith(".parquet") and "/" not in to:
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if at == "delivery":
            patched.setattr(compaction, "deliver", killed)
        else:
            patched.setattr(LocalDirectory, "rename", rename_once)
        run_it()


@pytest.mark.parametrize("at", ["delivery", "first file"])
@pytest.mark.parametrize("by", ["recover", "the next run"])
def test_what_was_not_delivered_is_delivered_later_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, by: str
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = entries(target)
    cut_off(at, monkeypatch, lambda: run(target, archive))
    gone = before - entries(target)
    assert sum(gone.values()) > len(archived(archive))
    if by == "recover":
        recover(str(target))
    else:
        run(target, archive)
    assert told(archived(archive)) == gone
    assert not [path for path in archive.iterdir() if path.suffix != ".parquet"]


def test_a_run_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttlsnap import publish

    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = bytes_of(target / "state")

    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(publish, "apply", full)
        run(target, archive)
    assert (archived(archive), bytes_of(target / "state")) == ([], before)
    report = run(target, archive)
    assert {row["run"] for row in archived(archive)} == {report.run}


def test_an_archive_that_cannot_be_written_is_told_and_the_run_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    from ttlsnap import compaction

    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "deliver", full)
        report = run(target, archive)
    assert report.published and "from where the next run will deliver it: the disk is full" in report.warnings[0]
    deliver(LocalDirectory(str(target)), report.run, Folder(str(archive)))
    assert len(archived(archive)) == report.totals.dropped


def test_an_archive_is_a_folder(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (tmp_path / "archive").touch()
    before = bytes_of(target)
    with pytest.raises(UsageError, match="is no folder: dropped entries go into"):
        run(target, tmp_path / "archive")
    assert bytes_of(target) == before
