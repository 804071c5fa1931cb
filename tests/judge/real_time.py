"""The server's side of queries in real-time mode: calls of ``real_time.scala``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(
    spark: SparkSession, checkpoint: str, operator: str, batch_ms: int, checkpoint_format: int, provider: str
) -> None:
    """Start or restart a query: with batches of ``batch_ms``, or with ordinary micro-batches if that is 0."""
    _scala(spark).start(spark._jsparkSession, checkpoint, operator, batch_ms, checkpoint_format, provider)


def add(spark: SparkSession, checkpoint: str, events: list[tuple[str, int, int]]) -> None:
    """Give events (key, epoch seconds, value) to the query."""
    for event in events:
        _scala(spark).add(checkpoint, *event)


def rows(spark: SparkSession, checkpoint: str) -> list[str]:
    """Return the rows that the query has emitted since it was first started."""
    return str(_scala(spark).rows(checkpoint)).splitlines()


def stop(spark: SparkSession, checkpoint: str) -> None:
    """Stop the query, in the middle of a batch."""
    _scala(spark).stop(checkpoint)


def error(spark: SparkSession, checkpoint: str) -> str:
    """Return the error that ended the query; empty if it is running."""
    return str(_scala(spark).error(checkpoint))


def _scala(spark: SparkSession) -> Any:
    return spark._jvm.judge.RealTime
