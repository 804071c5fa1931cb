"""A query that is idle while ttlsnap publishes, and that nobody has stopped, cannot be harmed, and harms nothing.

Real Spark is the judge. The query has run a batch, so that it holds the state in its memory, and waits for data. Then
ttlsnap is told that it is stopped, and publishes. The query's next batch ends it, before it has written anything; a
query that is started goes on with the new state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import history, rollback

from ..compaction import test_chains as chains
from ..compaction import test_joins as joins
from ..compaction.stories import BATCHES, MORE, T, copy_all, drop_expired, settled, unwanted
from ..compaction.test_many_more_batches import MORE as MANY_MORE
from ..compaction.unseen import fits
from ..judge.outcomes import after_planned
from ..judge.processes import NEWEST, VERSIONS
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from .trees import Tree, tree

STOPPED = "CONCURRENT_STREAM_LOG_UPDATE"
HDFS: dict[str, Any] = {"provider": "hdfs"}
ROCKSDB: dict[str, Any] = {"provider": "rocksdb"}
CHANGELOG: dict[str, Any] = {"provider": "rocksdb", "changelog": True}
IDS: dict[str, Any] = {"provider": "rocksdb", "changelog": True, "checkpoint_format": 2}


@dataclass(frozen=True)
class Case:
    query: Query
    version: str = NEWEST
    trigger: str = "0 seconds"

    def __str__(self) -> str:
        query = self.query
        store = f"{query.provider}{'-changelog' * query.changelog}{'-ids' * (query.checkpoint_format == 2)}"
        return f"{self.version}-{query.operator}-{store}-{query.sink}-{self.trigger.replace(' ', '')}"


SLICE = [
    Case(Query("agg_update", **ROCKSDB)),
    Case(Query("agg_append", sink="parquet", **HDFS)),
    Case(Query("agg_update", **CHANGELOG), trigger="30 seconds"),
]
EVERYTHING = [
    *(
        Case(Query(operator, **store), version)
        for version in VERSIONS
        for operator in ("agg_update", "agg_append", "agg_window_update", "dedup", "dedup_plain", "dedup_within")
        for store in (HDFS, ROCKSDB, CHANGELOG, *([IDS] if version in ("4.1", NEWEST) else []))
    ),
    *(
        Case(Query("agg_append", sink="parquet", **store), version)
        for version in VERSIONS
        for store in (HDFS, ROCKSDB, CHANGELOG)
    ),
    *(Case(Query("agg_update", **store), trigger="30 seconds") for store in (HDFS, ROCKSDB, CHANGELOG)),
]


def logs_and_state(checkpoint: Path) -> Tree:
    """All but what the source has taken note of."""
    return {path: content for path, content in tree(checkpoint).items() if not path.startswith("sources")}


def ends_untouched(judge: Judge, checkpoint: Checkpoint, events: list[Event]) -> None:
    """The query that is up gets these events, stops, and has changed nothing."""
    before = logs_and_state(checkpoint.path)
    judge.feed(checkpoint, events)
    assert STOPPED in judge.last_words(checkpoint)
    judge.stop(checkpoint)
    assert logs_and_state(checkpoint.path) == before


@pytest.mark.parametrize("case", EVERYTHING if FULL else SLICE, ids=str)
def test_it_stops_before_it_has_written_anything(judge: Judge, case: Case) -> None:
    query = case.query
    written = judge.write(query, BATCHES[:-1], version=case.version, layout="deltas" if query.changelog else "snapshot")
    shown, wanted = judge.start(written, BATCHES[-1:], case.trigger), written.expected.run(BATCHES[-1:])
    assert shown == wanted or query.sink != "rows"
    settled(written.path)
    report = drop_expired(written.path, query)
    model = written.expected
    assert report.totals.dropped == model.drop(unwanted(query)) > 0
    ends_untouched(judge, written, list(MORE[0]))
    # The source has noted that file: a batch of its own, for the query that is started.
    assert judge.restart(written, []) == model.run(MORE[:1])
    more = MANY_MORE if FULL else MORE[1:]
    assert judge.restart(written, more) == model.run(more)


@pytest.mark.parametrize(
    "query",
    [joins.joined(join_format=number, **store) for number in (1, 2) for store in (HDFS, ROCKSDB)]
    if FULL
    else [joins.joined(**HDFS)],
    ids=lambda query: f"{query.join_format}-{query.provider}",
)
def test_a_join_keeps_the_numbers_of_its_rows(judge: Judge, query: Query) -> None:
    version = "3.5" if query.join_format == 1 else NEWEST
    unseen = [[event for event in events if not joins.goes(event)] for events in joins.BATCHES]
    kept = judge.write(query, joins.BATCHES[:-1], version=version)
    never = judge.write(query, unseen[:-1], version=version)
    judge.start(kept, joins.BATCHES[-1:])
    judge.restart(never, unseen[-1:])
    settled(kept.path)
    assert joins.drop(kept.path).totals.dropped > 0
    ends_untouched(judge, kept, list(joins.MORE[0]))
    found = [*judge.restart(kept, []), *judge.restart(kept, joins.MORE[1:])]
    wanted = [*judge.restart(never, joins.MORE[:1]), *judge.restart(never, joins.MORE[1:])]
    assert after_planned(found) == wanted
    assert fits(kept.path) == fits(never.path)


def test_a_rollback_takes_the_planned_batch_back(judge: Judge) -> None:
    written = judge.write(Query("agg_update", **ROCKSDB), BATCHES[:-1], layout="snapshot")
    judge.start(written, BATCHES[-1:])
    written.expected.run(BATCHES[-1:])
    old = tree(written.path)
    report = drop_expired(written.path, written.query)
    assert (written.path / "offsets/3").exists()
    assert history(str(written.path))[-1].planned == 3
    assert rollback(str(written.path), stopped=True).undone == report.run
    assert tree(written.path) == old
    # The query that was idle all the while goes on: its state is that of the disk again.
    judge.feed(written, list(MORE[0]))
    judge.feed(written, [Event("k1", T, 7)])
    judge.stop(written, when_done=True)
    written.expected.run([MORE[0], [Event("k1", T, 7)]])
    assert judge.restart(written, MORE[1:], fresh=True) == written.expected.run(MORE[1:])


def test_trigger_once_spends_a_run_on_the_planned_batch(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), BATCHES)
    drop_expired(written.path, written.query)
    model = written.expected
    model.drop(unwanted(written.query))
    (planned,) = judge.restart(written, MORE[:1], trigger="once")
    assert planned.rows == ()
    assert judge.restart(written, [], trigger="once") == model.run(MORE[:1])[1:]


CHAINED: dict[str, Any] = {"delay_s": chains.DELAY_S}


@pytest.mark.parametrize(
    "query",
    [
        Query(operator, **store, **CHAINED)
        for operator in ("windows_of_windows", "dedup_windows", "dedup_within_windows", "agg_append")
        for store in (HDFS, ROCKSDB)
    ]
    if FULL
    else [Query("windows_of_windows", **HDFS, **CHAINED)],
    ids=lambda query: f"{query.operator}-{query.provider}",
)
def test_what_is_late_is_what_is_late_if_nobody_stops_the_query(judge: Judge, query: Query) -> None:
    """It was stopped right after a batch that moved the watermark, before the one without data that would follow.

    The planned batch is that one. So for each operator, the same rows are late, and the same windows close.
    """
    first, last, more = chains.BATCHES[:2], chains.BATCHES[2], chains.MORE
    stopped, never = judge.write(query, first), judge.write(query, first)
    assert judge.restart(stopped, [last], trigger="once") == stopped.expected.run_once(last)
    judge.restart(never, [last])
    assert copy_all(stopped.path).published
    planned, *found = judge.restart(stopped, more)
    assert planned.rows
    assert found == judge.restart(never, more)
    assert any(batch.rows for batch in found)


def test_without_the_planned_batch_the_fence_is_just_removed(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), BATCHES)
    report = drop_expired(written.path, written.query, planned_batch=False)
    assert report.published
    assert not (written.path / "offsets/3").exists()
    model = written.expected
    model.drop(unwanted(written.query))
    assert judge.restart(written, MORE) == model.run(MORE)


def test_a_second_run_keeps_the_planned_batch(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), BATCHES)
    first = drop_expired(written.path, written.query)
    planned = (written.path / "offsets/3").read_bytes()
    between = tree(written.path)
    model = written.expected
    model.drop(unwanted(written.query))
    second = drop_expired(written.path, written.query, hours=1)
    assert second.totals.dropped > 0
    assert (written.path / "offsets/3").read_bytes() == planned
    assert not (written.path / "offsets/4").exists()
    assert [(entry.run, entry.planned) for entry in history(str(written.path))] == [(first.run, 3), (second.run, None)]
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == between
    assert judge.restart(written, MORE) == model.run(MORE)
