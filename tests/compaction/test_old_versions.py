"""Checkpoints of Spark 3.1 to 3.4, on each of their stores, restarted by themselves and by 4.2.

All tests here belong to the matrix. ``test_old_samples`` has a slice that needs none of these versions. Before 3.4
groups are written in Scala, because PySpark has no function for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..judge.processes import NEWEST, OLD_VERSIONS
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL
from . import chains, groups, joins
from .stories import LAYOUTS, Story, tell
from .unseen import Case

MODELLED = ("agg_update", "agg_update_long", "agg_append", "agg_window_update", "dedup", "dedup_plain")


def providers(version: str) -> tuple[str, ...]:
    return ("hdfs",) if version == "3.1" else ("hdfs", "rocksdb")


def cases(since: str, *queries: Query, again: tuple[str | None, ...] = (None, NEWEST)) -> list[Case]:
    """Return cases of each query on each store of each version, restarted by that version (None) and by the newest."""
    return [
        Case(query, version, later or version)
        for version in OLD_VERSIONS
        for query in queries
        for later in again
        if since <= version and query.provider in providers(version)
    ]


def on_each_store(build: Callable[..., Query], **settings: Any) -> list[Query]:
    return [build(provider=provider, **settings) for provider in ("hdfs", "rocksdb")]


JOINS = [
    *cases("3.1", *on_each_store(joins.joined, join_type="full_outer")),
    *cases("3.1", *(joins.joined(join_type=kind) for kind in joins.TYPES if kind != "full_outer"), again=(NEWEST,)),
    *cases("3.1", joins.joined(join_format=1)),
]
SESSIONS = cases("3.2", *on_each_store(groups.query_of, operator="sessions"))
TIMEOUTS = [
    *cases("3.1", *on_each_store(groups.query_of, operator="groups_scala")),
    *cases("3.4", *on_each_store(groups.query_of, operator="groups")),
]
FOR_EVER = [
    *cases("3.1", *on_each_store(groups.query_of, operator="groups_for_ever_scala"), again=(NEWEST,)),
    *cases("3.4", *on_each_store(groups.query_of, operator="groups_for_ever"), again=(NEWEST,)),
]
CHAINS = [
    *cases("3.1", *on_each_store(chains.query_of, operator="dedup_windows"), again=(None,)),
    *cases("3.4", *on_each_store(chains.query_of, operator="windows_of_windows"), again=(None,)),
]

if FULL:

    @pytest.mark.parametrize("version", OLD_VERSIONS)
    @pytest.mark.parametrize("operator", MODELLED)
    def test_aggregations_and_deduplications_resume(judge: Judge, version: str, operator: str) -> None:
        again = (version, NEWEST)
        stories = [Story(Query(operator), LAYOUTS, version, again)]
        if operator.startswith("agg"):
            stories.append(Story(Query(operator, aggregation_format=1), ("both",), version, again))
        if "rocksdb" in providers(version):
            stories.append(Story(Query(operator, provider="rocksdb"), ("snapshot",), version, again))
        tell(judge, *stories)

    @pytest.mark.parametrize("codec", ["zstd", "snappy", "lzf"])
    @pytest.mark.parametrize("version", OLD_VERSIONS)
    def test_every_codec_resumes(judge: Judge, version: str, codec: str) -> None:
        tell(judge, Story(Query("dedup", codec=codec), ("both",), version, (version, NEWEST)))

    @pytest.mark.parametrize("case", JOINS, ids=str)
    def test_joins_resume(judge: Judge, case: Case) -> None:
        joins.require_same_rows(judge, case)

    @pytest.mark.parametrize("case", SESSIONS, ids=str)
    def test_sessions_resume(judge: Judge, case: Case) -> None:
        groups.drop_ended_sessions(judge, case)

    @pytest.mark.parametrize("case", TIMEOUTS, ids=str)
    def test_groups_with_a_timeout_resume(judge: Judge, case: Case) -> None:
        groups.drop_timed_out_groups(judge, case)

    @pytest.mark.parametrize("case", FOR_EVER, ids=str)
    def test_groups_without_a_timeout_resume(judge: Judge, case: Case) -> None:
        groups.drop_groups_by_own_field(judge, case)

    @pytest.mark.parametrize("case", CHAINS, ids=str)
    def test_two_operators_resume(judge: Judge, case: Case) -> None:
        chains.drop_from_each_operator(judge, case)
