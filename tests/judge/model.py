"""The judge's queries in plain Python. They compute the output and the state that Spark should have.

The model follows the semantics of Spark, not its code, and shares no code with ttlsnap. A model accompanies a
checkpoint through its runs. Between two runs, ``drop`` removes entries from the state, as a compaction claims to do.
The later runs then give the expected output: kept keys continue, and dropped keys start afresh.

The model handles time as Spark does. A batch evicts by the watermark of all batches before it. It judges whether an
event is late by the watermark that the previous batch used (before Spark 3.4, by the watermark for evictions). If the
watermark has advanced since the last batch used it, the run adds one batch without data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .outcomes import Batch, Entry, Fields, canonical, entry
from .processes import NEWEST
from .queries import BATCH_A_RUN, Event, Query, stamp, unstamp


class Model:
    """The state and the watermark of one query after each batch, by default as in ``version`` of Spark."""

    def __init__(self, query: Query, version: str = NEWEST) -> None:
        self.query, self.version = query, version
        self._operator = _OPERATORS[query.operator](query)
        self._next_batch = 0
        self._watermark_ms = 0
        self._last_used_ms = 0
        self._one_watermark = version < "3.4"
        self._pending: list[Sequence[Event]] = []

    def run(self, batches: Sequence[Sequence[Event]], crash: bool = False, version: str | None = None) -> list[Batch]:
        """Return the output of a run over these batches. With ``crash``, the last batch is planned but not committed.

        If the source allows only one batch for each run, return the output of several runs.
        """
        if self.query.source in BATCH_A_RUN and len(batches) > 1:
            return [batch for events in batches for batch in self.run([events], version=version)]
        self._one_watermark = (version or self.version) < "3.4"
        todo = [*self._pending, *batches]
        self._pending = [todo.pop()] if crash else []
        done = [self._batch(events) for events in todo]
        if done and not crash and self._operator.watermarked and self._watermark_ms > self._last_used_ms:
            done.append(self._batch([]))
        return done

    def run_once(self, events: Sequence[Event]) -> list[Batch]:
        """Return the output of a run with the trigger Once: one batch, which is the planned one if there is one."""
        return [self._batch(self._pending.pop() if self._pending else events)]

    def _batch(self, events: Sequence[Event]) -> Batch:
        late_ms, self._last_used_ms = self._last_used_ms, self._watermark_ms
        if self._one_watermark:
            late_ms = self._watermark_ms
        rows = self._operator.batch(events, late_ms, self._last_used_ms)
        if self._operator.watermarked:
            moments = [event.ts for event in events if event.ts is not None]
            latest_ms = max(moments, default=0) * 1000 - self.query.delay_s * 1000
            self._watermark_ms = max(self._watermark_ms, latest_ms)
        batch = Batch(self._next_batch, canonical(rows))
        self._next_batch += 1
        return batch

    def plan_empty(self) -> None:
        """Make the next run begin with a planned batch without data."""
        self._pending = [[]]

    @property
    def is_pending(self) -> bool:
        """Return whether a planned batch is not committed."""
        return bool(self._pending)

    def state(self) -> list[Entry]:
        """Return the entries of the last committed batch's state, sorted."""
        return self._operator.state()

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        """Remove entries from the state. Return their number."""
        return self._operator.drop(unwanted)


class _Operator:
    """An operator that groups by key. ``groups`` is its whole state."""

    watermarked = False

    def __init__(self, query: Query) -> None:
        self.query = query
        self.groups: dict[Any, Any] = {}

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        raise NotImplementedError

    def entry(self, key: Any) -> Entry:
        raise NotImplementedError

    def state(self) -> list[Entry]:
        return sorted(self.entry(key) for key in self.groups)

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        gone = [key for key in self.groups if unwanted(self.entry(key))]
        for key in gone:
            del self.groups[key]
        return len(gone)


class _Aggregation(_Operator):
    """An aggregation that keeps (latest time, count, sum) for each key."""

    as_number = False

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        for event in events:
            latest, count, total = self.groups.get(event.key, (None, 0, 0))
            if event.ts is not None:
                latest = event.ts if latest is None else max(latest, event.ts)
            self.groups[event.key] = latest, count + 1, total + event.value
        touched = {event.key for event in events}
        return [self._row(key, ("last_seen", "n", "total")) for key in touched]

    def _row(self, key: str | None, names: tuple[str, str, str]) -> Fields:
        latest, count, total = self.groups[key]
        moment = latest if latest is None or self.as_number else stamp(latest)
        return {"key": key, names[0]: moment, names[1]: count, names[2]: total}

    def entry(self, key: Any) -> Entry:
        value = self._row(key, ("max", "count", "sum"))
        if self.query.aggregation_format == 2:
            del value["key"]
        return entry(0, "default", {"key": key}, value)


class _CompleteAggregation(_Aggregation):
    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        super().batch(events, late_ms, evict_ms)
        return [self._row(key, ("last_seen", "n", "total")) for key in self.groups]


class _NumberAggregation(_Aggregation):
    as_number = True


class _WatermarkedAggregation(_Aggregation):
    watermarked = True


