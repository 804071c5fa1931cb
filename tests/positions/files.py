"""A query that counts the rows of files, as any version of Spark runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def count(
    spark: Any, folder: str | Path, checkpoint: str | Path, retained: int = 2, options: dict[str, Any] | None = None
) -> dict[str, int]:
    """Run the query until it has read all files, one in each batch. Return the counts that the sink got.

    ``options`` are those of the source.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.streaming.minBatchesToRetain", str(retained))
    session.conf.set("spark.sql.streaming.fileSource.log.compactInterval", "3")
    stream = session.readStream.schema("key string").option("maxFilesPerTrigger", 1).options(**options or {})
    counts: dict[str, int] = {}

    def collect(frame: Any, batch: int) -> None:
        counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

    writer = stream.json(str(folder)).groupBy("key").count().writeStream.outputMode("update").foreachBatch(collect)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return counts
