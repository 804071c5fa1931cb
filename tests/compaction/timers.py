"""Queries with timers in event time."""

from __future__ import annotations

from typing import Any

from ..judge.queries import Query
from .stories import H


def alarmed(**settings: Any) -> Query:
    """Return a query that sets a timer for each event."""
    return Query("alarms", delay_s=10 * H, window_s=1800, provider="rocksdb", **settings)
