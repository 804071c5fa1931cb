"""Sources with names (Spark 4.2). Their logs have these names; the offsets have none, unless the log has version 2."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ttlsnap import copy, doctor, rewind, sources
from ttlsnap.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTS = {"click": 2, "visit-0": 3, "visit-1": 3}


def put(folder: Path, number: int, key: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text(json.dumps({"key": key}))
    os.utime(path, (1_700_000_000 + number,) * 2)


def count(spark: SparkSession, events: Path, checkpoint: Path, log_version: str) -> dict[str, int]:
    """Run the query until it has read all events. Return the counts that the sink got."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    session.conf.set("spark.sql.streaming.offsetLog.formatVersion", log_version)

    def read(name: str) -> DataFrame:
        stream = session.readStream.name(name).schema("key string").option("maxFilesPerTrigger", 1)
        return stream.json(str(events / name))

    counts: dict[str, int] = {}

    def collect(frame: DataFrame, batch: int) -> None:
        counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

    # Not in the order of the alphabet, which is that of the folders.
    counted = read("visits").unionByName(read("clicks")).groupBy("key").count()
    writer = counted.writeStream.outputMode("update").foreachBatch(collect)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return counts


@pytest.mark.parametrize("log_version", ["1", "2"])
def test_named_sources(spark: SparkSession, tmp_path: Path, log_version: str) -> None:
    """``sources``, ``doctor``, ``copy`` and ``rewind`` find the logs, and a query goes on from what they leave."""
    events, checkpoint, copied = tmp_path / "events", tmp_path / "checkpoint", tmp_path / "copy"
    events.mkdir()
    for number in range(6):
        put(events / "visits", number, f"visit-{number % 2}")
    for number in range(2):
        put(events / "clicks", number, "click")
    assert count(spark, events, checkpoint, log_version) == COUNTS

    report = sources(str(checkpoint))
    assert report.log_version == int(log_version)
    names = ["visits", "clicks"] if log_version == "2" else ["0", "1"]
    found = [(source.name, source.position, source.log and source.log.folder) for source in report.sources]
    assert found == [(names[0], {"logOffset": 5}, "sources/visits"), (names[1], {"logOffset": 1}, "sources/clicks")]
    assert doctor(str(checkpoint)).problems == ()

    copy(str(checkpoint), str(copied), batch=3)
    logs = {folder.name: sorted(path.name for path in folder.glob("[0-9]*")) for folder in copied.glob("sources/*")}
    assert logs == {"visits": ["0", "1", "2", "3"], "clicks": ["0", "1"]}
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    (damaged / "sources/visits/5").unlink()
    (problem,) = doctor(str(damaged)).problems
    assert problem.code == "damaged-log"

    if log_version == "2":  # Spark has not recorded the number of partitions yet, and compares it for a planned batch
        with pytest.raises(RefusedError, match="offsets/2 does not have the number of partitions"):
            rewind(str(checkpoint), 2, stopped=True)
    rewind(str(checkpoint), 2, stopped=True, planned_batch=log_version == "1")
    put(events / "visits", 9, "visit-0")
    put(events / "clicks", 9, "click")
    wanted = {"click": 3, "visit-0": 4, "visit-1": 3}
    for place in (checkpoint, copied):
        assert count(spark, events, place, log_version) == wanted

    batch = sources(str(checkpoint)).batch
    assert batch is not None
    rewind(str(checkpoint), batch - 1, stopped=True)
    again = count(spark, events, checkpoint, log_version)
    assert again
    assert again.items() <= wanted.items()
