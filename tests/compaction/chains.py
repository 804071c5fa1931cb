"""Queries with several stateful operators, their events, and compactions of their state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ttlsnap import CompactionReport, LocalEngine, compact
from ttlsnap.operators.registry import Selection
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.outcomes import Entry, expired
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Events, Judge
from ..matrix import FULL
from .stories import H, T, digest, settled
from .unseen import Case

TTL_S, DELAY_S = H, 2 * H
LIMIT = T + 8 * H
WATERMARK = T + 7 * H + 2700
# The watermark is at 7:45. The windows up to 7:00 are counted in the two wide windows that are open, 4:00 to 8:00 and
# 6:00 to 10:00. Windows from 7:00 on are still in the first operator. One key is exactly at the limit.
BATCHES: list[Events] = [
    *(
        [
            Event(key, T + hour * H + 900 * n, 10 * hour + n)
            for hour in hours
            for n, key in enumerate((f"a{hour // 2}", f"x{hour}", f"é{hour // 2}", None))
        ]
        for hours in (range(5), range(5, 8), range(8, 10))
    ),
    [Event("a4", T + 9 * H + 1860, 7), Event("timeless", None, 1)],
]
assert max(event.ts or 0 for events in BATCHES for event in events) == WATERMARK + DELAY_S
# Dropped keys get new events before and after their windows close. Then all other windows close; in the full matrix,
# hour by hour.
MORE: list[Events] = [
    [event for events in BATCHES[1:3] for event in events if event.ts is not None and event.ts >= T + 7 * H + 1800]
    + [Event("new", T + 7 * H + 2000, 5), Event("a3", T + 8 * H - 1, 6)],
    [Event("a3", T + 12 * H, 1), Event(None, T + 8 * H + 901, 9)],
    *(
        [Event("a5", T + hour * H, hour), Event(f"k{hour}", T + hour * H - 1800, 2)]
        for hour in range(13, 31, 1 if FULL else 6)
    ),
    [Event("end", T + 60 * H, 1)],
]
FIELDS = {
    "windows_of_windows": ("key.window.end", "key.window.end"),
    "dedup_windows": ("key.window.end", "key.at"),
    "dedup_within_windows": ("key.window.end", "value.expiresAtMicros"),
}


def query_of(operator: str, **settings: Any) -> Query:
    """Return a query with several operators."""
    return Query(operator, delay_s=DELAY_S, **settings)


def drop(path: Path, *, only: int | None = None, limit: int = LIMIT, **options: Any) -> CompactionReport:
    """Drop the entries up to the limit, of one operator or of all."""
    return compact(
        str(path),
        [TtlTransformerFactory(StateTtlConfig(TTL_S * 1_000_000))],
        now=stamp(limit + TTL_S),
        selection=Selection(operator=only),
        engine=LocalEngine(1),
        stopped=True,
        max_drop=1.0,
        **options,
    )


def gone_of(operator: int, query: Query) -> Callable[[Entry], bool]:
    """Return a function that selects the entries that ``drop`` drops from an operator."""
    is_expired = expired(FIELDS[query.operator][operator], LIMIT, 1_000_000)
    return lambda found: found.operator == operator and is_expired(found)


def drop_from_each_operator(judge: Judge, case: Case) -> None:
    """Drop entries of all operators, and of each one alone. Spark must then emit the rows of the model."""
    query = case.query
    layout = "both" if query.provider == "hdfs" or query.changelog else "snapshot"
    written = judge.write(query, BATCHES, layout=layout, version=case.version)
    before = settled(written.path)
    # The watermark has reached both operators, and Spark has evicted the entries behind it from both.
    nothing = compact(str(written.path), [TtlTransformerFactory()], engine=LocalEngine(1), stopped=True, max_drop=1.0)
    assert [(state.counts.dropped, state.now_us) for state in nothing.states] == [(0, WATERMARK * 1_000_000)] * 2

    more = MORE if case.long else [*MORE[:1], *MORE[-1:]]
    copies = [judge.copy(written) for _ in range(3)]
    for only, copied in zip((None, 0, 1), copies, strict=True):
        report = drop(copied.path, only=only)
        assert [state.state.operator for state in report.states] == ([0, 1] if only is None else [only])
        for state in report.states:
            gone = copied.expected.drop(gone_of(state.state.operator, query))
            assert state.counts.dropped == gone > 0
            assert state.counts.kept
            # Only the aggregation would still have emitted a row, also before Spark 4.0, which records no names.
            assert state.unclosed == (gone if state.timestamp == "key.window.end" else 0)
        new = {name for name, _ in digest(copied.path).items() ^ before.items() if name.startswith("state")}
        assert {name.split("/")[1] for name in new} == {str(state.state.operator) for state in report.states}
        if case.version >= "4.0":
            assert judge.state(copied) == copied.expected.state()
    wanted = [copied.expected.run(more, version=case.again) for copied in copies]
    assert len(set(map(str, wanted))) == len(copies), "each drop shows in what is emitted"
    # One after the other, because Spark runs a query only once at a time.
    assert [judge.restart(copied, more, version=case.again) for copied in copies] == wanted
