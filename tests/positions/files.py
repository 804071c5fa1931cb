"""A query that counts the rows of files, as any version of Spark runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_DAY_S = 86_400


def count(
    spark: Any, folder: str | Path, checkpoint: str | Path, retained: int = 2, options: dict[str, Any] | None = None
) -> dict[str, int]:
    """Run the query until it has read all files, one in each batch. Return the counts that the sink got.

    ``options`` are those of the source.
    """
    counts: dict[str, int] = {}
    start(spark, folder, checkpoint, counts, retained, options, availableNow=True).awaitTermination()
    return counts


def start(
    spark: Any,
    folder: str | Path,
    checkpoint: str | Path,
    counts: dict[str, int],
    retained: int = 2,
    options: dict[str, Any] | None = None,
    **trigger: Any,
) -> Any:
    """Start the query, which adds the counts that the sink gets to ``counts``. Every third file of its log is compact.

    ``trigger`` has the arguments of ``trigger``.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.minBatchesToRetain", str(retained))
    session.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "3")
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
