"""Queries for ``ttlsnap contract``, which runs them with the Spark of its own environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "user string, at timestamp"


def sessions(visits: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    late = visits.withWatermark("at", "1 hour")
    return late.groupBy("user", F.session_window("at", "10 minutes")).agg(F.count("*").alias("n"), F.max("at"))


def distinct(visits: DataFrame) -> DataFrame:
    return visits.withWatermark("at", "1 hour").dropDuplicates(["user", "at"])


def running(visits: DataFrame) -> DataFrame:
    return visits.groupBy("user").applyInPandasWithState(count, "user string", "n long", "append", "NoTimeout")


def count(key: Any, batches: Iterator[Any], state: Any) -> Iterator[Any]:
    for batch in batches:
        yield batch[["user"]]
