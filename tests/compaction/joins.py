"""Stream-stream joins: their events, their queries, and a compaction of their state.

No dropped row is near enough in time to match a kept row. So the compacted state is exactly the state of a query that
never saw the dropped rows. Sessions, groups and timers use the same events.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ttlsnap import CompactionReport, LocalEngine, compact, open_checkpoint
from ttlsnap.storage.open import open_directory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.processes import NEWEST
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Events, Judge
from .stories import H, T
from .unseen import Case, goes_on

LIMIT = T + 2 * H
KEYS = "abcdef"
TYPES = ("inner", "left_outer", "right_outer", "full_outer", "left_semi")
STORES: list[dict[str, Any]] = [
    {"provider": "hdfs"},
    *(
        {"provider": "rocksdb", "changelog": changelog, "join_format": n}
        for changelog in (False, True)
        for n in (2, 3, 4)
    ),
]
# Some keys lose all rows, some the first ones, some those in the middle, and some none.
BATCHES: list[Events] = [
    [Event(key, T + i * 300, i) for key in KEYS for i in range(1, 6)]
    + [
        Event("lonely", T, 1),
        Event("gone", T, 1),
        Event("gone", T, 2),
        *(Event("twin", T + 3 * H, value) for value in (1, 2, 3, 4, 13)),
        *(Event("twice", T, value) for value in (1, 2, 3)),
        Event("a", T + 4 * H, 1),
        Event("b", T + 4 * H, 2),
    ],
    [Event(key, T + 4 * H + i * 200, i) for key in "cde\u00e9" for i in range(1, 4)] + [Event("a", T + 900, 8)],
    [Event(key, T + 600, 3) for key in "ce"]
    + [Event(key, T + 4 * H + i * 700, i) for key in "acg" for i in range(3, 7)]
    + [Event("alone", T + 4 * H, 7), Event("alone", T + 4 * H + 1, 9)],
]
# New rows for kept and dropped keys, some of them late, with an hour more in each batch.
MORE: list[Events] = [
    [
        Event(key, T + 4 * H + hour * 60 + n, hour + n)
        for n, key in enumerate((*KEYS, "gone", "g", "\u00e9", "twin", "twice"))
        if hour < 8
    ]
    + [Event(key, T + 5 * H + hour * H + i, hour + i) for key in "axyz" for i in range(2)]
    for hour in range(22)
]


def joined(**settings: object) -> Query:
    """Return a join of the odd values with the even values, with other settings."""
    query = Query("join_parities", delay_s=10 * H, window_s=1800)
    return replace(query, **settings)  # type: ignore[arg-type]


def drop(path: Path, **options: Any) -> CompactionReport:
    """Drop the rows up to the limit."""
    return compact(
        str(path),
        [TtlTransformerFactory(StateTtlConfig(H * 1_000_000))],
        now=stamp(LIMIT + H),
        engine=LocalEngine(1),
        stopped=True,
        max_drop=1.0,
        drop_unmatched=True,
        **options,
    )


def is_expired(event: Event) -> bool:
    """Return whether a compaction drops the row of an event."""
    return event.ts is not None and event.ts <= LIMIT


def matches(left: Event, others: Events) -> bool:
    """Return whether an event of the left side, which has the odd values, matches one of the others."""
    fits = [event.ts for event in others if event.value % 2 == 0 and event.key == left.key]
    return any(left.ts is not None and ts is not None and abs(ts - left.ts) <= 1800 for ts in fits)


def came() -> list[tuple[Event, Events]]:
    """Return each event with the events of earlier batches."""
    known = [[event for events in BATCHES[:number] for event in events] for number in range(len(BATCHES))]
    return [(event, before) for before, events in zip(known, BATCHES, strict=True) for event in events]


def buffered(case: Case) -> Events:
    """Return the events whose rows a join keeps.

    A semi join does not keep a left row that matches on arrival. From Spark 4.2 on, it discards left rows at their
    first match.
    """
    events = [event for event, _ in came()]
    if case.query.join_type != "left_semi":
        return events
    met = {id(event): events if case.version == NEWEST else before for event, before in came()}
    return [event for event in events if event.value % 2 == 0 or not matches(event, met[id(event)])]


def unmatched(query: Query) -> int:
    """Return how many of the dropped rows have matched nothing, as far as Spark records it."""
    if query.join_format == 1:
        return 0
    if query.join_format == 4 and query.join_type in ("inner", "right_outer"):
        # For a left row Spark records only matches on arrival, because these join types do not need later ones.
        return sum(
            is_expired(event) and event.value % 2 == 1 and not matches(event, before) for event, before in came()
        )
    return 1


def require_same_rows(judge: Judge, case: Case) -> None:
    """Drop the expired rows of a join. Spark must then emit the same rows as if they had never come."""
    more = MORE if case.long else [*MORE[:3], *MORE[12:15]]
    report = goes_on(judge, case, BATCHES, more, is_expired, drop)
    events = buffered(case)
    early = sum(map(is_expired, events))
    assert (report.totals.dropped, report.totals.kept) == (early, len(events) - early)
    found = sum(state.unmatched for state in report.states)
    if case.query.join_type == "left_semi":  # it records only some matches, and emits no unmatched row
        assert 1 <= found <= early
    else:
        assert found == unmatched(case.query)


def nullable(path: Path) -> list[bool]:
    """Return which columns of a row of the left side may be null, in a join with a store for it."""
    (operator,) = open_checkpoint(open_directory(str(path))).operators
    (store,) = [store for store in operator.stores if store.name == "left-keyWithIndexToValue"]
    return [field.nullable for field in store.families[0].value.fields]
