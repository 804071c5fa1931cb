"""Compactions of variables with Spark's own TTL: expired entries are dropped together with their index entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ttlsnap import LocalEngine, StateDescriptor, StateEntries, compact
from ttlsnap.clock import Clock, iso
from ttlsnap.operators.registry import Selection
from ttlsnap.stores.protocols import Rewrite
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.outcomes import canonical
from ..judge.processes import NEWEST, VERSIONS
from ..judge.queries import ENDLESS, Event
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import FULL
from .stories import T, rocksdb, settled
from .ttl_states import BATCHES, DAY_MS, MORE, began_ms, in_batch_0, rows
from .unseen import fits

# The same processor with pandas, with rows (from 4.1 on) and in Scala.
OPERATORS = {"4.0": ("for_a_day", "for_a_day_scala")}
CASES: list[tuple[str, str, bool, int, bool, Rewrite]] = [
    (NEWEST, "for_a_day", False, 2, True, "tombstones"),
    (NEWEST, "for_a_day_rows", False, 1, False, "full"),
    (NEWEST, "for_a_day_scala", True, 1, False, "tombstones"),
]
ALL: list[tuple[str, str, bool, int, bool, Rewrite]] = [
    *(
        (NEWEST, operator, False, number, checksum, rewrite)
        for operator in ENDLESS
        for number in (1, 2)
        for checksum in (False, True)
        for rewrite in ("full", "tombstones")
    ),
    *(
        (version, operator, changelog, 1, False, "full")
        for version in VERSIONS[1:]
        for operator in OPERATORS.get(version, ENDLESS)
        for changelog in ((True,) if version == NEWEST else (False, True))
    ),
]


@pytest.mark.parametrize(
    ("version", "operator", "changelog", "checkpoint_format", "row_checksum", "rewrite"), ALL if FULL else CASES
)
def test_values_and_map_entries_expire_one_by_one(
    judge: Judge,
    version: str,
    operator: str,
    changelog: bool,
    checkpoint_format: int,
    row_checksum: bool,
    rewrite: Rewrite,
) -> None:
    query = rocksdb(operator, changelog, checkpoint_format, row_checksum)
    checkpoint = judge.write(query, BATCHES, layout="both" if changelog else "snapshot", version=version)
    settled(checkpoint.path)
    report = compact(
        str(checkpoint.path),
        [TtlTransformerFactory()],
        now=str(iso((began_ms(checkpoint, 0) + DAY_MS) * 1000)),
        engine=LocalEngine(1),
        rewrite=rewrite,
        stopped=True,
        max_drop=1.0,
    )
    elements = len(checkpoint.expected.state())
    assert report.totals.dropped == checkpoint.expected.drop(in_batch_0) > 0
    assert report.totals.entries == elements > report.totals.dropped
    counts = {state.state.state: state.counts for state in report.states}
    for name in ("last", "digits"):
        assert (counts[name].entries, counts[name].dropped) == (
            counts[f"$ttl_{name}"].entries,
            counts[f"$ttl_{name}"].dropped,
        )
    assert fits(checkpoint.path) == query.partitions
    wanted = rows(checkpoint.expected.run(MORE))
    assert rows(judge.restart(checkpoint, MORE, fresh=True)) == wanted
    assert fits(checkpoint.path) == query.partitions


@pytest.fixture(scope="module")
def written(judge: Judge) -> Checkpoint:
    checkpoint = judge.write(rocksdb("for_a_day", False), BATCHES, layout="snapshot")
    settled(checkpoint.path)
    return checkpoint


def dry_run(checkpoint: Checkpoint, factory: TtlTransformerFactory, ms: int, **selected: Any) -> dict[str, int]:
    """Return how many entries of each state a run would drop."""
    report = compact(
        str(checkpoint.path),
        [factory],
        now=str(iso(ms * 1000)),
        selection=Selection(**selected),
        engine=LocalEngine(1),
        dry_run=True,
    )
    return {state.state.state: state.counts.dropped for state in report.states if state.counts.dropped}


def test_a_ttl_is_a_grace_period_after_the_expiry_time(written: Checkpoint) -> None:
    moment = began_ms(written, 0) + DAY_MS
    hour = TtlTransformerFactory(StateTtlConfig(3600 * 1_000_000))
    assert dry_run(written, hour, moment + 3600 * 1000 - 1) == {}
    found = dry_run(written, hour, moment + 3600 * 1000)
    assert found == {"last": 1, "$ttl_last": 1, "digits": 4, "$ttl_digits": 4}
    assert dry_run(written, hour, moment + 3600 * 1000, state="last") == {"last": 1, "$ttl_last": 1}


def test_a_ttl_with_an_old_ttl_counts_from_the_time_of_writing(written: Checkpoint) -> None:
    """The query set a TTL of a day, but entries older than an hour are dropped."""
    hour = TtlTransformerFactory(StateTtlConfig(3600 * 1_000_000), old_ttl_us=DAY_MS * 1000)
    moment = began_ms(written, 0) + 3600 * 1000
    assert dry_run(written, hour, moment - 1) == {}
    assert dry_run(written, hour, moment) == {"last": 1, "$ttl_last": 1, "digits": 4, "$ttl_digits": 4}


def test_stale_index_entries_of_a_map_are_not_damage(judge: Judge) -> None:
    """``removeKey`` removes an entry, but not its index entry. A key that is set again has two index entries."""
    batches: list[Events] = [
        [Event("a", T, 1), Event("a", T, 2), Event("b", T, 3), Event("c", T, 4), Event("d", T, 5)],
        [Event("a", T, -1), Event("b", T, -3), Event("c", T, 6), Event("d", T, -5)],
        [Event("b", T, 3)],
    ]
    checkpoint = judge.write(rocksdb("removals", False), batches, layout="snapshot")
    settled(checkpoint.path)
    day_after = began_ms(checkpoint, 0) + DAY_MS
    assert fits(checkpoint.path) == 2
    moved, dropped = judge.copy(checkpoint), judge.copy(checkpoint)

    class BackToTheFirst:
        """A transformer that gives an entry the time of its stale index entry."""

        def create(self, state: StateDescriptor, clock: Clock) -> BackToTheFirst | None:
            return self if state.state == "numbers" else None

        def filter_or_transform(self, entries: StateEntries) -> StateEntries:
            values = entries.value_structs
            new = [{**value, "ttlExpirationMs": day_after} for value in values.to_pylist()]
            return entries.replace_values(pa.array(new, values.type))

    options: dict[str, Any] = {"engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}
    ways: list[Rewrite] = ["full", "tombstones"]
    for rewrite in ways:
        target = judge.copy(moved)
        report = compact(str(target.path), [BackToTheFirst()], rewrite=rewrite, **options)
        index = next(state.counts for state in report.states if state.state.state == "$ttl_numbers")
        # Two of four entries keep their time. The index entry of b moves to the place of a stale one.
        assert (index.entries, index.rewritten, index.dropped) == (7, 2, 1)
        assert fits(target.path) == 2
    report = compact(str(dropped.path), [TtlTransformerFactory()], now=str(iso(day_after * 1000)), **options)
    assert (report.totals.dropped, report.totals.kept) == (2, 2)
    assert fits(dropped.path) == 2
    (found,) = judge.restart(dropped, [[Event(key, T, 7) for key in "abcd"]], fresh=True)
    assert found.rows == canonical(
        [{"key": key, "numbers": numbers} for key, numbers in {"a": "7", "b": "3,7", "c": "6,7", "d": "7"}.items()]
    )
