"""A query that reads a Delta table with a schema log in its checkpoint, for the process with Spark and Delta."""

from __future__ import annotations

from typing import Any

_PROPERTIES = "'delta.columnMapping.mode'='name','delta.minReaderVersion'='2','delta.minWriterVersion'='5'"


def create(spark: Any, table: str) -> None:
    """Create a table whose columns can be renamed."""
    spark.sql(f"CREATE TABLE delta.`{table}` (k STRING, v BIGINT) USING delta TBLPROPERTIES ({_PROPERTIES})")


def put(spark: Any, table: str, column: str, values: list[int]) -> None:
    """Append a row for each value, with the same keys each time."""
    rows = [(f"k{key}", value) for key, value in enumerate(values)]
    spark.createDataFrame(rows, f"k string, {column} bigint").write.format("delta").mode("append").save(table)


def rename(spark: Any, table: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN v TO w")


def run(spark: Any, table: str, checkpoint: str, schema_log: str) -> list[list[Any]]:
    """Sum the second column for each key until nothing is left to read. Return the last rows, or the error.

    Delta ends the query each time it writes the schema log. The query then starts with the new schema.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.databricks.delta.streaming.allowSourceColumnRenameAndDrop", "always")
    got: list[list[Any]] = []

    def keep(frame: Any, batch: int) -> None:
        got[:] = sorted([row["k"], row["s"]] for row in frame.collect()) or got

    for _ in range(5):
        events = session.readStream.format("delta").option("schemaTrackingLocation", schema_log).load(table)
        sums = events.withColumnRenamed(events.columns[1], "n").groupBy("k").sum("n").withColumnRenamed("sum(n)", "s")
        writer = sums.writeStream.outputMode("update").foreachBatch(keep).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:
            if "source metadata path used for execution" in str(error):
                return [[str(error), 0]]
            if "SCHEMA" not in str(error) and "METADATA" not in str(error):
                raise
            continue
        return got
    raise AssertionError("Delta asks for another start each time")
