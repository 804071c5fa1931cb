"""Deduplications whose keys have another order of columns after a move to another Spark, on two real Sparks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.cli.app import run
from ttlsnap.operators.key_order import KeySample, KeySampling, find_two_orders
from ttlsnap.operators.scala_order import legacy_order, scala_orders
from ttlsnap.schema.types import StringType, StructField, StructType
from ttlsnap.unsaferow.encode import encode

from ..compaction.stories import rocksdb, settled
from ..judge.processes import NEWEST
from ..judge.queries import Event, Query
from ..judge.spark import Judge
from .asked import doctor

NAMES = ("tenant", "user", "device", "page", "action")
SPARK_3 = ("tenant", "page", "action", "user", "device")
SPARK_4 = ("tenant", "page", "device", "action", "user")
SAME = [Event(f"k{i}", 0, i) for i in range(40)]


@pytest.mark.wide
@pytest.mark.parametrize("query", [Query("dedup_many"), rocksdb("dedup_many", False)], ids=["hdfs", "rocksdb"])
@pytest.mark.parametrize("later", [NEWEST, *({"4.3"} - {NEWEST})])
def test_duplicates_come_through_after_a_move_from_scala_2_12_and_are_found(
    judge: Judge, query: Query, later: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written = judge.write(query, [SAME], version="3.5", layout="snapshot")
    moved = judge.copy(written)
    stayed = judge.restart(written, [SAME])
    assert [batch.rows for batch in stayed] == [()], "every row is a duplicate"
    came = judge.restart(moved, [SAME], version=later)
    assert [len(batch.rows) for batch in came] == [len(SAME)], "Spark compares only the types of the key's columns"
    for each in (written, moved):
        settled(each.path)
    assert doctor(written.path).codes == []
    found = doctor(moved.path)
    assert (found.code, found.codes) == (1, ["two-key-orders"])
    told = found.problem("two-key-orders")["message"]
    assert f"{', '.join(SPARK_3)} (Spark 3, Scala 2.12) and {', '.join(SPARK_4)} (Spark 4, Scala 2.13)" in told
    assert f"Of {2 * len(SAME)} compared keys, {len(SAME)} are there in both" in told
    for target, codes in ((written.path, []), (moved.path, ["two-key-orders"])):
        capsys.readouterr()
        run(["check", str(target), str(target), "--format", "json"])
        document = json.loads(capsys.readouterr().out)
        assert [finding["code"] for finding in document["findings"]] == codes


@pytest.mark.wide
def test_a_move_to_4_3_keeps_the_order_of_4_2(judge: Judge) -> None:
    written = judge.write(Query("dedup_many"), [SAME], version="4.2")
    assert [batch.rows for batch in judge.restart(written, [SAME], version="4.3")] == [()]
    settled(written.path)
    assert doctor(written.path).codes == []


def sample(columns: Sequence[Sequence[str | None]], partitions: int) -> list[KeySample]:
    """Return samples of keys with these columns, spread over partitions."""
    schema = StructType(tuple(StructField(name, StringType()) for name in NAMES))
    rows = encode(pa.StructArray.from_arrays([pa.array(c, pa.string()) for c in columns], list(NAMES)), schema)
    samplings = [KeySampling(schema, partitions) for _ in range(partitions)]
    for number, sampling in enumerate(samplings):
        for part in np.array_split(np.arange(number, len(rows), partitions), 3):
            sampling.look(rows.take(part))
    return [sampling.result() for sampling in samplings]


def test_a_few_pairs_among_many_keys_are_found_in_a_sample() -> None:
    count, twice = 400_000, 40_000
    old = [[f"{name}{i}" for i in range(count)] for name in NAMES]
    order = [SPARK_3.index(name) for name in SPARK_4]
    new = [old[place][:twice] for place in order]
    columns = [one + other for one, other in zip(old, new, strict=True)]
    found = find_two_orders(SPARK_3, sample(columns, 8))
    assert found is not None
    assert {found.first, found.second} == {SPARK_3, SPARK_4}
    assert found.compared < 300_000 and found.entries == count + twice
    # The same keys are in the sample in both orders.
    assert 0.8 < found.pairs / (twice * found.compared / found.entries) < 1.2


@pytest.mark.parametrize(
    "columns",
    [
        [[f"{name}{i}" for i in range(5000)] for name in NAMES],
        [[str(i % (place + 2)) for i in range(5000)] for place in range(5)],
        [["same"] * 50] * 5,
        [[None] * 50] * 5,
        [[]] * 5,
    ],
    ids=["all different", "few values", "one value", "null", "none"],
)
def test_keys_in_one_order_are_not_reported(columns: list[list[str | None]]) -> None:
    assert find_two_orders(NAMES, sample(columns, 4)) is None


def test_pairs_with_many_orders_are_coincidence() -> None:
    rng = np.random.default_rng(1)
    keys = [rng.permutation([f"{name}{i % 200}" for name in NAMES]).tolist() for i in range(4000)]
    assert find_two_orders(NAMES, sample([list(column) for column in zip(*keys, strict=True)], 4)) is None


def test_rows_in_both_directions_prove_nothing_unless_scala_has_both_orders() -> None:
    there = [[f"{name}{i}" for i in range(50)] for name in NAMES]
    for back, certain in (
        ([1, 0, 2, 3, 4], False),
        ([1, 0, 3, 2, 4], False),
        ([1, 2, 0, 3, 4], True),
    ):
        found = find_two_orders(NAMES, sample([[*there[p], *there[back[p]]] for p in range(5)], 4))
        assert found is not None
        assert (found.pairs, found.certain) == (50, certain)
    # The two orders of Scala can also differ only by swaps.
    names = ("dst", "sport", "id", "src", "dport")
    swapped = [[*there[p], *there[[0, 3, 4, 1, 2][p]]] for p in range(5)]
    found = find_two_orders(names, sample(swapped, 4))
    assert found is not None and found.certain
    assert {found.first, found.second} == scala_orders(names).keys()


def test_orders_are_those_that_spark_gave() -> None:
    assert scala_orders(NAMES) == {SPARK_3: "Spark 3, Scala 2.12", SPARK_4: "Spark 4, Scala 2.13"}
    assert legacy_order(NAMES) == SPARK_4
    assert legacy_order(NAMES[:4]) == NAMES[:4], "a set of four keeps its order"
    assert legacy_order(("a", "b", "c", "d", "e", "f", "g")) == ("e", "f", "a", "b", "g", "c", "d")
    # These two have the same hash.
    assert set(legacy_order(("Aa", "BB", "c", "d", "e"))) == {"Aa", "BB", "c", "d", "e"}
