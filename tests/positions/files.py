"""A query that counts the rows of files, as any version of Spark runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_DAY_S = 86_400


def count(spark: Any, folder: str | Path, checkpoint: str | Path, **how: Any) -> dict[str, int]:
    """Run the query as ``start`` does, until it has read all files. Return the counts that the sink got."""
    counts: dict[str, int] = {}
    start(spark, folder, checkpoint, counts, availableNow=True, **how).awaitTermination()
    return counts


def start(
    spark: Any,
    folder: str | Path,
    checkpoint: str | Path,
    counts: dict[str, int],
    retained: int = 2,
    options: dict[str, Any] | None = None,
    interval: int = 3,
    **trigger: Any,
) -> Any:
    """Start the query, which reads a file in each batch, and adds the counts that the sink gets to ``counts``.

    ``retained`` batches are retained, and every ``interval``-th file of the log is compact. ``options`` are those of
    the source, and ``trigger`` those of ``trigger``.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.minBatchesToRetain", str(retained))
    session.conf.set("spark.sql.streaming.fileSource.log.compactInterval", str(interval))
    stream = session.readStream.schema("key string").option("maxFilesPerTrigger", 1).options(**options or {})

    def collect(frame: Any, batch: int) -> None:
        counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

    writer = stream.json(str(folder)).groupBy("key").count().writeStream.outputMode("update").foreachBatch(collect)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def put(folder: Path, name: str, day: float, key: str = "k") -> None:
    """Write a file with one row, of a day after 2023-11-14."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"key": key}))
    os.utime(path, (1_700_000_000 + day * _DAY_S,) * 2)


def put_each(folder: Path, number: int, days: float) -> None:
    """Write files from 0.json on, so many days apart, each with a key of its own."""
    for n in range(number):
        put(folder, f"{n}.json", n * days, f"k{n}")


def remove(checkpoint: Path, *names: str) -> None:
    """Remove files of a checkpoint, each with its checksum file."""
    for path in map(checkpoint.joinpath, names):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
