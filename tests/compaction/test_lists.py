"""Compactions of single values of lists and of timers, judged by real Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap import CompactionReport, LocalEngine, StateDescriptor, StateEntries, compact, inspect
from ttlsnap.clock import Clock, iso
from ttlsnap.operators.registry import Selection
from ttlsnap.stores.protocols import Rewrite
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import Event, stamp
from ..judge.spark import Judge
from ..matrix import FULL
from .joins import BATCHES, LIMIT, MORE, is_expired
from .lists import AGAIN, AVRO, LISTS
from .stories import H, T, rocksdb, settled
from .timers import alarmed
from .ttl_states import DAY_MS, began_ms, in_batch_0, rows
from .unseen import Case, fits, goes_on

CASES: list[tuple[str, int, bool, bool, Rewrite]] = [(NEWEST, 1, True, True, "tombstones")]
ALL: list[tuple[str, int, bool, bool, Rewrite]] = [
    (NEWEST, number, changelog, checksum, rewrite)
    for number in (1, 2)
    for changelog in (False, True)
    for checksum in (False, True)
    for rewrite in ("full", "tombstones")
]
OLDER: list[tuple[str, int, bool, bool, Rewrite]] = [
    (version, 1, changelog, False, rewrite)
    for version in ("4.0", "4.1")
    for changelog in (False, True)
    for rewrite in ("full", "tombstones")
]


@pytest.mark.parametrize(
    ("version", "checkpoint_format", "changelog", "row_checksum", "rewrite"), [*ALL, *OLDER] if FULL else CASES
)
@pytest.mark.parametrize("conf", [(), AVRO] if FULL else [()])
def test_values_of_lists_expire_one_by_one(
    judge: Judge,
    version: str,
    checkpoint_format: int,
    changelog: bool,
    row_checksum: bool,
    rewrite: Rewrite,
    conf: tuple[tuple[str, str], ...],
) -> None:
    query = replace(rocksdb("lists", changelog, checkpoint_format, row_checksum), conf=conf)
    checkpoint = judge.write(query, LISTS, layout="both" if changelog else "snapshot", version=version)
    settled(checkpoint.path)
    options: dict[str, Any] = {"engine": LocalEngine(1), "rewrite": rewrite, "stopped": True, "max_drop": 1.0}
    now = str(iso((began_ms(checkpoint, 0) + DAY_MS) * 1000))
    report = compact(str(checkpoint.path), [TtlTransformerFactory()], now=now, **options)
    counts = {state.state.state: state.counts for state in report.states}
    gone = checkpoint.expected.drop(lambda found: found.store == "recent" and in_batch_0(found))
    assert gone == report.totals.dropped == counts["recent"].dropped == 12
    for name in ("$ttl_recent", "$min_recent", "$count_recent"):
        assert (counts[name].entries, counts[name].dropped, counts[name].rewritten) == (6, 1, 3)
    assert fits(checkpoint.path) == query.partitions
    hour = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.seen:s")
    report = compact(str(checkpoint.path), [hour], now=stamp(T + 10 * H), **options)
    counts = {state.state.state: state.counts for state in report.states}
    gone = checkpoint.expected.drop(lambda found: found.store == "all" and found.at("value.seen") <= T + 9 * H)
    assert gone == report.totals.dropped == counts["all"].dropped == 16
    assert counts["$rowCounter_all"].dropped == 5
    assert fits(checkpoint.path) == query.partitions
    wanted = rows(checkpoint.expected.run(AGAIN))
    assert rows(judge.restart(checkpoint, AGAIN, fresh=True)) == wanted
    assert fits(checkpoint.path) == query.partitions


class ExpireAt:
    """A transformer that gives each value of a variable its own expiry time, by its number."""

    def __init__(self, state: str, moments: dict[int, int]) -> None:
        self._state, self._moments = state, moments

    def create(self, state: StateDescriptor, clock: Clock) -> ExpireAt | None:
        return self if state.state == self._state else None

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        values = entries.value_structs.to_pylist()
        moved = [self._moments.get(value["value"]["number"]) for value in values]
        new = [{**value, "ttlExpirationMs": m} for value, m in zip(values, moved, strict=True) if m]
        where = np.array([bool(m) for m in moved], np.bool_)
        return entries.replace_values(pa.array(new, entries.value_structs.type), where)


@pytest.mark.wide
@pytest.mark.parametrize("rewrite", ["full", "tombstones"] if FULL else ["full"])
@pytest.mark.parametrize("conf", [AVRO, ()] if FULL else [AVRO])
def test_spark_expires_values_by_their_rewritten_expiry_times(
    judge: Judge, conf: tuple[tuple[str, str], ...], rewrite: Rewrite
) -> None:
    checkpoint = judge.write(replace(rocksdb("lists", False), conf=conf), LISTS, layout="snapshot")
    settled(checkpoint.path)
    soon = int(time.time() * 1000) + 4000
    late = {number: soon + DAY_MS + number for number in (11, 12, 22)}
    moments = {**dict.fromkeys([*range(9), 13, 14], soon), **late}
    compact(
        str(checkpoint.path),
        [ExpireAt("recent", moments)],
        engine=LocalEngine(1),
        rewrite=rewrite,
        stopped=True,
        max_drop=1.0,
    )
    assert fits(checkpoint.path) == 2
    time.sleep(max(0, soon / 1000 - time.time()))
    judge.restart(checkpoint, AGAIN[:1], fresh=True)
    assert fits(checkpoint.path) == 2
    found: list[int] = []

    class Look:
        def create(self, state: StateDescriptor, clock: Clock) -> Look | None:
            return self if state.state == "recent" else None

        def filter_or_transform(self, entries: StateEntries) -> StateEntries:
            found.extend(value["value"]["number"] for value in entries.value_structs.to_pylist())
            return entries

    compact(str(checkpoint.path), [Look()], engine=LocalEngine(1), dry_run=True)
    # Spark has removed the expired values, whole lists and parts of others, and nothing else.
    assert sorted(found) == [11, 12, 21, 22, *sorted(event.value for event in AGAIN[0])]


ALARMS = [
    *(
        Case(alarmed(changelog=changelog, row_checksum=checksum))
        for changelog in (False, True)
        for checksum in (False, True)
    ),
    *(Case(alarmed(conf=conf), *UPGRADE) for conf in ((), AVRO)),
    *(
        Case(alarmed(conf=conf), version, again)
        for version in ("4.0", "4.1")
        for again in {version, NEWEST}
        for conf in ((), AVRO)
    ),
    *(
        Case(alarmed(changelog=changelog, row_checksum=checksum, conf=AVRO))
        for changelog in (False, True)
        for checksum in (False, True)
    ),
]


@pytest.mark.parametrize("case", ALARMS if FULL else [Case(alarmed(changelog=True))], ids=str)
def test_timers_are_dropped_with_the_last_state_of_their_key(judge: Judge, case: Case) -> None:
    def drop(path: Path, **options: Any) -> CompactionReport:
        factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.seen:s")
        return compact(
            str(path),
            [factory],
            now=stamp(LIMIT + H),
            timers="follow",
            engine=LocalEngine(1),
            stopped=True,
            max_drop=1.0,
            **options,
        )

    report = goes_on(judge, case, BATCHES, MORE if case.long else [*MORE[:3], *MORE[12:15]], is_expired, drop)
    dropped = {state.state.state: state.counts.dropped for state in report.states}
    late = {event.key for events in BATCHES for event in events if not is_expired(event)}
    forgotten = {event.key for events in BATCHES for event in events} - late
    assert dropped["$eventTimers_keyToTimestamp"] == dropped["$eventTimers_timestampToKey"] == len(forgotten) > 0
    assert dropped["all"] == sum(is_expired(event) for events in BATCHES for event in events)


@pytest.mark.wide
def test_timers_stay_by_default(judge: Judge) -> None:
    """Each timer fires once more, for a key that has no state."""
    checkpoint = judge.write(alarmed(), BATCHES, layout="snapshot")
    settled(checkpoint.path)
    before = fits(checkpoint.path)
    factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.seen:s")
    options: dict[str, Any] = {"now": stamp(LIMIT + H), "engine": LocalEngine(1)}
    report = compact(str(checkpoint.path), [factory], stopped=True, max_drop=1.0, **options)
    assert {state.left_alone for state in report.states if state.state.kind == "timer"} == {
        "a timer stays until it fires",
        "it is derived from other entries, and follows them",
    }
    assert fits(checkpoint.path) == before
    shown = inspect(str(checkpoint.path), entries=1000).samples or []
    assert {entry["state"] for entry in shown} == {"all", "counts", "last", "$eventTimers_keyToTimestamp"}
    lone = [entry for entry in shown if entry["key"] == {"key": "alone"}]
    told = [{k: v for k, v in entry.items() if k not in ("operator", "store", "partition")} for entry in lone]
    assert told == [
        {
            "state": "$eventTimers_keyToTimestamp",
            "key": {"key": "alone"},
            "value": {},
            "time": f"{stamp(T + 4 * H + 1801)}.000Z",
        },
        {"state": "all", "key": {"key": "alone"}, "value": {"number": 7, "seen": T + 4 * H}},
        {"state": "all", "key": {"key": "alone"}, "value": {"number": 9, "seen": T + 4 * H + 1}},
        *(
            {
                "state": "counts",
                "key": {"key": "alone"},
                "map_key": {"seen": T + 4 * H + n},
                "value": {"seen": T + 4 * H + n, "n": 1},
            }
            for n in (0, 1)
        ),
        {"state": "last", "key": {"key": "alone"}, "value": {"seen": T + 4 * H + 1}},
    ]
    found = judge.restart(checkpoint, [[Event("end", T + 300 * H, 1)]], fresh=True)
    over = [row for batch in found for row in batch.rows if "over" in str(row)]
    late = {event.key for events in BATCHES for event in events if not is_expired(event)}
    forgotten = {event.key for events in BATCHES for event in events} - late
    assert len([row for row in over if "'numbers': ''" in str(row) or '"numbers": ""' in str(row)]) == len(forgotten)


@pytest.mark.wide
def test_selecting_a_variable_drops_nothing_else(judge: Judge) -> None:
    checkpoint = judge.write(alarmed(), BATCHES[:1], layout="snapshot")
    settled(checkpoint.path)
    factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.seen:s")
    report = compact(
        str(checkpoint.path),
        [factory],
        selection=Selection(state="all"),
        timers="follow",
        now=stamp(T + 100 * H),
        engine=LocalEngine(1),
        stopped=True,
        max_drop=1.0,
    )
    dropped = {state.state.state: state.counts.dropped for state in report.states if state.counts.dropped}
    # The keys still have state in the other variables.
    assert set(dropped) == {"all", "$rowCounter_all"}
    assert fits(checkpoint.path) == 2
