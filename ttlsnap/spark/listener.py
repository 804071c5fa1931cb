"""A listener that measures the state of streaming queries, and warns when it grows.

Spark reports the size of the state of each operator after each batch. The listener writes it as gauges for Prometheus,
and compares it with limits. An error in the listener is logged, and never reaches the query. Its memory is bounded by
the number of stateful operators in the latest 100 queries.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pyspark.sql.streaming import StreamingQueryListener

from ttlsnap.amounts import number, quantity, size
from ttlsnap.checkpoint.recognize import find_owner
from ttlsnap.errors import USERS_ERRORS, UsageError
from ttlsnap.gauges import gauge, join_gauges
from ttlsnap.printable import printable
from ttlsnap.schema.units import format_duration, parse_growth, parse_size
from ttlsnap.whole_files import write_whole

_log = logging.getLogger("ttlsnap.spark")
_MOST_QUERIES = 100
_POINTS = 24  # in the period of the limit on growth
_BACK = 0.9  # of a limit: below it, the next crossing counts again
_SIZES = ("rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes")
"""The metrics of Spark's two state stores that are the size of the current state."""

Limit = Literal["max_size", "max_rows", "max_growth"]


@dataclass(frozen=True, kw_only=True)
class StateWarning:
    """The state of an operator exceeds a limit. ``str`` returns the message.

    ``query`` is the name of the query, or its id if it has no name. ``value`` is in bytes for ``max_size`` and in rows
    for ``max_rows``. For ``max_growth`` it is the growth in the time that the limit names, where 0.2 is 20 %.
    """

    query: str
    query_id: str
    operator: int
    operator_name: str
    batch: int
    limit: Limit
    value: float
    message: str

    def __str__(self) -> str:
        return self.message


OnWarning = Callable[[StateWarning], object]


@dataclass
class _State:
    """The state of one operator. ``points`` are earlier numbers of rows, with their times, for the growth.

    ``warned`` has the amount that the state had at the latest warning about a limit.
    """

    name: str
    rows: int | None = None
    bytes: int = 0
    memory: int = 0
    removed: int = 0
    late: int = 0
    others: dict[str, int] = field(default_factory=dict)
    points: deque[tuple[float, int]] = field(default_factory=deque)
    warned: dict[Limit, float] = field(default_factory=dict)

    def update(self, progress: Any, is_new_batch: bool) -> None:
        """Take the numbers of a batch. A negative number is one that Spark does not know."""
        metrics = {name: int(value) for name, value in (progress.customMetrics or {}).items()}
        self.rows = progress.numRowsTotal if progress.numRowsTotal >= 0 else None
        self.memory = progress.memoryUsedBytes
        self.bytes = next((metrics[name] for name in _SIZES if name in metrics), self.memory)
        self.others = {name: value for name, value in metrics.items() if value >= 0}
        if is_new_batch:
            self.removed += max(progress.numRowsRemoved, 0)
            self.late += max(progress.numRowsDroppedByWatermark, 0)

    def growth(self, time_s: float, period_s: float) -> float | None:
        """Return by which share the amount has grown in each period, or None before a period has passed."""
        amount = self.bytes if self.rows is None else self.rows
        points = self.points
        if points and time_s < points[-1][0]:
            points.clear()  # the clock was set back
        while len(points) > 1 and points[1][0] <= time_s - period_s:
            points.popleft()
        if not points or time_s - points[-1][0] >= period_s / _POINTS:
            points.append((time_s, amount))
        then_s, then = points[0]
        elapsed = time_s - then_s
        return (amount / then - 1) * period_s / elapsed if elapsed >= period_s and then > 0 else None


_GAUGES: tuple[tuple[str, str, Callable[[_State], int | None]], ...] = (
    ("rows", "Rows in the state of an operator.", lambda state: state.rows),
    ("bytes", "Bytes of the state of an operator.", lambda state: state.bytes),
    ("memory_bytes", "Memory that the state of an operator uses.", lambda state: state.memory),
    (
        "removed_rows",
        "Rows that an operator has removed from its state since the listener was added.",
        lambda state: state.removed,
    ),
    (
        "late_rows",
        "Input rows that an operator has ignored since the listener was added, because they were too late.",
        lambda state: state.late,
    ),
)


