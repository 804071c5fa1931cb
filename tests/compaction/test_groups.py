"""Compactions of session windows and of arbitrary state per group, judged by real Spark."""

from __future__ import annotations

from typing import Any

import pytest

from ..judge.processes import NEWEST, UPGRADE
from ..judge.spark import Judge
from ..matrix import FULL
from .groups import drop_ended_sessions, drop_groups_by_own_field, drop_timed_out_groups, query_of
from .unseen import Case

STORES: list[dict[str, Any]] = [
    {"provider": "hdfs"},
    {"provider": "rocksdb"},
    {"provider": "rocksdb", "changelog": True, "row_checksum": True},
]


def cases(operator: str, slices: list[Case]) -> list[Case]:
    if not FULL:
        return slices
    older = [
        Case(query_of(operator, **settings), version, again)
        for version in ("3.5", "4.0", "4.1")
        for settings in STORES
        for again in ((version,) if settings.get("changelog") else (version, NEWEST))
    ]
    newer = [Case(query_of(operator, **settings), *UPGRADE) for settings in STORES]
    return [*(Case(query_of(operator, **settings)) for settings in STORES), *older, *newer]


@pytest.mark.parametrize(
    "case",
    cases(
        "sessions",
        [Case(query_of("sessions", **STORES[2]))],
    ),
    ids=str,
)
def test_sessions_that_have_ended_go(judge: Judge, case: Case) -> None:
    drop_ended_sessions(judge, case)


@pytest.mark.parametrize("case", cases("groups", [Case(query_of("groups", provider="rocksdb"))]), ids=str)
def test_groups_whose_timeout_has_passed_go(judge: Judge, case: Case) -> None:
    drop_timed_out_groups(judge, case)


@pytest.mark.parametrize("case", cases("groups_for_ever", [Case(query_of("groups_for_ever"))]), ids=str)
def test_groups_go_by_a_field_of_the_users_own_state(judge: Judge, case: Case) -> None:
    drop_groups_by_own_field(judge, case)
