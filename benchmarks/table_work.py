"""The Delta tables that are measured, and what is done with them, all in one Spark session.

Ten million rows, half of which have expired: ``spread``, so that each file has some of both, or ``by time``, as a table
is that is clustered by it. Whatever changed a table is undone by ``RESTORE`` before the next has its turn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ttlsnap.clock import Clock
from ttlsnap.delta.run import compact_table
from ttlsnap.delta.session import CATALOG, EXTENSION
from ttlsnap.entries import StateEntries
from ttlsnap.state import StateDescriptor
from ttlsnap.transform import StateSnapshotTransformer
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000_000
FILES = 32
NOW = "2025-06-15T12:00:00Z"
TTL = "30d"
_CUTOFF = "TIMESTAMP '2025-05-16T12:00:00Z'"
_EXPIRED = f"last_seen <= {_CUTOFF}"
_RARE = 100
_WRITTEN = 1  # the version of a new table: rows, and then its properties


@contextmanager
def session() -> Iterator[SparkSession]:
    """A session with Delta, on all cores."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers load the transformer from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.databricks.delta.snapshotPartitions": "4",
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
    }
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = configure_spark_with_delta_pip(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class Capped:
    """One row in a hundred gets another value."""

    def create(self, state: StateDescriptor, clock: Clock) -> StateSnapshotTransformer:
        return _Capped()


class _Capped:
    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        visits, _ = entries.words("value.visits")
        much = visits == _RARE - 1
        values = entries.value_structs.filter(pa.array(much))
        names = [field.name for field in values.type]
        columns = [values.field(place) for place in range(len(names))]
        place = names.index("visits")
        columns[place] = pc.multiply(columns[place], 0)
        return entries.replace_values(pa.StructArray.from_arrays(columns, names), np.asarray(much))


class DeltaTable:
    """A table, made where it is missing."""

    def __init__(self, spark: SparkSession, folder: Path, by_time: bool, vectors: bool) -> None:
        self._spark = spark
        self.path = folder / f"table-{'time' if by_time else 'spread'}-{'vectors' if vectors else 'plain'}"
        self.name = f"delta.`{self.path}`"
        if not (self.path / "_delta_log").exists():
            self._write(by_time, vectors)

    def _write(self, by_time: bool, vectors: bool) -> None:
        # The time is a matter of chance, within two months.
        rows = self._spark.range(0, ROWS, 1, FILES).selectExpr(
            "id AS user_id",
            "timestamp_seconds(1749988800 - pmod(xxhash64(id), 5184000)) AS last_seen",
            f"id % {_RARE} AS visits",
            "concat('user-', xxhash64(id, 1)) AS name",
        )
        if by_time:
            rows = rows.repartitionByRange(FILES, "last_seen").sortWithinPartitions("last_seen")
        properties = {"ttlsnap.key": "user_id", "delta.enableDeletionVectors": str(vectors).lower()}
        writer = rows.write.format("delta").mode("overwrite")
        for name, value in properties.items():
            writer = writer.option(name, value)
        writer.save(str(self.path))
        words = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({words})")

    def restored(self, work: Callable[[], object]) -> Callable[[], Callable[[], object]]:
        """What puts the table back, and then gives the work."""

        def prepare() -> Callable[[], object]:
            self._spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {_WRITTEN}").collect()
            return work

        return prepare

    def delete(self) -> None:
        """By hand."""
        self._spark.sql(f"DELETE FROM {self.name} WHERE {_EXPIRED}").collect()

    def count(self) -> None:
        """What somebody asks before he deletes."""
        self._spark.sql(f"SELECT count(*), count_if({_EXPIRED}) FROM {self.name}").collect()

    def compact(self, **options: Any) -> Any:
        """By ttlsnap."""
        factory = TtlTransformerFactory(StateTtlConfig(parse_duration(TTL)), "last_seen")
        return compact_table(str(self.path), [factory], now=NOW, session=self._spark, **options)

    def rewrite(self) -> None:
        """By ttlsnap, one row in a hundred."""
        compact_table(str(self.path), [Capped()], now=NOW, session=self._spark)

    def scan_and_merge(self, changes: Path, compared: bool = False) -> None:
        """The same by hand: all is read once, and what is known to change is merged.

        With ``compared`` into rows alone that are still what was read, which is what ttlsnap does.
        """
        self._spark.read.format("delta").load(str(self.path)).write.format("noop").mode("overwrite").save()
        self._spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        still = "t.last_seen <=> s.last_seen AND t.visits <=> s.old_visits AND t.name <=> s.name"
        self._spark.sql(
            f"MERGE INTO {self.name} t USING changes s ON t.user_id = s.user_id "
            f"WHEN MATCHED {f'AND {still} ' if compared else ''}THEN UPDATE SET *"
        ).collect()

    def changes(self, folder: Path) -> Path:
        """What changes, ready to be merged."""
        path = folder / "changes"
        rows = self._spark.read.format("delta").load(str(self.path)).where(f"visits = {_RARE - 1}")
        columns = ("user_id", "last_seen", "visits * 0 AS visits", "name", "visits AS old_visits")
        rows.selectExpr(*columns).write.mode("overwrite").parquet(str(path))
        return path
