"""Pairs without a change, or with one that does not touch the state. A checker must let them pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .pair import (
    AVRO,
    BOTH_KEYS,
    BY_USER,
    CLOSING,
    JOINED,
    KEEPS,
    NEAR,
    ONCE_EACH,
    ROCKSDB,
    SESSIONS,
    STEPS,
    TOTAL,
    WINDOWS,
    WITHIN,
    pair,
)
from .processors import Field, Variable, pandas, transform
from .queries import Query, aggregate, dedup, first_rows, join, then

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

for name, query, rest in (
    ("agg", BY_USER, {}),
    ("agg-rocksdb", BY_USER, {"conf": ROCKSDB}),
    ("agg-many", aggregate(["user"], {"n": "count *", "v": "avg price", "all": "collect_list amount"}), {}),
    ("agg-expression", aggregate(["upper(user)", "cast(price as bigint)"], TOTAL), {}),
    ("windows", WINDOWS, {"after": CLOSING}),
    ("windows-rocksdb", WINDOWS, {"after": CLOSING, "conf": ROCKSDB}),
    ("sessions", SESSIONS, {"after": CLOSING}),
    ("dedup", ONCE_EACH, {}),
    ("dedup-within", WITHIN, {}),
    ("join", JOINED, {}),
    ("join-near", NEAR, {}),
    ("join-near-rocksdb", NEAR, {"conf": ROCKSDB}),
    ("limit", first_rows(7), {}),
    ("pandas", STEPS, {}),
    ("pandas-timeout", pandas(Field("total"), timeout="EventTimeTimeout", delay=0), {"after": CLOSING}),
    ("transform", KEEPS, {"conf": ROCKSDB}),
    ("transform-avro", KEEPS, {"conf": AVRO}),
    ("transform-timer", transform(Variable("kept"), timer=60, delay=0), {"after": CLOSING, "conf": ROCKSDB}),
):
    arguments: Any = rest
    pair("nothing-" + name, "nothing", query, query, **arguments)


def _by_hand(df: DataFrame) -> DataFrame:
    # The same as BY_USER, written in another way.
    from pyspark.sql import functions as F

    return df.select(F.col("amount"), F.col("user")).groupBy(F.col("user")).agg(F.sum(F.col("amount")).alias("total"))


def _in_sql(df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("events")
    return df.sparkSession.sql("select user, sum(amount) as total from events group by user")


def _more_columns(df: DataFrame) -> DataFrame:
    return _by_hand(df.selectExpr("*", "price * 2 as twice", "upper(other) as shout"))


right = BY_USER.right
pair("harmless-written-anew", "harmless", BY_USER, Query(_by_hand, right))
pair("harmless-in-sql", "harmless", BY_USER, Query(_in_sql, right))
pair("harmless-columns-in-front", "harmless", BY_USER, Query(_more_columns, right))
pair(
    "harmless-select-behind",
    "harmless",
    BY_USER,
    then(BY_USER, lambda df: df.selectExpr("total", "user"), lambda b, a: [(t, u) for u, t in BY_USER.right(b, a)]),
)
pair(
    "harmless-column-behind",
    "harmless",
    BY_USER,
    then(
        BY_USER,
        lambda df: df.selectExpr("user", "total * 2"),
        lambda b, a: [(u, 2 * t) for u, t in BY_USER.right(b, a)],
    ),
)
pair(
    "harmless-filter-behind",
    "harmless",
    BY_USER,
    then(BY_USER, lambda df: df.where("total > 15"), lambda b, a: [(u, t) for u, t in BY_USER.right(b, a) if t > 15]),
)
pair("harmless-filter-in-front", "harmless", BY_USER, Query(lambda df: BY_USER.build(df.where("amount >= 0")), right))
pair("harmless-repartition", "harmless", BY_USER, Query(lambda df: BY_USER.build(df.repartition(3)), right))
pair(
    "harmless-dedup-other-columns-shown",
    "harmless",
    ONCE_EACH,
    dedup(["user", "other"], shown=("user", "other", "amount", "price")),
)
pair("harmless-dedup-fewer-columns-shown", "harmless", ONCE_EACH, dedup(["user", "other"], shown=("user",)))
pair("harmless-sink", "harmless", ONCE_EACH, ONCE_EACH, sinks=("rows", "json"))
pair("harmless-sink-windows", "harmless", WINDOWS, WINDOWS, sinks=("rows", "parquet"), after=CLOSING)
pair("harmless-function-renamed", "harmless", STEPS, pandas(Field("total"), Field("n", "n"), name="another_name"))
pair("harmless-processor-renamed", "harmless", KEEPS, transform(Variable("kept"), name="Another"), conf=ROCKSDB)
pair("harmless-dedup-append-to-update", "harmless", ONCE_EACH, ONCE_EACH, modes=("append", "update"))
pair("harmless-join-condition-turned", "harmless", NEAR, join(["amount"], ["amount"], delay=60, within=60, turned=True))
pair(
    "harmless-select-all-behind",
    "harmless",
    BOTH_KEYS,
    then(BOTH_KEYS, lambda df: df.select("*"), BOTH_KEYS.right),
)
pair(
    "harmless-same-window-other-words",
    "harmless",
    WINDOWS,
    aggregate(["user"], TOTAL, delay=60, window=(60, 60), mode="append", hours=True),
    after=CLOSING,
)
pair(
    "harmless-session-shown",
    "harmless",
    SESSIONS,
    then(SESSIONS, lambda df: df.select("user", "total"), lambda b, a: [r[1:] for r in SESSIONS.right(b, a)]),
    after=CLOSING,
)
RUN_OTHERWISE = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
pair("harmless-settings", "harmless", BY_USER, BY_USER, now=RUN_OTHERWISE)
ELSEWHERE = {"spark.sql.session.timeZone": "America/New_York"}
pair("harmless-time-zone", "harmless", BY_USER, BY_USER, now=ELSEWHERE)
pair(
    "harmless-upstream-name",
    "harmless",
    JOINED,
    Query(lambda df: JOINED.build(df.withColumn("amount", df["amount"])), JOINED.right, "append"),
)
