"""A query that is idle while ttlsnap publishes, and that nobody has stopped, is not harmed, and does no harm.

Real Spark is the judge. The query has run a batch, so that it has the state in its memory, and waits for data. Then
ttlsnap publishes with ``--stopped``. The query's next batch ends it before it writes anything. A query that restarts
afterwards continues with the new state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ttlsnap import history, migrate, rollback

from ..compaction import chains
from ..compaction.stories import BATCHES, MANY_MORE, MORE, T, copy_all, drop_expired, settled, unwanted
from ..judge.processes import NEWEST, OLD_VERSIONS, VERSIONS
from ..judge.queries import Event, Query, rated
from ..judge.spark import Judge, told
from ..matrix import FULL, narrow
from .idle import CHANGELOG, HDFS, IDS, ROCKSDB, ends_untouched, stores
from .trees import tree


@dataclass(frozen=True)
class Case:
    query: Query
    version: str = NEWEST
    trigger: str = "0 seconds"

    def __str__(self) -> str:
        query = self.query
        store = f"{query.provider}{'-changelog' * query.changelog}{'-ids' * (query.checkpoint_format == 2)}"
        ends = f"{query.source}-{query.sink}"
        return f"{self.version}-{query.operator}-{store}-{ends}-{self.trigger.replace(' ', '')}"


SLICE = [
    Case(Query("agg_update", **ROCKSDB)),
    Case(Query("agg_append", sink="parquet", **HDFS)),
    Case(Query("agg_update", **CHANGELOG), trigger="10 seconds"),
    Case(Query("agg_all", sink="memory", source="partitions", **HDFS)),
]
EVERYTHING = [
    *(
        Case(Query(operator, **store), version)
        for version in (*OLD_VERSIONS, *VERSIONS)
        for operator in ("agg_update", "agg_append", "agg_window_update", "dedup", "dedup_plain", "dedup_within")
        for store in stores(version)
        if operator != "dedup_within" or version >= "3.5"
    ),
    *(
        Case(Query(*sunk, **store), version)
        for version in (*OLD_VERSIONS, *VERSIONS)
        for sunk in (("agg_append", "parquet"), ("agg_all", "memory"))
        for store in stores(version)
    ),
    *(
        Case(Query("agg_append", *ends, **store))
        for ends in (("delta",), ("rows", "delta"), ("delta", "delta"), ("parquet", "partitions"))
        for store in stores(NEWEST)
    ),
    *(
        Case(Query("agg_update", source="partitions", **store), version)
        for version in VERSIONS[1:]
        for store in stores(version)
    ),
    *(Case(Query("agg_update", **store), trigger="30 seconds") for store in stores(NEWEST)),
]


@pytest.mark.parametrize("case", EVERYTHING if FULL else narrow(SLICE, 0, 1), ids=str)
def test_an_idle_query_stops_before_it_writes_anything(judge: Judge, case: Case) -> None:
    query, events, more = case.query, BATCHES, MANY_MORE if FULL else MORE
    deltas = query.provider == "hdfs" or query.changelog
    written = judge.write(query, events[:-1], version=case.version, layout="deltas" if deltas else "snapshot")
    shown, wanted = judge.start(written, events[-1:], case.trigger), written.expected.run(events[-1:])
    assert shown == wanted or query.sink != "rows"
    settled(written.path)
    report = drop_expired(written.path, query)
    model = written.expected
    assert report.totals.dropped == model.drop(unwanted(query)) > 0
    ends_untouched(judge, written, list(more[0]))
    # The source has recorded that file, so the restarted query runs it as its own batch.
    assert judge.restart(written, []) == told(query, model.run(more[:1]))
    assert judge.restart(written, more[1:]) == told(query, model.run(more[1:]))


@pytest.mark.parametrize(
    ("version", "store", "number"),
    [(version, store, number) for version in VERSIONS for store in stores(version) for number in (1, 5)]
    if FULL
    else [(NEWEST, HDFS, 5), (NEWEST, IDS, 1)],
)
def test_an_idle_query_stops_after_a_migration(judge: Judge, version: str, store: dict[str, Any], number: int) -> None:
    query = Query("agg_update", **store)
    deltas = query.provider == "hdfs" or query.changelog
    written = judge.write(query, BATCHES[:-1], version=version, layout="deltas" if deltas else "snapshot")
    assert judge.start(written, BATCHES[-1:]) == written.expected.run(BATCHES[-1:])
    settled(written.path)
    migrate(str(written.path), partitions=number, stopped=True)
    model = written.expected
    ends_untouched(judge, written, list(MORE[0]))
    # The source has recorded that file, so the restarted query runs it as its own batch.
    assert judge.restart(written, []) == model.run(MORE[:1])
    assert judge.restart(written, MORE[1:]) == model.run(MORE[1:])


CONVERSIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [(HDFS, ROCKSDB), (HDFS, IDS), (ROCKSDB, HDFS), (IDS, HDFS)]


@pytest.mark.wide
@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "4.1"] if FULL else [NEWEST])
@pytest.mark.parametrize(("before", "after"), CONVERSIONS if FULL else CONVERSIONS[1:3])
def test_an_idle_query_stops_after_it_got_another_store(
    judge: Judge, version: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    query = Query("agg_update", **before)
    deltas = query.provider == "hdfs" or query.changelog
    written = judge.write(query, BATCHES[:-1], version=version, layout="deltas" if deltas else "snapshot")
    assert judge.start(written, BATCHES[-1:]) == written.expected.run(BATCHES[-1:])
    settled(written.path)
    settings = {"checkpoint-format": str(after.get("checkpoint_format", 1))}
    migrate(str(written.path), provider=after["provider"], settings=settings, stopped=True)
    model = written.expected
    ends_untouched(judge, written, list(MORE[0]))
    written.query = Query("agg_update", **after)
    assert judge.restart(written, []) == model.run(MORE[:1])
    assert judge.restart(written, MORE[1:]) == model.run(MORE[1:])


@pytest.mark.wide
@pytest.mark.parametrize(
    ("version", "store"),
    [(version, store) for version in ("3.3", "3.4", *VERSIONS) for store in stores(version)]
    if FULL
    else [(NEWEST, HDFS)],
)
def test_the_planned_batch_takes_no_rows_from_a_source_that_makes_them(
    judge: Judge, version: str, store: dict[str, Any]
) -> None:
    query, count = Query("agg_append", source="rate-micro-batch", **store), 24 if FULL else 8
    written = judge.write(query, [rated(batch) for batch in range(4)], version=version)
    settled(written.path)
    assert copy_all(written.path).totals.rewritten
    more, model = [rated(batch) for batch in range(4, count)], written.expected
    # Each later batch has the same rows as it would have had without the planned batch.
    assert judge.restart(written, more) == model.run(more)


def test_a_rollback_removes_the_planned_batch(judge: Judge) -> None:
    written = judge.write(Query("agg_update", **ROCKSDB), BATCHES[:-1], layout="snapshot")
    judge.start(written, BATCHES[-1:])
    written.expected.run(BATCHES[-1:])
    old = tree(written.path)
    report = drop_expired(written.path, written.query)
    assert (written.path / "offsets/3").exists()
    assert history(str(written.path))[-1].planned == 3
    assert rollback(str(written.path), stopped=True).undone == report.run
    assert tree(written.path) == old
    # The query that was idle all the time continues, because its state equals that on the disk again.
    judge.feed(written, list(MORE[0]))
    judge.feed(written, [Event("k1", T, 7)])
    judge.stop(written, when_done=True)
    written.expected.run([MORE[0], [Event("k1", T, 7)]])
    assert judge.restart(written, MORE[1:], fresh=True) == written.expected.run(MORE[1:])


@pytest.mark.parametrize(
    ("version", "store"),
    [(version, store) for version in (*OLD_VERSIONS, *VERSIONS) for store in stores(version)]
    if FULL
    else [(NEWEST, HDFS)],
)
def test_trigger_once_spends_a_run_on_the_planned_batch(judge: Judge, version: str, store: dict[str, Any]) -> None:
    written = judge.write(
        Query("agg_update", **store), BATCHES, version=version, layout="snapshot" if store is ROCKSDB else "deltas"
    )
    drop_expired(written.path, written.query)
    model = written.expected
    model.drop(unwanted(written.query))
    (planned,) = judge.restart(written, MORE[:1], trigger="once")
    assert planned.rows == ()
    assert judge.restart(written, [], trigger="once") == model.run(MORE[:1])[1:]
    for batch in MANY_MORE if FULL else MORE[1:]:
        assert judge.restart(written, [batch], trigger="once") == model.run([batch])


CHAINED: dict[str, Any] = {"delay_s": chains.DELAY_S}


@pytest.mark.wide
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
def test_the_planned_batch_does_not_change_which_rows_are_late(judge: Judge, query: Query) -> None:
    # The query was stopped right after a batch that moved the watermark. The batch without data that would follow is
    # the planned batch. So for each operator, the same rows are late, and the same windows close.
    first, last, more = chains.BATCHES[:2], chains.BATCHES[2], chains.MORE
    layout = "snapshot" if query.provider == "rocksdb" else "deltas"
    stopped, never = (judge.write(query, first, layout=layout) for _ in range(2))
    assert judge.restart(stopped, [last], trigger="once") == stopped.expected.run_once(last)
    judge.restart(never, [last])
    assert copy_all(stopped.path).published
    planned, *found = judge.restart(stopped, more)
    assert planned.rows
    assert found == judge.restart(never, more)
    assert any(batch.rows for batch in found)


@pytest.mark.wide
def test_without_the_planned_batch_the_fence_is_just_removed(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), BATCHES)
    report = drop_expired(written.path, written.query, planned_batch=False)
    assert report.published
    assert not (written.path / "offsets/3").exists()
    model = written.expected
    model.drop(unwanted(written.query))
    assert judge.restart(written, MORE) == model.run(MORE)


@pytest.mark.wide
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
