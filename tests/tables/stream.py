"""What is done inside the process that has Spark with Delta: a stream that merges, runs, and looking at tables."""

from __future__ import annotations

import time
from typing import Any

EVENTS = "user STRING, visits BIGINT, at STRING"


def sql(spark: Any, statements: list[str]) -> list[list[Any]]:
    """Runs statements; the rows of the last one, with moments as text."""
    found = None
    for statement in statements:
        found = spark.sql(statement)
    return [] if found is None else [[_plain(value) for value in row] for row in found.collect()]


def merge(spark: Any, path: str, source: str, checkpoint: str, columns: str, pause_s: float = 0.0) -> int:
    """A stream that merges the last event of each user into the table, retried as a job would be; batches done.

    ``columns`` are expressions over the events, which give the table's columns. Between batches it waits ``pause_s``.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    done = []

    def write(frame: Any, batch: int) -> None:
        last = frame.selectExpr("*", "row_number() OVER (PARTITION BY user ORDER BY at DESC) AS nth").where("nth = 1")
        last.selectExpr(*columns.split(";")).createOrReplaceTempView("news")
        for attempt in range(20):
            try:
                frame.sparkSession.sql(
                    f"MERGE INTO delta.`{path}` t USING news s ON t.user = s.user "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
                break
            except Exception as error:
                if "DELTA_CONCURRENT" not in str(error) or attempt == 19:
                    raise
        done.append(batch)
        time.sleep(pause_s)

    events = session.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(source)
    query = events.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    return len(done)


def compact(spark: Any, path: str, ttl: str, timestamp: str, **options: Any) -> dict[str, Any]:
    """One run, as the command line makes it."""
    from ttlsnap.delta.run import compact_table
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp)
    return compact_table(path, [factory], session=spark.newSession(), **options).to_json()


def rollback(spark: Any, path: str) -> int:
    """Undoes the last run; the table's version after it."""
    from ttlsnap.delta.history import rollback_table

    return rollback_table(path, session=spark.newSession())[1]


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
