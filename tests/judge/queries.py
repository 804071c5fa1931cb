"""The queries of the judge: their settings, and their operators by name.

Every query reads the same events (a key, a time in epoch seconds, a number) and emits the result of its operator. An
operator is one function in ``OPERATORS``, under its own name. It gets a function that reads the events, and the query's
settings. It returns the result and the output mode. To add an operator, add such a function here. If tests need its
expected output, add it to ``model``, too.

This module runs under Python 3.8 and Spark 3.0 and later. Only the operators import PySpark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    # The function with which an operator reads the events, and the type of an operator.
    Read = Callable[[], DataFrame]
    Operator = Callable[[Read, "Query"], tuple[DataFrame, str]]

EVENT_SCHEMA = "key string, ts long, value long"

_STATE_STORE = "spark.sql.streaming.stateStore."
_PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


@dataclass(frozen=True)
class Event:
    """One input row. ``ts`` is the event's time in epoch seconds; the column ``at`` is the same time as a timestamp."""

    key: str | None
    ts: int | None
    value: int = 1


@dataclass(frozen=True)
class Query:
    """A streaming query: the name of its operator, and the settings that shape its checkpoint.

    ``sink`` is one of:

    * ``rows``: the judge returns the rows of each batch
    * ``json``, ``parquet``: Spark's file sink with its own log, in append mode only
    * ``delta``: a table, in append mode only
    * ``memory``: the judge returns the table after the last batch, in complete mode only

    ``source`` is one of:

    * ``json``: files
    * ``delta``: a table that gets one commit for each batch
    * ``partitions``: a source with offsets like Kafka's, from 4.0 on
    * ``rate-micro-batch``: events that Spark makes; see ``rated``

    ``changelog`` and ``checkpoint_format`` apply to RocksDB. ``conf`` is for all other settings, and takes precedence.
    """

    operator: str = "agg_update"
    sink: str = "rows"
    source: str = "json"
    provider: str = "hdfs"
    codec: str = "lz4"
    partitions: int = 2
    row_checksum: bool = False
    aggregation_format: int = 2
    sink_log_interval: int = 10
    delay_s: int = 3600
    window_s: int = 3600
    changelog: bool = False
    checkpoint_format: int = 1
    join_type: str = "inner"
    join_format: int = 2
    conf: tuple[tuple[str, str], ...] = ()

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for this query. A version of Spark ignores settings that it does not know."""
        settings = {
            "spark.sql.shuffle.partitions": str(self.partitions),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.aggregation.stateFormatVersion": str(self.aggregation_format),
            "spark.sql.streaming.fileSink.log.compactInterval": str(self.sink_log_interval),
            "spark.sql.streaming.join.stateFormatVersion": str(self.join_format),
            _STATE_STORE + "providerClass": _PROVIDERS.get(self.provider, self.provider),
            _STATE_STORE + "compression.codec": self.codec,
            _STATE_STORE + "rowChecksum.enabled": str(self.row_checksum).lower(),
            _STATE_STORE + "rocksdb.changelogCheckpointing.enabled": str(self.changelog).lower(),
            _STATE_STORE + "checkpointFormatVersion": str(self.checkpoint_format),
        }
        if self.join_format == 4:
            settings["spark.sql.streaming.join.stateFormatV4.enabled"] = "true"
        settings.update(self.conf)
        return settings


def stamp(ts: int) -> str:
    """Return the timestamp for epoch seconds, in the judge's form (UTC)."""
    return (datetime(1970, 1, 1) + timedelta(seconds=ts)).isoformat()


