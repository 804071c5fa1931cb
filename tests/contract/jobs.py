"""Queries as a user would write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

EVENTS = "user string, other string, amount bigint, ts timestamp"
LIMIT_MS = 3_600_000


def totals(df: DataFrame) -> DataFrame:
    seen = df.filter("amount > 0").withColumn("double", F.col("amount") * 2)
    return seen.withWatermark("ts", "10 minutes").groupBy("user", F.window("ts", "1 hour")).agg(F.sum("double"))


def sessions(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 minutes").groupBy("user", F.session_window("ts", "5 minutes")).count()


def joined(spark: SparkSession, sources: Mapping[str, DataFrame]) -> DataStreamWriter:
    clicks = sources["clicks"].withWatermark("ts", "1 hour")
    views = sources["views"].withWatermark("at", "1 hour")
    return clicks.join(
        views, F.expr("user = viewer and ts >= at and ts < at + interval 1 hour")
    ).writeStream.outputMode("append")


class Last(StatefulProcessor):  # type: ignore[misc]  # of a package without types
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.last = handle.getValueState("last", "n long", LIMIT_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        raise AssertionError("there are no rows")

    def close(self) -> None:
        pass


def last(df: DataFrame) -> DataFrame:
    return df.groupBy("user").transformWithState(Last(), "user string, n long", "Update", "ProcessingTime")


def by_udf(df: DataFrame) -> DataFrame:
    @F.udf("string")
    def initial(user):  # type: ignore[no-untyped-def]  # PySpark would read hints for its own ends
        raise AssertionError("there are no rows")

    return df.groupBy(initial("user").alias("i")).count()


def no_state(df: DataFrame) -> DataFrame:
    return df.select("user")


def no_stream(spark: SparkSession, sources: Mapping[str, DataFrame]) -> DataFrame:
    return spark.range(3)


def nothing(df: DataFrame) -> None:
    return None


def raises(df: DataFrame) -> DataFrame:
    raise ValueError("out of order")


def no_column(df: DataFrame) -> DataFrame:
    return df.groupBy("nosuch").count()


def swapped(visits: Any, orders: Any) -> DataFrame:
    return cast("DataFrame", visits.join(orders, "user"))


def three(a: Any, b: Any, c: Any) -> None:
    return None


A_NUMBER = 3


def timed_out(df: DataFrame) -> DataFrame:
    def work(key: Any, frames: Any, state: Any) -> Any:
        raise AssertionError("there are no rows")

    schema = "user string"
    return df.groupBy("user").applyInPandasWithState(work, schema, "n long", "update", "ProcessingTimeTimeout")
