"""Compactions of stream-stream joins: real Spark then emits the same rows as if the dropped rows had never come.

No dropped row is near enough in time to match a kept row. So the compacted state is exactly the state of a query that
never saw the dropped rows. Many batches follow, in which Spark renumbers rows, matches them, and evicts them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, LocalEngine, StateDescriptor, StateEntries, compact
from ttlsnap.clock import Clock
from ttlsnap.errors import RefusedError
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import FULL
from .stories import H, T, digest, settled
from .unseen import Case, goes_on

LIMIT = T + 2 * H
KEYS = "abcdef"
TYPES = ("inner", "left_outer", "right_outer", "full_outer", "left_semi")

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
    query = Query("join_parities", delay_s=10 * H, window_s=1800)
    return replace(query, **settings)  # type: ignore[arg-type]


def drop(path: Path, **options: Any) -> CompactionReport:
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


def goes(event: Event) -> bool:
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
        return sum(goes(event) and event.value % 2 == 1 and not matches(event, before) for event, before in came())
    return 1


SLICE = [
    Case(joined(join_type="full_outer")),
    Case(joined(join_type="left_outer", provider="rocksdb", changelog=True, join_format=3, row_checksum=True)),
    Case(joined(join_type="full_outer", provider="rocksdb", join_format=4)),
]
STORES: list[dict[str, Any]] = [
    {"provider": "hdfs"},
    *(
        {"provider": "rocksdb", "changelog": changelog, "join_format": n}
        for changelog in (False, True)
        for n in (2, 3, 4)
    ),
]
NEWEST_FORMAT = {"3.5": 2, "4.0": 2, "4.1": 3}
EVERYTHING = [
    *(Case(joined(join_type=kind, **settings)) for kind in TYPES for settings in STORES),
    *(Case(joined(join_type=kind, provider="rocksdb", checkpoint_format=2, changelog=True)) for kind in TYPES[:2]),
    # Spark 4.1 and 4.2 resume from state of format 1, but start no new one ("Unsupported schema writer version: 1").
    *(
        Case(joined(**{**settings, "join_format": 1}), version, later)
        for version in ("3.5", "4.0")
        for later in (version, NEWEST)
        for settings in (*STORES[:2], STORES[4])
    ),
    *(
        Case(joined(join_type=kind, **settings), version, version)
        for version in ("3.5", "4.0", "4.1")
        for kind in TYPES
        for settings in STORES
        if settings.get("join_format", 2) <= NEWEST_FORMAT[version]
    ),
    *(Case(joined(join_type=kind, **settings), *UPGRADE) for kind in TYPES for settings in STORES),
    *(
        Case(joined(join_type=kind, provider=provider), version, NEWEST)
        for version in ("3.5", "4.0", "4.1")
        for kind, provider in (("inner", "rocksdb"), ("full_outer", "hdfs"))
    ),
]


@pytest.mark.parametrize("case", EVERYTHING if FULL else SLICE, ids=str)
def test_spark_goes_on_as_if_the_rows_had_never_come(judge: Judge, case: Case) -> None:
    more = MORE if case.long else [*MORE[:3], *MORE[12:15]]
    report = goes_on(judge, case, BATCHES, more, goes, drop)
    events = buffered(case)
    early = sum(map(goes, events))
    assert (report.totals.dropped, report.totals.kept) == (early, len(events) - early)
    found = sum(state.unmatched for state in report.states)
    if case.query.join_type == "left_semi":  # it records only some matches, and emits no unmatched row
        assert 1 <= found <= early
    else:
        assert found == unmatched(case.query)


@pytest.mark.parametrize("checksum", [False, True] if FULL else [True])
def test_some_of_the_rows_with_one_key_and_time_can_be_dropped(judge: Judge, checksum: bool) -> None:
    """Only format 4 stores such rows together, and only an inner join does not record which rows matched."""

    class Drop3:
        def create(self, state: StateDescriptor, clock: Clock) -> Drop3 | None:
            return self if state.side == "left" else None

        def filter_or_transform(self, entries: StateEntries) -> StateEntries:
            return entries.filter(entries.words("value.left_value")[0] % 10 != 3)

    def drop_some(path: Path, **options: Any) -> CompactionReport:
        return compact(
            str(path), [Drop3()], engine=LocalEngine(1), stopped=True, max_drop=1.0, drop_unmatched=True, **options
        )

    case = Case(joined(provider="rocksdb", join_format=4, changelog=True, row_checksum=checksum))
    more = MORE if case.long else [*MORE[:3], *MORE[12:15]]
    report = goes_on(judge, case, BATCHES, more, lambda event: event.value % 10 == 3, drop_some)
    counts = {state.state.state: state.counts for state in report.states}
    assert counts["left-keyWithTsToValues"].dropped == counts["left-tsWithKey"].dropped > 5


@pytest.fixture(scope="module")
def written(judge: Judge) -> Checkpoint:
    return judge.write(joined(join_type="left_outer"), BATCHES, layout="deltas")


def test_unmatched_rows_are_dropped_only_on_request(written: Checkpoint) -> None:
    before = settled(written.path)
    options: dict[str, Any] = {"now": stamp(LIMIT + H), "engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}
    factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000))
    for output in (None, f"{written.path}-new"):
        with pytest.raises(RefusedError, match=r"^1 of the rows to drop .* --drop-unmatched"):
            compact(str(written.path), [factory], output=output, **options)
        assert digest(written.path) == before
    assert not written.path.with_name(f"{written.path.name}-new").exists()
    report = compact(str(written.path), [factory], dry_run=True, **options)
    assert sum(document["unmatched_dropped"] for document in report.to_json()["stores"]) == 1


def test_each_side_may_have_its_own_timestamp(written: Checkpoint) -> None:
    early = [event for events in BATCHES for event in events if goes(event)]
    config = StateTtlConfig(H * 1_000_000)
    sides = {"left": ("left:value.at",), "right": ("right:value.then",), "": ("left:value.at", "right:value.then")}
    dropped = {}
    for side, names in sides.items():
        factory = TtlTransformerFactory(config, timestamp=names)
        report = compact(
            str(written.path), [factory], now=stamp(LIMIT + H), engine=LocalEngine(1), dry_run=True, stopped=True
        )
        found = {state.state.side: state.counts.dropped for state in report.states if state.state.role == "primary"}
        dropped[side] = found
    odd = sum(event.value % 2 for event in early)
    even = len(early) - odd
    assert dropped == {
        "left": {"left": odd, "right": 0},
        "right": {"left": 0, "right": even},
        "": {"left": odd, "right": even},
    }
