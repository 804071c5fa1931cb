"""Pairs whose rows reach the state through unions, joins with tables, functions or time zones, or with many changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from .pair import AFTER, BEFORE, BY_USER, CLOSING, JOINED, ROCKSDB, SESSIONS, WINDOWS, pair
from .queries import START, Event, Query, Rows, aggregate, join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEW_YORK = {"spark.sql.session.timeZone": "America/New_York"}
BERLIN = {"spark.sql.session.timeZone": "Europe/Berlin"}
_HOURS = {"UTC": 0, "America/New_York": -5, "Europe/Berlin": 1}

Parts = Callable[[Event], list[tuple[Any, int]]]
"""A function that returns the keys and amounts for an event."""


def summed(prepare: Callable[[DataFrame], DataFrame], parts: Parts) -> Query:
    """Return a sum of ``amount`` by ``user`` over the rows of ``prepare``. ``parts`` models those rows."""

    def build(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return prepare(df).groupBy("user").agg(F.sum("amount").alias("total"))

    def right(before: list[Event], after: list[Event]) -> Rows:
        now = {key for event in after for key, _ in parts(event)}
        every = [part for event in (*before, *after) for part in parts(event)]
        return [(key, sum(amount for of, amount in every if of == key)) for key in now]

    return Query(build, right)


def both_halves(second: str, parts: Callable[[Event], int], *more: str) -> Query:
    """Return a union of the events whose other is x, with their amounts, and those where it is y, with ``second``."""

    def prepare(df: DataFrame) -> DataFrame:
        one = df.where("other = 'x'").selectExpr("user", "amount", *more)
        return one.union(df.where("other = 'y'").selectExpr("user", second, *more))

    return summed(prepare, lambda e: [(e.user, e.amount if e.other == "x" else parts(e))])


AMOUNTS = both_halves("amount", lambda e: e.amount)
PRICES = both_halves("cast(price as bigint) as amount", lambda e: e.price)
for name, conf in (("", {}), ("-rocksdb", ROCKSDB)):
    pair(f"way-union-branch{name}", "aggregate replaced", AMOUNTS, PRICES, conf=conf)
    pair(f"way-union-same{name}", "nothing", PRICES, PRICES, conf=conf)
pair("way-union-branch-back", "aggregate replaced", PRICES, AMOUNTS)
pair("way-union-more-columns", "harmless", PRICES, both_halves("cast(price as bigint)", lambda e: e.price, "ts"))
pair("way-union-branch-alias", "harmless", PRICES, both_halves("cast(price as bigint) as it", lambda e: e.price))
pair("way-union-other-column", "harmless", AMOUNTS, both_halves("amount", lambda e: e.amount, "upper(other) as other"))
pair(
    "way-union-by-name",
    "harmless",
    AMOUNTS,
    summed(
        lambda df: (
            df.where("other = 'x'")
            .select("user", "amount")
            .unionByName(df.where("other = 'y'").select("amount", "user"))
        ),
        lambda e: [(e.user, e.amount)],
    ),
)


def mapped(column: str, name: str = "doubled", more: tuple[str, ...] = (), arrow: bool = False) -> Query:
    """Return a query that doubles a column with a function of whole batches, which finds columns by position."""

    def prepare(df: DataFrame) -> DataFrame:
        def doubled(batches: Iterator[Any]) -> Iterator[Any]:
            import pandas as pd

            for batch in batches:
                yield pd.DataFrame({"user": batch.iloc[:, 0], "amount": batch.iloc[:, 1] * 2})

        def doubled_arrow(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa
            import pyarrow.compute as pc

            for batch in batches:
                columns = [batch.column(0), pc.multiply(batch.column(1).cast("int64"), 2)]
                yield pa.RecordBatch.from_arrays(columns, names=["user", "amount"])

        function = doubled_arrow if arrow else doubled
        function.__name__ = name
        rows = df.select("user", column, *more)
        if arrow:
            return rows.mapInArrow(function, "user string, amount bigint")
        return rows.mapInPandas(function, "user string, amount bigint")

    return summed(prepare, lambda e: [(e.user, 2 * getattr(e, column))])


for arrow, name in ((False, "pandas"), (True, "arrow")):
    old = mapped("amount", arrow=arrow)
    pair(f"way-map-in-{name}-same", "nothing", old, old)
    pair(f"way-map-in-{name}-renamed", "harmless", old, mapped("amount", "twice", arrow=arrow))
    pair(f"way-map-in-{name}-more-columns", "harmless", old, mapped("amount", more=("ts",), arrow=arrow))
pair("way-map-in-pandas-other-column", "aggregate replaced", mapped("amount"), mapped("price"))


def with_table(how: str, on: str = "user = name", names: str = "a b c", key: str = "grade") -> Query:
    """Return a sum of amounts by the grade that a small table has for each user."""

    def prepare(df: DataFrame) -> DataFrame:
        spark = df.sparkSession
        rows = [(name, "vip" if name in "ab" else "other") for name in names.split()]
        table = spark.createDataFrame(rows, "name string, grade string")
        from pyspark.sql import functions as F

        return df.join(table, F.expr(on), how).selectExpr(f"{key} as user", "amount")

    def parts(event: Event) -> list[tuple[Any, int]]:
        known = event.user in names.split()
        by = event.user if "user" in on else event.other
        grade = "vip" if by in ("a", "b") else "other"
        if key == "user":
            return [(event.user, event.amount)] if known or how == "left" else []
        return [(grade, event.amount)] if known else [(None, event.amount)] if how == "left" else []

    return summed(prepare, parts)


pair("way-table-join-same", "nothing", with_table("inner"), with_table("inner"))
pair("way-table-join-same-rocksdb", "nothing", with_table("left"), with_table("left"), conf=ROCKSDB)
pair("way-table-join-turned", "harmless", with_table("inner"), with_table("inner", "name = user"))
pair("way-table-join-inner-to-left", "join type", with_table("inner", names="a b"), with_table("left", names="a b"))
pair("way-table-join-key-to-user", "keys swapped", with_table("inner"), with_table("inner", key="user"))


def exploded(sql: str, parts: Callable[[Event], list[str | None]]) -> Query:
    """Return a sum of amounts by the elements of an array of two columns."""
    return summed(
        lambda df: df.selectExpr(f"explode({sql}) as user", "amount"), lambda e: [(part, e.amount) for part in parts(e)]
    )


NAMES = exploded("array(user, other)", lambda e: [e.user, e.other])
pair("way-explode-same", "nothing", NAMES, NAMES)
pair("way-explode-same-rocksdb", "nothing", NAMES, NAMES, conf=ROCKSDB)
pair(
    "way-explode-another",
    "keys swapped",
    NAMES,
    exploded("array(upper(user), other)", lambda e: [e.user and e.user.upper(), e.other]),
)


def by_time(sql: str, of: Callable[[Any], Any], zone: str = "UTC") -> Query:
    """Return a sum of amounts by a part of the local time."""

    def key(event: Event) -> Any:
        return of(START + timedelta(minutes=event.minute, hours=_HOURS[zone]))

    return summed(lambda df: df.selectExpr(f"{sql} as user", "amount"), lambda e: [(key(e), e.amount)])


def _day(moment: Any) -> str:
    return date(moment.year, moment.month, moment.day).isoformat()


DAY, HOUR = "cast(cast(ts as date) as string)", "hour(ts)"
for zone, conf in (("America/New_York", NEW_YORK), ("Europe/Berlin", BERLIN)):
    short = zone.rpartition("/")[2].lower().replace("_", "-")
    pair(f"way-day-to-{short}", "key retyped", by_time(DAY, _day), by_time(DAY, _day, zone), now=conf)
    pair(
        f"way-hour-to-{short}",
        "key retyped",
        by_time(HOUR, lambda m: m.hour),
        by_time(HOUR, lambda m: m.hour, zone),
        now=conf,
    )
    pair(f"way-windows-to-{short}", "harmless", WINDOWS, WINDOWS, now=conf, after=CLOSING)
    pair(f"way-sessions-to-{short}", "harmless", SESSIONS, SESSIONS, now=conf, after=CLOSING)
    pair(f"way-join-to-{short}", "harmless", JOINED, JOINED, now=conf)
pair("way-day-same", "nothing", by_time(DAY, _day), by_time(DAY, _day))
pair("way-hour-same", "nothing", by_time(HOUR, lambda m: m.hour), by_time(HOUR, lambda m: m.hour))


def two_firsts(one: str, two: str, more: str = "true") -> Query:
    """Return each user's first event among those whose other is ``one``, and among those where it is ``two``."""

    def build(df: DataFrame) -> DataFrame:
        halves = (df.where(f"other = '{other}' and {more}").dropDuplicates(["user"]) for other in (one, two))
        first, second = (half.select("user", "other", "amount") for half in halves)
        return first.union(second)

    def right(before: list[Event], after: list[Event]) -> Rows:
        seen = {(e.user, e.other) for e in before}
        rows: Rows = []
        for event in after:
            if (event.user, event.other) not in seen:
                seen.add((event.user, event.other))
                rows.append((event.user, event.other, event.amount))
        return rows

    return Query(build, right, "append")


