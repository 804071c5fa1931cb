"""Streaming queries by the parts that a change can touch, each with a twin in plain Python that says what is right.

A factory gives a ``Query``: ``build`` makes a stateful streaming DataFrame of the streaming ``EVENTS``, ``right``
foretells the rows of the query for the events after a restart, if nothing of those before it is forgotten or taken for
something else. ``right`` knows nothing of Spark. Rows are tuples in the order of the columns; a timestamp is its minute
since ``START``.

A column is given as SQL, an aggregate as a function and a column (``sum amount``); ``_OF`` and ``_FUNCTIONS`` say what
these are of events.
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
    """One input row; ``minute`` is its timestamp's distance from ``START``."""

    user: str | None
    other: str | None
    amount: int
    price: int
    minute: int

    def row(self) -> dict[str, Any]:
        """As the source's JSON has it."""
        ts = (START + timedelta(minutes=self.minute)).isoformat() + "Z"
        return {"user": self.user, "other": self.other, "amount": self.amount, "price": self.price, "ts": ts}


# Start, end, and what lies between.
Spans = Callable[[list[Event]], list[tuple[int, int, list[Event]]]]
Right = Callable[[list[Event], list[Event]], Rows]


def _unstated(before: list[Event], after: list[Event]) -> Rows:
    raise NotImplementedError("the pair has to state its rows")


@dataclass(frozen=True)
class Query:
    """A query and what is right of it; ``once`` if it never ends by itself, and has to be run batch by batch."""

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
    """Values by keys, or by keys and windows (length and slide) or sessions (gap), all in minutes.

    ``prepare`` are columns made before; with ``hours`` a window's length is given in these; a key may be
    ``COLUMN as ALIAS``. In append mode those windows and sessions are right that the watermark has closed after the
    last event, but not before the first one after the restart.
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
    """The first row of each key; for ever, or (``within``) until the watermark passes its time and ``delay``."""
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

        # A key's time is up once the watermark (set by the last batch before) passed its first event's and the delay.
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
    """Events whose ``other`` is x joined with those where it is y on ``keys``, with these columns of each side.

    ``within``: no further apart than so many minutes; ``delays``: the watermark's of each side; ``turned``: the
    condition is written the other way round, which is the same; ``whole``: the left side is not projected, so that its
    state has all columns, as the source or a filter gives them. The twin is for inner joins alone.
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
    """A deduplication by the first columns, behind it one by the next, and so on."""

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
    """The first rows of all, as many as the limit."""

    def right(before: list[Event], after: list[Event]) -> Rows:
        return [(event.user, event.amount) for event in (before + after)[len(before) : max(limit, len(before))]]

    return Query(lambda df: df.select("user", "amount").limit(limit), right, "append")


def then(first: Query, build: Callable[[DataFrame], DataFrame], right: Right = _unstated, mode: str = "") -> Query:
    """A query, and more behind it; whoever adds that says what is right."""
    return Query(lambda df: build(first.build(df)), right, mode or first.mode, first.once)


def _column(sql: str, event: Event, prepare: Mapping[str, str]) -> Any:
    return _OF[prepare.get(sql, sql)](event)