class _Windows(_Operator):
    """An aggregation that keeps (count, sum) for each window start and key."""

    watermarked = True
    append = False
    overlap = 1

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        touched = set()
        for event in events:
            if event.ts is None:
                continue
            slide = self.query.window_s // self.overlap
            last = event.ts - event.ts % slide
            for key in [(last - number * slide, event.key) for number in range(self.overlap)]:
                if self._end_ms(key) <= late_ms:
                    continue
                count, total = self.groups.get(key, (0, 0))
                self.groups[key] = count + 1, total + event.value
                touched.add(key)
        closed = [key for key in self.groups if self._end_ms(key) <= evict_ms]
        rows = [self._row(key) for key in (closed if self.append else touched)]
        for key in closed:
            del self.groups[key]
        return rows

    def _end_ms(self, key: tuple[int, str | None]) -> int:
        return (key[0] + self.query.window_s) * 1000

    def _window(self, start: int) -> Fields:
        return {"start": stamp(start), "end": stamp(start + self.query.window_s)}

    def _row(self, key: tuple[int, str | None]) -> Fields:
        count, total = self.groups[key]
        return {"window": self._window(key[0]), "key": key[1], "n": count, "total": total}

    def entry(self, key: Any) -> Entry:
        count, total = self.groups[key]
        columns = {"window": self._window(key[0]), "key": key[1]}
        value = {"count": count, "sum": total}
        if self.query.aggregation_format == 1:
            value = {**columns, **value}
        return entry(0, "default", columns, value)


class _WindowsAppended(_Windows):
    append = True


class _WideWindowsAppended(_WindowsAppended):
    overlap = 2

    def __init__(self, query: Query) -> None:
        super().__init__(replace(query, window_s=4 * query.window_s))


class _Deduplication(_Operator):
    """A deduplication that remembers each pair of key and time."""

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        rows = []
        for event in events:
            if self.watermarked and event.ts is not None and event.ts * 1000 <= late_ms:
                continue
            key = self._key(event)
            if key not in self.groups:
                self.groups[key] = self._value(event)
                moment = None if event.ts is None else stamp(event.ts)
                rows.append({"key": event.key, "at": moment, "value": event.value})
        if self.watermarked:
            for key in [key for key in self.groups if self._is_over(key, evict_ms)]:
                del self.groups[key]
        return rows

    def _key(self, event: Event) -> Any:
        return event.key, event.ts

    def _value(self, event: Event) -> Any:
        return None

    def _is_over(self, key: Any, evict_ms: int) -> bool:
        return key[1] is not None and key[1] * 1000 <= evict_ms

    def entry(self, key: Any) -> Entry:
        moment = None if key[1] is None else stamp(key[1])
        return entry(0, "default", {"key": key[0], "at": moment}, {"__dummy__": None})


class _WatermarkedDeduplication(_Deduplication):
    watermarked = True


class _KeyDeduplication(_Deduplication):
    def _key(self, event: Event) -> Any:
        return event.key

    def entry(self, key: Any) -> Entry:
        return entry(0, "default", {"key": key}, {"__dummy__": None})


class _DeduplicationWithin(_KeyDeduplication):
    """A deduplication that keeps, for each key, the time in microseconds until which it rejects duplicates."""

    watermarked = True

    def _value(self, event: Event) -> Any:
        return ((event.ts or 0) + self.query.delay_s) * 1_000_000

    def _is_over(self, key: Any, evict_ms: int) -> bool:
        return bool(self.groups[key] <= evict_ms * 1000)

    def entry(self, key: Any) -> Entry:
        return entry(0, "default", {"key": key}, {"expiresAtMicros": self.groups[key]})


class _Visits(_Operator):
    """For each key, the value variable (latest time, count) and the list of all numbers.

    The value variable is None once it was dropped.
    """

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        for event in events:
            last, numbers = self.groups.get(event.key, (None, ()))
            seen, count = last or (0, 0)
            self.groups[event.key] = (max(seen, event.ts or 0), count + 1), (*numbers, event.value)
        rows = []
        for key in {event.key for event in events}:
            (seen, count), numbers = self.groups[key]
            rows.append({"key": key, "seen": seen, "n": count, "numbers": ",".join(map(str, numbers))})
        return rows

    def state(self) -> list[Entry]:
        """Return the entries of the value variable, without the list."""
        return sorted(self._last(key, last) for key, (last, _) in self.groups.items() if last is not None)

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        """Drop entries of the value variable, and keep the list."""
        gone = [key for key, (last, _) in self.groups.items() if last is not None and unwanted(self._last(key, last))]
        for key in gone:
            self.groups[key] = None, self.groups[key][1]
        return len(gone)

    def _last(self, key: Any, last: tuple[int, int]) -> Entry:
        return entry(0, "default", {"key": key}, {"seen": last[0], "n": last[1]})


