"""One suite for all engines: the same results, the same bytes, one transformer per partition and thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import (
    EntryTransformerFactory,
    Keep,
    LocalEngine,
    SilentListener,
    SparkEngine,
    StateDescriptor,
    StateEntries,
    StateSnapshotTransformer,
    compact,
    inspect,
)
from ttlsnap.clock import Clock, TimeCharacteristic
from ttlsnap.compaction.engine import Done, Engine
from ttlsnap.compaction.partition import compact_partition
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.entries.batch import RowEntries
from ttlsnap.errors import RefusedError, StorageError, TransformerError
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory, Verdict
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.queries import Event, Query
from ..judge.spark import Judge
from ..matrix import FULL
from ..migration.entries import entries_of
from ..samples import COMPACTABLE, ROCKSDB, SAMPLES, bytes_of, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("one thread", "threads", "spark")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    match request.param:
        case "one thread":
            return LocalEngine(1)
        case "threads":
            return LocalEngine(2)
    return SparkEngine(session=request.getfixturevalue("spark"))


@pytest.fixture(scope="module")
def many_partitions(inputs: Judge) -> Path:
    """Return a checkpoint of eight partitions."""
    events = [Event(f"k{i}", 1_700_000_000 + i, i) for i in range(400)]
    return inputs.write(Query(partitions=8), [events[:200], events[200:]]).path


def _compact(target: Path, factory: StateSnapshotTransformerFactory, engine: Engine, **options: Any) -> Any:
    return compact(str(target), [factory], engine=engine, stopped=True, max_drop=1.0, **options)


def ttl(seconds: int, field: str) -> TtlTransformerFactory:
    return TtlTransformerFactory(StateTtlConfig(seconds * 1_000_000), field, TimeCharacteristic.PROCESSING)


@pytest.mark.parametrize("name", ROCKSDB)
def test_every_engine_stages_the_same_entries(engine: Engine, tmp_path: Path, name: str) -> None:
    here, reference = sample(name, tmp_path / "here"), sample(name, tmp_path / "reference")
    found = _compact(reference, ttl(1, COMPACTABLE[name]), LocalEngine(1), dry_run=True, now="wall")
    newest = next(state.newest_us for state in found.states if state.newest_us is not None)
    factory, now = ttl(1, COMPACTABLE[name]), _iso(newest)
    wanted = _compact(reference, factory, LocalEngine(1), now=now)
    report = _compact(here, factory, engine, now=now)
    assert replace(report.totals, bytes_after=0) == replace(wanted.totals, bytes_after=0)
    assert report.totals.dropped > 0
    left = inspect(str(here), entries=100).samples
    assert left == inspect(str(reference), entries=100).samples != inspect(str(SAMPLES / name), entries=100).samples
    assert not [path for path in here.rglob("*") if "scratch" in path.parts]


@pytest.mark.parametrize("name", sorted(COMPACTABLE.keys() - set(ROCKSDB)))
def test_every_engine_stages_the_same_bytes(engine: Engine, tmp_path: Path, name: str) -> None:
    here, reference = sample(name, tmp_path / "here"), sample(name, tmp_path / "reference")
    newest = _compact(reference, ttl(1, COMPACTABLE[name]), LocalEngine(1), dry_run=True).states[0].newest_us
    factory, now = ttl(1, COMPACTABLE[name]), f"{_iso(newest)}"
    wanted = _compact(reference, factory, LocalEngine(1), now=now)
    report = _compact(here, factory, engine, now=now)
    assert report.totals == wanted.totals
    assert report.states == wanted.states
    assert report.totals.dropped > 0
    assert bytes_of(here / "state") == bytes_of(reference / "state")


def _iso(micros: int) -> str:
    from ttlsnap.clock import iso

    return iso(micros) or ""


def confined() -> StateSnapshotTransformerFactory:
    """Return a factory whose transformers require one thread and one partition each.

    Its classes are made inside a function, so that they are pickled by value: the workers cannot import the tests.
    """

    class Confined:
        def __init__(self, state: StateDescriptor) -> None:
            self.thread, self.state, self.seen = threading.get_ident(), state, 0

        def filter_or_transform(self, entries: StateEntries) -> StateEntries:
            assert threading.get_ident() == self.thread, "a transformer saw two threads"
            assert entries.state == self.state, "a transformer saw two partitions"
            self.seen += 1
            return entries.filter(entries.words("value.count")[0] < 0)

    class Factory:
        def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
            return Confined(state)

    return Factory()


def test_each_partition_has_a_transformer_of_its_own_on_one_thread(engine: Engine, many_partitions: Path) -> None:
    report = _compact(many_partitions, confined(), engine, dry_run=True)
    assert (report.totals.entries, report.totals.dropped) == (400, 400)


def test_progress_counts_every_entry_and_partition(engine: Engine, many_partitions: Path) -> None:
    class Counting(SilentListener):
        entries = dropped = partitions = 0

        def progress(self, entries: int, dropped: int) -> None:
            self.entries, self.dropped = self.entries + entries, self.dropped + dropped

        def partition_done(self) -> None:
            self.partitions += 1

    listener = Counting()
    _compact(many_partitions, confined(), engine, dry_run=True, listener=listener)
    assert (listener.entries, listener.dropped, listener.partitions) == (400, 400, 8)


def test_a_transformer_that_raises_is_named_and_nothing_is_published(engine: Engine, many_partitions: Path) -> None:
    def fail_on_k300(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
        if key["key"] == "k300":
            raise LookupError("no tariff for k300")
        return Keep()

    before = bytes_of(many_partitions)
    with pytest.raises(TransformerError) as caught:
        _compact(many_partitions, EntryTransformerFactory(fail_on_k300), engine)
    message = str(caught.value)
    for words in ("operator 0 (stateStoreSave)", "partition ", "'key': 'k300'", "LookupError", "no tariff for k300"):
        assert words in message
    assert bytes_of(many_partitions) == before


@pytest.mark.parametrize("answer", ["None", "other entries", "twice"])
def test_a_transformer_that_returns_other_entries_is_an_error(
    engine: Engine, many_partitions: Path, answer: str
) -> None:
    def wrong() -> StateSnapshotTransformerFactory:
        class Wrong:
            def filter_or_transform(self, entries: StateEntries) -> StateEntries:
                import numpy as np

                match answer:
                    case "None":
                        return None  # type: ignore[return-value]
                    case "other entries":
                        index = np.arange(len(entries)) + 1
                    case _:
                        index = np.zeros(2, np.int64)
                assert isinstance(entries, RowEntries)
                keys, values = entries.keys.take(index % len(entries)), entries.values.take(index % len(entries))
                return RowEntries(entries.state, index, np.zeros(len(index), np.bool_), keys, values)

        class Factory:
            def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer | None:
                return Wrong()

        return Factory()

    before = bytes_of(many_partitions)
    with pytest.raises(TransformerError, match="the transformer returned"):
        _compact(many_partitions, wrong(), engine)
    assert bytes_of(many_partitions) == before


def test_the_spark_engine_refuses_a_checkpoint_whose_query_runs_in_its_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    query = (
        rows.groupBy((rows.value % 3).alias("k")).count().writeStream.outputMode("update").format("noop")
        .option("checkpointLocation", str(checkpoint)).start()
    )  # fmt: skip
    try:
        while not any(progress["numInputRows"] for progress in query.recentProgress):
            time.sleep(0.1)
        with pytest.raises(RefusedError, match="is running in this Spark application"):
            _compact(checkpoint, confined(), SparkEngine(session=spark))
    finally:
        query.stop()
    assert _compact(checkpoint, confined(), SparkEngine(session=spark)).totals.dropped > 0


SCRIPT = """
import json, sys
from ttlsnap import SparkEngine, compact, migrate
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
if __name__ == "__main__":
    factory = TtlTransformerFactory(StateTtlConfig.of(__import__("datetime").timedelta(days=7)), "value.max")
    master = sys.argv[2] if len(sys.argv) > 2 else None
    report = compact(sys.argv[1], [factory], engine=SparkEngine(master=master), stopped=True, now="2026-11-21")
    print("REPORT", json.dumps(report.to_json()["totals"]))
    migrate(sys.argv[1], partitions=5, engine=SparkEngine(master=master), stopped=True)
