"""Incremental cleanup visits every partition once before it visits any again, and each run's result is complete."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap import compact
from ttlsnap.compaction.incremental import CURSOR, Incremental, Visits
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import CorruptionError, TtlsnapError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.transaction.rollback import rollback
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample
from .targets import fresh

FACTORY = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")


def run(target: Path, limits: Incremental, **options: Any) -> CompactionReport:
    return compact(str(target), [FACTORY], parts=[(Selection(), limits)], stopped=True, max_drop=1.0, **options)


def partitions(target: Path) -> int:
    return sum(path.name.isdecimal() for path in (target / "state/0").iterdir())


@pytest.mark.parametrize("limits", [Incremental(1), Incremental(max_entries=1), Incremental(max_seconds=1e-9)])
def test_incremental_runs_together_equal_one_full_run(tmp_path: Path, limits: Incremental) -> None:
    whole, target = fresh(tmp_path, "whole"), fresh(tmp_path, "parts")
    dropped = compact(str(whole), [FACTORY], stopped=True, max_drop=1.0).totals.dropped
    count, found = partitions(target), 0
    left: list[int] = []
    while not left or left[-1]:
        report = run(target, limits)
        assert report.visited is not None
        visited, of, still = report.visited
        assert visited >= 1 and of == count
        found += report.totals.dropped
        left.append(still)
    assert sorted(left, reverse=True) == left and len(set(left)) == len(left)
    assert found == dropped > 0
    assert bytes_of(target / "state") == bytes_of(whole / "state")
    assert run(target, limits).totals.dropped == 0  # this run starts the next cycle


def test_a_rolled_back_run_does_not_count_as_a_visit(tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    before = bytes_of(target / "state")
    first = run(target, Incremental(1))
    rollback(str(target), stopped=True)
    again = run(target, Incremental(1))
    assert (again.totals, again.visited) == (first.totals, first.visited)
    rollback(str(target), stopped=True)
    assert bytes_of(target / "state") == before


def test_a_run_rolled_back_after_later_runs_does_not_count_as_a_visit(tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    count = partitions(target)
    first = run(target, Incremental(1))
    # This run visits all other partitions, and has nothing to drop.
    keep = TtlTransformerFactory(StateTtlConfig(parse_duration("3650d")), "value.max")
    rest = compact(str(target), [keep], parts=[(Selection(), Incremental(count - 1))], stopped=True, max_drop=1.0)
    assert (rest.visited, rest.published) == ((count - 1, count, 0), False)
    rollback(str(target), stopped=True)
    again = run(target, Incremental(1))
    assert (again.totals, again.visited) == (first.totals, (1, count, 0))


def test_a_dry_run_does_not_move_the_cursor(tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    dry = run(target, Incremental(1), dry_run=True)
    assert not (target / CURSOR).exists()
    assert run(target, Incremental(1)).totals == dry.totals


def test_a_failed_run_does_not_count_as_a_visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ttlsnap.transaction import steps

    target = fresh(tmp_path, "ck")

    def broken(*_: Any, **__: Any) -> None:
        raise TtlsnapError("no")

    with monkeypatch.context() as patched, pytest.raises(TtlsnapError, match="no"):
        patched.setattr(steps, "swap", broken)
        run(target, Incremental(1))
    assert run(target, Incremental(1)).visited == (1, partitions(target), partitions(target) - 1)


@pytest.mark.parametrize("text", ["", "[]", '{"visited": [[0, 1]]}', '{"visited": [[0, "default", 1, 7]]}', "{}"])
def test_an_invalid_cursor_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    target = fresh(tmp_path, "ck")
    run(target, Incremental(1))
    (target / CURSOR).write_text(text)
    before = bytes_of(target)
    with pytest.raises(CorruptionError, match=r"cursor\.json does not say .* Remove it"):
        run(target, Incremental(1))
    assert bytes_of(target) == before


def test_the_first_part_that_matches_decides(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    parts = [(Selection(operator=0), None), (Selection(), Incremental(1))]
    report = compact(str(target), [FACTORY], parts=parts, stopped=True, max_drop=1.0)
    assert report.visited == (0, 0, 0) and report.totals.entries == 480


def test_incremental_cleanup_needs_a_limit_and_allows_no_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="incremental cleanup needs"):
        Incremental()
    with pytest.raises(UsageError, match="cannot write to output"):
        run(fresh(tmp_path, "ck"), Incremental(1), output=str(tmp_path / "new"))
    assert json.dumps(run(fresh(tmp_path, "other"), Incremental(1)).to_json()["visited"])


@dataclass(frozen=True)
class _Task:
    """The part of a task that determines its turn."""

    operator: int
    partition: int

    @property
    def stores(self) -> Sequence[Any]:
        return [SimpleNamespace(name="default", states=[self])]

    store = state = "default"


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(1, 7), st.integers(0, 50)), min_size=1, max_size=60),
    st.integers(1, 4),
)
def test_no_partition_is_visited_again_before_all_were_visited(
    partitions: int, runs: list[tuple[int, int]], at_once: int
) -> None:
    # This holds for every number of entries, and for all limits of the runs.
    tasks: Any = [_Task(0, partition) for partition in range(partitions)]
    visits: Counter[int] = Counter()
    visited: Any = {}
    for most, entries in runs:
        limits = Incremental(most, max_entries=entries + 1)
        found = Visits(tasks, [(Selection(), limits)], visited, at_once)
        waves = found.waves()
        wave: Any = next(waves, None)
        while wave:
            assert len(wave) <= at_once
            visits.update(task.partition for task in wave)
            try:
                wave = waves.send([SimpleNamespace(entries=7)] * len(wave))  # type: ignore[list-item]
            except StopIteration:
                break
        visited = found.find_visited(None)
        counts = [visits[partition] for partition in range(partitions)]
        assert max(counts) - min(counts) <= 1


def test_two_policies_do_not_affect_each_others_turns() -> None:
    visited: Any = {}
    seen = []
    for operator in (0, 1, 0, 1, 0):
        tasks: Any = [_Task(operator, partition) for partition in range(2)]
        found = Visits(tasks, [(Selection(), Incremental(1))], visited, 1)
        waves = found.waves()
        (task,) = next(waves)
        with pytest.raises(StopIteration):
            waves.send([SimpleNamespace(entries=7)])  # type: ignore[list-item]
        seen.append((task.operator, task.partition))
        visited = found.find_visited("run")
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0)]
