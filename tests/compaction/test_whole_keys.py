"""Compactions that drop the other variables of a key with the entries that a rule drops, judged by real Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ttlsnap import CompactionReport, LocalEngine, compact, inspect
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.outcomes import Entry
from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import stamp
from ..judge.spark import Judge
from ..matrix import FULL
from ..samples import sample
from .joins import BATCHES, LIMIT, MORE, is_expired
from .lists import AGAIN, AVRO, LISTS
from .stories import H, T, rocksdb, settled
from .timers import alarmed
from .ttl_states import rows
from .unseen import Case, fits, goes_on

HOUR = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), timestamp="value.seen:s")
FOLLOW: dict[str, Any] = {"variables": "follow", "engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}


@pytest.mark.parametrize("version", [NEWEST, "4.0", "4.1"] if FULL else [NEWEST])
@pytest.mark.parametrize("conf", [(), AVRO] if FULL else [()])
@pytest.mark.parametrize("rewrite", ["tombstones", "full"] if FULL else ["tombstones"])
def test_a_list_with_a_ttl_is_dropped_with_the_last_value_of_another_list(
    judge: Judge, version: str, conf: tuple[tuple[str, str], ...], rewrite: Any
) -> None:
    query = replace(rocksdb("lists", True, 1, version == NEWEST), conf=conf)
    checkpoint = judge.write(query, LISTS, layout="both", version=version)
    settled(checkpoint.path)
    # The list `recent`, with its count, its first time and its index, follows the list `all`.
    report = compact(
        str(checkpoint.path), [HOUR], selection=Selection(state="all"), now=stamp(T + 10 * H), rewrite=rewrite, **FOLLOW
    )
    left = {"a"}  # the only key with a value that is young enough

    def is_gone(found: Entry) -> bool:
        if found.store == "all":
            return bool(found.at("value.seen") <= T + 9 * H)
        return found.at("key.key") not in left

    counts = {state.state.state: state.counts for state in report.states}
    assert checkpoint.expected.drop(is_gone) == report.totals.dropped == 16 + 7
    assert (counts["all"].dropped, counts["recent"].dropped, counts["$rowCounter_all"].dropped) == (16, 7, 5)
    for name in ("$ttl_recent", "$min_recent", "$count_recent"):
        assert (counts[name].entries, counts[name].dropped, counts[name].rewritten) == (6, 5, 0)
    assert fits(checkpoint.path) == query.partitions
    wanted = rows(checkpoint.expected.run(AGAIN))
    assert rows(judge.restart(checkpoint, AGAIN, fresh=True)) == wanted
    assert fits(checkpoint.path) == query.partitions


ALARMS = [
    *(Case(alarmed(changelog=changelog, conf=conf)) for changelog in (False, True) for conf in ((), AVRO)),
    Case(alarmed(), *UPGRADE),
    *(Case(alarmed(conf=conf), version, NEWEST) for version in ("4.0", "4.1") for conf in ((), AVRO)),
]


@pytest.mark.wide
@pytest.mark.parametrize("case", ALARMS if FULL else [Case(alarmed(changelog=True))], ids=str)
def test_a_key_goes_as_a_whole_by_the_time_of_one_variable(judge: Judge, case: Case) -> None:
    young_keys = {event.key for events in BATCHES for event in events if not is_expired(event)}

    def drop(path: Path, **options: Any) -> CompactionReport:
        # The value `last` decides about the list, the map and the timers of its key.
        return compact(
            str(path),
            [HOUR],
            selection=Selection(state="last"),
            now=stamp(LIMIT + H),
            timers="follow",
            **FOLLOW,
            **options,
        )

    report = goes_on(
        judge,
        case,
        BATCHES,
        MORE if case.long else [*MORE[:3], *MORE[12:15]],
        lambda event: event.key not in young_keys,
        drop,
    )
    gone_events = [event for events in BATCHES for event in events if event.key not in young_keys]
    dropped = {state.state.state: state.counts.dropped for state in report.states}
    gone_keys = {event.key for event in gone_events}
    assert dropped["last"] == dropped["$eventTimers_keyToTimestamp"] == dropped["$rowCounter_all"] == len(gone_keys) > 0
    assert dropped["all"] == len(gone_events)
    assert report.totals.dropped == dropped["last"] + dropped["all"] + dropped["counts"]


def test_what_follows_is_counted_archived_and_limited(tmp_path: Path) -> None:
    target, archive = sample("alarms-4.2", tmp_path), tmp_path / "archive"
    entries = inspect(str(target), entries=10**6).samples or []
    options = FOLLOW | {"selection": Selection(state="last"), "now": "2026-12-30"}
    with pytest.raises(
        RefusedError, match="state counts, and the limit is 50%"
    ):  # what follows counts for the limit as well
        compact(str(target), [HOUR], **options | {"max_drop": 0.5})
    report = compact(str(target), [HOUR], expired_to=str(archive), **options)
    counts = {state.state.state: state.counts for state in report.states}
    primary = [entry for entry in entries if entry["state"] in ("last", "all", "counts")]
    assert report.totals.dropped == len(primary) > counts["last"].dropped > 0
    assert {state.left_alone for state in report.states if state.state.state in ("last", "all", "counts")} == {None}
    assert not any("keeps a part of its state" in warning for warning in report.warnings)
    archived = [row for file in archive.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted(row["state"] for row in archived) == sorted(entry["state"] for entry in primary)


def test_without_something_that_follows_a_run_is_refused(tmp_path: Path) -> None:
    target = sample("alarms-4.2", tmp_path)
    with pytest.raises(UsageError, match="variables follow: none of the selected operators has variables that no rule"):
        compact(str(target), [HOUR], now="2026-12-30", **FOLLOW)  # each variable has the field
    with pytest.raises(UsageError, match="variables is 'drop'; use one of keep, follow"):
        compact(str(target), [HOUR], **FOLLOW | {"variables": "drop"})


def test_a_key_without_an_entry_that_decides_stays(tmp_path: Path) -> None:
    target = sample("lists-4.2", tmp_path)
    options = FOLLOW | {"selection": Selection(state="all"), "now": "2026-11-21"}
    report = compact(str(target), [HOUR], **options | {"variables": "keep"})
    assert 0 < report.totals.dropped < (report.totals.entries or 0)
    again = compact(str(target), [HOUR], **options)
    # The rule finds nothing more to drop, and nobody decides about the keys that had only expired values.
    assert {state.state.state for state in again.states} >= {"all", "recent"} and not again.totals.dropped
