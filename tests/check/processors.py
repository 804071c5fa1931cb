"""Queries whose state is kept by Python code: transformWithState (row by row, from 4.1 on) and applyInPandasWithState.

The state that the code keeps is given as data, so that a change is only a change of that data. All code that runs on a
worker is defined within a factory: a worker gets it by value and cannot import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .queries import Event, Query, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

# Other types are held as numbers.
_HELD_AS = {
    "string": "string",
    "double": "double",
    "float": "double",
    "array<int>": "array",
    "array<bigint>": "array",
}
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Field:
    """A field of the state that sums up a column, or counts (``n``). A ``fresh`` field begins empty at the restart."""

    name: str
    of: str = "amount"
    type: str = "bigint"
    fresh: bool = False

    def step(self, event: Event) -> int:
        """Return the number that an event adds to the field."""
        return 1 if self.of == "n" else int(getattr(event, self.of))


@dataclass(frozen=True)
class Variable:
    """A state variable: a ``value`` of fields, a ``list`` of amounts, or a ``map`` from ``key`` to the amounts' sum.

    ``ttl`` is in milliseconds. A ``fresh`` variable begins empty at the restart.
    """

    name: str
    kind: str = "value"
    fields: Sequence[Field] = (Field("total"), Field("n", "n"))
    ttl: int | None = None
    fresh: bool = False
    key: str = "other"

    def told(self, before: list[Event], after: list[Event]) -> str:
        """Return the content of the variable after these events, as text."""
        events = after if self.fresh else before + after
        if self.kind == "list":
            return ",".join(str(event.amount) for event in events)
        if self.kind == "map":
            sums: dict[str, int] = {}
            for event in events:
                key = str(getattr(event, self.key))
                sums[key] = sums.get(key, 0) + event.amount
            return ",".join(f"{key}:{total}" for key, total in sorted(sums.items()))
        return ",".join(
            str(sum(field.step(event) for event in (after if field.fresh else events))) for field in self.fields
        )


def _steps(fields: Sequence[Field]) -> list[tuple[str, str]]:
    """Return for each field the column that it sums up and its kind in Python."""
    return [(field.of, _HELD_AS.get(field.type, "number")) for field in fields]


def transform(
    *variables: Variable,
    keys: Sequence[str] = ("user",),
    time_mode: str | None = None,
    timer: int | None = None,
    delay: int | None = None,
    mode: str = "Update",
    name: str = "Keeps",
    factor: int = 1,
    prepare: dict[str, str] | None = None,
) -> Query:
    """Return a transformWithState query that emits the content of each variable, in a row per key and batch.

    A ``timer`` in event time fires so many minutes after each event and emits a row with ``over``. ``factor`` stands
    for the body of the code: the first field of a value is multiplied by it in the output.
    """
    # As in real code, only ``init`` knows the schemas of the variables, and only the rest knows how to use them.
    declared = [(v.name, v.kind, [(f.name, f.type) for f in v.fields], v.ttl) for v in variables]
    order = sorted(range(len(variables)), key=lambda place: variables[place].name)
    kept = [(variables[place].kind, _steps(variables[place].fields), variables[place].key) for place in order]
    ttl = any(variable.ttl is not None for variable in variables)
    times = time_mode or ("ProcessingTime" if ttl else "EventTime" if timer is not None else "None")

    def build(df: DataFrame) -> DataFrame:
        casts: dict[str, Any] = {"string": str, "double": float, "number": int, "array": lambda number: [number]}

        def number_of(value: Any) -> int:
            return int((value[0] if isinstance(value, list) else value) or 0)

        from pyspark.sql import Row
        from pyspark.sql import functions as F
        from pyspark.sql.streaming import StatefulProcessor

        class Keeps(StatefulProcessor):  # type: ignore[misc]
            def init(self, handle: Any) -> None:
                self.handle = handle
                states = []
                for name, kind, fields, ttl in declared:
                    rest = [] if ttl is None else [ttl]
                    schema = ", ".join(f"{field} {type_}" for field, type_ in fields)
                    if kind == "list":
                        state = handle.getListState(name, schema, *rest)
                    elif kind == "map":
                        state = handle.getMapState(name, "key string", schema, *rest)
                    else:
                        state = handle.getValueState(name, schema, *rest)
                    states.append(state)
                self.states = [states[place] for place in order]

            def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
                for row in rows:
                    for (kind, fields, column), state in zip(kept, self.states, strict=True):
                        cast = casts[fields[0][1]]
                        if kind == "list":
                            state.appendValue((cast(row["amount"]),))
                        elif kind == "map":
                            mine = (str(row[column]),)
                            old = state.getValue(mine)[0] if state.containsKey(mine) else 0
                            state.updateValue(mine, (cast(int(old or 0) + row["amount"]),))
                        else:
                            old = state.get() if state.exists() else [0] * len(fields)
                            new = []
                            for (of, type_), value in zip(fields, old, strict=True):
                                step = 1 if of == "n" else row[of]
                                new.append(casts[type_](number_of(value) + step))
                            state.update(tuple(new))
                    if timer is not None:
                        for old_timer in list(self.handle.listTimers()):
                            self.handle.deleteTimer(old_timer)
                        self.handle.registerTimer(int(row["ts"].timestamp()) * 1000 + timer * 60000)
                yield self._row(key, "seen")

            def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
                yield self._row(key, "over")

            def _row(self, key: Any, what: str) -> Any:
                told = []
                for (kind, fields, _), state in zip(kept, self.states, strict=True):
                    if kind == "list":
                        told.append(",".join(str(int(each[0])) for each in state.get()))
                    elif kind == "map":
                        entries = sorted((each[0], int(value[0])) for each, value in state.iterator())
                        told.append(",".join(f"{each}:{value}" for each, value in entries))
                    else:
                        values = state.get() if state.exists() else [0] * len(fields)
                        numbers = [number_of(value) for value in values]
                        told.append(",".join(str(number) for number in [numbers[0] * factor, *numbers[1:]]))
                return Row(key=",".join(str(part) for part in key), what=what, told=" ".join(told))

            def close(self) -> None:
                pass

        if timer is None:
            del Keeps.handleExpiredTimer
        Keeps.__name__ = name
        for column, sql in (prepare or {}).items():
            df = df.withColumn(column, F.expr(sql))
        if delay is not None:
            df = df.withWatermark("ts", f"{delay} minutes")
        schema = "key string, what string, told string"
        return df.groupBy(*keys).transformWithState(Keeps(), schema, mode, times)

    def right(before: list[Event], after: list[Event]) -> Rows:
        def key_of(event: Event) -> str:
            return ",".join(str(getattr(event, (prepare or {}).get(name, name))) for name in keys)

        def row(key: str, what: str) -> tuple[str, str, str]:
            mine = [[event for event in events if key_of(event) == key] for events in (before, after)]
            told = [variable.told(*mine) for variable in variables]
            for place, variable in enumerate(variables):
                if variable.kind == "value":
                    first, *rest = told[place].split(",")
                    told[place] = ",".join([str(int(first) * factor), *rest])
            return key, what, " ".join(told[place] for place in order)

        rows: Rows = [row(key, "seen") for key in {key_of(event) for event in after}]
        if timer is not None:
            watermark = max(event.minute for event in after) - (delay or 0)
            for key in {key_of(event) for event in before + after}:
                # Each event moves the key's timer; before the restart none has fired yet.
                last = [event for event in before + after if key_of(event) == key][-1]
                if last.minute + timer <= watermark:
                    rows.append(row(key, "over"))
        return rows

    return Query(build, right, mode.lower(), once=times == "ProcessingTime")


def pandas(
    *fields: Field,
    keys: Sequence[str] = ("user",),
    timeout: str = "NoTimeout",
    minutes: int = 60,
    delay: int | None = None,
    factor: int = 1,
    name: str = "step",
) -> Query:
    """Return an applyInPandasWithState query that emits a row per key and batch, and one at a timeout in event time.

    The timeout comes so many ``minutes`` after the last event, and removes the fields. ``factor`` represents the body
    of the code, as in ``transform``.
    """
    kept = _steps(fields)

    def build(df: DataFrame) -> DataFrame:
        def step(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
            import pandas as pd

            old = list(state.get) if state.exists else [0] * len(kept)
            what = "over" if state.hasTimedOut else "seen"
            if state.hasTimedOut:
                numbers = [int(value or 0) for value in old]
                state.remove()
            else:
                numbers = [int(value or 0) for value in old]
                last = 0
                for frame in frames:
                    last = max(last, *(int(moment.timestamp()) for moment in frame["ts"]))
                    for place, (of, _) in enumerate(kept):
                        numbers[place] += len(frame) if of == "n" else int(frame[of].sum())
                casts = {"string": str, "double": float, "number": int}
                state.update(tuple(casts[kept[i][1]](number) for i, number in enumerate(numbers)))
                if timeout == "EventTimeTimeout":
                    state.setTimeoutTimestamp(max(last * 1000 + minutes * 60000, state.getCurrentWatermarkMs() + 1))
                if timeout == "ProcessingTimeTimeout":
                    state.setTimeoutDuration(minutes * 60000)
            told = ",".join(str(number) for number in [numbers[0] * factor, *numbers[1:]])
            yield pd.DataFrame({"key": [",".join(str(part) for part in key)], "what": [what], "told": [told]})

        step.__name__ = name
        if delay is not None:
            df = df.withWatermark("ts", f"{delay} minutes")
        state = ", ".join(f"{field.name} {field.type}" for field in fields)
        schema = "key string, what string, told string"
        return df.groupBy(*keys).applyInPandasWithState(step, schema, state, "update", timeout)

    def right(before: list[Event], after: list[Event]) -> Rows:
        rows: Rows = []
        watermark = max(event.minute for event in after) - (delay or 0)

        def key_of(event: Event) -> str:
            return ",".join(str(getattr(event, name)) for name in keys)

        for key in {key_of(event) for event in before + after}:
            mine = [[event for event in events if key_of(event) == key] for events in (before, after)]
            first, *rest = Variable("", fields=fields).told(*mine).split(",")
            told = ",".join([str(int(first) * factor), *rest])
            if mine[1]:
                rows.append((key, "seen", told))
            if timeout == "EventTimeTimeout" and [*mine[0], *mine[1]][-1].minute + minutes <= watermark:
                rows.append((key, "over", told))
        return rows

    return Query(build, right, "update", once=timeout == "ProcessingTimeTimeout")
