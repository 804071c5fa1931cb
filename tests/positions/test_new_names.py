"""Sources get names, or other names, and real Spark goes on with them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import doctor, rewind, rollback, set_positions, sources
from ttlsnap.errors import RefusedError, UsageError

from ..publishing.trees import tree
from ..samples import bytes_of, without_own
from .test_named_sources import put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED = ("visits", "clicks")


def count(
    spark: SparkSession, events: Path, checkpoint: Path, named: Mapping[str, str | None], **conf: str
) -> dict[str, int]:
    """Run the query until it has read all events. ``named`` has the names of the sources by their folders."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    is_named = None not in named.values()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", str(is_named).lower())
    for name, value in conf.items():
        session.conf.set(f"spark.sql.streaming.{name.replace('_', '.')}", value)

    def read(folder: str, name: str | None) -> DataFrame:
        reader = session.readStream if name is None else session.readStream.name(name)
        return reader.schema("key string").option("maxFilesPerTrigger", 1).json(str(events / folder))

    counts: dict[str, int] = {}

    def collect(frame: DataFrame, batch: int) -> None:
        counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

    first, second = (read(folder, name) for folder, name in named.items())
    writer = first.unionByName(second).groupBy("key").count().writeStream.outputMode("update").foreachBatch(collect)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return counts


def rename(checkpoint: Path, **options: Any) -> Any:
    report = set_positions(str(checkpoint), stopped=True, **options)
    assert {problem.code for problem in doctor(str(checkpoint)).problems} <= {"planned-batch", "uncommitted-batch"}
    return report


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path]:
    events = tmp_path / "events"
    events.mkdir()
    for number in range(4):
        put(events / "visits", number, "visit")
    for number in range(2):
        put(events / "clicks", number, "click")
    return events, tmp_path / "checkpoint"


def test_an_unnamed_query_gets_names_and_loses_them(spark: SparkSession, job: tuple[Path, Path]) -> None:
    events, checkpoint = job
    unnamed, named = dict.fromkeys(LISTED), {"visits": "seen", "clicks": "clicked"}
    assert count(spark, events, checkpoint, unnamed) == {"visit": 4, "click": 2}
    before = bytes_of(checkpoint)
    report = rename(checkpoint, new_names={"0": "seen", "1": "clicked"})
    assert [(one.name, one.new_name, one.folder, one.new_folder) for one in report.new_names] == [
        ("0", "seen", "sources/0", "sources/seen"),
        ("1", "clicked", "sources/1", "sources/clicked"),
    ]
    assert sorted(path.name for path in (checkpoint / "sources").iterdir()) == ["clicked", "seen"]
    found = sources(str(checkpoint))
    assert (found.log_version, [source.name for source in found.sources]) == (2, ["seen", "clicked"])
    rollback(str(checkpoint), stopped=True)
    assert without_own(bytes_of(checkpoint)) == before

    rename(checkpoint, new_names={"0": "seen", "1": "clicked"})
    put(events / "visits", 8, "visit")
    put(events / "clicks", 8, "click")
    # The order does not matter for sources with names.
    assert count(spark, events, checkpoint, dict(reversed(named.items()))) == {"visit": 5, "click": 3}

    # The names also are in the older batches.
    rewind(str(checkpoint), 2, stopped=True)
    assert count(spark, events, checkpoint, named) == {"visit": 5, "click": 3}

    rename(checkpoint, new_names={"seen": "0", "clicked": "1"})
    put(events / "visits", 9, "visit")
    put(events / "clicks", 9, "click")
    assert count(spark, events, checkpoint, unnamed) == {"visit": 6, "click": 4}