FIRSTS = two_firsts("x", "y")
for name, conf in (("", {}), ("-rocksdb", ROCKSDB)):
    pair(f"way-firsts-same{name}", "nothing", FIRSTS, FIRSTS, conf=conf)
    pair(f"way-firsts-swapped{name}", "operators swapped", FIRSTS, two_firsts("y", "x"), conf=conf)
    pair(f"way-firsts-filtered{name}", "harmless", FIRSTS, two_firsts("x", "y", "amount >= 0"), conf=conf)
pair("way-firsts-swapped-and-filtered", "operators swapped", FIRSTS, two_firsts("y", "x", "amount >= 0"))


def _filtered(query: Query) -> Query:
    return Query(lambda df: query.build(df.where("amount >= 0")), query.right, query.mode)


TURNED = join(["amount"], ["amount"], sides=("y", "x"))
pair("way-join-sides-and-filter", "join sides", JOINED, _filtered(TURNED))
pair("way-join-filtered", "harmless", JOINED, _filtered(JOINED))

# Update mode emits a group only with a new row. Append and complete mode also emit groups without one.
FIRST, LAST = ({"v": f"{function} amount"} for function in ("first", "last"))
NO_MORE = (Event("z", "z", 0, 0, 1440),)
pair(
    "way-first-to-last-windows",
    "aggregate replaced",
    aggregate(["user"], FIRST, delay=60, window=(60, 60), mode="append"),
    aggregate(["user"], LAST, delay=60, window=(60, 60), mode="append"),
    after=NO_MORE,
)
pair(
    "way-first-to-last-complete",
    "aggregate replaced",
    aggregate(["user"], FIRST, mode="complete"),
    aggregate(["user"], LAST, mode="complete"),
    before=(*BEFORE, (Event("e", "x", 1, 1, 13), Event("e", "x", 2, 1, 14))),
    after=AFTER,
)
pair("way-filter-in-front-rocksdb", "harmless", BY_USER, _filtered(BY_USER), conf=ROCKSDB)
pair("way-windows-filtered", "harmless", WINDOWS, _filtered(WINDOWS), after=CLOSING)
pair("way-sessions-filtered", "harmless", SESSIONS, _filtered(SESSIONS), after=CLOSING)
