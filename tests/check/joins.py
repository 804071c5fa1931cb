"""Pairs of joins of a stream with a stream."""

from __future__ import annotations

from typing import Any

from .pair import BEFORE, CLOSING_BOTH, JOINED, NEAR, ROCKSDB, UNCHECKED, pair
from .queries import Event, Query, join, then

LONG_PRICE = {"price": "cast(price as bigint)"}
# The last two events find no match.
LONELY = (BEFORE[0], (*BEFORE[1], Event("e", "x", 77, 1, 13), Event("f", "y", 88, 1, 14)))
MATCHED: list[tuple[Any, ...]] = [(20, 30), (1, 20), (5, 8)]
LEFT_ALONE, RIGHT_ALONE = (77, None), (None, 88)
# The row of an event after the restart that finds no match.
LATER_RIGHT_ALONE = (None, 50)


def near(how: str) -> Query:
    """Return a join of this type within an hour."""
    return join(["amount"], ["amount"], delay=60, within=60, how=how)


def outer(name: str, old: str, new: str, rows: list[tuple[Any, ...]], **rest: Any) -> None:
    """Enter a pair of two join types. Some of its events find no match."""
    before, after = LONELY, CLOSING_BOTH
    pair(name, "join type", near(old), near(new), before=before, after=after, rows=rows, **rest)


LEFT, RIGHT = [*MATCHED, LEFT_ALONE], [*MATCHED, RIGHT_ALONE, LATER_RIGHT_ALONE]
FULL = [*MATCHED, LEFT_ALONE, RIGHT_ALONE, LATER_RIGHT_ALONE]
outer("join-inner-to-left", "inner", "left_outer", LEFT)
outer("join-inner-to-left-rocksdb", "inner", "left_outer", LEFT, conf=ROCKSDB)
outer("join-inner-to-left-unchecked", "inner", "left_outer", LEFT, now=UNCHECKED)
outer("join-inner-to-right", "inner", "right_outer", RIGHT)
outer("join-inner-to-full", "inner", "full_outer", FULL)
outer("join-left-to-inner", "left_outer", "inner", MATCHED)
outer("join-left-to-right", "left_outer", "right_outer", RIGHT)
outer("join-left-to-full", "left_outer", "full_outer", FULL)
outer("join-right-to-inner", "right_outer", "inner", MATCHED)
outer("join-full-to-inner", "full_outer", "inner", MATCHED)
# The left side is not projected. Then the state of an inner join records that its keys are never null.
COLUMNS = ["user", "other", "amount", "price"]
WHOLE, WHOLE_LEFT = (
    join(COLUMNS, ["amount"], delay=60, within=60, whole=True, how=how) for how in ("inner", "left_outer")
)
FULL_ROWS = [("a", "x", 20, 7, 30), ("b", "x", 1, 9, 20), ("c", "x", 5, 4, 8)]
LONE_ROW = ("e", "x", 77, 1, None)
EVENTS: dict[str, Any] = {"before": LONELY, "after": CLOSING_BOTH}
pair("join-whole-inner-to-left", "join type", WHOLE, WHOLE_LEFT, rows=[*FULL_ROWS, LONE_ROW], **EVENTS)
pair(
    "join-whole-inner-to-left-unchecked",
    "join type",
    WHOLE,
    WHOLE_LEFT,
    rows=[*FULL_ROWS, LONE_ROW],
    now=UNCHECKED,
    **EVENTS,
)
pair("join-whole-left-to-inner", "join type", WHOLE_LEFT, WHOLE, rows=FULL_ROWS, **EVENTS)
# A semi join emits a left row once, at its first match. The row a10 had matched a30 before.
pair("join-inner-to-semi", "join type", near("inner"), near("left_semi"), after=CLOSING_BOTH, rows=[(20,), (1,), (5,)])