class _ForADay(_Operator):
    """For each key, the value and the two maps. Each element with a TTL also has the last batch that wrote it."""

    number = -1

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        self.number += 1
        for event in events:
            last, digits, always = self.groups.setdefault(event.key, [None, {}, {}])
            seen, n, _ = last or (0, 0, 0)
            self.groups[event.key][0] = max(seen, event.ts or 0), n + 1, self.number
            digit = str(event.value)[-1]
            digits[digit] = digits.get(digit, (0, 0))[0] + 1, self.number
            always[digit] = always.get(digit, 0) + 1
        rows = []
        for key in {event.key for event in events}:
            (seen, n, _), digits, always = self.groups[key]
            told = ",".join(sorted(f"{digit}:{count}" for digit, (count, _) in digits.items()))
            plain = ",".join(sorted(f"{digit}:{count}" for digit, count in always.items()))
            rows.append({"key": key, "seen": seen, "n": n, "digits": told, "always": plain})
        return rows

    def state(self) -> list[Entry]:
        """Return every element that has a TTL, with the last batch that wrote it."""
        found = []
        for key, (last, digits, _) in self.groups.items():
            if last is not None:
                found.append(entry(0, "last", {"key": key}, {"batch": last[2]}))
            for digit, (_, batch) in digits.items():
                found.append(entry(0, "digits", {"key": key, "digit": digit}, {"batch": batch}))
        return sorted(found)

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        gone = [found for found in self.state() if unwanted(found)]
        for found in gone:
            group = self.groups[found.at("key.key")]
            if found.store == "last":
                group[0] = None
            else:
                del group[1][found.at("key.digit")]
        return len(gone)


class _Lists(_Operator):
    """For each key, both lists: one of (number, batch), one of (number, time)."""

    number = -1

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        self.number += 1
        for event in events:
            recent, past = self.groups.setdefault(event.key, ([], []))
            recent.append((event.value, self.number))
            past.append((event.value, event.ts))
        rows = []
        for key in {event.key for event in events}:
            recent, past = (",".join(str(number) for number, _ in found) for found in self.groups[key])
            rows.append({"key": key, "recent": recent, "all": past})
        return rows

    def state(self) -> list[Entry]:
        """Return every element of both lists."""
        found = []
        for key, (recent, past) in self.groups.items():
            found += [entry(0, "recent", {"key": key}, {"number": n, "batch": batch}) for n, batch in recent]
            found += [entry(0, "all", {"key": key}, {"number": n, "seen": seen}) for n, seen in past]
        return sorted(found)

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        gone = [found for found in self.state() if unwanted(found)]
        for found in gone:
            recent, past = self.groups[found.at("key.key")]
            if found.store == "recent":
                recent.remove((found.at("value.number"), found.at("value.batch")))
            else:
                past.remove((found.at("value.number"), found.at("value.seen")))
        return len(gone)


class _Chain(_Operator):
    """Two operators: operator 0 gets the output of operator 1 in the same batch, with the same watermark.

    Spark numbers operators from the sink on.
    """

    watermarked = True
    first: type[_Operator]
    second: type[_Operator]

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._first, self._second = self.first(query), self.second(query)

    def batch(self, events: Sequence[Event], late_ms: int, evict_ms: int) -> list[Fields]:
        rows = self._first.batch(events, late_ms, evict_ms)
        return self._second.batch([self._handed_on(row) for row in rows], late_ms, evict_ms)

    def _handed_on(self, row: Fields) -> Event:
        if "window" in row:  # the time of a window is the last second in it
            return Event(row["key"], unstamp(row["window"]["end"]) - 1, row["total"])
        return Event(row["key"], None if row["at"] is None else unstamp(row["at"]), row["value"])

    def state(self) -> list[Entry]:
        return sorted([*self._second.state(), *map(_of_operator_1, self._first.state())])

    def drop(self, unwanted: Callable[[Entry], bool]) -> int:
        return self._second.drop(unwanted) + self._first.drop(lambda found: unwanted(_of_operator_1(found)))


def _of_operator_1(found: Entry) -> Entry:
    return replace(found, operator=1)


class _WindowsOfWindows(_Chain):
    first, second = _WindowsAppended, _WideWindowsAppended


class _DeduplicationWindows(_Chain):
    first, second = _WatermarkedDeduplication, _WindowsAppended


class _DeduplicationWithinWindows(_Chain):
    first, second = _DeduplicationWithin, _WindowsAppended


_OPERATORS: dict[str, type[_Operator]] = {
    "visits": _Visits,
    **dict.fromkeys(("for_a_day", "for_a_day_rows", "for_a_day_scala"), _ForADay),
    "lists": _Lists,
    "agg_update": _Aggregation,
    "agg_all": _CompleteAggregation,
    "agg_update_watermark": _WatermarkedAggregation,
    "agg_update_long": _NumberAggregation,
    "agg_append": _WindowsAppended,
    "agg_window_update": _Windows,
    "dedup": _WatermarkedDeduplication,
    "dedup_plain": _Deduplication,
    "dedup_key": _KeyDeduplication,
    "dedup_within": _DeduplicationWithin,
    "windows_of_windows": _WindowsOfWindows,
    "dedup_windows": _DeduplicationWindows,
    "dedup_within_windows": _DeduplicationWithinWindows,
    "agg_slow": _Aggregation,
}
MODELLED = tuple(_OPERATORS)