@dataclass
class _Query:
    label: str
    batch: int = -1
    time_s: float = 0
    states: list[_State] = field(default_factory=list)


class StateListener(StreamingQueryListener):  # type: ignore[misc, unused-ignore]  # PySpark has no types for mypy
    """A listener that writes the sizes of the state of all queries of a session, and warns when a limit is exceeded.

    ``metrics`` is a local file for node exporter's textfile collector. ``max_size`` is a size of the state of one
    operator, such as ``"10GB"``, ``max_rows`` its number of rows, and ``max_growth`` its growth in a time, such as
    ``"20%/d"``. A warning is logged by the logger ``ttlsnap.spark``, and ``on_warning`` is called with it. There is one
    warning when a limit is crossed, and another each time that the state has doubled since.

    Raise UsageError for a limit that is not one, and for a folder of ``metrics`` that does not exist.
    """

    def __init__(
        self,
        *,
        metrics: str | Path | None = None,
        max_size: str | int | None = None,
        max_rows: int | None = None,
        max_growth: str | None = None,
        on_warning: OnWarning | None = None,
    ) -> None:
        limits = {"max_size": max_size, "max_rows": max_rows, "max_growth": max_growth}
        if all(limit is None for limit in limits.values()):
            if on_warning is not None:
                raise UsageError("on_warning is never called without a limit; pass max_size, max_rows or max_growth")
            if metrics is None:
                raise UsageError("a StateListener needs metrics, max_size, max_rows or max_growth; it has none of them")
        if max_rows is not None and (type(max_rows) is not int or max_rows < 1):
            raise UsageError(f"max_rows is {max_rows!r}; it must be a number from 1 on")
        if on_warning is not None and not callable(on_warning):
            raise UsageError(f"on_warning is {on_warning!r:.100}; it must be a function of a StateWarning")
        self._max_size = None if max_size is None else parse_size(str(max_size))
        self._max_rows = max_rows
        self._max_growth = None if max_growth is None else parse_growth(str(max_growth))
        self._on_warning = on_warning
        self._metrics = None if metrics is None else _require_file(metrics)
        self._queries: dict[str, _Query] = {}
        self._last_errors: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:
        """See ``StreamingQueryListener``."""

    def onQueryProgress(self, event: Any) -> None:
        """See ``StreamingQueryListener``."""
        errors: list[BaseException]
        try:
            errors = list(self._process(event.progress))
        except Exception as error:
            errors = [error]
        descriptions = [_describe(error) for error in errors]
        for words, traceback in descriptions:
            if words not in self._last_errors:  # a full disk would be reported after each batch
                _log.error("StateListener: %s. The query is not affected", printable(words), exc_info=traceback)
        self._last_errors = {words for words, _ in descriptions}

    def onQueryTerminated(self, event: Any) -> None:
        """See ``StreamingQueryListener``. The numbers stay: the state is still there."""

    def _process(self, progress: Any) -> Iterator[BaseException]:
        """Take the numbers of a batch, warn and write. Yield errors of the callback and of the file."""
        if not progress.stateOperators:
            return
        query_id = str(progress.id)
        query = self._queries.pop(query_id, None) or _Query("")
        self._queries[query_id] = query  # the latest one is last
        if len(self._queries) > _MOST_QUERIES:
            del self._queries[next(iter(self._queries))]
        query.label = progress.name or query_id
        query.time_s = datetime.fromisoformat(progress.timestamp).timestamp()
        names = [operator.operatorName for operator in progress.stateOperators]
        if names != [state.name for state in query.states]:
            query.states = [_State(name) for name in names]
        is_new_batch, query.batch = progress.batchId > query.batch, progress.batchId
        for place, operator in enumerate(progress.stateOperators):
            state = query.states[place]
            state.update(operator, is_new_batch)
            for limit, value, words in self._exceeded(state, query.time_s):
                warning = _warning(query, query_id, place, limit, value, words)
                _log.warning("%s", warning.message)
                if self._on_warning is not None:
                    try:
                        self._on_warning(warning)
                    except USERS_ERRORS as error:
                        yield error
        if self._metrics is not None:
            try:
                write_whole(self._metrics, join_gauges(self._lines()).encode())
            except Exception as error:
                yield error

    def _exceeded(self, state: _State, time_s: float) -> Iterator[tuple[Limit, float, str]]:
        """Yield each limit that the state has crossed, or that needs another warning, with the value and words."""
        if self._max_size is not None and _needs_warning(state, "max_size", state.bytes, self._max_size, state.bytes):
            yield "max_size", state.bytes, f"has {size(state.bytes)}; max_size is {size(self._max_size)}"
        rows = state.rows
        if (
            (most_rows := self._max_rows) is not None
            and rows is not None
            and _needs_warning(state, "max_rows", rows, most_rows, rows)
        ):
            yield "max_rows", rows, f"has {quantity(rows, 'row')}; max_rows is {number(most_rows)}"
        if self._max_growth is not None:
            most, period_us = self._max_growth
            growth = state.growth(time_s, period_us / 1e6)
            amount, amount_words = (
                (state.bytes, size(state.bytes)) if rows is None else (rows, f"{quantity(rows, 'row')}")
            )
            if growth is not None and _needs_warning(state, "max_growth", growth, most, amount):
                period = format_duration(period_us)
                yield (
                    "max_growth",
                    growth,
                    f"grew by {growth:.0%} in {period}, to {amount_words}; max_growth is {most:.0%}/{period}",
                )

    def _lines(self) -> Iterator[str]:
        # If an earlier query had the same name, the latest one counts: a sample may occur only once.
        queries = list({query.label: query for query in list(self._queries.values())}.values())
        states = [
            ({"query": query.label, "operator": str(operator), "operator_name": state.name}, state)
            for query in queries
            for operator, state in enumerate(query.states)
        ]
        yield from gauge(
            "query_batch_timestamp_seconds",
            "When the latest batch of a query began.",
            [({"query": query.label}, query.time_s) for query in queries],
        )
        for name, help_text, measure in _GAUGES:
            yield from gauge(f"query_state_{name}", help_text, [(labels, measure(state)) for labels, state in states])
        yield from gauge(
            "query_state_metric",
            "A metric of the state store, by the name that Spark gives it.",
            [({**labels, "metric": name}, value) for labels, state in states for name, value in state.others.items()],
        )


