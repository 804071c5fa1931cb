"""A query on Spark's ``rate`` source, which has no ``AvailableNow`` of its own, for the process with Spark."""

from __future__ import annotations

import time
from typing import Any

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


def run(spark: Any, checkpoint: str, wrapper: bool) -> list[list[int]]:
    """Run the query once with ``AvailableNow``. Return each batch with its number of rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set(WRAPPER, str(wrapper).lower())
    rows = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    query = rows.groupBy(rows["value"] % 3).count().writeStream.outputMode("update").format("noop")
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    time.sleep(1.1)  # the source makes its rows each second
    return [[each["batchId"], each["numInputRows"]] for each in query.recentProgress]
