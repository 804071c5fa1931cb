"""A new streaming query that begins with the results of a batch job over two years of old orders.

    python start_with_history.py FOLDER

It makes its own orders in FOLDER. With your data, only the schema and the names differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ttlsnap import import_state

ORDERS = "customer STRING, amount BIGINT, at TIMESTAMP"


def totals(orders: DataFrame) -> DataFrame:
    """The query: orders and turnover of each customer."""
    return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("turnover"))


def run_query(spark: SparkSession, folder: Path) -> None:
    """Run the streaming query on everything that its source has."""
    orders = spark.readStream.schema(ORDERS).json(f"{folder}/orders")
    writer = totals(orders).writeStream.outputMode("update").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer = writer.foreachBatch(lambda rows, batch: rows.write.mode("overwrite").json(f"{folder}/results/{batch}"))
    writer.start().awaitTermination()


def main(folder: Path) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    days = spark.range(730).select(
        F.concat(F.lit("customer-"), F.col("id") % 50).alias("customer"),
        (F.col("id") % 7 + 1).alias("amount"),
        F.expr("timestamp '2024-01-01' + make_interval(0, 0, 0, cast(id as int))").alias("at"),
    )
    days.write.json(f"{folder}/old-orders")

    # 1. Run the query once without data. Spark writes the checkpoint: positions, settings, schemas. A source of files
    #    needs a file, which may be empty.
    (folder / "orders").mkdir()
    (folder / "orders" / "begin.json").touch()
    run_query(spark, folder)

    # 2. The batch job: the same aggregates over everything before that position. The fields of `key` and `value` are
    #    those that `ttlsnap inspect` shows: the grouping columns, and the buffers of the aggregates.
    old = spark.read.schema(ORDERS).json(f"{folder}/old-orders")
    history = old.groupBy("customer").agg(F.count("*").alias("count"), F.sum("amount").alias("sum"))
    table = history.select(F.struct("customer").alias("key"), F.struct("count", "sum").alias("value"))
    table.write.parquet(f"{folder}/history")

    # 3. Fill the state. On the command line: ttlsnap import FOLDER/checkpoint --from FOLDER/history --stopped
    report = import_state(f"{folder}/checkpoint", f"{folder}/history", stopped=True)
    print(f"imported {report.rows} customers; the query reads on from {report.sources}")

    # 4. New orders arrive, and the query continues.
    (folder / "orders" / "new.json").write_text(
        '{"customer": "customer-7", "amount": 100, "at": "2026-01-01T08:00:00"}\n'
        '{"customer": "customer-new", "amount": 5, "at": "2026-01-01T09:00:00"}\n'
    )
    run_query(spark, folder)
    newest = max((folder / "results").iterdir(), key=lambda path: int(path.name))
    spark.read.json(str(newest)).orderBy("customer").show()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir() or any(Path(sys.argv[1]).iterdir()):
        sys.exit("usage: python start_with_history.py FOLDER, which must exist and be empty")
    main(Path(sys.argv[1]).absolute())
