"""A query that uses one source twice. This module runs in a server of the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def run(spark: Any, events: str, checkpoint: str) -> None:
    """Run a query that reads two sources, the first one twice."""
    folder = Path(events)

    def read(name: str) -> Any:
        files = spark.readStream.schema("key string, value bigint").option("maxFilesPerTrigger", 1)
        return files.json(str(folder / name))

    for number in range(3):
        for name in ("a", "b")[: 2 if number else 1]:
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / f"{number}.json").write_text(f'{{"key": "k{number}", "value": {number}}}\n')
    (folder / "b").mkdir(exist_ok=True)
    twice = read("a")
    counts = twice.union(read("b")).union(twice).groupBy("key").count()
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    query = writer.foreachBatch(lambda frame, _: frame.collect()).trigger(availableNow=True).start()
    query.awaitTermination()
