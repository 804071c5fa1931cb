"""Pairs of deduplications, and of a limit."""

from __future__ import annotations

from .pair import AND_NULL, BEFORE, ONCE_EACH, PRICES, ROCKSDB, SAME_PRICES, UNCHECKED, WITH_NULL, WITHIN, pair
from .queries import Event, dedup, first_rows

USERS = dedup(["user"])

pair("dedup-column-added", "dedup columns", USERS, ONCE_EACH)
pair("dedup-column-added-rocksdb", "dedup columns", USERS, ONCE_EACH, conf=ROCKSDB)
pair("dedup-column-removed", "dedup columns", ONCE_EACH, USERS)
pair("dedup-column-removed-rocksdb", "dedup columns", ONCE_EACH, USERS, conf=ROCKSDB)
pair("dedup-column-another", "dedup columns", USERS, dedup(["other"]))
pair("dedup-column-another-type", "dedup columns", USERS, dedup(["price"]))
pair("dedup-column-renamed", "key renamed", USERS, dedup(["client"], {"client": "user"}))
pair("dedup-columns-swapped", "keys swapped", ONCE_EACH, dedup(["other", "user"]))
pair("dedup-columns-swapped-rocksdb", "keys swapped", ONCE_EACH, dedup(["other", "user"]), conf=ROCKSDB)
pair("dedup-columns-reordered", "key reordered", dedup(["user", "price"]), dedup(["price", "user"]))
LONG_PRICE = dedup(["price"], {"price": "cast(price as bigint)"})
pair("dedup-column-widened", "key retyped", dedup(["price"]), LONG_PRICE, before=PRICES, after=SAME_PRICES)
pair(
    "dedup-column-widened-unchecked",
    "key retyped",
    dedup(["price"]),
    LONG_PRICE,
    before=PRICES,
    after=SAME_PRICES,
    now=UNCHECKED,
)
REQUIRED = dedup(["user"], {"user": "coalesce(user, '-')"})
pair("dedup-now-required", "key nullability", USERS, REQUIRED)
pair("dedup-now-required-nulls", "key nullability", USERS, REQUIRED, before=WITH_NULL, after=AND_NULL)
pair("dedup-now-nullable", "key nullability", REQUIRED, USERS)
pair("dedup-to-within", "operator replaced", dedup(["user", "other"], delay=60), WITHIN)
pair("dedup-from-within", "operator replaced", WITHIN, dedup(["user", "other"], delay=60))
pair("dedup-watermark-added", "watermark added", ONCE_EACH, dedup(["user", "other"], delay=60))
TIMED = dedup(["user", "other", "ts"], delay=60)
pair("dedup-time-watermark-shorter", "watermark shorter", TIMED, dedup(["user", "other", "ts"], delay=20))
pair("dedup-time-watermark-longer", "watermark longer", TIMED, dedup(["user", "other", "ts"], delay=120))
pair("dedup-time-watermark-removed", "watermark removed", TIMED, dedup(["user", "other", "ts"]))

# Each entry holds its own expiry. At the restart the newest event is of minute 100, and the delay is 60 minutes.
LONGER = (BEFORE[0], (*BEFORE[1], Event("q", "q", 1, 1, 100)))
AGAIN = (Event("a", "x", 7, 7, 101), Event("q", "q", 8, 7, 102), Event("new", "x", 8, 8, 103))
SHORT, LONG = (dedup(["user", "other"], delay=minutes, within=True) for minutes in (10, 600))
pair("within-delay-longer", "dedup delay", WITHIN, LONG)
pair("within-delay-shorter", "dedup delay", WITHIN, SHORT)
# Minute 0 has expired at minute 101 under the old delay, but not under the new one.
pair("within-delay-longer-expired", "dedup delay", SHORT, LONG, before=LONGER, after=AGAIN, rows=[("new", "x", 8)])
# Minute 0 has expired at minute 101 under the new delay, but not under the old one.
GONE = [("a", "x", 7), ("new", "x", 8)]
pair("within-delay-shorter-expired", "dedup delay", WITHIN, SHORT, before=LONGER, after=AGAIN, rows=GONE)
pair("within-column-added", "dedup columns", dedup(["user"], delay=60, within=True), WITHIN)
pair("within-column-removed", "dedup columns", WITHIN, dedup(["user"], delay=60, within=True))
pair("within-columns-swapped", "keys swapped", WITHIN, dedup(["other", "user"], delay=60, within=True))

pair("limit-higher", "limit", first_rows(5), first_rows(7))
pair("limit-lower", "limit", first_rows(7), first_rows(5))
pair("limit-lower-passed", "limit", first_rows(7), first_rows(3))
