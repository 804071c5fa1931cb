"""Sources get names, or other names, and real Spark goes on with them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ttlsnap import NewQuery, doctor, migrate, rewind, rollback, set_positions, sources
from ttlsnap.check import compare
from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION
from ttlsnap.contract import Contract, contract_of_checkpoint
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError

from ..cli.running import Ttlsnap
from ..judge.spark import Judge
from ..publishing.trees import tree
from ..samples import bytes_of, without_own
from .named import count
from .test_named_sources import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTED = ("visits", "clicks")


def rename(checkpoint: Path, positions: Any = None, **options: Any) -> Any:
    report = set_positions(str(checkpoint), positions, stopped=True, **options)
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

    with pytest.raises(UsageError, match="in runs of their own"):
        rename(checkpoint, {"0": {"logOffset": 1}}, new_names={"0": "seen", "1": "clicked"})
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


def test_a_name_may_be_a_number(spark: SparkSession, job: tuple[Path, Path]) -> None:
    events, checkpoint = job
    count(spark, events, checkpoint, {"visits": "2025", "clicks": "b"}, offsetLog_formatVersion="2")
    rename(checkpoint, new_names={"b": "c"}, planned_batch=False)
    put(events / "clicks", 9, "click")
    assert count(spark, events, checkpoint, {"visits": "2025", "clicks": "c"}) == {"click": 3}


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
        ({"0": "a" * 201, "1": "b"}, "source 0 cannot have the name aaaa"),
        ({"0": "visits"}, "all sources of a query have names, or none has one. Without one would be: 1. With one: 0"),
        ({"0": "a", "1": "a"}, "two sources would have the same name"),
        ({"0": "a", "1": "b-c"}, "source 1 cannot have the name b-c: Spark allows letters, digits and underscores"),
        ({"0": "a", "1": "../b"}, "source 1 cannot have the name ../b"),
        ({"0": "a", "2": "b"}, "the query has no source 2"),
        ({"0": "1", "1": "2"}, "give the sources their numbers from 0 to 1"),
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


def other(contract: Contract, *names: str, log: int = 2) -> Contract:
    """Return the contract of a query with sources of these names."""
    conf = {**contract.conf, SOURCE_EVOLUTION: str(bool(names)).lower()}
    number = len(names) or contract.sources
    return replace(contract, conf=conf, source_names=names or None, sources=number, offset_log=log)


def findings(old: Contract, new: Contract) -> list[tuple[str, str, str]]:
    return [(found.code, found.verdict.value, found.fix) for found in compare(old, new).findings]


def test_check_says_what_real_spark_does_with_other_names(spark: SparkSession, job: tuple[Path, Path]) -> None:
    events, checkpoint = job
    named: dict[str, str | None] = {"visits": "visits", "clicks": "clicks"}
    assert count(spark, events, checkpoint, named, offsetLog_formatVersion="2") == {"visit": 4, "click": 2}
    old = contract_of_checkpoint(str(checkpoint))
    assert old.source_names == ("clicks", "visits")

    assert findings(old, other(old, "clicks", "taps", "visits")) == [("sources", "as_is", "")]
    put(events / "taps", 1, "tap")
    put(events / "clicks", 7, "click")
    assert count(spark, events, checkpoint, {"taps": "taps", **named}) == {"tap": 1, "click": 3}

    old = contract_of_checkpoint(str(checkpoint))
    assert findings(old, other(old, "clicks", "visits")) == [("sources", "as_is", "")]
    put(events / "visits", 7, "visit")
    assert count(spark, events, checkpoint, named) == {"visit": 5}

    with pytest.raises(UsageError, match="another source had the name taps in batch"):
        set_positions(str(checkpoint), new_names={"clicks": "taps"}, stopped=True)

    old = contract_of_checkpoint(str(checkpoint))
    ((code, verdict, fix),) = findings(old, other(old, "seen", "visits"))
    assert (code, verdict) == ("sources", "unknown")
    assert "ttlsnap sources CHECKPOINT --rename clicks=seen." in fix
    put(events / "clicks", 8, "click")
    assert count(spark, events, checkpoint, {"visits": "visits", "clicks": "seen"}) == {"click": 3 + 4}  # all again

    old = contract_of_checkpoint(str(checkpoint))
    ((code, verdict, fix),) = findings(old, other(old))
    assert (code, verdict) == ("sources", "after_migration")
    assert "--rename seen=NUMBER --rename visits=NUMBER" in fix
    with pytest.raises(Exception, match="All sources should be named"):
        count(spark, events, checkpoint, dict.fromkeys(LISTED))


def test_check_knows_a_query_that_gets_names(spark: SparkSession, job: tuple[Path, Path]) -> None:
    events, checkpoint = job
    assert count(spark, events, checkpoint, dict.fromkeys(LISTED)) == {"visit": 4, "click": 2}
    old = contract_of_checkpoint(str(checkpoint))
    ((code, verdict, fix),) = findings(old, other(old, "clicks", "visits"))
    assert (code, verdict) == ("sources", "after_migration")
    assert "ttlsnap sources CHECKPOINT --rename 0=NAME --rename 1=NAME gives" in fix
    with pytest.raises(Exception, match="batch 3 doesn't exist"):
        count(spark, events, checkpoint, {"visits": "visits", "clicks": "clicks"})

    with pytest.raises(UnsupportedError, match="migrate does not change sources"):
        migrate(str(checkpoint), new_query=NewQuery(other(old, "clicks", "visits")), dry_run=True)

    # Spark 4.2 writes names only for the folders, where Spark 4.3 does not look.
    by_folder = other(old, "clicks", "visits", log=1)
    ((code, verdict, _),) = findings(by_folder, other(old, "clicks", "visits"))
    assert (code, verdict) == ("sources", "after_migration")
    assert findings(by_folder, other(old, "clicks", "visits", log=1)) == []
    assert [found[:2] for found in findings(by_folder, other(old, "clicks", log=1))] == [("sources", "incompatible")]
    assert [found[:2] for found in findings(by_folder, other(old, "clicks", "seen", log=1))] == [("sources", "unknown")]


@pytest.mark.wide
@pytest.mark.parametrize("before", ["3.5", "4.0", "4.2"])
def test_spark_4_3_goes_on_with_names(judge: Judge, job: tuple[Path, Path], before: str) -> None:
    """It refuses the checkpoint before that."""
    events, checkpoint = job
    job_of: dict[str, Any] = {"events": str(events), "checkpoint": str(checkpoint)}
    named = dict(zip(LISTED, LISTED, strict=True))
    first = named if before == "4.2" else dict.fromkeys(LISTED)
    run = partial(judge.call_in, Path(__file__).parent)
    assert run(before, "named.count", named=first, **job_of) == {"visit": 4, "click": 2}
    put(events / "visits", 9, "visit")
    with pytest.raises(Exception, match="CANNOT_ENABLE_ON_EXISTING_CHECKPOINT"):
        run("4.3", "named.count", named=named, **job_of)
    rename(checkpoint, new_names={"0": "visits", "1": "clicks"})
    put(events / "clicks", 9, "click")
    assert run("4.3", "named.count", named=dict(reversed(named.items())), **job_of) == {"visit": 5, "click": 3}


def test_names_of_a_source_that_has_no_log_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """Spark 4.2 has named its folder, and nothing shows which one that is."""
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    put(events / "visits", 1, "visit")
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set(SOURCE_EVOLUTION, "true")

    def run(rate: str) -> None:
        numbers = session.readStream.name(rate).format("rate").option("rowsPerSecond", 5).load()
        visits = session.readStream.name("visits").schema("key string").json(str(events / "visits"))
        counted = numbers.selectExpr("'n' AS key").unionByName(visits).groupBy("key").count()
        writer = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(once=True).start().awaitTermination()

    run("numbers")
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError, match="source 0: nothing shows which of the folders"):
        rename(checkpoint, new_names={"0": "other", "1": "visits"})
    assert bytes_of(checkpoint) == before
    rename(checkpoint, new_names={"0": "numbers", "1": "seen"})
    rename(checkpoint, new_names={"numbers": "other"})
    assert [source.name for source in sources(str(checkpoint)).sources] == ["other", "seen"]
    assert sorted(path.name for path in (checkpoint / "sources").iterdir()) == ["other", "seen"]


def test_other_files_in_the_folders_of_sources(spark: SparkSession, job: tuple[Path, Path], ttlsnap: Ttlsnap) -> None:
    """Temporary files stay, and stale checksums go to the backup. Other files are refused."""
    events, checkpoint = job
    count(spark, events, checkpoint, dict.fromkeys(LISTED))
    folders = checkpoint / "sources"
    (folders / "visits").write_text("")
    names = {"0": "visits", "1": "clicks"}
    with pytest.raises(RefusedError, match="sources/visits is not a folder"):
        rename(checkpoint, new_names=names)
    (folders / "visits").unlink()
    (folders / "0/notes").write_text("")
    with pytest.raises(UnsupportedError, match="sources/0/notes has no form that is known"):
        rename(checkpoint, new_names=names)
    (folders / "0/notes").unlink()
    (folders / "clicks").mkdir()
    (folders / "clicks/.2.crc").write_bytes(b"stale")
    (folders / "0/.9.4f.tmp").write_text("")
    twice = ["--rename", "0=visits", "--rename", "0=clicks", "--stopped", "--yes"]
    assert "--rename 0: give it only once" in ttlsnap("sources", str(checkpoint), *twice).err
    rename(checkpoint, new_names=names)
    assert not (folders / "clicks/.2.crc").exists()
    put(events / "clicks", 9, "click")
    assert count(spark, events, checkpoint, {"visits": "visits", "clicks": "clicks"}) == {"click": 3}
    same = ["--rename", "visits=visits", "--stopped", "--yes"]
    assert "there is nothing to change" in ttlsnap("sources", str(checkpoint), *same).out
