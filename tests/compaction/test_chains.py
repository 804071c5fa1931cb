"""Compactions of queries with several stateful operators, of all operators or of one, judged by real Spark.

After a compaction Spark emits the same rows as the model, which drops the same entries. Spark has one watermark for a
query, and each operator passes it on unchanged. Only a join delays it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ..judge.processes import NEWEST
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..matrix import FULL
from . import joins
from .chains import FIELDS, drop, drop_from_each_operator, query_of
from .unseen import Case, goes_on

STORES: list[dict[str, Any]] = [
    {"provider": "hdfs", "row_checksum": True},
    {"provider": "rocksdb"},
    {"provider": "rocksdb", "changelog": True},
    {"provider": "rocksdb", "changelog": True, "checkpoint_format": 2, "row_checksum": True},
]
SLICE = [Case(query_of("windows_of_windows", **STORES[0]))]
EVERYTHING = [
    *(Case(query_of(operator, **settings)) for operator in FIELDS for settings in STORES),
    *(
        Case(query_of(operator, **settings), version, version)
        for operator in FIELDS
        for version in ("3.5", "4.0", "4.1")
        for settings in STORES[:2]
    ),
]


@pytest.mark.parametrize("case", EVERYTHING if FULL else SLICE, ids=str)
def test_each_operator_may_go_alone(judge: Judge, case: Case) -> None:
    drop_from_each_operator(judge, case)


def joined(**settings: Any) -> Query:
    return replace(joins.joined(**settings), operator="join_windows")


JOINS = [
    *((Case(joined(**settings)), only) for settings in joins.STORES for only in (None, 0, 1)),
    *(
        (Case(joined(**settings), version, NEWEST), None)
        for settings in joins.STORES[:2]
        for version in ("3.5", "4.0", "4.1")
    ),
]

if FULL:  # each costs half a minute

    @pytest.mark.parametrize(("case", "only"), JOINS, ids=str)
    def test_a_join_and_the_aggregation_behind_it_resume_after_a_compaction(
        judge: Judge, case: Case, only: int | None
    ) -> None:
        """Operator 0 counts and operator 1 joins. The dropped rows match no later row."""

        def is_expired(event: Event) -> bool:
            return only != 1 and joins.is_expired(event)  # their pairs were counted on arrival

        dropping = partial(drop, only=only, limit=joins.LIMIT, drop_unmatched=True)
        report = goes_on(judge, case, joins.BATCHES, joins.MORE, is_expired, dropping)
        dropped = {state.state.operator for state in report.states if state.counts.dropped}
        assert dropped == ({0, 1} if only is None else {only})
        # The checkpoint does not record by how much the join delays the watermark, so no window is known to be closed.
        assert all(state.unclosed == state.counts.dropped for state in report.states if state.state.operator == 0)
