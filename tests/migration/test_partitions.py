"""Another number of partitions: a query continues as it would have without the migration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import inspect, migrate, rollback
from ttlsnap.errors import RefusedError, UsageError

from ..compaction.stories import MORE_WHOLE, WHOLE, H, T, copies_of, copy_all, rocksdb, settled
from ..diagnosis.asked import doctor, errors
from ..diagnosis.misplaced import exchange
from ..judge.processes import NEWEST, OLD_VERSIONS, VERSIONS
from ..judge.queries import ENDLESS, ONLY_ROCKSDB, OPERATORS, WITHOUT_KEYS, Event, Query
from ..judge.reported import IN_ROCKSDB, REPORTED
from ..judge.spark import Events, Judge
from ..matrix import FULL, narrow, rotating
from ..publishing.trees import copy, end_halfway, tree
from .entries import Entries, entries_of
from .twins import A_ROUND, emit_the_same

SLICE = [
    Query("agg_window_update", row_checksum=True, codec="zstd"),
    Query("join", provider="rocksdb", join_format=4),
    rocksdb("alarms", changelog=True, row_checksum=True),
]
MORE = [
    *SLICE,
    Query("join_ignoring_case"),
    rocksdb("agg_update", changelog=True, checkpoint_format=2),
    Query("join", join_type="left_outer"),
    rocksdb("agg_update", changelog=False),
    rocksdb("lists", changelog=True, row_checksum=True),
    rocksdb("windows_of_windows", changelog=False),
]
EVERYTHING = [
    *(Query(operator) for operator in OPERATORS if operator not in (*ONLY_ROCKSDB, *WITHOUT_KEYS)),
    *(rocksdb(operator, changelog=True) for operator in OPERATORS if operator not in WITHOUT_KEYS),
    *MORE,
]
NUMBERS = (7, 3, 1)
ROUNDS: list[list[Events]] = [
    [
        [Event(f"k{(number * 5 + i) % 29}", T + 4 * H + number * 900 + i, i + 1) for i in range(9)]
        for number in range(A_ROUND * step, A_ROUND * (step + 1))
    ]
    for step in range(len(NUMBERS))
]
ROUNDS[-1].append(MORE_WHOLE[1])


def name_of(query: Query) -> str:
    return f"{query.operator}-{query.provider}-{query.checkpoint_format}"


def of_each(queries: Sequence[Query]) -> list[Any]:
    """Return each query with fewer and with more partitions. The thin set takes one of them in turn."""
    pairs = list(product(queries, (1, 5))) if FULL else list(zip(queries, cycle((1, 5))))
    return [pytest.param(query, number, id=f"{name_of(query)}-{number}") for query, number in pairs]


if FULL:

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("query", MORE, ids=name_of)
    def test_every_version_continues(judge: Judge, query: Query, version: str) -> None:
        first = "4.2" if query.join_format == 4 else "4.0" if is_new(query) else "3.5"
        if version >= first:
            continues(judge, query, version)

    @pytest.mark.parametrize("version", OLD_VERSIONS)
    @pytest.mark.parametrize(
        "query",
        [*(Query(operator) for operator in ("agg_update", "dedup", "join")), Query("agg_update", provider="rocksdb")],
        ids=name_of,
    )
    def test_older_versions_continue(judge: Judge, query: Query, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)  # the states have few keys
        if query.provider == "hdfs" or version > "3.1":
            continues(judge, query, version)


def is_new(query: Query) -> bool:
    """Return whether a query needs Spark 4.0."""
    return query.operator in (*ONLY_ROCKSDB, "join_ignoring_case") or query.checkpoint_format == 2


@pytest.mark.parametrize("query", EVERYTHING if FULL else narrow(SLICE), ids=name_of)
def test_a_query_continues_with_another_number_of_partitions(judge: Judge, query: Query) -> None:
    continues(judge, query, NEWEST)


def continues(judge: Judge, query: Query, version: str) -> None:
    """Migrate a checkpoint several times. After each migration, the query must emit what it emits without it."""
    layout = "both" if query.operator in ENDLESS else "snapshot"
    written = judge.write(replace(query, partitions=2), WHOLE, layout=layout, version=version)
    settled(written.path)
    _, (migrated, same) = copies_of(judge, written)
    emitted = 0
    for number, batches in zip(NUMBERS, ROUNDS, strict=True):
        report = migrate(str(migrated.path), partitions=number, stopped=True)
        assert {len(store.partitions) for store in report.stores} == {number}
        assert report.entries > 0
        emitted += emit_the_same(judge, same, migrated, batches)
        settled(migrated.path)
        assert errors(migrated.path) == errors(same.path)
    assert emitted or query.operator == "dedup_void"  # its only key is in the state from the first row on
    copy_all(migrated.path)
    last: list[Events] = [[Event("k1", T + 31 * H, 1)], [Event("k1", T + 50 * H, 1)]]
    emit_the_same(judge, same, migrated, last)


@pytest.mark.parametrize(
    ("query", "number"),
    of_each([Query("agg_update"), rocksdb("agg_update", changelog=True)]),
)
def test_a_rollback_restores_every_byte(judge: Judge, query: Query, number: int) -> None:
    written = judge.write(query, WHOLE, layout="both")
    settled(written.path)
    before = tree(written.path)
    assert migrate(str(written.path), partitions=number, dry_run=True).published is False
    assert tree(written.path) == before
    migrate(str(written.path), partitions=number, stopped=True)
    folders = {path.name for path in (written.path / "state/0").iterdir()} - {"_metadata"}
    assert folders == {str(partition) for partition in range(number)}
    rollback(str(written.path), stopped=True)
    assert tree(written.path) == before
    assert judge.restart(written, MORE_WHOLE) == written.expected.run(MORE_WHOLE)


@pytest.mark.parametrize(
    ("query", "number"),
    of_each(
        [
            Query("agg_update"),
            rocksdb("visits", changelog=True),
            *([rocksdb("agg_update", changelog=True, checkpoint_format=2)] if FULL else []),
        ]
    ),
)
def test_a_query_continues_on_a_new_checkpoint(judge: Judge, query: Query, number: int) -> None:
    written = judge.write(query, WHOLE, layout="both")
    before = settled(written.path)
    copy = written.path.with_name(f"{written.path.name}-new")
    report = migrate(str(written.path), partitions=number, output=str(copy), stopped=True)
    assert report.output == str(copy)
    assert settled(written.path) == before
    assert not (written.path / "_ttlsnap/runs").exists()
    assert not [found for found in doctor(copy).document["problems"] if found["severity"] != "note"]
    assert {path.name for path in (copy / "state/0").iterdir() if path.name.isdigit()} == set(map(str, range(number)))
    assert emit_the_same(judge, written, judge.at(written, copy), MORE_WHOLE)


@pytest.mark.wide
def test_a_query_continues_without_a_planned_batch(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), WHOLE)
    settled(written.path)
    migrate(str(written.path), partitions=5, stopped=True, planned_batch=False)
    assert doctor(written.path).codes == []
    assert judge.restart(written, MORE_WHOLE) == written.expected.run(MORE_WHOLE)


@pytest.mark.parametrize("operator", ["agg_update", "join", "for_a_day_rows"] if FULL else ["agg_update"])
def test_entries_are_where_sparks_own_repartition_puts_them(judge: Judge, operator: str) -> None:
    query = replace(rocksdb(operator, changelog=False), join_format=3)
    written = judge.write(query, WHOLE, layout="snapshot")
    _, (ours, theirs) = copies_of(judge, written)
    before = entries_of(written.path)
    migrate(str(ours.path), partitions=5, stopped=True)
    judge.repartition(theirs, 5)
    # ``entries_of`` requires that each entry is in the partition of its hash.
    assert entries_of(ours.path) == before
    assert without_ids(entries_of(theirs.path)) == without_ids(before)


def without_ids(entries: Entries) -> Entries:
    """Return entries without the ids of column families, to which Spark's repartition gives other numbers."""
    return Counter({(store, state, key[2:], value): n for (store, state, key, value), n in entries.items()})


