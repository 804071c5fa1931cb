"""The aggregates of a query are in the order of their buffers in the state, which Spark chooses."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ttlsnap.contract.of_query import as_executed
from ttlsnap.contract.plan import PlannedOperator

LINES = ("group by user", "aggregate sum(amount)", "aggregate max(ts)", "watermark ts, 1 hour", "aggregate count(1)")
"""The lines of an aggregation, with another one below it."""


def executed(*numbers: int) -> list[Any]:
    """Return aggregates of an executed plan with these ids, as far as they are read."""
    return [SimpleNamespace(resultId=lambda number=number: SimpleNamespace(id=lambda: number)) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ((7, 9), (1, 2)),
        ((9, 7), (2, 1)),
        ((), (1, 2)),  # not an aggregation, or nothing was executed
        ((9, 8), (1, 2)),  # an unknown aggregate: the order is not known
    ],
)
def test_aggregates_have_the_order_of_their_buffers(numbers: Sequence[int], wanted: Sequence[int]) -> None:
    aggregates = {7: ("sum(amount)", None), 9: ("max(ts)", None)}
    planned = PlannedOperator(("stateStoreSave",), LINES, None, aggregates)
    found = as_executed(planned, executed(*numbers))
    assert found.lines == (LINES[0], *(LINES[place] for place in wanted), *LINES[3:])