def test_names_change_places(spark: SparkSession, job: tuple[Path, Path]) -> None:
    """A name that another source had; and the log of a source that the query does not have any more gives way."""
    events, checkpoint = job
    named = {"visits": "a", "clicks": "b"}
    assert count(spark, events, checkpoint, named, offsetLog_formatVersion="2") == {"visit": 4, "click": 2}
    put(events / "clicks", 6, "click")  # Spark 4.2 records the number of partitions from the second run on
    assert count(spark, events, checkpoint, named) == {"click": 3}
    leftover = checkpoint / "sources/c"
    shutil.copytree(checkpoint / "sources/b", leftover)
    rename(checkpoint, new_names={"a": "b", "b": "c"})
    assert tree(checkpoint / "sources/b").keys() >= {"0", "1", "2", "3"}
    put(events / "visits", 9, "visit")
    put(events / "clicks", 9, "click")
    assert count(spark, events, checkpoint, {"visits": "b", "clicks": "c"}) == {"visit": 5, "click": 4}


def test_names_without_a_version_2(spark: SparkSession, job: tuple[Path, Path]) -> None:
    """Spark 4.2 has written names only for the folders; Spark 4.3 would not start."""
    events, checkpoint = job
    named = {"visits": "visits", "clicks": "clicks"}
    assert count(spark, events, checkpoint, named) == {"visit": 4, "click": 2}
    assert sources(str(checkpoint)).log_version == 1
    with pytest.raises(UsageError, match="source 0 cannot get the name clicks: sources/visits is its folder"):
        rename(checkpoint, new_names={"0": "clicks", "1": "visits"})
    rename(checkpoint, new_names={"0": "visits", "1": "clicks"})
    assert sources(str(checkpoint)).log_version == 2
    put(events / "visits", 9, "visit")
    put(events / "clicks", 9, "click")
    assert count(spark, events, checkpoint, dict(reversed(named.items()))) == {"visit": 5, "click": 3}


def test_a_batch_that_was_begun_keeps_its_rows(spark: SparkSession, job: tuple[Path, Path]) -> None:
    events, checkpoint = job
    assert count(spark, events, checkpoint, dict.fromkeys(LISTED)) == {"visit": 4, "click": 2}
    newest = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / f"commits/{newest}").unlink()
    (checkpoint / f"commits/.{newest}.crc").unlink()
    before = bytes_of(checkpoint)
    report = rename(checkpoint, new_names={"0": "visits", "1": "clicks"})
    assert report.batch == newest - 1
    found = sources(str(checkpoint))
    assert (found.next_batch, found.is_planned) == (newest, False)
    rollback(str(checkpoint), stopped=True)
    assert without_own(bytes_of(checkpoint)) == before
    rename(checkpoint, new_names={"0": "visits", "1": "clicks"})
    put(events / "clicks", 9, "click")
    counts = count(spark, events, checkpoint, {name: name for name in LISTED})
    assert counts["click"] == 3
    assert counts.get("visit", 4) == 4


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"0": "visits"}, "all sources of a query have names, or none has one. Still without one: 1"),
        ({"0": "a", "1": "a"}, "two sources would have the same name"),
        ({"0": "a", "1": "b-c"}, "source 1 cannot have the name b-c: Spark allows letters, digits and underscores"),
        ({"0": "a", "1": "../b"}, "source 1 cannot have the name ../b"),
        ({"0": "a", "2": "b"}, "the query has no source 2"),
        ({"0": "1", "1": "2"}, "sources without names have the numbers from 0 to 1"),
    ],
)
def test_wrong_names_change_nothing(
    spark: SparkSession, job: tuple[Path, Path], names: dict[str, str], message: str
) -> None:
    events, checkpoint = job
    for path in (events / "visits").iterdir():
        if path.name != "0.json":
            path.unlink()
    count(spark, events, checkpoint, dict.fromkeys(LISTED))
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError, match=message):
        rename(checkpoint, new_names=names)
    assert bytes_of(checkpoint) == before


def test_a_source_that_is_used_twice_gets_no_name(spark: SparkSession, tmp_path: Path) -> None:
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    put(events / "visits", 1, "visit")
    frame = spark.newSession().readStream.schema("key string").json(str(events / "visits"))
    counted = frame.unionByName(frame.selectExpr("upper(key) AS key")).groupBy("key").count()
    writer = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(RefusedError, match="the query uses a source twice"):
        rename(checkpoint, new_names={"0": "a", "1": "b"})
