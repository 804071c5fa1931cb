"""Moves on every engine: each entry goes to its new partition, and an error leaves the checkpoint as it was."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttlsnap import EntryTransformerFactory, Keep, LocalEngine, SparkEngine, migrate
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.engines import shuffle
from ttlsnap.engines.automatic import AutoEngine
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.errors import CorruptionError, RefusedError, TransformerError
from ttlsnap.migration import task
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.query import NewQuery
from ttlsnap.unsaferow.rows import Rows

from ..migration.entries import entries_of, rows_of
from ..new_query.contracts import change_everything, contract
from ..samples import bytes_of, sample

SAMPLES = ("agg-deltas-lz4-4.2", "join-4.2", "rocksdb-changelog-3.5", "rocksdb-ids-4.2", "visits-4.2", "lists-4.2")


@pytest.fixture(params=["threads", "spark"])
def engine(request: pytest.FixtureRequest) -> MovingEngine:
    return LocalEngine(2) if request.param == "threads" else SparkEngine(session=request.getfixturevalue("spark"))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_engine_moves_every_entry(engine: MovingEngine, tmp_path: Path, name: str) -> None:
    target, counts = sample(name, tmp_path), Counter[str]()
    before = entries_of(target)

    class Listener:
        def planned(self, steps: int) -> None:
            counts["steps"] = steps

        def progress(self, entries: int, dropped: int) -> None:
            counts["entries"] += entries

        def partition_done(self) -> None:
            counts["done"] += 1

        def confirm(self, report: Any) -> bool:
            return True

    report = migrate(str(target), partitions=5, stopped=True, engine=engine, listener=Listener())
    assert entries_of(target) == before
    assert (report.engine, report.entries) == (engine.name, before.total())
    assert counts["done"] == counts["steps"] > 5
    assert not list(target.glob("_ttlsnap/runs/*/scratch"))


def test_every_engine_changes_the_provider(engine: MovingEngine, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = rows_of(target)
    assert migrate(str(target), provider="rocksdb", partitions=3, engine=engine, dry_run=True).published is False
    migrate(str(target), provider="rocksdb", partitions=3, stopped=True, engine=engine)
    assert rows_of(target) == before


@pytest.mark.parametrize("partitions", [None, 3])
def test_every_engine_changes_the_schema(engine: MovingEngine, tmp_path: Path, partitions: int | None) -> None:
    one, two = sample("join-4.2", tmp_path), sample("join-4.2", tmp_path / "two")
    wanted = contract(one, change_everything)
    answers = Answers(renamed={"left_value": "worth"}, fills={"value.extra": "7"}, narrow=True)
    parsed = parse_contract(json.dumps(wanted), "new")
    assert isinstance(parsed, Contract)
    new = NewQuery(parsed, answers=answers)
    for target, each in ((one, LocalEngine(1)), (two, engine)):
        migrate(str(target), new_query=new, partitions=partitions, engine=each, stopped=True)
    assert rows_of(one) == rows_of(two)
    assert contract_of_checkpoint(str(one)) == contract_of_checkpoint(str(two))


def test_an_error_leaves_every_byte_as_it_was(engine: MovingEngine, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    damaged = target / "state/0/1/1.delta"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = bytes_of(target)
    with pytest.raises(CorruptionError, match=r"1\.delta"):
        migrate(str(target), partitions=3, stopped=True, engine=engine)
    assert bytes_of(target) == before


def test_an_error_of_a_transformer_is_named(engine: MovingEngine, tmp_path: Path) -> None:
    def fail(key: Any, value: Any) -> Keep:  # here, so that Spark sends it to its workers
        raise ValueError("not today")

    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(TransformerError, match="not today"):
        migrate(str(target), partitions=3, transformers=[EntryTransformerFactory(fail)], stopped=True, engine=engine)
    assert bytes_of(target) == before


def test_misplaced_keys_are_refused(engine: MovingEngine, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    for path in [path for path in (target / "state/0/0").iterdir() if path.is_file()]:
        path.rename(target / "here")
        (target / "state/0/1" / path.name).rename(path)
        (target / "here").rename(target / "state/0/1" / path.name)
    before = bytes_of(target)
    with pytest.raises(RefusedError, match="not in the partition that Spark's hash gives"):
        migrate(str(target), partitions=3, stopped=True, engine=engine)
    assert bytes_of(target) == before


def test_an_entry_that_spark_loses_is_noticed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, real = bytes_of(target), shuffle.take

    def lossy(outcomes: Any) -> list[Any]:
        found = real(outcomes)
        if isinstance(found[0], task.Built):
            received = replace(found[0].received, sum=found[0].received.sum + 1)
            found[0] = replace(found[0], received=received)
        return found

    monkeypatch.setattr("ttlsnap.engines.spark.take", lossy)
    with pytest.raises(CorruptionError, match="do not have the entries of the old ones"):
        migrate(str(target), partitions=3, stopped=True, engine=SparkEngine(session=spark))
    assert bytes_of(target) == before


def test_the_hash_puts_each_place_into_its_partition(spark: Any) -> None:
    for count in (1, 2, 7, 200):
        frame = spark.createDataFrame([(place,) for place in shuffle.find_places(count)], "place long")
        found = frame.repartition(count, "place").selectExpr("spark_partition_id() AS id", "place").collect()
        places = {row["id"]: row["place"] for row in found}
        assert [places[number] for number in range(count)] == shuffle.find_places(count)


def test_pieces_have_every_entry_and_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "PIECE_BYTES", 100)
    keys = Rows.of([bytes([number]) * (number % 13) for number in range(200)])
    values = Rows.of([bytes([number]) * (300 if number == 7 else number % 29) for number in range(200)])
    order = np.arange(199, -1, -1)
    pieces = list(shuffle.cut([(keys, values), (Rows.none(), Rows.none()), (keys.take(order), values.take(order))]))
    found = [shuffle.join(piece) for piece in pieces]
    wanted = list(zip(keys.to_list(), values.to_list(), strict=True))
    assert [pair for k, v in found for pair in zip(k.to_list(), v.to_list(), strict=True)] == [*wanted, *wanted[::-1]]
    assert all(len(keys) == 1 or keys.size.sum() + values.size.sum() <= 100 for keys, values in found)
    assert len(pieces) > 50


def test_a_large_state_moves_on_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = entries_of(target)
    monkeypatch.setattr("ttlsnap.engines.automatic.LARGE", 1)
    monkeypatch.setattr("ttlsnap.engines.automatic.find_session", lambda: None)
    report = migrate(
        str(target), partitions=3, stopped=True, engine=AutoEngine(LocalEngine(1), SparkEngine(session=spark))
    )
    assert (report.engine, report.engine_reason) == ("spark", "the state is large")
    assert entries_of(target) == before
