"""A query whose sources have names or none, as any version of Spark runs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import starmap
from pathlib import Path
from typing import Any


def count(
    spark: Any, events: str | Path, checkpoint: str | Path, named: Mapping[str, str | None], **conf: str
) -> dict[str, int]:
    """Run the query until it has read all events, and return the counts that its sink got.

    ``named`` has the names of the sources by their folders, and ``conf`` settings without ``spark.sql.streaming``.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    is_named = None not in named.values()
    session.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", str(is_named).lower())
    for name, value in conf.items():
        session.conf.set(f"spark.sql.streaming.{name.replace('_', '.')}", value)

    def read(folder: str, name: str | None) -> Any:
        reader = session.readStream if name is None else session.readStream.name(name)
        return reader.schema("key string").option("maxFilesPerTrigger", 1).json(f"{events}/{folder}")

    counts: dict[str, int] = {}

    def collect(frame: Any, batch: int) -> None:
        counts.update({row["key"]: row["n"] for row in frame.selectExpr("key", "count AS n").collect()})

    frame = reduce(lambda one, other: one.unionByName(other), starmap(read, named.items()))
    writer = frame.groupBy("key").count().writeStream.outputMode("update").foreachBatch(collect)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return counts