"""


# The cluster tests cover spark-submit as well.
@pytest.mark.wide
@pytest.mark.spark
@pytest.mark.parametrize("way", ["spark-submit", "connect"] if FULL else ["connect"])
def test_the_spark_engine_runs_under_spark_submit_and_over_connect(tmp_path: Path, way: str) -> None:
    target, script = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "job.py"
    reference = _compact(target, ttl(7 * 86_400, "value.max"), LocalEngine(1), now="2026-11-21", dry_run=True)
    script.write_text(SCRIPT)
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = (
        [*submit, str(script), str(target)] if way == "spark-submit" else [sys.executable, str(script), str(target)]
    )
    if way == "connect":
        # This starts a Connect server of its own, as `SparkSession.builder.remote("local[2]")` does.
        environment["SPARK_REMOTE"] = "local[2]"
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=180, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    assert json.loads(lines[0].removeprefix("REPORT ")) == reference.totals.to_json()
    assert reference.totals.dropped > 0
    assert entries_of(target).total() == reference.totals.kept
    assert {path.name for path in (target / "state/0").iterdir()} >= set("01234")


class TwiceEngine:
    """An engine with a second attempt at each task, interrupted while it writes.

    Spark does the same by speculation, and after it lost an executor.
    """

    name = "twice"

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        def fail(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
            raise LookupError("cut off")

        results = [compact_partition(task) for task in tasks]
        for task in tasks:
            (late,) = compact_partition(replace(task, factories=(EntryTransformerFactory(fail),)))
            assert late.failure is not None
        return results


@pytest.mark.parametrize("output", [False, True])
def test_a_second_attempt_does_not_change_the_staged_files_of_the_first(tmp_path: Path, output: bool) -> None:
    here, reference = sample("agg-deltas-lz4-4.2", tmp_path / "a"), sample("agg-deltas-lz4-4.2", tmp_path / "b")
    options: dict[str, Any] = {"now": "2090-01-01T00:00:00Z"}
    wanted = _compact(reference, ttl(1, "value.max"), LocalEngine(1), **options)
    if output:
        options["output"] = str(tmp_path / "new")
    report = _compact(here, ttl(1, "value.max"), TwiceEngine(), **options)
    assert (report.totals, report.published) == (wanted.totals, True)
    place = tmp_path / "new" if output else here
    names = {str(path.relative_to(place)) for path in place.glob("state/0/*/*")}
    new = {path: content for path, content in bytes_of(reference).items() if path.endswith(".snapshot")}
    assert new.items() <= bytes_of(place).items()
    assert not [name for name in names if name.endswith(".tmp")]


class LossyEngine:
    """An engine with a worker that does not share our storage."""

    name = "lossy"

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        results = [compact_partition(task) for task in tasks]
        (file,) = results[0][0].staged or ()
        Path(tasks[0].staging_root, file.path).unlink()
        return results


def test_a_snapshot_on_other_storage_is_missed_before_publishing(tmp_path: Path) -> None:
    here = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(here)
    with pytest.raises(StorageError, match="Check that all workers see the same storage"):
        _compact(here, ttl(1, "value.max"), LossyEngine(), now="2090-01-01T00:00:00Z")
    assert bytes_of(here) == before
