"""Cases that the matrix does not vary: sinks with a log, interrupted batches, rewritten values, default timestamps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ttlsnap import Drop, EntryTransformerFactory, Keep, LocalEngine, Replace, compact, inspect
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.transform.protocols import Verdict
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.layouts import last_batch
from ..judge.outcomes import expired
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Events, Judge
from ..matrix import FULL
from ..publishing.trees import end_halfway
from .stories import BATCHES, FIELDS, MORE, H, T, copies_of, copy_all, digest, drop_expired, limit_of, settled

if FULL:  # each costs a while

    @pytest.mark.parametrize(("sink", "operator"), [("json", "agg_append"), ("parquet", "dedup")])
    def test_a_file_sink_resumes_and_compacts_its_log(judge: Judge, sink: str, operator: str) -> None:
        hourly: list[Events] = [
            [Event("a", T + hour * H), Event(f"k{hour}", T + hour * H - 60, hour), Event("b", T + hour * H - 900)]
            for hour in range(15)
        ]
        query = Query(operator, sink=sink, sink_log_interval=4, delay_s=3 * H)
        checkpoint = judge.write(query, hourly[:4], layout="both")
        settled(checkpoint.path)
        limit = T + 3 * H
        report = compact(
            str(checkpoint.path),
            [TtlTransformerFactory(StateTtlConfig(H * 1_000_000), FIELDS[operator])],
            now=stamp(limit + H),
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
        )
        assert report.totals.dropped == checkpoint.expected.drop(expired(FIELDS[operator], limit)) > 0
        assert judge.restart(checkpoint, hourly[4:], fresh=True) == checkpoint.expected.run(hourly[4:])
        assert last_batch(checkpoint.path) >= 12
        log = {path.name for path in (checkpoint.out / "_spark_metadata").iterdir()}
        assert {"3.compact", "7.compact", "11.compact"} <= log


@pytest.mark.parametrize(
    ("operator", "layout"),
    [(operator, layout) for operator in ("agg_update", "agg_append") for layout in ("deltas", "both")]
    if FULL
    else [("agg_update", "both"), ("agg_append", "deltas")],
)
def test_an_interrupted_batch_runs_again_on_the_compacted_state(judge: Judge, operator: str, layout: str) -> None:
    checkpoint = judge.write(Query(operator), BATCHES, layout=layout, uncommitted=MORE[0])
    settled(end_halfway(checkpoint.path))
    report = drop_expired(checkpoint.path, checkpoint.query)
    gone = checkpoint.expected.drop(expired(FIELDS[operator], limit_of(checkpoint.query)))
    assert report.totals.dropped == gone > 0
    assert judge.state(checkpoint) == checkpoint.expected.state()
    wanted = checkpoint.expected.run(MORE[1:])
    assert judge.restart(checkpoint, MORE[1:], fresh=True) == wanted
    assert judge.state(checkpoint) == checkpoint.expected.state()


def _promote_k1(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    match key["key"]:
        case "k1":
            return Replace({**value, "sum": value["sum"] + 1_000_000})
        case "k2":
            return Drop()
        case "é":
            return Replace({**value, "max": None})
    return Keep()


@pytest.mark.parametrize("row_checksum", [False, True] if FULL else [True])
def test_spark_continues_values_that_a_transformer_rewrote(judge: Judge, row_checksum: bool) -> None:
    checkpoint = judge.write(Query(row_checksum=row_checksum), BATCHES)
    old = {entry.at("key.key"): entry for entry in judge.state(checkpoint)}
    report = compact(
        str(checkpoint.path), [EntryTransformerFactory(_promote_k1)], engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    totals = report.totals
    assert (totals.entries, totals.dropped, totals.rewritten, totals.kept) == (len(old), 1, 2, len(old) - 3)
    new = {entry.at("key.key"): entry for entry in judge.state(checkpoint)}
    assert new.keys() == old.keys() - {"k2"}
    assert new["k1"].at("value.sum") == old["k1"].at("value.sum") + 1_000_000
    assert new["é"].at("value.max") is None
    assert all(new[key] == old[key] for key in new.keys() - {"k1", "é"})
    rows = judge.restart(checkpoint, [[Event("k1", T, 1), Event("k2", T, 5), Event("é", T, 1)]], fresh=True)[1].rows
    emitted = "\n".join(rows)
    assert f'"total": {old["k1"].at("value.sum") + 1_000_001}' in emitted
    assert '"key": "k2", "last_seen": "2023-11-15T00:00:00", "n": 1, "total": 5' in emitted


def test_without_a_ttl_only_entries_that_spark_calls_expired_are_dropped(judge: Judge) -> None:
    checkpoint = judge.write(Query("dedup"), BATCHES)
    watermark = inspect(str(checkpoint.path)).checkpoint.batch.watermark_ms
    assert watermark is not None
    report = compact(str(checkpoint.path), [TtlTransformerFactory()], engine=LocalEngine(1), stopped=True, max_drop=1.0)
    # Spark has evicted everything up to that watermark, so no entry has expired.
    assert (report.totals.dropped, report.published) == (0, False)
    assert report.states[0].timestamp == "key.at"
    later = stamp(watermark // 1000 + H)
    report = compact(
        str(checkpoint.path), [TtlTransformerFactory()], now=later, engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    assert report.totals.dropped == checkpoint.expected.drop(expired("key.at", watermark // 1000 + H)) > 0
    assert judge.restart(checkpoint, MORE) == checkpoint.expected.run(MORE)


def test_a_key_that_stores_its_expiry_is_dropped_by_it(judge: Judge) -> None:
    checkpoint = judge.write(Query("dedup_within"), BATCHES)
    now = T + 4 * H
    report = compact(
        str(checkpoint.path), [TtlTransformerFactory()], now=stamp(now), engine=LocalEngine(1), stopped=True
    )
    unwanted = expired("value.expiresAtMicros", now, per_second=1_000_000)
    assert report.totals.dropped == checkpoint.expected.drop(unwanted) > 0
    assert judge.restart(checkpoint, MORE) == checkpoint.expected.run(MORE)


@pytest.mark.parametrize("version", ["3.5", "4.2"] if FULL else ["4.2"])
def test_groups_of_complete_mode_are_dropped_only_by_a_named_field(judge: Judge, version: str) -> None:
    checkpoint = judge.write(Query("agg_complete"), BATCHES, version=version)
    before = digest(checkpoint.path)
    for config in (None, StateTtlConfig(60_000_000)):
        with pytest.raises(UsageError, match="complete mode"):
            compact(
                str(checkpoint.path), [TtlTransformerFactory(config)], engine=LocalEngine(1), stopped=True, max_drop=1.0
            )
    assert digest(checkpoint.path) == before
    # A named field drops expired groups, and Spark emits only the others from then on.
    factory = TtlTransformerFactory(StateTtlConfig(0), "key.window.end")
    report = compact(str(checkpoint.path), [factory], engine=LocalEngine(1), stopped=True, max_drop=1.0)
    assert 0 < report.totals.dropped < (report.totals.entries or 0)
    assert len(judge.restart(checkpoint, [[]], fresh=True)[-1].rows) == report.totals.kept


def test_a_ttl_behind_a_join_needs_an_explicit_now(inputs: Judge) -> None:
    checkpoint = inputs.write(Query("join_windows"), BATCHES)
    before = digest(checkpoint.path)
    windows, joined = sorted(inspect(str(checkpoint.path)).operators, key=lambda found: len(found[0].stores))
    assert (windows[0].name, joined[0].name) == ("stateStoreSave", "symmetricHashJoin")
    only = Selection(operator=windows[0].id)
    for factory in (TtlTransformerFactory(), TtlTransformerFactory(StateTtlConfig(0))):
        with pytest.raises(UsageError, match="is behind a stream-stream join, whose watermark is not recorded"):
            compact(str(checkpoint.path), [factory], selection=only, engine=LocalEngine(1), stopped=True, max_drop=1.0)
    assert digest(checkpoint.path) == before
    report = compact(
        str(checkpoint.path),
        [TtlTransformerFactory()],
        now=stamp(T + 3 * H),
        selection=only,
        engine=LocalEngine(1),
        dry_run=True,
    )
    assert report.states[0].unclosed == report.totals.dropped > 0


@pytest.mark.parametrize("version", ["3.5", "4.2"] if FULL else ["4.2"])
def test_the_count_of_a_global_limit_is_never_changed(judge: Judge, version: str) -> None:
    checkpoint = judge.write(Query("first_rows"), BATCHES[:1], version=version)
    report = compact(
        str(checkpoint.path), [EntryTransformerFactory(_drop_all)], engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    assert report.states[0].left_alone == "the count of a global limit is never changed"
    assert not report.published
    assert judge.restart(checkpoint, BATCHES[1:2])[0].rows == ()


@pytest.mark.parametrize("version", ["3.5", "4.2", "4.3"] if FULL else ["4.2"])
@pytest.mark.parametrize("operator", ["first_rows_deduplicated", "dedup_first_rows"])
def test_a_query_with_a_global_limit_gets_no_planned_batch(judge: Judge, operator: str, version: str) -> None:
    first = [[Event("k1", T), Event("k2", T)]]
    more = [[Event("k1", T + 1), Event("k3", T)], [Event(f"k{number}", T) for number in range(4, 9)]]
    checkpoint = judge.write(Query(operator), first, version=version)
    before = settled(checkpoint.path)
    with pytest.raises(RefusedError, match="is a global limit, and Spark cannot run such a query"):
        copy_all(checkpoint.path)
    assert settled(checkpoint.path) == before
    _, (same, compacted) = copies_of(judge, checkpoint)
    report = copy_all(compacted.path, planned_batch=False)
    assert report.published
    wanted, found = (judge.restart(each, more) for each in (same, compacted))
    assert [batch.rows for batch in found] == [batch.rows for batch in wanted]
    assert sum(len(batch.rows) for batch in wanted) == (3 if operator == "dedup_first_rows" else 2)


def _drop_all(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    return Drop()


@pytest.mark.parametrize("field", ["value.max#1", "value.max#2:s"] if FULL else ["value.max#2:s"])
def test_two_buffers_of_one_name_are_distinguished_by_their_number(judge: Judge, field: str) -> None:
    checkpoint = judge.write(Query("agg_two_maxima"), BATCHES)
    factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), field)
    report = compact(
        str(checkpoint.path), [factory], now=stamp(T + 3 * H), engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    moments = {event.key: event.ts for events in BATCHES for event in events}
    left = {entry["key"]["key"] for entry in inspect(str(checkpoint.path), entries=1000).samples or []}
    assert left == {key for key, ts in moments.items() if ts is None or ts > T + 2 * H}
    assert report.totals.dropped == len(moments) - len(left) > 0
    rows = judge.restart(checkpoint, [[Event("k0", T + 9), Event("k23", T + 9)]], fresh=True)[1].rows
    assert [json.loads(row)["seconds"] for row in rows] == [T + 9, T + 4 * H]
