"""The queries whose states are the samples. The Python of each version of Spark runs them (see ``generate``)."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

_STORE = "spark.sql.streaming.stateStore."
_DAY_MS = 24 * 3600 * 1000
_LATER_MS = 4_102_444_800_000  # 2100-01-01

KEYS = "array('a', '', 'ключ', repeat('long ', 20), null, 'z')"
FLAT = (
    "l long, i int, s string, b boolean, f float, d double, d5 decimal(5,2), d18 decimal(18,4), d19 decimal(19,0), "
    "d30 decimal(30,6), d38 decimal(38,10), day date, ts timestamp, ntz timestamp_ntz, bin binary, nothing void"
)
NESTED = (
    "strings array<string>, ints array<int>, longs array<long>, flags array<boolean>, reals array<double>, "
    "decimals array<decimal(30,2)>, days array<date>, bins array<binary>, lists array<array<int>>, "
    "deep struct<a:int,b:struct<c:string,d:array<struct<e:long,f:string>>>>, rows array<struct<a:int,b:string>>, "
    "counts map<string,long>, structs map<string,struct<a:int>>, texts map<string,array<string>>, "
    "maps array<map<string,int>>, empty struct<>, end string"
)
# As text, because arithmetic on Python's decimals rounds to 28 digits.
_NINES = [f"{'9' * (digits - scale)}.{'9' * scale}" for digits, scale in ((5, 2), (18, 4), (19, 0), (30, 6), (38, 10))]
_UTC = dt.UTC
_MICROS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def flat(i: int) -> tuple[Any, ...]:
    """Return row ``i``: the least values (0), the greatest (1), zeros (2), nulls (3), or ordinary values."""
    if i == 0:
        decimals = [Decimal(f"-{nines}") for nines in _NINES]
        moments = dt.date(1, 1, 1), dt.datetime(1, 1, 2, tzinfo=_UTC), dt.datetime(1, 1, 1)
        return (-(2**63), -(2**31), "", False, float("-inf"), -1.7976931348623157e308, *decimals, *moments, b"", None)
    if i == 1:
        decimals = [Decimal(nines) for nines in _NINES]
        last = dt.datetime(9999, 12, 30, 23, 59, 59, 999999)
        text = "é" * 70  # its length takes two bytes
        return (
            2**63 - 1, 2**31 - 1, text, True, float("nan"), float("nan"), *decimals, dt.date(9999, 12, 31),
            last.replace(tzinfo=_UTC), last, bytes(range(256)), None,
        )  # fmt: skip
    if i == 2:
        none = [Decimal(0)] * 5
        epoch = dt.datetime(1970, 1, 1)
        return (0, 0, "0", False, -0.0, 0.0, *none, epoch.date(), epoch.replace(tzinfo=_UTC), epoch, b"\0", None)
    if i == 3:
        return (None,) * 16
    moment = dt.datetime(2024, 2, 29, 12, 0, i, 123456)
    decimals = [Decimal(-i), Decimal(f"{i}.5"), Decimal(2**63 + i), Decimal(-(2**70) - i), Decimal(2**64 * i)]
    return (
        64 * i, -65 * i, f"text {i}", True, 1.5 * i, -2.5 * i, *decimals, moment.date(), moment.replace(tzinfo=_UTC),
        moment, b"\xff" * i, None,
    )  # fmt: skip


def nested(i: int) -> tuple[Any, ...]:
    """Return row ``i`` of containers: empty, with few or many elements, and with nulls where Spark can write them."""
    if i == 3:
        return (None,) * 17
    if i == 0:
        return ([], [], [], [], [], [], [], [], [], (None, None), [], {}, {}, {}, [], (), "")
    many = 70 if i == 1 else i
    return (
        ["x" * n for n in range(many)],
        [(-1) ** n * 2**n for n in range(i * 7 % 31)],
        [(-1) ** n * 3**n for n in range(i * 9 % 40)],
        [n % 3 == 0 for n in range(many)],
        [n / 4 for n in range(i)],
        [Decimal(-(7**n)) for n in range(i)],
        [dt.date(2024, 1, 1) + dt.timedelta(days=37 * n) for n in range(i)],
        [b"\0" * n for n in range(i)],
        [[1, 2, i], [], None, [2**30] * many],
        (i, (f"c{i}", [(n, f"f{n}") for n in range(i)] + [None, (None, None)])),
        [(1, "one"), None, (None, None), (i, "")],
        {f"key {n}": n * 1000 for n in range(i + 1)},
        {"a": (1,), "b": None, "ü": (None,)},
        {"none": None, "empty": [], "two": ["1", "2"]},
        [{}, None, {"k": i}],
        (),
        "end",
    )


class Values(StatefulProcessor):  # type: ignore[misc]
    """A processor with each kind of variable, with and without a TTL, with all types, and with timers."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.flat = handle.getValueState("flat", FLAT)
        self.nested = handle.getValueState("nested", NESTED)
        self.brief = handle.getValueState("brief", "seen long, n long", _DAY_MS)
        self.rows = handle.getListState("rows", "n long, note string")
        self.recent = handle.getListState("recent", "n long", _DAY_MS)
        self.counts = handle.getMapState("counts", "digit string, at timestamp", "n long, list array<string>")
        self.daily = handle.getMapState("daily", "digit long", "n long", _DAY_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        import pandas as pd

        for i in [int(i) for frame in rows for i in frame["i"]]:
            self.flat.update(flat(i))
            self.nested.update(nested(i))
            self.brief.update((None if i == 3 else 1_700_000_000 + i, i))
            self.rows.put([(i, "first")])
            self.rows.appendValue((None, None))
            self.rows.appendList([(n, "x" * n) for n in range(i + 1)])
            self.recent.appendList([(n * 1000,) for n in range(i + 1)])
            for n in range(i % 3):
                self.counts.updateValue((f"digit {n}", None if n else dt.datetime(2024, 1, 1)), (n, ["a", str(i)]))
                self.daily.updateValue((n - 1,), (n,))
            self.handle.registerTimer(_LATER_MS + i)
            yield pd.DataFrame({"n": [i]})

    def close(self) -> None:
        pass


class Keys(StatefulProcessor):  # type: ignore[misc]
    """A processor with keys of many columns: alone, and in front of the keys of a map."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long")
        self.map = handle.getMapState("map", "d decimal(30,2), s struct<a:int,b:string>", "n int")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        import pandas as pd

        for i in [int(i) for frame in rows for i in frame["i"]]:
            self.value.update((i,))
            self.map.updateValue((Decimal(i), (i, f"b{i}")), (i,))
            self.map.updateValue((None, None), (None,))
            yield pd.DataFrame({"n": [i]})

    def close(self) -> None:
        pass


class Timers(StatefulProcessor):  # type: ignore[misc]
    """A processor with timers in event time, before and after 1970. The earliest have fired."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.fired = handle.getValueState("fired", "moment long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
        import pandas as pd

        for i in [int(i) for frame in rows for i in frame["i"]]:
            for moment in (-1000 * i - 1, -(2**40) * i, 2**20 * i + 1, 2**45 * (i + 1)):
                self.handle.registerTimer(moment)
            yield pd.DataFrame({"n": [i]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        import pandas as pd

        self.fired.update((expiredTimerInfo.getExpiryTimeInMs(),))
        yield pd.DataFrame({"n": [0]})

    def close(self) -> None:
        pass


STAGES = (
    "a int, b string, f float, s struct<x:int,y:string>, l array<int>, m map<string,float>, t int, u date, "
    "v decimal(5,2), w decimal(5,2), x binary, y long, z timestamp, o void, r array<struct<x:int>>",
    "b string, a long, c double, f double, s struct<y:string,z:date,x:long>, l array<long>, m map<string,double>, "
    "t timestamp, u timestamp_ntz, v decimal(6,2), w decimal(6,3), x string, y float, z long, o long, "
    "r array<struct<y:string,x:long>>",
    "a double, b binary, s struct<x:long>, l array<double>, m map<string,double>, n decimal(30,2), t long, u double, "
    "w decimal(6,3), x string, y double, z timestamp_ntz, o long, r array<struct<x:double>>",
)
"""Every pair of types that Avro allows when a schema changes. Some of them change what a value means."""


def evolving(stage: int, i: int) -> tuple[Any, ...]:
    """Return a value of one of the three schemas."""
    if i == 3:
        return (None,) * (15, 16, 14)[stage]
    moment = dt.datetime(2024, 2, 29, 12, 0, i, 123456)
    if stage == 0:
        return (
            i, f"zero {i}", i / 2, (i, "y"), list(range(i)), {"k": 1.5}, i, moment.date(), Decimal(i), Decimal(-i),
            b"bytes", 2**40 + i, moment.replace(tzinfo=_UTC), None, [(i,), None],
        )  # fmt: skip
    if stage == 1:
        return (
            f"one {i}", 2**40 + i, 0.1, 0.2, ("y", dt.date(2024, 1, 1), 2**50), [2**40] * i, {"k": 0.1},
            moment.replace(tzinfo=_UTC), moment, Decimal("1234.56"), Decimal("123.456"), "é", 0.5, -i, i, [("y", i)],
        )  # fmt: skip
    return (
        0.3, b"\xff\xfe", (i,), [i / 2], {}, Decimal(i), i, 0.7, Decimal("0.001"), "", 0.1, moment, None, [],
    )  # fmt: skip


def evolution(stage: int) -> StatefulProcessor:
    """Return a processor with a value, a map and a list in the schema of this stage."""

    class Evolving(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.value = handle.getValueState("value", STAGES[stage])
            self.map = handle.getMapState("map", "k string", STAGES[stage])
            self.list = handle.getListState("list", STAGES[stage])
            if stage:
                self.later = handle.getValueState("later", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            import pandas as pd

            for i in [int(i) for frame in rows for i in frame["i"]]:
                self.value.update(evolving(stage, i))
                self.map.updateValue((f"stage {stage}",), evolving(stage, i))
                self.list.appendValue(evolving(stage, i))
                if stage:
                    self.later.update((i,))
                yield pd.DataFrame({"n": [i]})

        def close(self) -> None:
            pass

    return Evolving()


def run(spark: SparkSession, query: str, stage: int, checkpoint: str, source: str) -> None:
    """Run a query over one more file of its source, to the end of the batch."""
    folder = Path(source)
    folder.mkdir(parents=True, exist_ok=True)
    # Later stages skip some keys, which keep the schemas of earlier stages.
    numbers = range(2 * stage, 6)
    (folder / f"{stage}.json").write_text("".join(json.dumps({"i": i}) + "\n" for i in numbers))
    events = spark.readStream.schema("i long").json(source).withColumn("key", F.expr(f"element_at({KEYS}, int(i) + 1)"))
    processors = {"values": Values, "keys": Keys, "timers": Timers, "evolving": lambda: evolution(stage)}
    mode = {"values": "ProcessingTime", "timers": "EventTime"}.get(query, "None")
    columns = ["key"]
    if query == "keys":
        events, columns = typed_keys(events)
    if query == "timers":
        events = events.withColumn("at", F.timestamp_seconds(F.col("i"))).withWatermark("at", "1 second")
    rows = events.groupBy(*columns).transformWithStateInPandas(processors[query](), "n long", "Update", mode)
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    writer = writer.foreachBatch(lambda frame, batch: frame.collect() and None)
    if mode != "ProcessingTime":
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    # A query in processing time never ends by itself.
    going = writer.start()
    while not (Path(checkpoint) / "commits" / "0").exists() and going.isActive:
        time.sleep(0.1)
    going.stop()
    if going.exception() is not None:
        raise RuntimeError(str(going.exception()))


def typed_keys(events: DataFrame) -> tuple[DataFrame, list[str]]:
    """Add grouping columns of all types that pandas can return as keys."""
    columns = {
        "s": "element_at(array('a', '', 'ключ', repeat('long ', 20), null, 'z'), int(i) + 1)",
        "l": "element_at(array(0, -1, 63, -65, 9223372036854775807, -9223372036854775808), int(i) + 1)",
        "n": "element_at(array(0, -1, 64, -64, 2147483647, int(-2147483648)), int(i) + 1)",
        "b": "i % 2 = 0",
        "f": "cast(i / 4 as float)",
        "d": "-i / 8",
        "d18": "cast(i - 3 as decimal(18,2))",
        "d30": "cast(3 - i as decimal(30,2))",
        "day": "date_from_unix_date(int(i) - 3)",
        "ts": "timestamp_seconds(i - 3)",
        "ntz": "cast(timestamp_seconds(3 - i) as timestamp_ntz)",
        "bin": "cast(concat('b', i) as binary)",
        "st": "named_struct('a', if(i = 3, null, int(i)), 'b', struct(concat('c', i) as c))",
    }
    return events.select("i", *[F.expr(text).alias(name) for name, text in columns.items()]), list(columns)


def show(spark: SparkSession, checkpoint: str, path: str) -> None:
    """Write each entry that Spark's own reader finds in the variables, as JSON."""
    _ = spark.streams.active
    said = {}
    for name, columns in (
        ("value", ("key", "value")),
        ("map", ("key", "user_map_key", "user_map_value")),
        ("list", ("key", "list_element")),
        ("later", ("key", "value")),
    ):
        options = {"ignoreNullFields": "false", "timestampFormat": _MICROS, "timestampNTZFormat": _MICROS}
        read = spark.read.format("statestore").option("stateVarName", name).load(checkpoint)
        said[name] = [row for (row,) in read.select(F.to_json(F.struct(*columns), options)).collect()]
    Path(path).write_text(json.dumps(said))


def main(query: str, stage: int, checkpoint: str, source: str, encoding: str) -> None:
    """Start Spark and run one request."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        _STORE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        _STORE + "encodingFormat": encoding,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if query == "show":
        show(spark, checkpoint, source)
    else:
        run(spark, query, stage, checkpoint, source)
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
