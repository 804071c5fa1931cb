"""The buffers of a query's aggregates: the columns that each has in the state, and their values before any row.

An aggregate that is added to a query begins with these values. Spark itself supplies them.
"""

from __future__ import annotations

from typing import Any

from ttlsnap.contract.jvm import items, jvm
from ttlsnap.contract.model import AggregateBuffer


def read_buffer(text: str, aggregate: Any) -> AggregateBuffer:
    """Return the buffer of an aggregate of an analyzed plan (a JVM object); ``text`` is its line in the contract."""
    function = aggregate.aggregateFunction()
    while _is_replaceable(function):  # such as count_if, of which the optimizer makes another function
        function = function.replacement()
    columns = list(items(function.aggBufferAttributes()))
    return AggregateBuffer(
        text,
        tuple(column.name() for column in columns),
        tuple(_to_json(value) for value in _initial(function, columns)),
        tuple(child.dataType().simpleString() for child in items(function.children())),
    )


def _is_replaceable(function: Any) -> bool:
    return any(kind.getSimpleName().startswith("RuntimeReplaceable") for kind in function.getClass().getInterfaces())


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
