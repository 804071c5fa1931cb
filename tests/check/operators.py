"""Pairs that add, remove, replace or reorder stateful operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pair import BY_USER, CLOSING, JOINED, KEEPS, ONCE_EACH, ROCKSDB, SESSIONS, STEPS, WINDOWS, WITHIN, pair
from .queries import Query, aggregate, chain, dedup, first_rows, then

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

USERS = dedup(["user"])


def _sum_by_user(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.groupBy("user").agg(F.sum("amount").alias("total"))


def _sum_by_other(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.groupBy("other").agg(F.sum("amount").alias("total"))


def _by_long_window(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return df.groupBy(F.window(F.window_time("window"), "120 minutes"), "user").agg(F.sum("total").alias("total"))


# Each (user, other) counts once, then the amounts are summed by user. So the second x of a is not counted.
DEDUP_SUM = then(ONCE_EACH, _sum_by_user, mode="update")
DEDUP_SUM_ROWS: list[tuple[Any, ...]] = [("b", 21), ("c", 13), ("d", 50)]
pair("op-dedup-in-front", "operator added", BY_USER, DEDUP_SUM, rows=DEDUP_SUM_ROWS)
pair("op-dedup-in-front-rocksdb", "operator added", BY_USER, DEDUP_SUM, rows=DEDUP_SUM_ROWS, conf=ROCKSDB)
pair("op-dedup-in-front-removed", "operator removed", DEDUP_SUM, BY_USER)
pair("op-sum-behind-dedup", "operator added", ONCE_EACH, DEDUP_SUM, rows=DEDUP_SUM_ROWS)
pair("op-sum-behind-dedup-removed", "operator removed", DEDUP_SUM, ONCE_EACH)
TWICE = then(WINDOWS, _by_long_window)
TWICE_ROWS: list[tuple[Any, ...]] = [
    ((0, 120), user, total) for user, total in {"a": 60, "b": 21, "c": 13, "d": 50}.items()
]
pair("op-windows-of-windows", "operator added", WINDOWS, TWICE, after=CLOSING, rows=TWICE_ROWS)
pair("op-windows-of-windows-removed", "operator removed", TWICE, WINDOWS, after=CLOSING)
pair("op-second-dedup", "operator added", USERS, chain(["user"], ["other"]))
pair("op-second-dedup-in-front", "operator added", USERS, chain(["other"], ["user"]))
pair("op-second-dedup-removed", "operator removed", chain(["user"], ["other"]), USERS)
pair("op-dedups-swapped", "operators swapped", chain(["user"], ["other"]), chain(["other"], ["user"]))
pair(
    "op-dedups-swapped-rocksdb",
    "operators swapped",
    chain(["user"], ["other"]),
    chain(["other"], ["user"]),
    conf=ROCKSDB,
)
pair("op-dedups-swapped-types", "operators swapped", chain(["user"], ["price"]), chain(["price"], ["user"]))
JOIN_DEDUP = then(JOINED, lambda df: df.dropDuplicates(["l_amount"]))
pair("op-dedup-behind-join", "operator added", JOINED, JOIN_DEDUP, rows=[(20, 30), (1, 20), (5, 8)])
pair("op-limit-behind-dedup", "operator added", USERS, then(USERS, lambda df: df.limit(9)), rows=[("d", "y", 50)])

pair("op-dedup-to-sum", "operator replaced", USERS, aggregate(["user"], {"n": "count *"}))
pair("op-sum-to-dedup", "operator replaced", BY_USER, USERS)
pair(
    "op-sum-to-dedup-unchecked",
    "operator replaced",
    BY_USER,
    USERS,
    now={"spark.sql.streaming.stateStore.stateSchemaCheck": "false"},
)
pair("op-windows-to-sessions", "operator replaced", WINDOWS, SESSIONS, after=CLOSING)
pair("op-sessions-to-windows", "operator replaced", SESSIONS, WINDOWS, after=CLOSING)
pair("op-join-to-dedup", "operator replaced", JOINED, USERS)
pair("op-dedup-to-join", "operator replaced", USERS, JOINED)
pair("op-pandas-to-transform", "operator replaced", STEPS, KEEPS, conf=ROCKSDB)
pair("op-transform-to-pandas", "operator replaced", KEEPS, STEPS, conf=ROCKSDB)
pair("op-sum-to-pandas", "operator replaced", BY_USER, STEPS)
pair("op-limit-to-dedup", "operator replaced", first_rows(5), USERS)


def _plain(df: DataFrame) -> DataFrame:
    return df.select("user", "amount")


# The last operator with state is removed, or the first one is added.
STATELESS = Query(_plain, lambda before, after: [(event.user, event.amount) for event in after], "append")
pair("op-all-removed", "operator removed", USERS, STATELESS)
pair(
    "op-first-added",
    "operator added",
    STATELESS,
    USERS,
    rows=[("a", "x", 20), ("b", "x", 1), ("d", "y", 50), ("c", "y", 8)],
)
pair("op-within-behind-windows", "operator replaced", WITHIN, WINDOWS, after=CLOSING)
