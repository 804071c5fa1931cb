"""Objects of Spark's JVM, as Python sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def jvm() -> Any:
    """Return the classes of the JVM of the active session."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context._jvm


def kind_of(node: Any) -> str:
    """Return the name of an object's class, without its package."""
    return str(node.getClass().getSimpleName())


def items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)