def test_a_rollback_is_refused_once_the_query_has_begun_a_batch(judge: Judge, tmp_path: Path) -> None:
    written = judge.write(Query("agg_update"), WHOLE)
    settled(written.path)
    migrate(str(written.path), partitions=5, stopped=True)
    model = written.expected
    judge.crash(written, MORE_WHOLE[:1])  # in the planned batch
    before = tree(written.path)
    assert not (written.path / "commits/3").exists()
    with pytest.raises(RefusedError, match=r"batch 3 was begun and not committed.* only continue with the new state"):
        rollback(str(written.path), stopped=True)
    with pytest.raises(RefusedError, match="batch 3 was begun after the migration"):
        rollback(str(end_halfway(copy(written.path, tmp_path / "halfway"))), stopped=True)
    assert tree(written.path) == before
    assert judge.restart(written, MORE_WHOLE[1:]) == model.run(MORE_WHOLE)


@pytest.mark.wide
@pytest.mark.parametrize("operator", narrow(["dedup_interval", "dedup_void"]))
def test_keys_with_a_hash_of_their_own_continue(judge: Judge, operator: str) -> None:
    continues(judge, Query(operator), NEWEST)


def test_keys_in_the_wrong_partition_are_named(inputs: Judge) -> None:
    written = inputs.write(Query("agg_update", partitions=3), WHOLE, layout="snapshot")
    settled(written.path)
    exchange(written.path)
    before = tree(written.path)
    entries = doctor(written.path).document["entries"]
    with pytest.raises(RefusedError, match=rf"{entries} keys are not in the partition that Spark's hash gives"):
        migrate(str(written.path), partitions=2, stopped=True)
    assert tree(written.path) == before


