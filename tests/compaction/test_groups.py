"""Compactions of session windows and of arbitrary state per group, judged by real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, LocalEngine, compact
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL
from .stories import H
from .test_joins import BATCHES, LIMIT, MORE, goes
from .unseen import Case, goes_on

LATE_KEYS = {event.key for events in BATCHES for event in events if not goes(event)}


def of(operator: str, **settings: Any) -> Query:
    return Query(operator, delay_s=10 * H, window_s=1800, **settings)


STORES: list[dict[str, Any]] = [
    {"provider": "hdfs"},
    {"provider": "rocksdb"},
    {"provider": "rocksdb", "changelog": True, "row_checksum": True},
]


def cases(operator: str, slices: list[Case]) -> list[Case]:
    if not FULL:
        return slices
    older = [
        Case(of(operator, **settings), version, again)
        for version in ("3.5", "4.0", "4.1")
        for settings in STORES
        for again in ((version,) if settings.get("changelog") else (version, NEWEST))
    ]
    newer = [Case(of(operator, **settings), *UPGRADE) for settings in STORES]
    return [*(Case(of(operator, **settings)) for settings in STORES), *older, *newer]


@pytest.mark.parametrize(
    "case",
    cases(
        "sessions",
        [Case(of("sessions", **STORES[2]))],
    ),
    ids=str,
)
def test_sessions_that_have_ended_go(judge: Judge, case: Case) -> None:
    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory()
        return compact(
            str(path), [factory], now=stamp(LIMIT), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else [*MORE[:3], *MORE[12:15]], goes, drop)
    assert report.states[0].timestamp == "value.session_window.end"
    assert report.states[0].unclosed == report.totals.dropped > 0
    assert report.totals.kept


def forgotten(event: Event) -> bool:
    """Return whether the group of an event has no event after the limit."""
    return event.key not in LATE_KEYS


@pytest.mark.parametrize("case", cases("groups", [Case(of("groups", provider="rocksdb"))]), ids=str)
def test_groups_whose_timeout_has_passed_go(judge: Judge, case: Case) -> None:
    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory(time=TimeCharacteristic.EVENT)
        return compact(
            str(path), [factory], now=stamp(LIMIT + 1800), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else [*MORE[:3], *MORE[12:15]], forgotten, drop)
    assert report.states[0].timestamp == "value.timeoutTimestamp"
    assert report.states[0].unclosed == report.totals.dropped > 0


@pytest.mark.parametrize("case", cases("groups_for_ever", [Case(of("groups_for_ever"))]), ids=str)
def test_groups_go_by_a_field_of_the_users_own_state(judge: Judge, case: Case) -> None:
    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.groupState.seen:s")
        return compact(
            str(path), [factory], now=stamp(LIMIT + H), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else MORE[:3], forgotten, drop)
    assert report.totals.dropped == len({event.key for events in BATCHES for event in events if forgotten(event)})
    assert report.states[0].unclosed == 0
