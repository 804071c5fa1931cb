"""Streaming queries built from parts that a change can touch, each with a model in plain Python.

A factory returns a ``Query``. ``build`` makes a stateful streaming DataFrame from the streaming ``EVENTS``. ``right``
predicts the rows for the events after a restart, if Spark neither loses nor misreads earlier state. ``right`` knows
nothing of Spark. Rows are tuples in the order of the columns. A timestamp is given in minutes since ``START``.

A column is given as SQL, and an aggregate as a function and a column (``sum amount``). ``_OF`` and ``_FUNCTIONS``
compute them from events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

Rows = list[tuple[Any, ...]]
EVENTS = "user string, other string, amount bigint, price int, ts timestamp"
START = datetime(2026, 1, 1)


@dataclass(frozen=True)
class Event:
    """One input row. ``minute`` is the distance of its timestamp from ``START``."""

    user: str | None
    other: str | None
    amount: int
    price: int
    minute: int

    def row(self) -> dict[str, Any]:
        """Return the row as it is in the JSON of the source."""
        ts = (START + timedelta(minutes=self.minute)).isoformat() + "Z"
        return {"user": self.user, "other": self.other, "amount": self.amount, "price": self.price, "ts": ts}


# Each span is a start, an end, and the events between them.
Spans = Callable[[list[Event]], list[tuple[int, int, list[Event]]]]
Right = Callable[[list[Event], list[Event]], Rows]


def _unstated(before: list[Event], after: list[Event]) -> Rows:
    raise NotImplementedError("the pair has to state its rows")


@dataclass(frozen=True)
class Query:
    """A query and its model. With ``once`` it never ends by itself, and is run batch by batch."""

    build: Callable[[DataFrame], DataFrame]
    right: Right = _unstated
    mode: str = "update"
    once: bool = False


_OF: dict[str, Callable[[Event], Any]] = {
    **{name: attrgetter(name) for name in ("user", "other", "amount", "price")},
    "ts": attrgetter("minute"),
    "upper(user)": lambda event: event.user and event.user.upper(),
    "cast(price as bigint)": attrgetter("price"),
    "cast(price as string)": lambda event: str(event.price),
    "cast(amount as int)": attrgetter("amount"),
    "cast(amount as double)": lambda event: float(event.amount),
    "coalesce(user, '-')": lambda event: "-" if event.user is None else event.user,
    "coalesce(amount, 0)": attrgetter("amount"),
    "nullif(amount, -1)": attrgetter("amount"),
    "named_struct('user', user, 'other', other)": lambda event: (event.user, event.other),
    "named_struct('other', other, 'user', user)": lambda event: (event.other, event.user),
    "concat('t', user)": lambda event: event.user and f"t{event.user}",
    "concat('d', other)": lambda event: event.other and f"d{event.other}",
    "concat('p', other)": lambda event: event.other and f"p{event.other}",
    "concat('a', user)": lambda event: event.user and f"a{event.user}",
    "*": lambda event: 1,
    "1": lambda event: 1,
}

_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "count": len,
    "avg": lambda values: sum(values) / len(values),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "collect_list": sorted,
    "collect_set": lambda values: sorted(set(values)),
    "approx_count_distinct": lambda values: len(set(values)),
    "bit_or": lambda values: reduce(int.__or__, values),
    "bit_xor": lambda values: reduce(int.__xor__, values),
}


def aggregate(
    keys: Sequence[str],
    values: Mapping[str, str],
    prepare: Mapping[str, str] | None = None,
    delay: int | None = None,
    window: tuple[int, int] | None = None,
    gap: int | None = None,
    mode: str = "update",
    hours: bool = False,
) -> Query:
    """Return a query of values by keys, or by keys and windows (length and slide) or sessions (gap), in minutes.

    ``prepare`` has columns that are computed first. With ``hours`` the length of a window is written in hours. A key
    may be ``COLUMN as ALIAS``. In append mode ``right`` returns the windows and sessions that the events after the
    restart close.
    """
    made = prepare or {}

    def build(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        for name, sql in made.items():
            df = df.withColumn(name, F.expr(sql))
        if delay is not None:
            df = df.withWatermark("ts", f"{delay} minutes")
        times = []
        if window is not None:
            spans = (f"{minutes // 60} hours" if hours else f"{minutes} minutes" for minutes in window)
            times = [F.window("ts", *spans)]
        if gap is not None:
            times = [F.session_window("ts", f"{gap} minutes")]
        aggregates = []
        for name, words in values.items():
            function, sql = words.split(" ", 1)
            call = f"{function}({sql})"
            aggregates.append(F.expr(f"array_sort({call})" if "collect" in call else call).alias(name))
        return df.groupBy(*times, *(F.expr(key) for key in keys)).agg(*aggregates)

    def key_of(event: Event) -> tuple[Any, ...]:
        return tuple(_column(key if key in _OF else key.rsplit(" as ", 1)[0], event, made) for key in keys)

    def told(events: list[Event]) -> tuple[Any, ...]:
        row = []
        for words in values.values():
            function, sql = words.split(" ", 1)
            row.append(_FUNCTIONS[function]([_column(sql, event, made) for event in events]))
        return tuple(row)

    def right(before: list[Event], after: list[Event]) -> Rows:
        if window is None and gap is None:
            touched = {key_of(event) for event in (before + after if mode == "complete" else after)}
            return [key + told([event for event in before + after if key_of(event) == key]) for key in touched]
        rows: Rows = []
        spans = _windows(window) if window is not None else _sessions(gap or 0)
        now, then = (max((e.minute for e in events), default=0) - (delay or 0) for events in (before + after, before))
        for key in {key_of(event) for event in before + after}:
            events = [event for event in before + after if key_of(event) == key]
            for start, end, members in spans(events):
                closed = then < end <= now
                touched_now = any(event in after for event in members)
                if closed if mode == "append" else touched_now or mode == "complete":
                    rows.append(((start, end), *key, *told(members)))
        return rows

    return Query(build, right, mode)


def _windows(window: tuple[int, int]) -> Spans:
    length, slide = window

    def spans(events: list[Event]) -> list[tuple[int, int, list[Event]]]:
        starts = {
            start for event in events for start in range(event.minute // slide * slide, event.minute - length, -slide)
        }
        return [(s, s + length, [e for e in events if s <= e.minute < s + length]) for s in sorted(starts)]

    return spans


def _sessions(gap: int) -> Spans:
    def spans(events: list[Event]) -> list[tuple[int, int, list[Event]]]:
        found: list[list[Event]] = []
        for event in sorted(events, key=lambda event: event.minute):
            if found and event.minute < found[-1][-1].minute + gap:
                found[-1].append(event)
            else:
                found.append([event])
        return [(each[0].minute, each[-1].minute + gap, each) for each in found]

    return spans


def dedup(
    columns: Sequence[str],
    prepare: Mapping[str, str] | None = None,
    delay: int | None = None,
    within: bool = False,
    shown: Sequence[str] = ("user", "other", "amount"),
) -> Query:
    """Return a query of the first row of each key, for ever or (``within``) until the watermark passes time + delay."""
    made = prepare or {}

    def build(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        for name, sql in made.items():
            df = df.withColumn(name, F.expr(sql))
        if delay is not None:
            df = df.withWatermark("ts", f"{delay} minutes")
        kept = df.dropDuplicatesWithinWatermark(list(columns)) if within else df.dropDuplicates(list(columns))
        return kept.select(*shown)

    def right(before: list[Event], after: list[Event]) -> Rows:
        def key_of(event: Event) -> tuple[Any, ...]:
            return tuple(_column(column, event, made) for column in columns)

        # A key has expired once the watermark of the last batch has passed the key's first event plus the delay.
        watermark = max((event.minute for event in before), default=0) - (delay or 0)
        first = {key_of(event): event for event in reversed(before)}
        seen = {key for key, event in first.items() if not (within and event.minute + (delay or 0) <= watermark)}
        rows = []
        for event in after:
            if key_of(event) not in seen:
                seen.add(key_of(event))
                rows.append(tuple(_column(name, event, made) for name in shown))
        return rows

    return Query(build, right, "append")


def join(
    left: Sequence[str],
    right: Sequence[str],
    keys: Sequence[tuple[str, str]] = (("user", "user"),),
    how: str = "inner",
    delay: int | None = None,
    within: int | None = None,
    prepare: Mapping[str, str] | None = None,
    sides: tuple[str, str] = ("x", "y"),
    turned: bool = False,
    whole: bool = False,
    delays: tuple[int, int] | None = None,
) -> Query:
    """Return a join of the events whose ``other`` is x with those where it is y, with these columns of each side.

    ``within`` is the largest distance in minutes, and ``delays`` has the watermark delay of each side. ``turned``
    writes the same condition with its sides swapped. With ``whole`` the left side is not projected, so that its state
    has all columns. Only inner joins have a model.
    """
    made = prepare or {}
    pairs = list(keys)

    def build(df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        for name, sql in made.items():
            df = df.withColumn(name, F.expr(sql))

        def side(value: str, prefix: str, columns: Iterable[str], minutes: int | None) -> DataFrame:
            rows = df.where(F.col("other") == value)
            if minutes is not None:
                rows = rows.withWatermark("ts", f"{minutes} minutes")
            if not prefix:
                return rows
            return rows.select(*(F.col(column).alias(prefix + column) for column in dict.fromkeys(columns)))

        times = ["ts"] if delay is not None or within is not None or delays is not None else []
        early, late = delays or (delay, delay)
        mark = "" if whole else "l_"
        a = side(sides[0], mark, [*(pair[0] for pair in pairs), *left, *times], early)
        b = side(sides[1], "r_", [*(pair[1] for pair in pairs), *right, *times], late)
        on = F.lit(True)
        for mine, theirs in pairs:
            one, two = F.col(mark + mine), F.col("r_" + theirs)
            on = on & (two == one if turned else one == two)
        if within is not None:
            span = f"interval {within} minutes"
            on = on & F.expr(f"r_ts between {mark}ts - {span} and {mark}ts + {span}")
        shown = [*(mark + name for name in left), *("r_" + name for name in right if "semi" not in how)]
        return a.join(b, on, how).select(*shown)

    def rows(before: list[Event], after: list[Event]) -> Rows:
        found = []
        for a in before + after:
            for b in before + after:
                fits = (a.other, b.other) == sides and not (a in before and b in before)
                fits = fits and all(_column(m, a, made) == _column(t, b, made) is not None for m, t in pairs)
                if fits and (within is None or abs(a.minute - b.minute) <= within):
                    found.append((*(_column(n, a, made) for n in left), *(_column(n, b, made) for n in right)))
        return found

    return Query(build, rows if how == "inner" else _unstated, "append")


def chain(*keys: Sequence[str]) -> Query:
    """Return a chain of deduplications: by the first columns, then by the next, and so on."""

    def build(df: DataFrame) -> DataFrame:
        for columns in keys:
            df = df.dropDuplicates(list(columns))
        return df.select("user", "other", "amount")

    def right(before: list[Event], after: list[Event]) -> Rows:
        events = before + after
        for columns in keys:
            first: dict[tuple[Any, ...], Event] = {}
            for event in events:
                first.setdefault(tuple(_column(column, event, {}) for column in columns), event)
            events = list(first.values())
        return [(event.user, event.other, event.amount) for event in events if event in after]

    return Query(build, right, "append")


def first_rows(limit: int) -> Query:
    """Return a query of the first ``limit`` rows of the stream."""

    def right(before: list[Event], after: list[Event]) -> Rows:
        return [(event.user, event.amount) for event in (before + after)[len(before) : max(limit, len(before))]]

    return Query(lambda df: df.select("user", "amount").limit(limit), right, "append")


def then(first: Query, build: Callable[[DataFrame], DataFrame], right: Right = _unstated, mode: str = "") -> Query:
    """Return a query with another step behind it. ``right`` is the model of the whole."""
    return Query(lambda df: build(first.build(df)), right, mode or first.mode, first.once)


def _column(sql: str, event: Event, prepare: Mapping[str, str]) -> Any:
    return _OF[prepare.get(sql, sql)](event)