def _require_file(metrics: str | Path) -> Path:
    """Return the file for the metrics. Raise UsageError if it cannot be one, or is in a checkpoint or a table."""
    path = Path(metrics).absolute()
    if not path.parent.is_dir():
        raise UsageError(f"metrics: {path.parent} is not a folder on this machine; create it first")
    if str(metrics) == "" or (path.exists() and not path.is_file()):
        raise UsageError(f"metrics: {str(metrics)!r} is not a file, and cannot be replaced by one")
    if (owner := find_owner(path)) is not None:
        raise UsageError(f"metrics: {path} is inside {owner}, whose files ttlsnap must not mix with others")
    return path


def _describe(error: BaseException) -> tuple[str, BaseException | None]:
    """Return the kind and the text of an error, whatever its own methods do, and the error if it has a text.

    Formatters, such as that of PySpark, take the text of an error again.
    """
    try:
        return f"{type(error).__name__}: {error}", error
    except Exception:
        return type(error).__name__, None


def _needs_warning(state: _State, limit: Limit, value: float, most: float, amount: float) -> bool:
    """Return whether ``value`` has just exceeded its limit, or the state has doubled since the latest warning."""
    if value <= most:
        if value < most * _BACK:
            state.warned.pop(limit, None)
        return False
    if limit in state.warned and amount < 2 * state.warned[limit]:
        return False
    state.warned[limit] = amount
    return True


def _warning(query: _Query, query_id: str, operator: int, limit: Limit, value: float, words: str) -> StateWarning:
    name = query.states[operator].name
    message = printable(
        f"query {query.label}: the state of operator {operator} ({name}) {words}, after batch {query.batch}. "
        f"To see what uses the space: ttlsnap inspect CHECKPOINT --sizes --operator {operator}"
    )
    return StateWarning(
        query=query.label,
        query_id=query_id,
        operator=operator,
        operator_name=name,
        batch=query.batch,
        limit=limit,
        value=value,
        message=message,
    )
