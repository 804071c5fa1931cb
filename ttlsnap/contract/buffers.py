"""The buffers of a query's aggregates: the columns that each has in the state, and their values before any row.

Spark's optimizer can put the aggregates into another order than the query has: that of a later ``select``. It can also
exchange the function: the sum of a short decimal becomes the sum of its digits, a ``bigint``. So the aggregates are
read from the plan that Spark executed. Its aggregates have the ids of those in the analyzed plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ttlsnap.contract.jvm import items, jvm, kind_of
from ttlsnap.contract.model import AggregateBuffer

_SAVES = ("StateStoreSaveExec", "SessionWindowStateStoreSaveExec")
_AGGREGATES = ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec", "MergingSessionsExec")
Executed = Mapping[int, Sequence[Any]]
"""The aggregates that Spark executed, by the number of their operator, in the order of their buffers (JVM objects)."""


def find_executed(plan: Any) -> Executed:
    """Return the aggregates of an executed plan (a JVM object)."""
    aggregates = {}
    for node in _walk(plan):
        if kind_of(node) in _SAVES:
            aggregate_node = next(
                (descendant for descendant in _walk(node.child()) if kind_of(descendant) in _AGGREGATES), None
            )
            if aggregate_node is not None:
                aggregates[node.stateInfo().get().operatorId()] = list(items(aggregate_node.aggregateExpressions()))
    return aggregates


def read_buffers(
    executed: Sequence[Any], analyzed: Mapping[int, tuple[str, Any]]
) -> tuple[AggregateBuffer, ...] | None:
    """Return the buffers of executed aggregates; None if one of them is not in the analyzed plan.

    ``analyzed`` has the text and the object of each aggregate of the analyzed plan, by its id.
    """
    analyzed_aggregates = [analyzed.get(aggregate.resultId().id()) for aggregate in executed]
    if None in analyzed_aggregates:
        return None
    return tuple(
        _read(analyzed_aggregate[0], analyzed_aggregate[1], aggregate)
        for analyzed_aggregate, aggregate in zip(analyzed_aggregates, executed, strict=True)
        if analyzed_aggregate
    )


def _read(text: str, analyzed: Any, executed: Any) -> AggregateBuffer:
    function = executed.aggregateFunction()
    columns = list(items(function.aggBufferAttributes()))
    return AggregateBuffer(
        text,
        kind_of(function),
        tuple(column.name() for column in columns),
        tuple(_to_json(value) for value in _initial(function, columns)),
        _inputs(analyzed.aggregateFunction()),
        _inputs(function),
    )


def _inputs(function: Any) -> tuple[str, ...]:
    return tuple(str(child.dataType().simpleString()) for child in items(function.children()))


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in items(node.children()):
        yield from _walk(child)


def _initial(function: Any, columns: list[Any]) -> list[Any]:
    """Return the initial value of each column."""
    names = {method.getName() for method in function.getClass().getMethods()}
    if "initialValues" in names:
        return [value.eval(None) for value in items(function.initialValues())]
    if "createAggregationBuffer" in names:
        return [function.serialize(function.createAggregationBuffer())]
    row = jvm().org.apache.spark.sql.catalyst.expressions.SpecificInternalRow(function.aggBufferSchema())
    function.initialize(row)
    return [row.get(place, column.dataType()) for place, column in enumerate(columns)]


def _to_json(value: Any) -> Any:
    """Return a value of Spark as JSON has it: binary as hexadecimal text, and decimals as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value.toString())