pair("join-sides-same-types", "join sides", JOINED, join(["amount"], ["amount"], sides=("y", "x")))
pair(
    "join-sides-same-types-rocksdb", "join sides", JOINED, join(["amount"], ["amount"], sides=("y", "x")), conf=ROCKSDB
)
pair("join-sides", "join sides", join(["amount"], ["price"]), join(["price"], ["amount"], sides=("y", "x")))
COPY = {"copy": "upper(user)"}
KEYS = (("user", "user"), ("copy", "copy"))
TWO_KEYS = join(["amount"], ["amount"], KEYS, prepare=COPY)
pair("join-keys-swapped", "join key", TWO_KEYS, join(["amount"], ["amount"], KEYS[::-1], prepare=COPY))
pair(
    "join-keys-swapped-rocksdb",
    "join key",
    TWO_KEYS,
    join(["amount"], ["amount"], KEYS[::-1], prepare=COPY),
    conf=ROCKSDB,
)
pair("join-key-added", "join key", JOINED, TWO_KEYS)
pair("join-key-removed", "join key", TWO_KEYS, JOINED)
pair(
    "join-key-renamed",
    "join key",
    JOINED,
    join(["amount"], ["amount"], (("client", "client"),), prepare={"client": "user"}),
)
SAME = (Event("a", "x", 1, 30, 20), Event("b", "y", 10, 3, 21))
pair(
    "join-key-another",
    "join key",
    join(["user"], ["user"], (("price", "price"),)),
    join(["user"], ["user"], (("amount", "amount"),)),
    after=SAME,
)
pair(
    "join-key-another-same-type",
    "join key",
    JOINED,
    join(["amount"], ["amount"], (("copy", "copy"),), prepare=COPY),
)

VALUES = join(["amount", "price"], ["amount"])
BOTH_LONG = join(["amount", "price"], ["amount"], prepare=LONG_PRICE)
SWAPPED = join(["price", "amount"], ["amount"], prepare=LONG_PRICE)
pair("join-value-added", "value added", JOINED, VALUES)
pair("join-value-removed", "value removed", VALUES, JOINED)
# Spark does not keep columns that no one reads. So a select behind the join changes its state.
pair(
    "join-columns-behind",
    "value removed",
    JOINED,
    then(JOINED, lambda df: df.selectExpr("l_amount"), lambda b, a: [r[:1] for r in JOINED.right(b, a)]),
)
pair("join-value-reordered", "value reordered", VALUES, join(["price", "amount"], ["amount"]))
pair("join-value-shown-reordered", "values swapped", BOTH_LONG, SWAPPED)
pair("join-value-shown-reordered-rocksdb", "values swapped", BOTH_LONG, SWAPPED, conf=ROCKSDB)
pair("join-value-another", "value renamed", join(["price"], ["amount"], prepare=LONG_PRICE), JOINED)
FEE = join(["fee"], ["amount"], prepare={"fee": "amount"})
pair("join-value-renamed", "value renamed", JOINED, FEE)
pair("join-value-widened", "value widened", VALUES, BOTH_LONG)
pair(
    "join-value-retyped",
    "value retyped",
    VALUES,
    join(["amount", "price"], ["amount"], prepare={"price": "cast(price as string)"}),
)
REQUIRED = join(["amount"], ["amount"], prepare={"amount": "coalesce(amount, 0)"})
NULLABLE = join(["amount"], ["amount"], prepare={"amount": "nullif(amount, -1)"})
pair("join-value-now-required", "value nullability", NULLABLE, REQUIRED)
pair("join-value-now-nullable", "value nullability", REQUIRED, NULLABLE)
pair("join-value-now-nullable-unchecked", "value nullability", REQUIRED, NULLABLE, now=UNCHECKED)

pair("join-range-wider", "join range", NEAR, join(["amount"], ["amount"], delay=60, within=90))
# The watermark (minute 50) has removed the first row of a, which the new range would still join.
NO_DELAY, WIDE = (join(["amount"], ["amount"], delay=0, within=minutes) for minutes in (30, 90))
MOVED_ON = (BEFORE[0], (Event("m", "x", 6, 6, 50), Event("n", "y", 7, 7, 50)))
pair("join-range-wider-gone", "join range", NO_DELAY, WIDE, before=MOVED_ON, after=(Event("a", "y", 9, 9, 60),))
pair("join-range-narrower", "join range", NEAR, join(["amount"], ["amount"], delay=60, within=12))
pair("join-range-removed", "join range", NEAR, join(["amount"], ["amount"], delay=60))
pair("join-range-added", "join range", join(["amount"], ["amount"], delay=60), NEAR)
pair("join-watermark-shorter", "watermark shorter", NEAR, join(["amount"], ["amount"], delay=20, within=60))
pair("join-watermark-longer", "watermark longer", NEAR, join(["amount"], ["amount"], delay=120, within=60))
pair("join-watermark-removed", "watermark removed", NEAR, join(["amount"], ["amount"], within=60))
