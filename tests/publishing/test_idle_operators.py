"""A query that is idle while ttlsnap publishes, as in ``test_idle_query``, with operators that have no model.

Real Spark is the judge: the query continues as if the dropped entries had never existed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, LocalEngine, compact
from ttlsnap.clock import TimeCharacteristic, iso
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..compaction import groups, joins, timers, ttl_states
from ..compaction.stories import H, T, rocksdb, settled
from ..compaction.unseen import fits
from ..judge.layouts import last_batch
from ..judge.outcomes import after_planned, canonical
from ..judge.processes import NEWEST, OLD_VERSIONS, VERSIONS
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Events, Judge
from ..matrix import FULL
from .idle import HDFS, await_batch, ends_untouched, stores


@dataclass(frozen=True)
class Unmodelled:
    """A query, and a compaction of it.

    The compacted state equals the state of a query that never saw the events for which ``is_unseen`` is true.
    """

    query: Query
    version: str
    is_unseen: Callable[[Event], bool]
    factory: Any
    now: int
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.version}-{self.query.operator}-{self.query.provider}" + "-changelog" * self.query.changelog

    def drop(self, path: Path) -> CompactionReport:
        return compact(
            str(path),
            [self.factory],
            now=stamp(self.now),
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
            **dict(self.options),
        )


HOUR = StateTtlConfig(H * 1_000_000)


def join(version: str, join_format: int, **store: Any) -> Unmodelled:
    query = joins.joined(join_format=join_format, **store)
    unmatched = (("drop_unmatched", True),)
    return Unmodelled(query, version, joins.is_expired, TtlTransformerFactory(HOUR), joins.LIMIT + H, unmatched)


def sessions(version: str, **store: Any) -> Unmodelled:
    return Unmodelled(
        groups.query_of("sessions", **store), version, joins.is_expired, TtlTransformerFactory(), joins.LIMIT
    )


def grouped(version: str, operator: str, **store: Any) -> Unmodelled:
    factory = TtlTransformerFactory(time=TimeCharacteristic.EVENT)
    return Unmodelled(groups.query_of(operator, **store), version, groups.forgotten, factory, joins.LIMIT + 1800)


def alarms(version: str, **store: Any) -> Unmodelled:
    factory = TtlTransformerFactory(HOUR, timestamp="value.seen:s")
    follow = (("timers", "follow"),)
    return Unmodelled(timers.alarmed(**store), version, joins.is_expired, factory, joins.LIMIT + H, follow)


UNMODELLED = [
    *(
        join(version, number, **store)
        for version in (*OLD_VERSIONS, *VERSIONS)
        for number in ((1, 2) if version < "4.1" else (2,))  # later versions do not start a query of format 1
        for store in stores(version)
    ),
    *(sessions(version, **store) for version in (*OLD_VERSIONS[1:], *VERSIONS) for store in stores(version)),
    *(grouped(version, "groups_scala", **store) for version in (*OLD_VERSIONS, *VERSIONS) for store in stores(version)),
    *(grouped(version, "groups", **store) for version in ("3.4", *VERSIONS) for store in stores(version)),
    *(alarms(version, changelog=changelog) for version in VERSIONS[1:] for changelog in (False, True)),
]


@pytest.mark.wide
@pytest.mark.parametrize("case", UNMODELLED if FULL else [join(NEWEST, 2, **HDFS)], ids=str)
def test_an_idle_query_continues_as_if_dropped_entries_had_never_existed(judge: Judge, case: Unmodelled) -> None:
    query, more = case.query, joins.MORE if FULL else joins.MORE[:6]
    unseen = [[event for event in events if not case.is_unseen(event)] for events in joins.BATCHES]
    deltas = query.provider == "hdfs" or query.changelog
    layout = "deltas" if deltas else "snapshot"
    if query.operator == "alarms":
        layout = begun(query.changelog)
    kept = judge.write(query, joins.BATCHES[:-1], version=case.version, layout=layout)
    never = judge.write(query, unseen[:-1], version=case.version, layout=layout)
    judge.start(kept, joins.BATCHES[-1:])
    judge.restart(never, unseen[-1:])
    settled(kept.path)
    assert case.drop(kept.path).totals.dropped > 0
    ends_untouched(judge, kept, list(more[0]))
    found = [*judge.restart(kept, []), *judge.restart(kept, more[1:])]
    wanted = [*judge.restart(never, more[:1]), *judge.restart(never, more[1:])]
    assert after_planned(found) == wanted
    assert fits(kept.path) == fits(never.path)


def begun(changelog: bool) -> str:
    """Return the layout of transformWithState: Spark itself writes a snapshot of the version with new variables."""
    return "both" if changelog else "snapshot"


ALWAYS_BUSY = [
    ("4.0", "for_a_day_scala", False),
    ("4.1", "for_a_day_rows", True),
    (NEWEST, "for_a_day", False),
    (NEWEST, "for_a_day", True),
]

if FULL:  # each test waits for the next half minute twice

    @pytest.mark.parametrize(("version", "operator", "changelog"), ALWAYS_BUSY)
    def test_a_query_with_endless_batches_without_data_stops_and_resumes(
        judge: Judge, version: str, operator: str, changelog: bool
    ) -> None:
        # The query is idle only between its triggers, and its next batch has no data.
        events = ttl_states.BATCHES
        written = judge.write(rocksdb(operator, changelog), events[:-1], begun(changelog), version)
        judge.start(written, events[-1:], "30 seconds")
        model = written.expected
        model.run(events[-1:])
        last = last_batch(written.path)
        await_batch(written.path, last + 1)
        settled(written.path)
        day_after = str(iso((ttl_states.began_ms(written, 0) + ttl_states.DAY_MS) * 1000))
        report = compact(
            str(written.path),
            [TtlTransformerFactory()],
            now=day_after,
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
        )
        assert report.totals.dropped == model.drop(ttl_states.in_batch_0) > 0
        ends_untouched(judge, written, [])
        more = ttl_states.MORE
        assert ttl_states.rows(judge.restart(written, more)) == ttl_states.rows(model.run(more))

    @pytest.mark.parametrize("changelog", [False, True])
    @pytest.mark.parametrize("version", VERSIONS[1:])
    def test_timers_in_processing_time_fire_once(judge: Judge, version: str, changelog: bool) -> None:
        query = replace(rocksdb("reminders", changelog), delay_s=40)
        events: list[Events] = [
            [Event("gone", T, 1), Event("kept", T + 3 * H, 1)],
            [Event("gone", T + 1, 1), Event("kept", T + 3 * H, 1), Event("quiet", T + 3 * H, 1)],
        ]
        written = judge.write(query, events, begun(changelog), version)
        settled(written.path)
        report = compact(
            str(written.path),
            [TtlTransformerFactory(HOUR, timestamp="value.seen:s")],
            now=stamp(T + 2 * H),
            timers="follow",
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
        )
        assert report.totals.dropped == 1
        judge.start(written, [[Event("gone", T + 4 * H, 1), Event("kept", T + 4 * H, 1)]], "1 second")
        time.sleep(query.delay_s + 5)
        told = sorted(row for batch in judge.stop(written) for row in batch.rows)
        wanted = [
            ("gone", "seen", 4, 1),
            ("kept", "seen", 4, 3),
            ("gone", "over", 4, 1),
            ("kept", "over", 4, 3),
            ("quiet", "over", 3, 1),
        ]
        names = ("key", "what", "seen", "n")
        rows = ((key, what, T + hours * H, n) for key, what, hours, n in wanted)
        assert told == list(canonical(dict(zip(names, row, strict=True)) for row in rows))
