"""The growth of a state: what the files of retained batches and the reports of runs record, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap import compact, inspect, rollback
from ttlsnap.reading.growth import Growth
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import SAMPLES, sample
from .raw import raw_pairs

AGG = "agg-deltas-lz4-4.2"
RULE = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
NOW = "2026-11-21T09:00:00Z"


def growth(target: Path, batch: int | None = None) -> Growth:
    sizes = inspect(str(target), sizes=True, batch=batch).sizes
    assert sizes is not None
    return sizes.growth


@pytest.mark.parametrize("name", ["rocksdb-4.2", "rocksdb-3.2", "visits-4.2", "lists-4.2", "join-format4-4.2"])
def test_keys_that_rocksdb_records_are_those_of_a_scan_of_that_batch(name: str) -> None:
    target = SAMPLES / name
    points = growth(target).batches
    recorded = [point for point in points[:-1] if point.stored_keys is not None]
    assert recorded
    for point in recorded:
        sizes = inspect(str(target), sizes=True, batch=point.batch).sizes
        assert sizes is not None
        assert point.stored_keys == sum(part.stored_keys for state in sizes.states for part in state.parts) > 0
    stored = sum(len(pairs) for of in raw_pairs(target).values() for pairs in of.values())
    assert points[-1].stored_keys == stored


def test_bytes_of_files_are_those_on_disk() -> None:
    folder = SAMPLES / AGG / "state" / "0"
    points = growth(SAMPLES / AGG).batches
    assert [point.batch for point in points] == list(range(7))
    for point in points:
        deltas = [
            folder / str(partition) / f"{version}.delta"
            for partition in (0, 1)
            for version in range(1, point.batch + 2)
        ]
        assert point.file_bytes == sum(path.stat().st_size for path in deltas)
        newest = [path for path in deltas if path.name == f"{point.batch + 1}.delta"]
        assert point.written_bytes == sum(path.stat().st_size for path in newest)


def test_what_is_not_recorded_is_unknown() -> None:
    found = growth(SAMPLES / AGG)
    assert [point.stored_keys for point in found.batches] == [None] * 6 + [480]
    assert found.unknown == (
        "number of keys after batches 0, 1, 2, 3, 4, 5: the files of the HDFS-backed store do not record it",
    )
    older = growth(SAMPLES / AGG, batch=3)
    assert [point.batch for point in older.batches] == [0, 1, 2, 3]
    assert older.batches[-1].stored_keys == 387


def test_a_batch_whose_files_are_gone_is_unknown(tmp_path: Path) -> None:
    target = sample("rocksdb-4.2", tmp_path)
    known = {point.batch: point for point in growth(target).batches}
    (target / "state/0/0/1.zip").unlink()
    found = growth(target)
    assert {point.batch: point for point in found.batches} == {b: p for b, p in known.items() if b != 0}
    assert any(words.startswith("batch 0: ") and "1.changelog is missing" in words for words in found.unknown)


def test_runs_are_points_of_the_growth(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    report = compact(str(target), [RULE], now=NOW, stopped=True)
    (point,) = growth(target).runs
    assert (point.run, point.kind, point.status, point.batch) == (report.run, "compact", "done", 6)
    assert (point.entries_before, point.entries_after) == (480, 111)
    assert (point.bytes_before, point.bytes_after) == (report.totals.bytes_before, report.totals.bytes_after)
    assert point.at is not None and point.at.replace("-", "").replace(":", "") == report.run[:16]
    batches = growth(target).batches
    assert (batches[-1].stored_keys, batches[-1].file_bytes) == (111, report.totals.bytes_after)
    rollback(str(target), stopped=True)
    first, second = growth(target).runs
    assert (first.status, second.kind, second.entries_before) == ("rolled back", "rollback", None)


def test_a_damaged_report_does_not_stop_the_rest(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    run = compact(str(target), [RULE], now=NOW, stopped=True).run
    (target / "_ttlsnap/runs" / run / "report.json").write_text("{")
    found = growth(target)
    assert found.runs == () and len(found.batches) == 7
    assert any(words.startswith("runs of ttlsnap: the report of run") for words in found.unknown)
