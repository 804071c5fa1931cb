"""Compactions of stream-stream joins: real Spark then emits the same rows as if the dropped rows had never come.

Many batches follow, in which Spark renumbers rows, matches them, and evicts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, LocalEngine, StateDescriptor, StateEntries, compact, rollback
from ttlsnap.clock import Clock
from ttlsnap.errors import RefusedError
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.processes import NEWEST, UPGRADE
from ..judge.queries import Query, stamp
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..samples import bytes_of
from .joins import BATCHES, LIMIT, MORE, STORES, TYPES, is_expired, joined, nullable, require_same_rows
from .stories import H, digest, settled
from .unseen import Case, goes_on

SLICE = [
    Case(joined(join_type="full_outer")),
    Case(joined(join_type="left_outer", provider="rocksdb", changelog=True, join_format=3, row_checksum=True)),
    Case(joined(join_type="full_outer", provider="rocksdb", join_format=4)),
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
    require_same_rows(judge, case)


@pytest.mark.wide
@pytest.mark.parametrize("version", ["3.1", "3.2", "3.3", "3.4", "3.5", "4.0", NEWEST] if FULL else ["3.5"])
def test_a_join_whose_columns_spark_infers_to_be_not_null_restarts(judge: Judge, version: str) -> None:
    """Before Spark 4.0, it infers that only in a batch with rows, and a planned batch has none."""

    case = Case(Query("join_on_columns"), version, version)
    goes_on(judge, case, BATCHES, MORE[:3], is_expired, drop_by_columns)


def test_only_a_planned_batch_makes_the_columns_of_a_join_nullable(inputs: Judge) -> None:
    for planned in (True, False):
        path = inputs.write(Query("join_on_columns"), BATCHES, layout="both", version="3.5").path
        old = bytes_of(path)
        (schema,) = [name for name in old if name.endswith("/left-keyWithIndexToValue/_metadata/schema")]
        assert nullable(path) == [False, True, False, True]
        drop_by_columns(path, planned_batch=planned)
        assert nullable(path) == ([True] * 4 if planned else [False, True, False, True])
        new = bytes_of(path)
        changed = {name for name in old if name.endswith("schema") and old[name] != new[name]}
        assert changed == ({schema} if planned else set())
        rollback(str(path), stopped=True)
        assert {name: data for name, data in bytes_of(path).items() if not name.startswith("_ttlsnap")} == old


def drop_by_columns(path: Path, **options: Any) -> CompactionReport:
    """Drop the rows of ``join_on_columns`` up to the limit."""
    rule = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), ("left:value.ts:s", "right:value.then:s"))
    own: dict[str, Any] = {"now": stamp(LIMIT + H), "max_drop": 1.0, "drop_unmatched": True}
    return compact(str(path), [rule], engine=LocalEngine(1), stopped=True, **own, **options)


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
def written(inputs: Judge) -> Checkpoint:
    return inputs.write(joined(join_type="left_outer"), BATCHES, layout="deltas")


def test_unmatched_rows_are_dropped_only_on_request(written: Checkpoint) -> None:
    before = settled(written.path)
    options: dict[str, Any] = {"now": stamp(LIMIT + H), "engine": LocalEngine(1), "stopped": True, "max_drop": 1.0}
    factory = TtlTransformerFactory(StateTtlConfig(H * 1_000_000))
    for output in (None, f"{written.path}-new"):
        with pytest.raises(RefusedError, match=r"^1 of the rows to drop .* drop_unmatched=True"):
            compact(str(written.path), [factory], output=output, **options)
        assert digest(written.path) == before
    assert not written.path.with_name(f"{written.path.name}-new").exists()
    report = compact(str(written.path), [factory], dry_run=True, **options)
    assert sum(document["unmatched_dropped"] for document in report.to_json()["stores"]) == 1


def test_each_side_may_have_its_own_timestamp(written: Checkpoint) -> None:
    early = [event for events in BATCHES for event in events if is_expired(event)]
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
