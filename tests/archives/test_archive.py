"""The archive holds each dropped entry once, and only entries of runs that were not undone or rolled back."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttlsnap import StateEntries, compact
from ttlsnap.archives.delivery import deliver
from ttlsnap.archives.receivers import ExpiredCallback, Folder
from ttlsnap.archives.writing import ExpiredWriter
from ttlsnap.errors import CorruptionError, RefusedError, StorageError, UsageError
from ttlsnap.publishing.history import history
from ttlsnap.publishing.recover import recover
from ttlsnap.reading.inspect import inspect
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transaction.rollback import rollback
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import COMPACTABLE, bytes_of, sample
from .archives import Rows, archived, cut_off, run

AFTER_ALL = "2100-01-01"


def entries(target: Path) -> Counter[str]:
    """Count the entries of the primary states by place, key and value."""
    found = inspect(str(target), entries=10**6).samples or []
    return Counter(_spelled(e["operator"], e["store"], e["state"], e["partition"], e["key"], e["value"]) for e in found)


def _spelled(*facts: Any) -> str:
    return json.dumps(facts, sort_keys=True)


def told(rows: Rows) -> Counter[str]:
    """Count archived entries in the same form."""
    places = ("operator", "store", "state", "partition")
    return Counter(_spelled(*map(row.get, places), json.loads(row["key"]), json.loads(row["value"])) for row in rows)


@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "rocksdb-4.2", "visits-4.2", "dedup-within-4.2"])
def test_archive_holds_every_dropped_entry(tmp_path: Path, name: str) -> None:
    target, archive = sample(name, tmp_path), tmp_path / "archive"
    before = entries(target)
    dry = run(target, archive, COMPACTABLE[name], now=AFTER_ALL, dry_run=True)
    assert not archive.exists()
    report = run(target, archive, COMPACTABLE[name], now=AFTER_ALL)
    rows = archived(archive)
    assert len(rows) == report.totals.dropped == dry.totals.dropped > 0
    assert {row["run"] for row in rows} == {report.run}
    assert all(row["timestamp"] is not None for row in rows)
    if name == "agg-deltas-lz4-4.2":  # inspect writes all its times in one form
        kept = entries(target)
        gone = before - kept
        assert told(rows) == gone
        assert all(f"{row['timestamp']:%Y-%m-%d %H:%M:%S}" in row["value"] for row in rows)
    assert not (target / "_ttlsnap/runs" / report.run / "expired").exists()
    assert json.loads((target / "_ttlsnap/runs" / report.run / "report.json").read_text())["expired_to"] == str(archive)


def test_runs_share_a_folder_and_a_run_without_drops_adds_nothing(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    first = run(target, archive, ttl="20d")
    assert run(target, archive, ttl="20d").published is False
    second = run(target, archive, ttl="7d")
    found = Counter(row["run"] for row in archived(archive))
    assert found == {r.run: r.totals.dropped for r in (first, second) if r.totals.dropped}
    assert len(found) == 2


def test_rollback_removes_the_entries_of_its_run_from_the_archive(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    first = run(target, archive, ttl="20d")
    run(target, archive, ttl="7d")
    rollback(str(target), stopped=True, expired_to=str(archive))
    assert {row["run"] for row in archived(archive)} == {first.run}


def test_run_with_an_output_archives_its_dropped_entries(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = bytes_of(target)
    report = run(target, archive, output=str(tmp_path / "new"))
    assert len(archived(archive)) == report.totals.dropped > 0
    assert bytes_of(target) == before


@pytest.mark.parametrize("at", ["delivery", "first file"])
@pytest.mark.parametrize("by", ["recover", "the next run"])
def test_undelivered_entries_are_delivered_later_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, by: str
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = entries(target)
    cut_off(at, monkeypatch, lambda: run(target, archive))
    gone = before - entries(target)
    assert sum(gone.values()) > len(archived(archive))
    if by == "recover":
        recover(str(target), expired_to=str(archive))
    else:
        run(target, archive)
    assert told(archived(archive)) == gone
    assert not [path for path in archive.iterdir() if path.suffix != ".parquet"]


def test_a_failed_run_archives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttlsnap.publishing import swap as swapping

    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before = bytes_of(target / "state")

    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr(swapping, "apply", full)
        run(target, archive)
    assert (archived(archive), bytes_of(target / "state")) == ([], before)
    report = run(target, archive)
    assert {row["run"] for row in archived(archive)} == {report.run}


@pytest.mark.parametrize("times", [0, 2])
def test_a_run_whose_archive_has_not_each_dropped_entry_once_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    before, add = bytes_of(target / "state"), ExpiredWriter.add

    def careless(self: ExpiredWriter, dropped: StateEntries, moments: Any) -> None:
        first = np.arange(len(dropped)) == 0
        for part in (~first, *[first] * times):
            add(self, dropped.filter(part), (moments[0][part], moments[1][part]))

    monkeypatch.setattr(ExpiredWriter, "add", careless)
    words = r"369 entries were dropped, but \d+ were archived. Nothing was published"
    with pytest.raises(CorruptionError, match=words):
        run(target, archive)
    assert (archived(archive), bytes_of(target / "state")) == ([], before)


def test_run_is_published_with_a_warning_if_the_archive_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    from ttlsnap.compaction import runner

    def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(runner, "deliver", full)
        report = run(target, archive)
    assert report.published and "The next run will archive them: the disk is full" in report.warnings[0]
    deliver(LocalDirectory(str(target)), report.run, Folder(str(archive)))
    assert len(archived(archive)) == report.totals.dropped


def test_a_file_is_refused_as_archive(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (tmp_path / "archive").touch()
    before = bytes_of(target)
    with pytest.raises(UsageError, match="is not a folder; ttlsnap writes dropped entries"):
        run(target, tmp_path / "archive")
    assert bytes_of(target) == before


def test_dropped_timers_are_archived_too(tmp_path: Path) -> None:
    # No other entry holds the time of a timer.
    target, archive = sample("alarms-4.2", tmp_path), tmp_path / "archive"
    found = [e for e in inspect(str(target), entries=10**6).samples or [] if e["state"].endswith("_keyToTimestamp")]
    moments = [round(datetime.fromisoformat(e["time"]).timestamp() * 1000) for e in found]
    timers = Counter(_spelled(e["partition"], e["key"], ms) for e, ms in zip(found, moments, strict=True))
    report = run(target, archive, "value.seen:s", now=AFTER_ALL, timers="follow")
    gone = {state.state.state: state.counts.dropped for state in report.states}["$eventTimers_keyToTimestamp"]
    rows = archived(archive)
    assert len(rows) == report.totals.dropped + gone > report.totals.dropped > 0
    of_timers = [row for row in rows if row["state"].endswith("_keyToTimestamp")]
    keys = [json.loads(row["key"]) for row in of_timers]
    told_of = [
        _spelled(row["partition"], key["key"], key["expiryTimestampMs"])
        for row, key in zip(of_timers, keys, strict=True)
    ]
    assert Counter(told_of) == timers
    assert len(told_of) == gone


def test_rollback_of_a_copy_leaves_the_archive_unchanged(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    old = bytes_of(target / "state")
    report = run(target, archive)
    copy = tmp_path / "copy"
    shutil.copytree(target, copy)
    undone = rollback(str(copy), stopped=True, expired_to=str(archive))
    assert bytes_of(copy / "state") == old
    assert undone.warnings[0].endswith(f"stay in {archive}, and are restored here as well")
    assert len(archived(archive)) == report.totals.dropped
    assert rollback(str(target), stopped=True, expired_to=str(archive)).warnings == ()
    assert archived(archive) == []


def test_rollback_refuses_a_missing_archive(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    run(target, archive)
    before, away = bytes_of(target), archive.rename(tmp_path / "away")
    with pytest.raises(
        RefusedError, match="does not exist, so the entries that the run dropped cannot be removed from it"
    ):
        rollback(str(target), stopped=True, expired_to=str(archive))
    assert bytes_of(target) == before
    away.rename(archive)
    rollback(str(target), stopped=True, expired_to=str(archive))
    assert archived(archive) == []


def test_delivery_never_overwrites_other_entries(tmp_path: Path) -> None:
    target, archive = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "archive"
    files, folder = LocalDirectory(str(target)), "_ttlsnap/runs/20260101T000000Z-abcdef/expired"
    for text in (b"one", b"one", b"another"):
        files.mkdirs(folder)
        files.replace(f"{folder}/0.parquet", text)
        if text == b"another":
            with pytest.raises(StorageError, match="already exists, with other entries"):
                Folder(str(archive)).take(files, [f"{folder}/0.parquet"], "run")
        else:
            Folder(str(archive)).take(files, [f"{folder}/0.parquet"], "run")
    assert [path.read_bytes() for path in archive.iterdir()] == [b"one"]
    assert files.stat(f"{folder}/0.parquet") is not None


def test_an_archive_inside_a_delta_table_is_refused(tmp_path: Path) -> None:
    target, table = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    before = bytes_of(target)
    for place in (f"{table}/expired", f"{table}/a/b", f"delta:{table}/expired"):
        with pytest.raises(UsageError, match=r"is inside the Delta table .*/table, whose VACUUM"):
            compact(str(target), [], stopped=True, max_drop=1.0, expired_to=place)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder"):
        run(target, tmp_path / "file/expired", dry_run=True)
    assert bytes_of(target) == before


def test_every_run_and_the_history_report_undelivered_entries(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)

    def away(key: Any, value: Any) -> None:
        raise OSError("away")

    factory = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    callback = ExpiredCallback("mine:away", away)
    for given in (callback, callback, None):
        report = compact(str(target), [factory], stopped=True, max_drop=1.0, expired_to=given)
        (warning,) = report.warnings
        waits = "names mine:away as their archive, which this command does not name. To deliver them: ttlsnap recover "
        waits += f"{target} --exp"
        assert ("still in" in warning and "away" in warning) if given else waits in warning
    assert [entry.waiting for entry in history(str(target))] == [True]
    (warning,) = recover(str(target)).warnings
    assert "mine:away" in warning
    told: list[Any] = []
    report = compact(
        str(target),
        [factory],
        stopped=True,
        max_drop=1.0,
        expired_to=ExpiredCallback("mine:away", lambda key, value: told.append(key)),
    )
    assert (report.warnings, len(told) > 0) == ((), True)
    assert [entry.waiting for entry in history(str(target))] == [False]
