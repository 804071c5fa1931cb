"""Pairs of queries whose state is kept by Python code: transformWithState and applyInPandasWithState."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .pair import AVRO, CLOSING, KEEPS, ROCKSDB, STEPS, pair
from .processors import DAY_MS, Field, Variable, pandas, transform
from .queries import Event, Query

TOTAL, N, PAID = Field("total"), Field("n", "n"), Field("paid", "price")
NEW_PAID = replace(PAID, fresh=True)
KEPT = Variable("kept")
ALL = Variable("all", "list", (Field("amount"),))
SUMS = Variable("sums", "map", (Field("total"),))


def tws(name: str, change: str, old: Query, new: Query, both: bool = False, **rest: Any) -> None:
    """Enter a pair on RocksDB, and with ``both`` another one in Avro."""
    pair("tws-" + name, change, old, new, conf=ROCKSDB, **rest)
    if both:
        pair(f"tws-{name}-avro", change, old, new, conf=AVRO, **rest)


def fields(*chosen: Field) -> Query:
    """Return a transformWithState query with one value of these fields."""
    return transform(Variable("kept", fields=chosen))


# Variables.
tws("variable-added", "variable added", KEEPS, transform(KEPT, replace(ALL, fresh=True)), both=True)
tws("variable-added-first", "variable added", KEEPS, transform(replace(SUMS, fresh=True), KEPT))
tws("variable-removed", "variable removed", transform(KEPT, ALL), KEEPS, both=True)
tws("variable-renamed", "variable renamed", KEEPS, transform(Variable("held")), both=True)
tws("list-renamed", "variable renamed", transform(ALL), transform(replace(ALL, name="every")))
tws("map-renamed", "variable renamed", transform(SUMS), transform(replace(SUMS, name="totals")))
tws("variables-reordered", "harmless", transform(KEPT, ALL), transform(ALL, KEPT))
TWO = (Variable("one", fields=(TOTAL,)), Variable("two", fields=(PAID,)))
OTHERS = (Variable("two", fields=(TOTAL,)), Variable("one", fields=(PAID,)))
tws("variables-names-swapped", "variable renamed", transform(*TWO), transform(*OTHERS))
SINGLE = Variable("kept", fields=(Field("amount"),))
tws("value-to-list", "variable kind", transform(SINGLE), transform(Variable("kept", "list", (Field("amount"),))))
tws("list-to-value", "variable kind", transform(Variable("kept", "list", (Field("amount"),))), transform(SINGLE))
tws("value-to-map", "variable kind", transform(SINGLE), transform(Variable("kept", "map", (Field("amount"),))))
tws("map-to-list", "variable kind", transform(SUMS), transform(Variable("sums", "list", (Field("total"),))))

# Fields of a variable.
tws("field-added", "field added", fields(TOTAL, N), fields(TOTAL, N, NEW_PAID), both=True)
tws("field-added-first", "field added", fields(TOTAL, N), fields(NEW_PAID, TOTAL, N), both=True)
tws("field-removed", "field removed", fields(TOTAL, N, PAID), fields(TOTAL, N), both=True)
tws("field-renamed", "field renamed", fields(TOTAL, N), fields(replace(TOTAL, name="sum"), N), both=True)
tws(
    "field-reordered",
    "value reordered",
    fields(Field("total", type="string"), N),
    fields(N, Field("total", type="string")),
    both=True,
)
tws("fields-swapped", "fields swapped", fields(TOTAL, PAID), fields(PAID, TOTAL), both=True)
# The code stays the same, and the names in the schema change places.
NAMED = (Field("paid", "amount"), Field("total", "price"))
tws("field-names-swapped", "fields swapped", fields(TOTAL, PAID), fields(*NAMED), both=True)
tws(
    "field-widened",
    "field retyped",
    fields(Field("total", type="int")),
    fields(Field("total", type="bigint")),
    both=True,
)
tws(
    "field-narrowed",
    "field retyped",
    fields(Field("total", type="bigint")),
    fields(Field("total", type="int")),
    both=True,
)
tws("field-to-string", "field retyped", fields(TOTAL), fields(Field("total", type="string")), both=True)
for narrow, wide in (("float", "double"), ("array<int>", "array<bigint>")):
    tws(
        f"field-{narrow.replace('<', '-').strip('>')}-widened",
        "field retyped",
        fields(Field("total", type=narrow)),
        fields(Field("total", type=wide)),
        both=True,
    )
tws("field-to-double", "field retyped", fields(TOTAL), fields(Field("total", type="double")))
tws(
    "list-widened",
    "field retyped",
    transform(replace(ALL, fields=(Field("amount", type="int"),))),
    transform(ALL),
    both=True,
)
tws("field-now-required", "field nullability", fields(TOTAL), fields(Field("total", type="bigint not null")))
tws("field-now-nullable", "field nullability", fields(Field("total", type="bigint not null")), fields(TOTAL))

# Keys.
tws("key-added", "key added", KEEPS, transform(KEPT, keys=("user", "other")))
tws("key-removed", "key removed", transform(KEPT, keys=("user", "other")), KEEPS)
tws("key-renamed", "key renamed", KEEPS, transform(KEPT, keys=("client",), prepare={"client": "user"}))
tws("keys-swapped", "keys swapped", transform(KEPT, keys=("user", "other")), transform(KEPT, keys=("other", "user")))
tws("map-key-another", "function body", transform(SUMS), transform(replace(SUMS, key="user")))

# TTLs. An entry keeps the TTL with which it was written.
DAY, HOUR = replace(KEPT, ttl=DAY_MS), replace(KEPT, ttl=DAY_MS // 24)
SECOND = replace(KEPT, ttl=1000)
FORGOTTEN: list[tuple[Any, ...]] = [
    (user, "seen", told) for user, told in (("a", "20,1"), ("b", "1,1"), ("c", "8,1"), ("d", "50,1"))
]
REMEMBERED: list[tuple[Any, ...]] = [
    (user, "seen", told) for user, told in (("a", "60,3"), ("b", "21,2"), ("c", "13,2"), ("d", "50,1"))
]
tws("ttl-on", "ttl on", KEEPS, transform(DAY), both=True)
tws(
    "ttl-on-second-variable",
    "ttl on",
    transform(KEPT, Variable("more", ttl=DAY_MS)),
    transform(DAY, Variable("more", ttl=DAY_MS)),
)
tws("ttl-off", "ttl off", transform(DAY), KEEPS, both=True)
PLAIN = transform(KEPT, time_mode="ProcessingTime")
tws("ttl-on-same-time-mode", "ttl on", PLAIN, transform(DAY), both=True)
tws("ttl-off-same-time-mode", "ttl off", transform(DAY), PLAIN, both=True)
tws("ttl-shorter", "ttl shorter", transform(DAY), transform(HOUR))
tws("ttl-longer", "ttl longer", transform(HOUR), transform(DAY))
tws(
    "ttl-shorter-passed",
    "ttl shorter",
    transform(DAY),
    transform(SECOND),
    rows=FORGOTTEN,
    unchanged=REMEMBERED,
    pause_s=3,
)
tws(
    "ttl-longer-passed",
    "ttl longer",
    transform(SECOND),
    transform(DAY),
    rows=REMEMBERED,
    unchanged=FORGOTTEN,
    pause_s=3,
)
tws("ttl-list-on", "ttl on", transform(ALL), transform(replace(ALL, ttl=DAY_MS)))
tws("ttl-map-off", "ttl off", transform(replace(SUMS, ttl=DAY_MS)), transform(SUMS))
tws("ttl-list-off", "ttl off", transform(replace(ALL, ttl=DAY_MS)), transform(ALL), both=True)
tws("ttl-map-on", "ttl on", transform(SUMS), transform(replace(SUMS, ttl=DAY_MS)), both=True)
LIVING = replace(SUMS, fresh=True, ttl=DAY_MS)
tws("ttl-variable-added-same-time-mode", "variable added", PLAIN, transform(KEPT, LIVING), both=True)
tws("ttl-variable-added", "variable added", KEEPS, transform(KEPT, LIVING))

# Time modes and timers.
ALARM = transform(KEPT, timer=60, delay=0)
tws("time-mode-to-event", "time mode", KEEPS, transform(KEPT, time_mode="EventTime", delay=60))
tws("time-mode-to-processing", "time mode", KEEPS, transform(KEPT, time_mode="ProcessingTime"))
tws(
    "time-mode-processing-to-event",
    "time mode",
    transform(KEPT, time_mode="ProcessingTime"),
    transform(KEPT, time_mode="EventTime", delay=60),
)
tws("time-mode-to-none", "time mode", transform(KEPT, time_mode="EventTime", delay=60), KEEPS)
# Keys from before the restart have no timer, but a, b and c get new events after it.
tws("timers-added", "timers", transform(KEPT, time_mode="EventTime", delay=0), ALARM, after=CLOSING)
tws("timers-removed", "timers", ALARM, transform(KEPT, time_mode="EventTime", delay=0), after=CLOSING)
tws("timers-later", "timers", ALARM, transform(KEPT, timer=120, delay=0), after=CLOSING)
# A timer fires at the time that the old query set: at minute 65 for b, at 72 for c.
ONE = (Event("a", "x", 20, 7, 100),)
A_SEEN: list[tuple[Any, ...]] = [("a", "seen", "60,3")]
B_AND_C_OVER: list[tuple[Any, ...]] = [*A_SEEN, ("b", "over", "20,1"), ("c", "over", "5,1")]
LATER = transform(KEPT, timer=120, delay=0)
tws("timers-later-passed", "timers", ALARM, LATER, after=ONE, rows=A_SEEN, unchanged=B_AND_C_OVER)
tws("output-mode", "output mode", KEEPS, transform(KEPT, mode="Append"))
tws("body", "function body", KEEPS, transform(KEPT, factor=2))
tws("value-of-another", "function body", KEEPS, fields(Field("total", "price"), N))

# applyInPandasWithState.
pair("pandas-field-added", "field added", STEPS, pandas(TOTAL, N, NEW_PAID))
pair("pandas-field-added-rocksdb", "field added", STEPS, pandas(TOTAL, N, NEW_PAID), conf=ROCKSDB)
pair("pandas-field-removed", "field removed", pandas(TOTAL, N, PAID), STEPS)
pair("pandas-field-renamed", "field renamed", STEPS, pandas(Field("sum"), N))
pair("pandas-fields-swapped", "fields swapped", pandas(TOTAL, PAID), pandas(PAID, TOTAL))
pair("pandas-field-widened", "field retyped", pandas(Field("total", type="int")), pandas(TOTAL))
pair("pandas-field-to-string", "field retyped", pandas(TOTAL), pandas(Field("total", type="string")))
pair("pandas-field-now-required", "field nullability", pandas(TOTAL), pandas(Field("total", type="bigint not null")))
pair("pandas-field-now-nullable", "field nullability", pandas(Field("total", type="bigint not null")), pandas(TOTAL))
pair("pandas-key-added", "key added", STEPS, pandas(TOTAL, N, keys=("user", "other")))
pair(
    "pandas-keys-swapped", "keys swapped", pandas(TOTAL, keys=("user", "other")), pandas(TOTAL, keys=("other", "user"))
)
TIMED = pandas(TOTAL, N, timeout="EventTimeTimeout", delay=0)
pair("pandas-timeout-on", "timeout", STEPS, TIMED, after=CLOSING)
pair(
    "pandas-timeout-on-unchecked",
    "timeout",
    STEPS,
    TIMED,
    after=CLOSING,
    now={"spark.sql.streaming.stateStore.stateSchemaCheck": "false"},
)
pair("pandas-timeout-off", "timeout", TIMED, STEPS)
pair(
    "pandas-timeout-longer",
    "timeout",
    TIMED,
    pandas(TOTAL, N, timeout="EventTimeTimeout", minutes=120, delay=0),
    after=CLOSING,
)
LONGER = pandas(TOTAL, N, timeout="EventTimeTimeout", minutes=120, delay=0)
pair("pandas-timeout-longer-passed", "timeout", TIMED, LONGER, after=ONE, rows=A_SEEN, unchanged=B_AND_C_OVER)
BY_CLOCK = pandas(TOTAL, N, timeout="ProcessingTimeTimeout")
pair("pandas-timeout-to-processing", "timeout", TIMED, BY_CLOCK)
# The timeouts in the state are event times, long past by the clock.
pair("pandas-timeout-to-processing-passed", "timeout", TIMED, BY_CLOCK, after=ONE, rows=A_SEEN)
pair("pandas-timeout-from-processing", "timeout", BY_CLOCK, TIMED, after=CLOSING)
pair("pandas-body", "function body", STEPS, pandas(TOTAL, N, factor=2))
pair("pandas-body-of-another", "function body", STEPS, pandas(Field("total", "price"), N))
