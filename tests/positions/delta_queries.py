"""A query that reads a Delta table, as a server with Delta runs it."""

from __future__ import annotations

from typing import Any


def append(spark: Any, table: str, number: int) -> None:
    """Commit one row."""
    spark.range(number, number + 1).write.format("delta").mode("append").save(table)


def vacuum(spark: Any, table: str) -> None:
    """Write all rows into one file, and remove the others."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS").collect()


def in_commit_timestamps(spark: Any, table: str) -> None:
    """Let each later commit record its time, and every second one write a checkpoint."""
    properties = "'delta.enableInCommitTimestamps' = 'true', 'delta.checkpointInterval' = '2'"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ({properties})").collect()


def read(spark: Any, table: str, checkpoint: str, options: dict[str, str]) -> list[int]:
    """Run the query until it has read all rows. Return those that it has read."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    found: set[int] = set()

    def collect(frame: Any, batch: int) -> None:
        found.update(row["id"] for row in frame.collect())

    counted = session.readStream.format("delta").options(**options).load(table).groupBy("id").count()
    writer = counted.writeStream.outputMode("update").foreachBatch(collect).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)
