"""Another number of partitions: a query continues as it would have without the migration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap import inspect, rollback
from ttlsnap.migration.run import migrate

from ..compaction.stories import H, T, copies_of, copy_all, rocksdb, settled
from ..compaction.test_every_cell import MORE_WHOLE, WHOLE
from ..doctor.asked import doctor
from ..doctor.test_misplaced import ONLY_ROCKSDB, WITHOUT_KEYS, exchange
from ..judge.queries import ENDLESS, OPERATORS, Event, Query
from ..judge.spark import Events, Judge
from ..matrix import FULL
from ..publishing.trees import tree

SLICE = [
    Query("agg_window_update"),
    Query("dedup"),
    Query("join", join_type="left_outer"),
    Query("windows_of_windows"),
    Query("agg_update", row_checksum=True, codec="zstd"),
    rocksdb("agg_update", changelog=False),
    Query("join", provider="rocksdb", join_format=4),
    rocksdb("alarms", changelog=True, row_checksum=True),
    rocksdb("lists", changelog=True),
    rocksdb("sessions", changelog=True),
    rocksdb("agg_update", changelog=True, checkpoint_format=2),
]
EVERYTHING = [
    *(Query(operator) for operator in OPERATORS if operator not in (*ONLY_ROCKSDB, *WITHOUT_KEYS)),
    *(rocksdb(operator, changelog=True) for operator in OPERATORS if operator not in WITHOUT_KEYS),
    *SLICE,
]
NUMBERS = (7, 3, 1)
ROUNDS: list[list[Events]] = [
    [
        [Event(f"k{(number * 5 + i) % 29}", T + 4 * H + number * 900 + i, i + 1) for i in range(9)]
        for number in range(7 * step, 7 * step + 7)
    ]
    for step in range(len(NUMBERS))
]
ROUNDS[-1].append(MORE_WHOLE[1])


def name_of(query: Query) -> str:
    return f"{query.operator}-{query.provider}-{query.checkpoint_format}"


def errors(checkpoint: Path) -> set[str]:
    """Return the codes of the errors that ``doctor`` finds."""
    return {found["code"] for found in doctor(checkpoint).document["problems"] if found["severity"] == "error"}


@pytest.mark.parametrize("query", EVERYTHING if FULL else SLICE, ids=name_of)
def test_a_query_continues_with_another_number_of_partitions(judge: Judge, query: Query) -> None:
    layout = "both" if query.operator in ENDLESS else "snapshot"
    written = judge.write(replace(query, partitions=2), WHOLE, layout=layout)
    settled(written.path)
    _, (migrated, same) = copies_of(judge, written)
    for number, batches in zip(NUMBERS, ROUNDS, strict=True):
        report = migrate(str(migrated.path), partitions=number, stopped=True)
        assert {len(store.partitions) for store in report.stores} == {number}
        assert report.entries > 0
        wanted, found = (judge.restart(each, batches) for each in (same, migrated))
        # The planned batch of ttlsnap is empty.
        assert [batch.rows for batch in found if batch.rows] == [batch.rows for batch in wanted if batch.rows]
        assert any(batch.rows for batch in found)
        settled(migrated.path)
        assert errors(migrated.path) == errors(same.path)  # copies have the schema paths of their original
    copy_all(migrated.path)
    last: list[Events] = [[Event("k1", T + 31 * H, 1)], [Event("k1", T + 50 * H, 1)]]
    wanted, found = (judge.restart(each, last) for each in (same, migrated))
    assert [batch.rows for batch in found if batch.rows] == [batch.rows for batch in wanted if batch.rows]


@pytest.mark.parametrize("query", [Query("agg_update"), rocksdb("agg_update", changelog=True)], ids=name_of)
@pytest.mark.parametrize("number", [1, 5])
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


def test_keys_in_the_wrong_partition_are_named(judge: Judge) -> None:
    written = judge.write(Query("agg_update", partitions=3), WHOLE, layout="snapshot")
    settled(written.path)
    exchange(written.path)
    before = tree(written.path)
    entries = doctor(written.path).document["entries"]
    with pytest.raises(Exception, match=rf"{entries} keys are not in the partition that Spark's hash gives"):
        migrate(str(written.path), partitions=2, stopped=True)
    assert tree(written.path) == before


def test_a_limit_stays_in_one_partition(judge: Judge) -> None:
    written = judge.write(Query("first_rows"), WHOLE, layout="deltas")
    settled(written.path)
    with pytest.raises(Exception, match="every operator runs in a single partition"):
        migrate(str(written.path), partitions=3, stopped=True)


def test_a_batch_that_was_not_committed_runs_again(judge: Judge) -> None:
    written = judge.write(Query("agg_update"), WHOLE, uncommitted=MORE_WHOLE[0])
    settled(written.path)
    migrate(str(written.path), partitions=4, stopped=True)
    assert len(inspect(str(written.path)).states()) == 1
    assert judge.restart(written, MORE_WHOLE[1:]) == written.expected.run(MORE_WHOLE[1:])