if FULL:

    def test_keys_that_spark_places_by_some_columns_are_refused(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
        """In one partition, the keys do not show how Spark places them. ``migrate`` must not assume it."""
        written = judge.write(Query("agg_repartitioned", partitions=1), WHOLE, layout="snapshot", version="3.2")
        settled(written.path)
        before = tree(written.path)
        with pytest.raises(RefusedError, match="keys in 1 partition do not show"):
            migrate(str(written.path), partitions=5, stopped=True)
        assert tree(written.path) == before
        _, (migrated, same) = copies_of(judge, written)
        monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
        migrate(str(migrated.path), partitions=5, stopped=True)
        with pytest.raises(AssertionError):  # the loss that the refusal prevents: the same keys count from 1 again
            emit_the_same(judge, same, migrated, WHOLE)


def test_a_limit_stays_in_one_partition(inputs: Judge) -> None:
    written = inputs.write(Query("first_rows"), WHOLE, layout="deltas")
    settled(written.path)
    with pytest.raises(UsageError, match="every operator of this query in a single partition"):
        migrate(str(written.path), partitions=3, stopped=True)


@pytest.mark.wide
def test_a_batch_that_was_not_committed_runs_again(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), WHOLE, uncommitted=MORE_WHOLE[0])
    settled(end_halfway(written.path))
    migrate(str(written.path), partitions=4, stopped=True)
    assert len(inspect(str(written.path)).states()) == 1
    assert judge.restart(written, MORE_WHOLE[1:]) == written.expected.run(MORE_WHOLE[1:])


@pytest.mark.wide
def test_a_second_migration_keeps_the_planned_batch(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), WHOLE)
    settled(written.path)
    model = written.expected
    first = migrate(str(written.path), partitions=5, stopped=True)
    before = tree(written.path)
    migrate(str(written.path), partitions=3, provider="rocksdb", stopped=True)
    assert inspect(str(written.path)).planned_by == first.run
    assert doctor(written.path).codes == ["planned-batch"]
    rollback(str(written.path), stopped=True)
    changed = {path for path, content in tree(written.path).items() if before.get(path) != content}
    assert not [path for path in changed if not path.startswith("_ttlsnap")]
    assert inspect(str(written.path)).planned_by == first.run
    migrate(str(written.path), partitions=3, provider="rocksdb", stopped=True)
    written.query = replace(written.query, provider="rocksdb", partitions=3)
    model.plan_empty()
    assert judge.restart(written, MORE_WHOLE) == model.run(MORE_WHOLE)


@pytest.mark.wide
@pytest.mark.parametrize("name", rotating(list(REPORTED), 6, "public reports"))
def test_queries_of_public_reports_continue(judge: Judge, name: str) -> None:
    continues(judge, rocksdb(name, changelog=True) if name in IN_ROCKSDB else Query(name), NEWEST)
