"""The measured Delta tables and the work on them, all in one Spark session.

They have ten million rows, and half of these have expired: ``spread``, so that each file has some of both, or ``by
time``, as in a table that is clustered by it. ``RESTORE`` undoes each change before the next one.
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
from ttlsnap.entries.batch import StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.transform.protocols import StateSnapshotTransformer
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
    """Yield a session with Delta, on all cores."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Workers import the transformer from this folder.
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
    """A factory of transformers that give one row in a hundred another value."""

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
    """A table, created if it is missing."""

    def __init__(self, spark: SparkSession, folder: Path, by_time: bool, vectors: bool) -> None:
        self._spark = spark
        self.path = folder / f"table-{'time' if by_time else 'spread'}-{'vectors' if vectors else 'plain'}"
        self.name = f"delta.`{self.path}`"
        if not (self.path / "_delta_log").exists():
            self._write(by_time, vectors)

    def _write(self, by_time: bool, vectors: bool) -> None:
        # Times are pseudorandom, within two months.
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
        """Return a function that restores the table, and returns the work."""

        def prepare() -> Callable[[], object]:
            self._spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {_WRITTEN}").collect()
            return work

        return prepare

    def delete(self) -> None:
        """Delete the expired rows by hand."""
        self._spark.sql(f"DELETE FROM {self.name} WHERE {_EXPIRED}").collect()

    def count(self) -> None:
        """Count all rows and the expired ones, as a user does before a deletion."""
        self._spark.sql(f"SELECT count(*), count_if({_EXPIRED}) FROM {self.name}").collect()

    def compact(self, **options: Any) -> Any:
        """Compact the table with ttlsnap."""
        factory = TtlTransformerFactory(StateTtlConfig(parse_duration(TTL)), "last_seen")
        return compact_table(str(self.path), [factory], now=NOW, session=self._spark, **options)

    def rewrite(self) -> None:
        """Rewrite one row in a hundred with ttlsnap."""
        compact_table(str(self.path), [Capped()], now=NOW, session=self._spark)

    def scan_and_merge(self, changes: Path, compared: bool = False) -> None:
        """Do the same by hand: read everything once, and merge the known changes.

        With ``compared``, merge only into rows that still are as they were read, as ttlsnap does.
        """
        self._spark.read.format("delta").load(str(self.path)).write.format("noop").mode("overwrite").save()
        self._spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        still = "t.last_seen <=> s.last_seen AND t.visits <=> s.old_visits AND t.name <=> s.name"
        self._spark.sql(
            f"MERGE INTO {self.name} t USING changes s ON t.user_id = s.user_id "
            f"WHEN MATCHED {f'AND {still} ' if compared else ''}THEN UPDATE SET *"
        ).collect()

    def changes(self, folder: Path) -> Path:
        """Write the changes for the ``MERGE``. Return their path."""
        path = folder / "changes"
        rows = self._spark.read.format("delta").load(str(self.path)).where(f"visits = {_RARE - 1}")
        columns = ("user_id", "last_seen", "visits * 0 AS visits", "name", "visits AS old_visits")
        rows.selectExpr(*columns).write.mode("overwrite").parquet(str(path))
        return path
