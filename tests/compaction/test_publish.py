"""What a compaction publishes: complete state that fits the checkpoint as it is then, and nothing more."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import SilentListener, compact, inspect, open_checkpoint
from ttlsnap.clock import clock_at
from ttlsnap.compaction.incremental import Incremental
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.plan import plan_compaction
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import BusyError
from ttlsnap.operators.registry import Selection
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample, without_own

AGG = "agg-deltas-lz4-4.2"
DAY = parse_duration("1d")
WEEK = TtlTransformerFactory(StateTtlConfig(7 * DAY), "value.max")


class Doing(SilentListener):
    """A listener that does something between the work and the publishing."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def confirm(self, report: CompactionReport) -> bool:
        self._work()
        return True


def run(target: Path, **options: Any) -> CompactionReport:
    return compact(str(target), [WEEK], stopped=True, **options)


def test_no_delta_stays_beside_its_new_snapshot(tmp_path: Path) -> None:
    # From 4.2 on, Spark that fails once to read the snapshot would replay the delta, on the old state.
    target = sample(AGG, tmp_path)
    report = run(target)
    assert report.totals.dropped
    for partition in (target / "state/0").glob("[0-9]*"):
        assert (partition / "7.snapshot").exists() and (partition / "6.delta").exists()
        assert not (partition / "7.delta").exists() and not (partition / ".7.delta.crc").exists()


@pytest.mark.parametrize("path", ["state/0/0/.8.delta.1a2b.tmp", "state/0/1/8.delta", "state/0/0/1.delta"])
def test_a_file_that_changes_during_the_work_stops_the_run(tmp_path: Path, path: str) -> None:
    target = sample(AGG, tmp_path)

    def write() -> None:
        (target / path).write_bytes(b"x")

    with pytest.raises(BusyError, match=f"{path} changed while ttlsnap worked: the query is running"):
        run(target, listener=Doing(write))
    wanted = bytes_of(sample(AGG, tmp_path / "another"))
    found = without_own(bytes_of(target))
    assert {name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)} == {path}


@pytest.mark.parametrize("name", ["agg-snapshot-zstd-4.1", "rocksdb-ids-4.2", AGG])
def test_a_copy_has_every_checksum_file_of_the_files_that_it_keeps(tmp_path: Path, name: str) -> None:
    target, copy = sample(name, tmp_path), tmp_path / "copy"
    keep = TtlTransformerFactory(StateTtlConfig(36_500 * DAY), "key.at" if "ids" in name else "value.max")
    report = compact(str(target), [keep], output=str(copy), stopped=True)
    assert (report.published, report.totals.dropped) == (True, 0)
    kept = [path.relative_to(copy) for path in copy.rglob("state/**/*.*") if path.suffix != ".crc"]
    assert kept
    for path in kept:
        source = target / path
        checksums = [*source.parent.glob(f".{path.name}.crc*"), *source.parent.glob(f"{path.name}.crc")]
        for checksum in checksums:
            assert (copy / checksum.relative_to(target)).read_bytes() == checksum.read_bytes()


def test_only_this_user_can_read_a_copy_that_is_not_complete(tmp_path: Path) -> None:
    target, copy = sample(AGG, tmp_path), tmp_path / "copy"
    modes = []

    def look() -> None:
        (staging,) = tmp_path.glob("copy.*.ttlsnap")
        modes.append(stat.S_IMODE(staging.stat().st_mode))

    run(target, output=str(copy), listener=Doing(look))
    assert modes == [0o700]


def test_runs_with_a_limit_visit_one_partition_after_the_other(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    partitions = [int(path.name) for path in (target / "state/0").glob("[0-9]*")]
    for number in range(len(partitions)):
        run(target, parts=[(Selection(), Incremental(1))], max_drop=1.0, planned_batch=False)
        assert [(target / f"state/0/{p}/7.snapshot").exists() for p in sorted(partitions)] == [
            place <= number for place in range(len(partitions))
        ]
    whole = sample(AGG, tmp_path / "whole")
    run(whole)
    found = [inspect(str(one), entries=1000).samples for one in (target, whole)]
    assert found[0] == found[1]


def test_a_task_for_a_migration_writes_the_stores_that_do_not_change(tmp_path: Path) -> None:
    target = sample("join-4.2", tmp_path)
    checkpoint = open_checkpoint(open_directory(str(target)))
    keep = TtlTransformerFactory(StateTtlConfig(36_500 * DAY))
    plan = plan_compaction(checkpoint, [keep], clock_at("checkpoint", checkpoint.batch))
    tasks = plan.tasks(str(tmp_path), "staged")
    assert tasks
    for task in tasks:
        assert {result.staged for result in compact_partition(task)} == {None}
        whole = compact_partition(replace(task, whole=True))
        assert [len(result.staged or ()) for result in whole] == [1] * len(task.stores)