def unstamp(text: str) -> int:
    """Return the epoch seconds of a timestamp that ``stamp`` wrote."""
    return int((datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds())


RATE_FROM, RATE_ROWS, RATE_STEP_S = 1_700_006_400, 20, 3600
BATCH_A_RUN = ("partitions", "rate-micro-batch")
"""Sources that make one batch for each run."""


def rated(batch: int) -> list[Event]:
    """Return the events that the source ``rate-micro-batch`` makes after ``batch`` batches with data."""
    numbers = range(batch * RATE_ROWS, (batch + 1) * RATE_ROWS)
    return [Event(f"k{number % 7}", RATE_FROM + batch * RATE_STEP_S, number) for number in numbers]


OPERATORS: dict[str, Operator] = {}
ENDLESS = ("for_a_day", "for_a_day_rows", "for_a_day_scala", "lists", "removals", "reminders")
"""Operators for which Spark runs batches without data for ever."""
ONLY_ROCKSDB = ("alarms", "for_a_day", "for_a_day_rows", "for_a_day_scala", "lists", "removals", "reminders", "visits")
"""Operators whose state only RocksDB can store."""
WITHOUT_KEYS = ("first_rows", "first_rows_deduplicated", "dedup_first_rows")
"""Operators with a limit, which has one partition and no keys."""
SCALA = {
    "for_a_day_scala": "for_a_day.scala",
    "groups_scala": "groups.scala",
    "groups_for_ever_scala": "groups.scala",
}
"""Operators in Scala, and their source files. A server compiles a file when a test needs it."""
OTHER_PROVIDERS = {
    "com.databricks.sql.streaming.state.RocksDBStateStoreProvider": "providers.scala",
    "com.example.state.Provider": "providers.scala",
}
"""State store providers that are not Spark's own, and their source files."""


def operator(build: Operator) -> Operator:
    """Register an operator under its function's name."""
    OPERATORS[build.__name__] = build
    return build


def _totals(events: DataFrame, moment: str) -> DataFrame:
    from pyspark.sql import functions as F

    totals = F.max(moment).alias("last_seen"), F.count("*").alias("n"), F.sum("value").alias("total")
    return events.groupBy("key").agg(*totals)


@operator
def agg_update(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep the last time, a count and a sum for each key, for ever. The time is ``value.max``, a timestamp."""
    return _totals(read(), "at"), "update"


@operator
def agg_slow(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate as ``agg_update``, slowly: an event with a value of 1000 or more takes so many milliseconds."""
    sleep = "reflect('java.lang.Thread', 'sleep', CAST(value AS BIGINT))"
    return _totals(read().where(f"coalesce(if(value >= 1000, {sleep}, ''), '') <> 'awake'"), "at"), "update"


@operator
def agg_all(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate as ``agg_update``, in complete mode: every batch emits every key."""
    return _totals(read(), "at"), "complete"


@operator
def agg_update_watermark(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate as ``agg_update``, with a watermark. The checkpoint records it, but it evicts nothing."""
    return _totals(read().withWatermark("at", f"{query.delay_s} seconds"), "at"), "update"


@operator
def agg_update_long(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate as ``agg_update``, with the time as a number of seconds, which needs a unit."""
    return _totals(read(), "ts"), "update"


@operator
def agg_two_maxima(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep two buffers with one name: ``value.max#1`` is a timestamp, ``value.max#2`` a number of seconds."""
    from pyspark.sql import functions as F

    return read().groupBy("key").agg(F.max("at").alias("last_seen"), F.max("ts").alias("seconds")), "update"


def _windowed(read: Read, query: Query) -> DataFrame:
    return _counted(read().withWatermark("at", f"{query.delay_s} seconds"), query)


def _counted(rows: DataFrame, query: Query) -> DataFrame:
    from pyspark.sql import functions as F

    groups = rows.groupBy(F.window("at", f"{query.window_s} seconds"), "key")
    return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total"))


@operator
def agg_namesake(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep the last time in seconds and a count for each number. The key and a buffer have the same name and type."""
    from pyspark.sql import functions as F

    totals = F.max("ts").alias("last_seen"), F.count("*").alias("n")
    return read().withColumnRenamed("value", "max").groupBy("max").agg(*totals), "update"


@operator
def agg_repartitioned(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Count by two keys, behind a repartition by one of them, which Spark before 3.3 used for the state as well."""
    from pyspark.sql import functions as F

    return read().repartition("key").groupBy("key", "value").agg(F.max("at"), F.count("*")), "update"


@operator
def agg_append(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate for each window and key. Emit and evict once the watermark has passed the window's end."""
    return _windowed(read, query), "append"


@operator
def windows_for_ever(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate for each window and key, without a watermark, so that nothing is evicted. Emit each change."""
    return _counted(read(), query), "update"


@operator
def windows_of_windows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Sum the output of ``agg_append`` over windows that are four times as long and overlap by half."""
    from pyspark.sql import functions as F

    closed, mode = agg_append(read, query)
    width, slide = f"{4 * query.window_s} seconds", f"{2 * query.window_s} seconds"
    closed = closed.where("n > 0")  # otherwise Spark removes the unused count from the first aggregation
    groups = closed.groupBy(F.window(F.window_time("window"), width, slide), "key")
    return groups.agg(F.count("*").alias("n"), F.sum("total").alias("total")), mode


@operator
def dedup_windows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate the output of ``dedup`` for each window and key."""
    return _counted(dedup(read, query)[0], query), "append"


@operator
def dedup_within_windows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate the output of ``dedup_within`` for each window and key."""
    return _counted(dedup_within(read, query)[0], query), "append"


@operator
def agg_window_update(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate for each window and key. Emit each change, and evict behind the watermark."""
    return _windowed(read, query), "update"


@operator
def agg_complete(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate for each window and key in complete mode: the watermark evicts nothing."""
    return _windowed(read, query), "complete"


@operator
def first_rows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first five rows. The state of this global limit is one count in one partition."""
    return read().limit(5), "append"


@operator
def first_rows_deduplicated(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each key among the first five rows. The global limit is nearest to the source."""
    return read().limit(5).dropDuplicates(["key"]), "append"


@operator
def dedup_first_rows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first five of the rows that are each the first of their key."""
    return read().dropDuplicates(["key"]).limit(5), "append"


@operator
def dedup(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each key and time. The watermark evicts entries."""
    late = read().withWatermark("at", f"{query.delay_s} seconds")
    return late.dropDuplicates(["key", "at"]).drop("ts"), "append"


@operator
def dedup_plain(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each key and time. Nothing evicts entries."""
    return read().dropDuplicates(["key", "at"]).drop("ts"), "append"


@operator
def dedup_key(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each key. The state has no time, and nothing evicts entries."""
    return read().dropDuplicates(["key"]).drop("ts"), "append"


@operator
def dedup_many(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each of many keys with five columns, whose order depends on the version of Spark."""
    from pyspark.sql import functions as F

    names = ("tenant", "user", "device", "page", "action")
    columns = [F.concat(F.lit(f"{name} of "), "key").alias(name) for name in names]
    return read().select("value", *columns).dropDuplicates(list(names)).select("user", "value"), "append"


@operator
def dedup_alone(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit each key once. The rows have no other column."""
    return read().select("key").dropDuplicates(), "append"


@operator
def dedup_interval(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each calendar interval. Spark has two hashes for an interval."""
    from pyspark.sql import functions as F

    interval = F.expr("make_interval(0, cast(value % 5 as int), 0, cast(value % 3 as int), 0, 0, hash(key) % 1000)")
    return read().select("key", interval.alias("every")).dropDuplicates(["every"]).select("key"), "append"


@operator
def dedup_floats(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each value, as floats: 0 is -0.0, 1 is 0.0, and 2 is a NaN."""
    from pyspark.sql import functions as F

    number = F.expr("case value when 0 then -double('0.0') when 1 then 0.0D when 2 then double('NaN') else value end")
    rows = read().select("key", number.alias("number"), F.array(number.cast("float")).alias("list"))
    return rows.dropDuplicates(["number", "list"]).select("key"), "append"


@operator
def dedup_void(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of all, because the key is a void."""
    from pyspark.sql import functions as F

    return read().select("key", F.lit(None).alias("nothing")).dropDuplicates(["nothing"]).select("key"), "append"


@operator
def dedup_within(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Emit the first row of each key within the delay. Spark stores ``expiresAtMicros``. From 3.5 on."""
    late = read().withWatermark("at", f"{query.delay_s} seconds")
    return late.dropDuplicatesWithinWatermark(["key"]).drop("ts"), "append"


@operator
def join_windows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Count the output of ``join`` for each window and key. The count depends on the join's watermark."""
    from pyspark.sql import functions as F

    joined, mode = join(read, query)
    return joined.groupBy(F.window("at", f"{query.window_s} seconds"), "key").count(), mode


@operator
def join(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join the events with themselves on the key, within a window's length of each other."""
    from pyspark.sql import functions as F

    delay, width = f"{query.delay_s} seconds", F.expr(f"interval {query.window_s} seconds")
    left = read().withWatermark("at", delay).select("key", "at", F.col("value").alias("left_value"))
    right = (
        read()
        .withWatermark("at", delay)
        .select(F.col("key").alias("other"), F.col("at").alias("then"), F.col("value").alias("right_value"))
    )
    near = F.col("then").between(F.col("at") - width, F.col("at") + width)
    return left.join(right, (F.col("key") == F.col("other")) & near), "append"


@operator
def join_parities(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join events of odd values with events of even values, on the key and within a window's length of each other."""
    from pyspark.sql import functions as F

    delay, width = f"{query.delay_s} seconds", F.expr(f"interval {query.window_s} seconds")
    odd = F.col("value") % 2 == 1
    left = read().where(odd).withWatermark("at", delay).select("key", "at", F.col("value").alias("left_value"))
    right = read().where(~odd).withWatermark("at", delay)
    right = right.select(F.col("key").alias("other"), F.col("at").alias("then"), F.col("value").alias("right_value"))
    near = F.col("then").between(F.col("at") - width, F.col("at") + width)
    return left.join(right, (F.col("key") == F.col("other")) & near, query.join_type), "append"


@operator
def join_ignoring_case(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join the events with themselves on the key in a collation, which Spark stores as a binary key of it (4.0)."""
    from pyspark.sql import functions as F

    left = read().select(F.expr("key collate UTF8_LCASE").alias("key"), F.col("value").alias("left_value"))
    right = read().select(F.expr("upper(key) collate UTF8_LCASE").alias("other"), F.col("value").alias("right_value"))
    return left.join(right, F.col("key") == F.col("other")), "append"


@operator
def join_on_columns(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Join the events with themselves on two of their columns. Spark infers that the left ones are not null."""
    from pyspark.sql import functions as F

    left = read().select("key", "ts", "value")
    right = read().select(F.col("key").alias("other"), F.col("ts").alias("then"), F.col("value").alias("same"))
    return left.join(right, (F.col("key") == F.col("other")) & (F.col("value") == F.col("same"))), "append"


@operator
def sessions(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Aggregate sessions for each key. A gap of a window's length ends a session; the watermark emits and evicts it."""
    from pyspark.sql import functions as F

    late = read().withWatermark("at", f"{query.delay_s} seconds")
    groups = late.groupBy("key", F.session_window("at", f"{query.window_s} seconds"))
    return groups.agg(F.count("*").alias("n"), F.sum("value").alias("total")), "append"


@operator
def groups(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep the last time and a count for each key, by applyInPandasWithState with a timeout in event time."""
    return _groups(read().withWatermark("at", f"{query.delay_s} seconds"), query, "EventTimeTimeout"), "update"


@operator
def groups_for_ever(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group as ``groups``, without a timeout."""
    return _groups(read(), query, "NoTimeout"), "update"


@operator
def groups_scala(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group as ``groups``, by flatMapGroupsWithState. From 3.0 on."""
    late = read().withWatermark("at", f"{query.delay_s} seconds")
    return _of_scala(late, "Groups", query.window_s * 1000), "update"


@operator
def groups_for_ever_scala(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Group as ``groups_scala``, without a timeout."""
    return _of_scala(read(), "Groups", 0), "update"


def _of_scala(rows: DataFrame, name: str, *words: object) -> DataFrame:
    """Return the result of our Scala function ``judge.<name>.of`` for these rows."""
    made = getattr(rows._sc._jvm.judge, name).of(rows._jdf, *words)
    return type(rows)(made, rows.sparkSession if hasattr(rows, "sparkSession") else rows.sql_ctx)


def _groups(events: DataFrame, query: Query, timeout: str) -> DataFrame:
    from collections.abc import Iterator
    from typing import Any

    window_ms = query.window_s * 1000  # a worker cannot load the query's class

    def step(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            seen, n = state.get
            state.remove()
            yield pd.DataFrame({"key": [key[0]], "seen": [int(seen)], "n": [-int(n)]})
            return
        seen, n = state.get if state.exists else (0, 0)
        for frame in rows:
            seen, n = max([int(seen), *(int(ts) for ts in frame["ts"])]), int(n) + len(frame)
        state.update((int(seen), int(n)))
        if timeout != "NoTimeout":
            state.setTimeoutTimestamp(max(int(seen) * 1000 + window_ms, state.getCurrentWatermarkMs() + 1))
        yield pd.DataFrame({"key": [key[0]], "seen": [int(seen)], "n": [int(n)]})

    return events.groupBy("key").applyInPandasWithState(
        step, "key string, seen long, n long", "seen long, n long", "update", timeout
    )


_FOR_A_DAY = "key string, seen long, n long, digits string, always string"


@operator
def for_a_day(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep a value and two maps for each key, by transformWithState with pandas.

    The maps count the numbers by their last digit. The value and one map have a TTL of a day. The query never ends by
    itself. From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    class ForADay(_processor_for_a_day()):  # type: ignore[misc]
        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            told = self.count(pair for frame in rows for pair in zip(frame["ts"], frame["value"], strict=True))
            names = "key", "seen", "n", "digits", "always"
            yield pd.DataFrame({name: [value] for name, value in zip(names, (key[0], *told), strict=True)})

    groups = read().select("key", "ts", "value").groupBy("key")
    return groups.transformWithStateInPandas(ForADay(), _FOR_A_DAY, "Update", "ProcessingTime"), "update"


@operator
def for_a_day_rows(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Process as ``for_a_day``, row by row. From 4.1 on."""
    from collections.abc import Iterator
    from typing import Any

    class ForADay(_processor_for_a_day()):  # type: ignore[misc]
        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            from pyspark.sql import Row

            seen, n, digits, always = self.count((row["ts"], row["value"]) for row in rows)
            yield Row(key=key[0], seen=seen, n=n, digits=digits, always=always)

    groups = read().select("key", "ts", "value").groupBy("key")
    return groups.transformWithState(ForADay(), _FOR_A_DAY, "Update", "ProcessingTime"), "update"


@operator
def for_a_day_scala(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Process as ``for_a_day``, in Scala. A row of one field in Python is a number or a text in Scala."""
    return _of_scala(read().select("key", "ts", "value"), "ForADay"), "update"


def _processor_for_a_day() -> type:
    """Return a class that keeps the state of ``for_a_day``. A worker gets a copy of the class itself."""
    from collections.abc import Iterable
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    class Counts(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            day = 24 * 3600 * 1000
            self.last = handle.getValueState("last", "seen long, n long", day)
            self.digits = handle.getMapState("digits", "digit string", "n long", day)
            self.always = handle.getMapState("always", "digit string", "n long")

        def count(self, events: Iterable[tuple[int, int]]) -> tuple[int, int, str, str]:
            seen, n = self.last.get() if self.last.exists() else (0, 0)
            for moment, number in events:
                seen, n = max(int(seen), int(moment)), int(n) + 1
                digit = (str(number)[-1],)
                for counts in (self.digits, self.always):
                    before = counts.getValue(digit)[0] if counts.containsKey(digit) else 0
                    counts.updateValue(digit, (int(before) + 1,))
            self.last.update((seen, n))
            return seen, n, self.told(self.digits), self.told(self.always)

        def told(self, counts: Any) -> str:
            return ",".join(sorted(f"{digit}:{count}" for (digit,), (count,) in counts.iterator()))

        def close(self) -> None:
            pass

    return Counts


@operator
def visits(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep a value (last time and count) and a list of all numbers for each key, by transformWithState. From 4.0 on."""
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    class Visits(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.last = handle.getValueState("last", "seen long, n long")
            self.numbers = handle.getListState("numbers", "number long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            seen, n = self.last.get() if self.last.exists() else (0, 0)
            new = []
            for frame in rows:
                new += [(int(number),) for number in frame["value"]]
                seen = max([int(seen), *(int(moment) for moment in frame["ts"])])
            self.last.update((seen, int(n) + len(new)))
            self.numbers.appendList(new)
            numbers = ",".join(str(number) for (number,) in self.numbers.get())
            yield pd.DataFrame({"key": [key[0]], "seen": [seen], "n": [int(n) + len(new)], "numbers": [numbers]})

        def close(self) -> None:
            pass

    rows = read().select("key", "ts", "value").groupBy("key")
    schema = "key string, seen long, n long, numbers string"
    return rows.transformWithStateInPandas(Visits(), schema, "Update", "None"), "update"


@operator
def lists(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep two lists of all numbers for each key, by transformWithState.

    One list has a TTL of a day. The other list has no TTL and contains the times as well. The query never ends by
    itself. From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    class Lists(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.recent = handle.getListState("recent", "number long", 24 * 3600 * 1000)
            self.all = handle.getListState("all", "number long, seen long, name string")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            for frame in rows:
                new = [(int(number), int(seen)) for number, seen in zip(frame["value"], frame["ts"], strict=True)]
                self.recent.appendList([(number,) for number, _ in new])
                self.all.appendList([(number, seen, "x" * (number % 20)) for number, seen in new])
            recent = ",".join(str(number) for (number,) in self.recent.get())
            past = ",".join(str(number) for (number, _, _) in self.all.get())
            yield pd.DataFrame({"key": [key[0]], "recent": [recent], "all": [past]})

        def close(self) -> None:
            pass

    rows = read().select("key", "ts", "value").groupBy("key")
    return rows.transformWithStateInPandas(
        Lists(), "key string, recent string, all string", "Update", "ProcessingTime"
    ), "update"


@operator
def alarms(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep the last time, a list, a map and a timer for each key, by transformWithState in event time.

    The timer fires a window's length after the last event. Then the query emits the list and removes the key.
    From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    window_ms = query.window_s * 1000  # a worker cannot load the query's class

    class Alarms(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.last = handle.getValueState("last", "seen long")
            self.all = handle.getListState("all", "number long, seen long")
            self.counts = handle.getMapState("counts", "seen long", "seen long, n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            seen = self.last.get()[0] if self.last.exists() else 0
            for frame in rows:
                new = [(int(number), int(moment)) for number, moment in zip(frame["value"], frame["ts"], strict=True)]
                self.all.appendList(new)
                for _, moment in new:
                    n = self.counts.getValue((moment,))[1] if self.counts.containsKey((moment,)) else 0
                    self.counts.updateValue((moment,), (moment, int(n) + 1))
                seen = max([int(seen), *(moment for _, moment in new)])
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(max(seen * 1000 + window_ms, timers.getCurrentWatermarkInMs() + 1))
            self.last.update((seen,))
            yield self._told(key, "seen")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield self._told(key, "over")
            for state in (self.last, self.all, self.counts):
                state.clear()

        def _told(self, key: Any, what: str) -> Any:
            import pandas as pd

            numbers = ",".join(str(number) for (number, _) in self.all.get())
            counts = ",".join(sorted(f"{moment}:{n}" for (moment,), (_, n) in self.counts.iterator()))
            return pd.DataFrame({"key": [key[0]], "what": [what], "numbers": [numbers], "counts": [counts]})

        def close(self) -> None:
            pass

    rows = read().withWatermark("at", f"{query.delay_s} seconds").groupBy("key")
    schema = "key string, what string, numbers string, counts string"
    return rows.transformWithStateInPandas(Alarms(), schema, "Update", "EventTime"), "update"


@operator
def removals(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep a map of numbers with a TTL of a day for each key, by transformWithState.

    A negative number removes its opposite from the map. The query never ends by itself. From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    class Removals(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.numbers = handle.getMapState("numbers", "number long", "seen long", 24 * 3600 * 1000)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            for frame in rows:
                for number, moment in zip(frame["value"], frame["ts"], strict=True):
                    if number < 0:
                        self.numbers.removeKey((-int(number),))
                    else:
                        self.numbers.updateValue((int(number),), (int(moment),))
            numbers = sorted(number for (number,), _ in self.numbers.iterator())
            yield pd.DataFrame({"key": [key[0]], "numbers": [",".join(map(str, numbers))]})

        def close(self) -> None:
            pass

    rows = read().select("key", "ts", "value").groupBy("key")
    return rows.transformWithStateInPandas(
        Removals(), "key string, numbers string", "Update", "ProcessingTime"
    ), "update"


@operator
def reminders(read: Read, query: Query) -> tuple[DataFrame, str]:
    """Keep the last time, a count and a timer for each key, by transformWithState in processing time.

    The timer fires ``delay_s`` after the key's last batch. Then the query emits the value and removes the key. The
    query never ends by itself. From 4.0 on.
    """
    from collections.abc import Iterator
    from typing import Any

    from pyspark.sql.streaming import StatefulProcessor

    delay_ms = query.delay_s * 1000  # a worker cannot load the query's class

    class Reminders(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.last = handle.getValueState("last", "seen long, n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            seen, n = self.last.get() if self.last.exists() else (0, 0)
            for frame in rows:
                seen, n = max([int(seen), *(int(moment) for moment in frame["ts"])]), int(n) + len(frame)
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(timers.getCurrentProcessingTimeInMs() + delay_ms)
            self.last.update((seen, n))
            yield self._told(key, "seen")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield self._told(key, "over")
            self.last.clear()

        def _told(self, key: Any, what: str) -> Any:
            import pandas as pd

            seen, n = self.last.get()
            return pd.DataFrame({"key": [key[0]], "what": [what], "seen": [int(seen)], "n": [int(n)]})

        def close(self) -> None:
            pass

    rows = read().select("key", "ts", "value").groupBy("key")
    schema = "key string, what string, seen long, n long"
    return rows.transformWithStateInPandas(Reminders(), schema, "Update", "ProcessingTime"), "update"
