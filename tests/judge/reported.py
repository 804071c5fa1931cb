"""Stateful queries of people who reported trouble with them in public, which no other operator here resembles.

``REPORTED`` has them under their own names, and ``LINKS`` the reports. ``ALL`` has those of ``queries``, too. They read
the same events.
This module runs under Python 3.8 and Spark 4.0 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .queries import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from .queries import Operator, Query, Read

_PULL = "https://github.com/apache/spark/pull/"
REPORTED: dict[str, Operator] = {}
LINKS: dict[str, str] = {}
IN_ROCKSDB = ("windows_of_a_processor",)
"""Those that need the RocksDB store."""


def reported(link: str) -> Callable[[Operator], Operator]:
    """Register a query under its function's name, with the report."""

    def register(build: Operator) -> Operator:
        REPORTED[build.__name__] = build
        LINKS[build.__name__] = link
        return build

    return register


@reported(f"{_PULL}46035")
def union_of_constants(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group the union of two streams by a column that is a constant in each, and by one that is the same in both."""
    from pyspark.sql import functions as F

    one, two = (
        read().where(f"value % 2 = {rest}").select(F.lit(name).alias("name"), F.lit(7).alias("kind"), "value")
        for rest, name in ((0, "even"), (1, "odd"))
    )
    return one.union(two).groupBy("name", "kind").agg(F.count("*").alias("n"), F.sum("value").alias("total")), "update"


@reported(f"{_PULL}26156")
def union_of_two_joins(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Put a join with a table in front of a join of streams, so that the tasks of the latter do not begin with 0."""
    from pyspark.sql import functions as F

    left = read().where("value % 2 = 0").select("key", F.col("value").alias("a"))
    right = read().where("value % 2 = 1").select(F.col("key").alias("other"), F.col("value").alias("b"))
    joined = left.join(right, left["key"] == right["other"]).select("key", "a", "b")
    table = read().sparkSession.createDataFrame([("k1", 100), ("k2", 200)], "name string, grade long")
    enriched = read().join(table, F.expr("key = name")).select("key", F.col("value").alias("a"), "grade")
    return enriched.union(joined), "append"


@reported("https://github.com/opensearch-project/opensearch-spark/issues/474")
def aggregates_joined(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join two aggregations on the start of their windows, which has no watermark."""
    from pyspark.sql import functions as F

    def side(rest: int, name: str) -> DataFrame:
        late = read().where(f"value % 2 = {rest}").withWatermark("at", "10 minutes")
        groups = late.groupBy(F.window("at", "10 minutes"), F.col("key").alias(name)).agg(
            F.count("*").alias(f"n_{name}")
        )
        return groups.select(F.col("window.start").alias(f"start_{name}"), name, f"n_{name}")

    return side(0, "viewer").join(side(1, "buyer"), F.expr("start_viewer = start_buyer")), "append"


@reported(f"{_PULL}28326")
def join_of_windows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join on a window that was renamed, which is a struct with a watermark, without any aggregation."""
    from pyspark.sql import functions as F

    def side(rest: int, name: str) -> DataFrame:
        late = read().where(f"value % 2 = {rest}").withWatermark("at", "10 minutes")
        window = F.window("at", "10 minutes").alias(f"{name}_window")
        return late.select(F.col("key").alias(f"{name}_key"), window, F.col("value").alias(name))

    same = F.expr("left_key = right_key and left_window = right_window")
    return side(0, "left").join(side(1, "right"), same, "left_outer"), "append"


@reported(f"{_PULL}26108")
def join_with_itself(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join a stream with itself, where the sides forget at different times, with a condition of one side alone."""
    from pyspark.sql import functions as F

    def side(prefix: str) -> DataFrame:
        late = read().withWatermark("at", "10 minutes")
        return late.select(*(F.col(name).alias(prefix + name) for name in ("key", "at", "value")))

    on = "a_key = b_key and a_at <= b_at and b_at <= a_at + interval 30 minutes and a_value > 0"
    return side("a_").join(side("b_"), F.expr(on), "left_outer"), "append"


@reported(f"{_PULL}33691")
def sessions_by_row(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group by sessions whose gap depends on the row."""
    from pyspark.sql import functions as F

    late = read().withWatermark("at", "10 minutes")
    gap = F.expr("case when key = 'k1' then '5 minutes' when value % 3 = 0 then '20 minutes' else '40 minutes' end")
    groups = late.groupBy(F.session_window("at", gap), "key")
    values = F.array_sort(F.collect_set("value")).alias("values")
    return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total"), values), "append"


@reported("https://stackoverflow.com/questions/77482302")
def distinct_nested(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Deduplicate by all columns: structs, arrays of structs, decimals, bytes, intervals, with nulls at each level."""
    from pyspark.sql import functions as F

    columns = {
        "id": "key",
        "who": "if(value = 0, null, struct(key as name, struct(cast(at as date) as day, value as n) as at))",
        "tags": "if(value % 5 = 0, null, transform(sequence(0, int(value % 3)), i -> concat(key, '-', i)))",
        "items": "array(struct(key as sku, cast(value as decimal(38,10)) as price), null)",
        "price": "cast(value as decimal(38,10)) / 8",
        "small": "cast(value % 100 as decimal(9,2))",
        "raw": "cast(key as binary)",
        "local": "cast(at as timestamp_ntz)",
        "since": "make_dt_interval(0, 0, int(value % 60))",
        "flag": "value % 2 = 0",
    }
    rows = read().select(*(F.expr(text).alias(name) for name, text in columns.items())).distinct()
    return rows.select("id", F.to_json("items").alias("items"), F.col("price").cast("string"), "flag"), "append"


@reported("https://github.com/opensearch-project/opensearch-spark/issues/140")
def sketches(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate with sketches for each window, which is the only key, with an offset and an odd name."""
    from pyspark.sql import functions as F

    late = read().where("value <> 200").withColumnRenamed("at", "@at").withWatermark("`@at`", "10 minutes")
    groups = late.groupBy(F.window("`@at`", "60 minutes", "60 minutes", "15 minutes"))
    found = groups.agg(
        F.approx_count_distinct("key").alias("clients"),
        F.expr("hll_sketch_estimate(hll_sketch_agg(key, 12))").alias("sketched"),
        F.percentile_approx("value", [0.5, 0.99], 100).alias("percentiles"),
        F.max_by("key", "value").alias("greatest"),
    )
    return found.select(
        F.col("window.start").alias("start"), "clients", "sketched", "percentiles", "greatest"
    ), "append"


@reported(f"{_PULL}38798")
def groups_by_later_columns(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep a struct and bytes for groups whose columns are not the first of the rows, with a timeout in event time."""
    from pyspark.sql import functions as F

    def step(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        bucket, name = key
        if state.hasTimedOut:
            n, best, _ = state.get
            state.remove()
            yield pd.DataFrame({"name": [name], "bucket": [bucket], "n": [-int(n)], "best": [int(best[1])]})
            return
        n, best, raw = state.get if state.exists else (0, (0, 0), b"")
        for frame in frames:
            for moment, value in zip(frame["ts"], frame["value"]):  # noqa: B905
                n, raw = int(n) + 1, bytes(raw)[-20:] + bytes([int(value) % 256])
                best = max((int(best[0]), int(best[1])), (int(moment), int(value)))
        state.update((n, best, raw))
        state.setTimeoutTimestamp(max(best[0] * 1000 + 600_000, state.getCurrentWatermarkMs() + 1))
        yield pd.DataFrame({"name": [name], "bucket": [bucket], "n": [n], "best": [int(best[1])]})

    late = read().where("ts is not null").select("ts", "value", "at", "key", F.expr("value % 2").alias("bucket"))
    groups = late.withWatermark("at", "10 minutes").groupBy("bucket", "key")
    kept, shown = "n long, best struct<seen:long,value:long>, raw binary", "name string, bucket long, n long, best long"
    return groups.applyInPandasWithState(step, shown, kept, "update", "EventTimeTimeout"), "update"


@reported(
    "https://codingbestpractice.com/howto/how-to-expire-state-of-dropduplicates-in-structured-streaming-to-avoid-oom"
)
def dedup_by_window(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Deduplicate by a window on which the watermark is. Spark 4.2 then takes no time of the window for it."""
    from pyspark.sql import functions as F

    rows = read().where("ts is not null").select(F.window("at", "1 hour").alias("window"), F.col("key").alias("uuid"))
    return rows.withWatermark("window", "1 hour").dropDuplicates(["uuid", "window"]).select("uuid"), "append"


@reported(f"{_PULL}27268")
def watermark_lost(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group by a window of rows from before the watermark. The query has one, and its state never ends."""
    from pyspark.sql import functions as F

    events = read()
    late = events.withWatermark("at", "10 minutes")
    return late.groupBy(F.window(events["at"], "10 minutes", "5 minutes"), events["key"]).count(), "update"


@reported(f"{_PULL}48124")
def windows_of_a_processor(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate the output of transformWithState, which gives another event time, and has a map with struct keys."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming import StatefulProcessor

    class Steps(StatefulProcessor):  # type: ignore[misc, unused-ignore]
        def init(self, handle: Any) -> None:
            self.times = handle.getListState("times", "seen long")
            self.kinds = handle.getMapState("kinds", "odd boolean, rest int", "n long")

        def handleInputRows(self, key: Any, frames: Any, timers: Any) -> Any:
            import pandas as pd

            for frame in frames:
                for moment, value in zip(frame["ts"], frame["value"]):  # noqa: B905
                    self.times.appendValue((int(moment),))
                    kind = (bool(value % 2), int(value % 3))
                    n = int(self.kinds.getValue(kind)[0]) + 1 if self.kinds.containsKey(kind) else 1
                    self.kinds.updateValue(kind, (n,))
                    yield pd.DataFrame({"id": [key[0]], "moment": [pd.Timestamp(int(moment), unit="s")], "n": [n]})

        def close(self) -> None:
            pass

    late = read().where("ts is not null and key is not null").withWatermark("at", "10 minutes")
    steps = late.groupBy("key").transformWithStateInPandas(
        Steps(), "id string, moment timestamp, n long", "Append", "EventTime", eventTimeColumnName="moment"
    )
    windows = steps.groupBy(F.window("moment", "10 minutes"), "id")
    return windows.agg(F.count("*").alias("rows"), F.max("n").alias("most")), "append"


ALL: dict[str, Operator] = {**OPERATORS, **REPORTED}
