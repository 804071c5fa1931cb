"""Queries with session windows or arbitrary state per group, and compactions of their state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ttlsnap import CompactionReport, LocalEngine, compact
from ttlsnap.clock import TimeCharacteristic
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.queries import Event, Query, stamp
from ..judge.spark import Judge
from .joins import BATCHES, LIMIT, MORE, is_expired
from .stories import H
from .unseen import Case, goes_on

LATE_KEYS = {event.key for events in BATCHES for event in events if not is_expired(event)}


def query_of(operator: str, **settings: Any) -> Query:
    """Return a query with sessions or groups."""
    return Query(operator, delay_s=10 * H, window_s=1800, **settings)


def forgotten(event: Event) -> bool:
    """Return whether the group of an event has no event after the limit."""
    return event.key not in LATE_KEYS


def drop_ended_sessions(judge: Judge, case: Case) -> None:
    """Drop the sessions that have ended. Spark must then emit the same rows as without these sessions."""

    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory()
        return compact(
            str(path), [factory], now=stamp(LIMIT), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else [*MORE[:3], *MORE[12:15]], is_expired, drop)
    assert report.states[0].timestamp == "value.session_window.end"
    assert report.states[0].unclosed == report.totals.dropped > 0
    assert report.totals.kept


def drop_timed_out_groups(judge: Judge, case: Case) -> None:
    """Drop the groups whose timeout has passed. Spark must then emit the same rows as without these groups."""

    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory(time=TimeCharacteristic.EVENT)
        return compact(
            str(path), [factory], now=stamp(LIMIT + 1800), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else [*MORE[:3], *MORE[12:15]], forgotten, drop)
    assert report.states[0].timestamp == "value.timeoutTimestamp"
    assert report.states[0].unclosed == report.totals.dropped > 0


def drop_groups_by_own_field(judge: Judge, case: Case) -> None:
    """Drop groups by a time in the user's own state. Spark must then emit the same rows as without these groups."""

    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.groupState.seen:s")
        return compact(
            str(path), [factory], now=stamp(LIMIT + H), engine=LocalEngine(1), stopped=True, max_drop=1.0, **options
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else MORE[:3], forgotten, drop)
    assert report.totals.dropped == len({event.key for events in BATCHES for event in events if forgotten(event)})
    assert report.states[0].unclosed == 0
