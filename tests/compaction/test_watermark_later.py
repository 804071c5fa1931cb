"""A watermark that was added to the query later: Spark evicts by it, but keeps the schema of the first run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ttlsnap import CompactionReport, LocalEngine, TimeCharacteristic, compact, inspect
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..cli.running import Ttlsnap
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..publishing.trees import copy
from .stories import BATCHES, WHOLE, H, T

STORES = [("hdfs", "deltas"), pytest.param(("rocksdb", "snapshot"), marks=pytest.mark.wide)]
HALF_PAST_FOUR = Event("new", T + 4 * H + H // 2, 1)
"""It moves the watermark to half past three. Two hours of windows end later."""
END = ("--timestamp", "key.window.end")


def expire(
    checkpoint: Checkpoint, time: TimeCharacteristic | None = None, name: str = "key.window.end"
) -> CompactionReport:
    """Drop what is an hour older than now, by ``name``."""
    ttl = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), name, time)
    return compact(str(checkpoint.path), [ttl], engine=LocalEngine(1), stopped=True, max_drop=1.0)


def windows(batches: Any) -> list[Any]:
    return sorted((str(row) for batch in batches for row in batch.rows), key=str)


@pytest.mark.parametrize("store", STORES, ids=["hdfs", "rocksdb"])
def test_windows_ahead_of_it_are_kept_and_still_emitted(judge: Judge, store: tuple[str, str]) -> None:
    provider, layout = store
    written = judge.write(Query("windows_for_ever", provider=provider), BATCHES, layout=layout)
    written.query = replace(written.query, operator="agg_append")
    assert windows(judge.restart(written, [[HALF_PAST_FOUR]]))  # Spark emits and evicts by the watermark
    untouched, late = judge.copy(written), judge.copy(written)
    (state,) = inspect(str(written.path), age=True).states()
    assert state.descriptor is not None and state.descriptor.stored_timestamp == "key.window.end"
    left = expire(written).totals.entries
    assert left and expire(written).totals.dropped == 0  # Spark has evicted what the watermark has reached
    lost = expire(late, TimeCharacteristic.PROCESSING)
    assert lost.states[0].unclosed == lost.totals.dropped == left
    more = [[Event("end", T + 30 * H, 1)]]
    wanted = windows(judge.restart(untouched, more))
    assert len(wanted) == left
    assert windows(judge.restart(written, more)) == wanted
    assert windows(judge.restart(late, more)) == []


@pytest.mark.wide
def test_keys_of_a_deduplication_ahead_of_it_are_kept(judge: Judge) -> None:
    written = judge.write(Query("dedup_plain"), BATCHES, layout="snapshots")
    before = inspect(str(written.path), age=True).state(0).entries or 0
    written.query, written.model = replace(written.query, operator="dedup"), None
    judge.restart(written, [[HALF_PAST_FOUR]])
    report = expire(written, name="key.at")
    assert (report.states[0].time, report.totals.dropped) == ("event", 0)
    assert 0 < (report.totals.entries or 0) < before  # Spark has evicted the others
    assert windows(judge.restart(written, [[HALF_PAST_FOUR]])) == []  # it is known


@pytest.fixture
def lost(inputs: Judge, tmp_path: Path) -> Path:
    """Return a checkpoint of a query with a watermark, which the schema of its windows does not show.

    Four windows are ahead of the watermark. Here Spark does not evict by it, so others are behind it.
    """
    written = inputs.write(Query("watermark_lost"), WHOLE, layout="snapshot")
    return copy(written.path, tmp_path / "checkpoint")


def test_its_windows_are_on_the_clock_of_the_watermark(lost: Path, ttlsnap: Ttlsnap) -> None:
    answer = ttlsnap("compact", lost, "--ttl", "1m", *END, "--dry-run", "--format", "json")
    (state,) = answer.json["stores"]
    assert (state["time"], state["now"], state["unclosed"]) == ("event", "2023-11-15T03:50:00.000Z", 0)
    assert 0 < state["dropped"] < state["entries"] - 4


def test_what_spark_may_keep_is_only_dropped_by_a_named_field(lost: Path, ttlsnap: Ttlsnap) -> None:
    answer = ttlsnap("compact", lost, "--dry-run", "--format", "json")
    (state,) = answer.json["stores"]
    assert answer.code == 0 and "records no watermark" in state["left_alone"]
    refused = ttlsnap("compact", lost, "--ttl", "1m", "--dry-run")
    assert refused.code == 2 and "but Spark keeps them" in refused.err
    assert ttlsnap("compact", lost, "--ttl", "1m", *END, "--dry-run").code == 0


PROCESSING = ("--ttl", "1m", *END, "--time", "processing")
AHEAD = "4 of the dropped groups are ahead of the watermark; a query in append mode will never emit them"


def test_the_report_counts_windows_ahead_of_the_watermark(lost: Path, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    dry = ttlsnap("compact", lost, *PROCESSING, "--dry-run")
    assert f"operator 0: {AHEAD}" in " ".join(dry.out.split())
    policy = tmp_path / "policy.toml"
    rule = 'ttl = "1m"\ntimestamp = "key.window.end"\ntime = "processing"\nmax_drop = "100%"'
    policy.write_text(f'[[target]]\npath = "{lost}"\n{rule}\n')
    assert AHEAD in " ".join(ttlsnap("maintain", policy, "--plan").out.split())


@pytest.mark.parametrize("command", [("compact",), ("migrate", "--partitions", "3")], ids=lambda words: words[0])
def test_the_question_counts_windows_ahead_of_the_watermark(
    lost: Path, ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    assert ttlsnap(command[0], lost, *command[1:], *PROCESSING).code == 0
    (question,) = asked
    assert re.search(rf"\? {AHEAD}\.$", question), question
