"""Pairs of aggregations, over windows and sessions too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pair import (
    AND_NULL,
    BEFORE,
    BOTH_KEYS,
    BY_USER,
    CLOSING,
    PRICES,
    ROCKSDB,
    SAME_PRICES,
    SESSIONS,
    TOTAL,
    UNCHECKED,
    WINDOWS,
    WITH_NULL,
    pair,
)
from .queries import Event, Query, Rows, aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONG_PRICE = {"price": "cast(price as bigint)"}
TWO = {"total": "sum amount", "most": "max price"}
SWAPPABLE = {"total": "sum amount", "paid": "sum price"}
SWAPPED = {"paid": "sum price", "total": "sum amount"}


def by_user(**values: str) -> Query:
    """Return a query that aggregates these values by user."""
    return aggregate(["user"], values)


# Keys.
pair("agg-key-added", "key added", BY_USER, BOTH_KEYS)
pair("agg-key-added-rocksdb", "key added", BY_USER, BOTH_KEYS, conf=ROCKSDB)
pair("agg-key-added-unchecked", "key added", BY_USER, BOTH_KEYS, now=UNCHECKED)
pair("agg-key-removed", "key removed", BOTH_KEYS, BY_USER)
pair("agg-key-alias", "harmless", BY_USER, aggregate(["user as client"], TOTAL))
pair("agg-key-renamed", "key renamed", BY_USER, aggregate(["client"], TOTAL, {"client": "user"}))
pair("agg-key-renamed-rocksdb", "key renamed", BY_USER, aggregate(["client"], TOTAL, {"client": "user"}), conf=ROCKSDB)
pair("agg-key-another", "key renamed", BY_USER, aggregate(["other"], TOTAL))
pair("agg-key-expression", "key retyped", BY_USER, aggregate(["upper(user)"], TOTAL))
pair("agg-key-expression-alias", "harmless", aggregate(["upper(user)"], TOTAL), aggregate(["upper(user) as u"], TOTAL))
pair("agg-key-reordered", "key reordered", aggregate(["user", "price"], TOTAL), aggregate(["price", "user"], TOTAL))
pair("agg-keys-swapped", "keys swapped", BOTH_KEYS, aggregate(["other", "user"], TOTAL))
pair("agg-keys-swapped-rocksdb", "keys swapped", BOTH_KEYS, aggregate(["other", "user"], TOTAL), conf=ROCKSDB)
BY_PRICE = aggregate(["price"], TOTAL)
LONG = aggregate(["price"], TOTAL, LONG_PRICE)
pair("agg-key-widened", "key retyped", BY_PRICE, LONG, before=PRICES, after=SAME_PRICES)
pair("agg-key-widened-unchecked", "key retyped", BY_PRICE, LONG, before=PRICES, after=SAME_PRICES, now=UNCHECKED)
pair("agg-key-int-to-string", "key retyped", BY_PRICE, aggregate(["price"], TOTAL, {"price": "cast(price as string)"}))
REQUIRED = aggregate(["user"], TOTAL, {"user": "coalesce(user, '-')"})
pair("agg-key-now-required", "key nullability", BY_USER, REQUIRED, before=WITH_NULL, after=AND_NULL)
pair("agg-key-now-required-no-nulls", "key nullability", BY_USER, REQUIRED)
pair("agg-key-now-nullable", "key nullability", REQUIRED, BY_USER)
pair("agg-key-now-nullable-unchecked", "key nullability", REQUIRED, BY_USER, now=UNCHECKED)
STRUCT, FLIPPED = ("named_struct('user', user, 'other', other)", "named_struct('other', other, 'user', user)")
pair("agg-key-struct-swapped", "keys swapped", aggregate([STRUCT], TOTAL), aggregate([FLIPPED], TOTAL))

# Values.
pair("agg-value-added", "value added", BY_USER, by_user(total="sum amount", n="count *"))
pair("agg-value-added-rocksdb", "value added", BY_USER, by_user(total="sum amount", n="count *"), conf=ROCKSDB)
pair("agg-value-added-unchecked", "value added", BY_USER, by_user(total="sum amount", n="count *"), now=UNCHECKED)
pair("agg-value-removed", "value removed", by_user(**TWO), BY_USER)
pair("agg-value-removed-rocksdb", "value removed", by_user(**TWO), BY_USER, conf=ROCKSDB)
pair("agg-value-alias", "harmless", BY_USER, by_user(sum_of_all="sum amount"))
pair("agg-value-column-renamed", "value renamed", BY_USER, aggregate(["user"], {"total": "sum fee"}, {"fee": "amount"}))
pair(
    "agg-value-reordered",
    "value reordered",
    by_user(total="sum amount", low="min price"),
    by_user(low="min price", total="sum amount"),
)
pair("agg-values-swapped", "values swapped", by_user(**SWAPPABLE), by_user(**SWAPPED))
pair("agg-values-swapped-rocksdb", "values swapped", by_user(**SWAPPABLE), by_user(**SWAPPED), conf=ROCKSDB)


def selected(query: Query, *places: int) -> Query:
    """Return a query whose result has its columns in another order, in which Spark then keeps the buffers."""

    def build(df: DataFrame) -> DataFrame:
        made = query.build(df)
        return made.select(*(made.columns[place] for place in places))

    def right(before: list[Event], after: list[Event]) -> Rows:
        return [tuple(row[place] for place in places) for row in query.right(before, after)]

    return Query(build, right, query.mode)


pair(
    "agg-values-selected-in-another-order",
    "values swapped",
    by_user(**SWAPPABLE),
    selected(by_user(**SWAPPABLE), 0, 2, 1),
)
pair("agg-values-swapped-and-selected", "harmless", by_user(**SWAPPABLE), selected(by_user(**SWAPPED), 0, 2, 1))
pair(
    "agg-values-min-max-swapped",
    "values swapped",
    by_user(a="min amount", b="max amount"),
    by_user(b="max amount", a="min amount"),
)
for function in ("collect_list", "approx_count_distinct"):
    pair(
        f"agg-{function.replace('_', '-')}-argument-widened",
        "value widened",
        by_user(found=f"{function} price"),
        aggregate(["user"], {"found": f"{function} price"}, LONG_PRICE),
        after=(Event("a", "x", 20, 1, 20), Event("b", "x", 1, 2, 25)),  # prices that the state has
    )
MOST = by_user(most="max price")
pair("agg-value-widened", "value widened", MOST, aggregate(["user"], {"most": "max price"}, LONG_PRICE))
pair(
    "agg-value-widened-unchecked",
    "value widened",
    MOST,
    aggregate(["user"], {"most": "max price"}, LONG_PRICE),
    now=UNCHECKED,
)
NEGATIVE = ((Event("a", "x", 10, -9, 0),), (Event("b", "x", 10, -7, 5),))
pair(
    "agg-value-widened-unchecked-negative",
    "value widened",
    MOST,
    aggregate(["user"], {"most": "max price"}, LONG_PRICE),
    now=UNCHECKED,
    before=NEGATIVE,
    after=(Event("a", "x", 10, -20, 20), Event("b", "x", 10, -6, 20)),
)
pair(
    "agg-sum-argument-widened",
    "harmless",
    by_user(paid="sum price"),
    aggregate(["user"], {"paid": "sum price"}, LONG_PRICE),
)
COUNTED = {"found": "approx_count_distinct price", "most": "max price"}
pair(
    "agg-approx-count-distinct-beside-a-widened-value",
    "value widened",
    by_user(**COUNTED),
    aggregate(["user"], COUNTED, LONG_PRICE),
    after=(Event("a", "x", 20, 1, 20), Event("b", "x", 1, 2, 25)),  # prices that the state has
)
pair("agg-value-to-double", "value retyped", BY_USER, aggregate(["user"], TOTAL, {"amount": "cast(amount as double)"}))
pair(
    "agg-value-to-string",
    "value retyped",
    MOST,
    aggregate(["user"], {"most": "max price"}, {"price": "cast(price as string)"}),
)
pair(
    "agg-value-narrowed",
    "value retyped",
    by_user(most="max amount"),
    aggregate(["user"], {"most": "max amount"}, {"amount": "cast(amount as int)"}),
)
pair(
    "agg-argument-now-required",
    "value nullability",
    BY_USER,
    aggregate(["user"], TOTAL, {"amount": "coalesce(amount, 0)"}),
)
pair(
    "agg-argument-now-nullable",
    "value nullability",
    aggregate(["user"], TOTAL, {"amount": "coalesce(amount, 0)"}),
    BY_USER,
)
pair("agg-buffer-now-required", "value nullability", BY_USER, by_user(total="count *"))
pair("agg-buffer-now-nullable", "value nullability", by_user(total="count *"), BY_USER)

# Aggregates.
LOW, HIGH = by_user(m="min amount"), by_user(m="max amount")
pair("agg-min-to-max", "aggregate replaced", LOW, HIGH)
pair("agg-min-to-max-rocksdb", "aggregate replaced", LOW, HIGH, conf=ROCKSDB)
pair("agg-max-to-min", "aggregate replaced", HIGH, LOW)
pair("agg-sum-to-max", "aggregate replaced", BY_USER, by_user(total="max amount"))
pair("agg-sum-of-another", "aggregate replaced", BY_USER, by_user(total="sum price"))
pair("agg-sum-of-another-rocksdb", "aggregate replaced", BY_USER, by_user(total="sum price"), conf=ROCKSDB)
pair("agg-max-of-another-type", "aggregate replaced", HIGH, by_user(m="max ts"))
pair("agg-first-to-last", "aggregate replaced", by_user(v="first amount"), by_user(v="last amount"))
pair("agg-last-to-first", "aggregate replaced", by_user(v="last amount"), by_user(v="first amount"))
pair("agg-first-to-max", "aggregate replaced", by_user(v="first amount"), HIGH)
pair("agg-count-to-sum-of-ones", "aggregate replaced", by_user(n="count *"), by_user(n="sum 1"))
pair("agg-count-all-to-count-column", "value nullability", by_user(n="count *"), by_user(n="count amount"))
pair("agg-avg-to-sum", "aggregate replaced", by_user(v="avg amount"), by_user(v="sum amount"))
pair("agg-avg-to-sum-and-count", "aggregate replaced", by_user(v="avg price"), by_user(v="sum price", n="count *"))
pair("agg-list-to-set", "aggregate replaced", by_user(v="collect_list price"), by_user(v="collect_set price"))
TWICE = (*BEFORE, (Event("a", "x", 10, 1, 15),))
SET = by_user(v="collect_set price")
pair("agg-set-to-list", "aggregate replaced", SET, by_user(v="collect_list price"), before=TWICE)
pair("agg-list-of-another", "aggregate replaced", by_user(v="collect_list amount"), by_user(v="collect_list price"))
pair(
    "agg-list-of-another-same-type",
    "aggregate replaced",
    by_user(v="collect_list user"),
    by_user(v="collect_list other"),
)
pair("agg-or-to-xor", "aggregate replaced", by_user(v="bit_or amount"), by_user(v="bit_xor amount"))
pair(
    "agg-distinct-of-another",
    "aggregate replaced",
    by_user(v="approx_count_distinct amount"),
    by_user(v="approx_count_distinct other"),
)

# Windows.
HALVES = aggregate(["user"], TOTAL, delay=60, window=(30, 30), mode="append")
SLIDING = aggregate(["user"], TOTAL, delay=60, window=(60, 30), mode="append")
pair("window-length", "window length", WINDOWS, HALVES, after=CLOSING)
pair("window-length-longer", "window length", HALVES, WINDOWS, after=CLOSING)
pair("window-length-rocksdb", "window length", WINDOWS, HALVES, after=CLOSING, conf=ROCKSDB)
pair("window-slide", "window slide", WINDOWS, SLIDING, after=CLOSING)
FINER = aggregate(["user"], TOTAL, delay=60, window=(60, 20), mode="append")
pair("window-slide-finer", "window slide", SLIDING, FINER, after=CLOSING)
pair("window-slide-coarser", "window slide", FINER, SLIDING, after=CLOSING)
pair("window-slide-removed", "window slide", SLIDING, WINDOWS, after=CLOSING)
pair("window-removed", "key removed", WINDOWS, BY_USER, after=CLOSING)
pair(
    "window-key-added",
    "key added",
    WINDOWS,
    aggregate(["user", "other"], TOTAL, delay=60, window=(60, 60), mode="append"),
    after=CLOSING,
)
pair(
    "window-of-another-aggregate",
    "aggregate replaced",
    WINDOWS,
    aggregate(["user"], {"total": "sum price"}, delay=60, window=(60, 60), mode="append"),
    after=CLOSING,
)


def windows(delay: int | None, mode: str = "append") -> Query:
    """Return ``WINDOWS`` with another delay or mode."""
    return aggregate(["user"], TOTAL, delay=delay, window=(60, 60), mode=mode)


pair("window-watermark-shorter", "watermark shorter", WINDOWS, windows(10), after=CLOSING)
pair("window-watermark-longer", "watermark longer", WINDOWS, windows(180), after=CLOSING)
# The watermark has closed the first hour, and never decreases.
FAR = ((*BEFORE[0],), (*BEFORE[1], Event("q", "x", 3, 3, 90)))
pair(
    "window-watermark-longer-closed",
    "watermark longer",
    windows(0),
    windows(180),
    before=FAR,
    after=(Event("a", "x", 20, 7, 100), Event("z", "z", 0, 0, 1440)),
    rows=[((60, 120), "a", 20), ((60, 120), "q", 3)],
)
pair("window-watermark-removed-append", "watermark removed", WINDOWS, windows(None), after=CLOSING)
pair("window-watermark-removed", "watermark removed", windows(60, "update"), windows(None, "update"))
pair("window-watermark-added", "watermark added", windows(None, "update"), windows(60, "update"))
pair("agg-watermark-removed", "watermark removed", aggregate(["user"], TOTAL, delay=60), BY_USER)
pair("agg-watermark-added", "watermark added", BY_USER, aggregate(["user"], TOTAL, delay=60))
pair("window-append-to-update", "output mode", WINDOWS, windows(60, "update"))
pair("window-update-to-append", "output mode", windows(60, "update"), WINDOWS, after=CLOSING)
pair("window-update-to-complete", "output mode", windows(60, "update"), windows(60, "complete"))
pair("agg-update-to-complete", "output mode", BY_USER, aggregate(["user"], TOTAL, mode="complete"))
pair("agg-complete-to-update", "output mode", aggregate(["user"], TOTAL, mode="complete"), BY_USER)
# Complete mode would show the windows that append mode has closed.
pair(
    "window-append-to-complete-closed",
    "output mode",
    windows(0),
    windows(0, "complete"),
    before=((*BEFORE[0],), (*BEFORE[1], Event("q", "x", 3, 3, 90))),
    after=(Event("q", "x", 4, 3, 95),),
)

# Sessions.
SHORT_GAP = aggregate(["user"], TOTAL, delay=60, gap=15, mode="append")
LONG_GAP = aggregate(["user"], TOTAL, delay=60, gap=50, mode="append")
pair("session-gap-shorter", "session gap", SESSIONS, SHORT_GAP, after=CLOSING)
pair("session-gap-longer", "session gap", SESSIONS, LONG_GAP, after=CLOSING)
# Minutes 10 and 50 are one session under the new gap. The old session ended at minute 40.
APART = (Event("a", "x", 20, 7, 50), Event("z", "z", 0, 0, 1440))
pair("session-gap-longer-apart", "session gap", SESSIONS, LONG_GAP, after=APART)
pair(
    "session-key-added",
    "key added",
    SESSIONS,
    aggregate(["user", "other"], TOTAL, delay=60, gap=30, mode="append"),
    after=CLOSING,
)
pair(
    "session-keys-swapped",
    "keys swapped",
    aggregate(["user", "other"], TOTAL, delay=60, gap=30, mode="append"),
    aggregate(["other", "user"], TOTAL, delay=60, gap=30, mode="append"),
    after=CLOSING,
)
pair(
    "session-sum-of-another",
    "aggregate replaced",
    SESSIONS,
    aggregate(["user"], {"total": "sum price"}, delay=60, gap=30, mode="append"),
    after=CLOSING,
)
pair(
    "session-value-added",
    "value added",
    SESSIONS,
    aggregate(["user"], {"total": "sum amount", "n": "count *"}, delay=60, gap=30, mode="append"),
    after=CLOSING,
)
pair(
    "session-watermark-longer",
    "watermark longer",
    SESSIONS,
    aggregate(["user"], TOTAL, delay=180, gap=30, mode="append"),
    after=CLOSING,
)
