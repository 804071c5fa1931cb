"""The measured checkpoints: real Spark writes them once, and the cache folder keeps them.

    python checkpoints.py FOLDER NAME...    writes the ``SHAPES`` with these names

A query of ``queries.py`` reads events of ``events.py``, mostly an aggregation by key. Most keys come in four batches,
after which Spark's maintenance writes a snapshot; two more batches then overwrite some keys and add some.
Old keys are chosen at random, so that kept and dropped entries are mixed: copying long runs of entries would be
cheaper. Shapes whose time is that of writing have two batches with a random half of the entries each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from events import SCHEMAS, Keys, make_events
from queries import FIELDS, OWN_TTL, QUERIES, TTL_MS

from ttlsnap.schema.types import StringType
from ttlsnap.unsaferow.murmur3 import first_seeds, hash_column, partitions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOW_S = 1_749_988_800
_DAY_S = 86_400

_STATE_STORE = "spark.sql.streaming.stateStore."
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
_BEFORE_SNAPSHOT, _AFTER = 4, 2
_SKEW = 4  # in a skewed shape, the first partition has so many times the entries of any other one
_PATIENCE_S = 300


@dataclass(frozen=True)
class Shape:
    """The shape of a checkpoint.

    ``keys`` are those of ``events.py``. ``per_key`` entries have the same key. With ``skewed``, the first partition has
    four times as many entries as any other one. Without ``overwrites`` no entry is written twice. With more ``batches``
    than usual, each of them has as many entries, and Spark writes snapshots as it does by default.
    """

    entries: int
    query: str = "aggregation"
    per_key: int = 1
    overwrites: bool = True
    partitions: int = 4
    codec: str = "lz4"
    row_checksums: bool = False
    keys: Keys = "12 characters"
    skewed: bool = False
    batches: int = _BEFORE_SNAPSHOT + _AFTER
    snapshots: bool = True
    provider: str = "HDFSBacked"

    @property
    def join_format(self) -> int:
        """The newest state format of joins that the provider and ttlsnap support."""
        return 3 if self.provider == "RocksDB" else 2

    @property
    def _deltas_for_snapshot(self) -> int:
        if not self.snapshots:
            return 1000
        return _BEFORE_SNAPSHOT - 1 if self.batches == _BEFORE_SNAPSHOT + _AFTER else 10

    def settings(self) -> dict[str, str]:
        """Return Spark's settings for the query."""
        return {
            "spark.sql.shuffle.partitions": str(self.partitions),
            _STATE_STORE + "providerClass": f"{_PACKAGE}.{self.provider}StateStoreProvider",
            _STATE_STORE + "compression.codec": self.codec,
            _STATE_STORE + "rowChecksum.enabled": str(self.row_checksums).lower(),
            _STATE_STORE + "minDeltasForSnapshot": str(self._deltas_for_snapshot),
            _STATE_STORE + "maintenanceInterval": "1s",
            # Each batch of events then gives one version. Otherwise transformWithState would never stop.
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.sql.streaming.join.stateFormatVersion": str(self.join_format),
        }


SHAPES = {
    "main": Shape(2_000_000),
    "small": Shape(500_000),
    "one": Shape(2_000_000, partitions=1),
    "checksums": Shape(500_000, row_checksums=True),
    "zstd": Shape(500_000, codec="zstd"),
    "mixed": Shape(500_000, keys="7 to 43 characters"),
    "mixed-checksums": Shape(500_000, keys="7 to 43 characters", row_checksums=True),
    "visits": Shape(500_000, "visits", keys="visits"),
    "visits-large": Shape(1_000_000, "visits", keys="visits"),
    "visits-checksums": Shape(500_000, "visits", keys="visits", row_checksums=True),
    "visits-zstd": Shape(500_000, "visits", keys="visits", codec="zstd"),
    "skewed": Shape(4_000_000, skewed=True),
    "rocksdb": Shape(2_000_000, provider="RocksDB"),
    "rocksdb-checksums": Shape(500_000, row_checksums=True, provider="RocksDB"),
    "rocksdb-visits": Shape(500_000, "visits", keys="visits", provider="RocksDB"),
    "rocksdb-visits-large": Shape(1_000_000, "visits", keys="visits", provider="RocksDB"),
    "many": Shape(20_000, partitions=200, batches=50),
    "some": Shape(3_200, partitions=32, snapshots=False),
    "rocksdb-some": Shape(3_200, partitions=32, provider="RocksDB"),
    **{
        f"{provider}-{query}": Shape(1_000_000, query, per_key, overwrites=False, provider=store)
        for provider, store in (("hdfs", "HDFSBacked"), ("rocksdb", "RocksDB"))
        for query, per_key in (("aggregation", 1), ("join", 4), ("sessions", 4), ("variables", FIELDS))
        if provider == "rocksdb" or query != "variables"
    },
}


def make_checkpoints(cache: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the checkpoints with these names; a separate Spark process writes those that the cache lacks."""
    missing = [name for name in names if not (cache / name / "whole").exists()]
    if missing:
        print(f"writing with Spark: {'; '.join(missing)}", file=sys.stderr)
        with (cache / "spark.log").open("wb") as log:
            subprocess.run([sys.executable, __file__, str(cache), *missing], check=True, stderr=log)
    return {name: cache / name / "checkpoint" for name in names}


def spark_session(memory: str = "6g") -> SparkSession:
    """Return a quiet session on this machine's cores."""
    from pyspark.sql import SparkSession

    # Workers must run this interpreter, not the one that is called python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": memory,
        "spark.sql.session.timeZone": "UTC",
        # Otherwise Spark writes a snapshot at a commit if a store lags, so the files would depend on the speed.
        _STATE_STORE + "coordinatorReportSnapshotUploadLag": "false",
        _STATE_STORE + "forceSnapshotUploadOnLag": "false",
    }
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _write(spark: SparkSession, folder: Path, shape: Shape) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    source, target = folder / "source", folder / "checkpoint"
    source.mkdir(parents=True)
    for name, value in shape.settings().items():
        spark.conf.set(name, value)

    def read() -> DataFrame:
        return spark.readStream.schema(SCHEMAS[shape.keys]).parquet(str(source))

    result, mode = QUERIES[shape.query](read)
    query = (
        result.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(target))
        .trigger(processingTime="0 seconds")
        .start()
    )
    for number, batch in enumerate(_batches(shape)):
        if number == _BEFORE_SNAPSHOT and shape.snapshots and shape.batches == _BEFORE_SNAPSHOT + _AFTER:
            _await_snapshots(target, shape.partitions)
        pq.write_table(batch, folder / "next.parquet")
        (folder / "next.parquet").rename(source / f"{number}.parquet")
        query.processAllAvailable()
    query.stop()
    (folder / "whole").touch()


def _batches(shape: Shape) -> Iterator[pa.Table]:
    chance = np.random.default_rng(7)
    if shape.query in OWN_TTL:
        groups = np.array_split(chance.permutation(shape.entries), 2)
    elif shape.batches != _BEFORE_SNAPSHOT + _AFTER:
        groups = np.array_split(chance.permutation(shape.entries), shape.batches)
    else:
        # Nine tenths of the keys come before the snapshot. Each later batch has half of the rest, and as many old keys.
        settled = shape.entries * 9 // 10
        groups = np.array_split(chance.permutation(settled), _BEFORE_SNAPSHOT)
        for fresh in np.array_split(np.arange(settled, shape.entries), _AFTER):
            old = chance.choice(settled, len(fresh), replace=False) if shape.overwrites else fresh[:0]
            groups.append(np.concatenate([fresh, old]))
    for numbers in groups:
        age_s = chance.integers(0, 60 * _DAY_S, len(numbers))  # half of the ages exceed the TTL
        keys = numbers // shape.per_key
        amounts = chance.integers(0, 1000, len(numbers)) if shape.per_key == 1 else numbers
        at = pa.array((_NOW_S - age_s) * 1_000_000, pa.timestamp("us", "UTC"))
        events = make_events(shape.keys, keys, at, amounts)
        yield events.filter(_is_wanted(events["key"], shape.partitions)) if shape.skewed else events


def _is_wanted(keys: pa.ChunkedArray, partitions: int) -> npt.NDArray[np.bool_]:
    """Return which keys a skewed shape has: all of the first partition, and some of the others."""
    column = keys.combine_chunks()
    hashes = hash_column(column, StringType(), first_seeds(len(column)))
    wanted: npt.NDArray[np.bool_] = (partitions_of(hashes, partitions) == 0) | ((hashes >> np.uint32(8)) % _SKEW == 0)
    return wanted


def _await_snapshots(target: Path, partitions: int) -> None:
    limit = time.monotonic() + _PATIENCE_S

    def waiting() -> bool:
        files = [path for path in target.glob("state/0/**/*.*") if path.suffix in (".delta", ".snapshot", ".zip")]
        done = {path.parent for path in files if path.suffix != ".delta"}
        return len(done) < partitions or any(path.parent not in done for path in files)

    while waiting():
        if time.monotonic() > limit:
            raise RuntimeError("Spark's maintenance wrote no snapshots")
        time.sleep(0.5)


def half_expired(checkpoint: Path) -> str:
    """Return the time (ISO 8601) at which Spark's own TTL has expired the entries of the first batch, and no others."""
    (_, facts, *_) = (checkpoint / "offsets/0").read_text().splitlines()
    moment = json.loads(facts)["batchTimestampMs"] + TTL_MS
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    session = spark_session()
    for wanted in sys.argv[2:]:
        _write(session, Path(sys.argv[1], wanted), SHAPES[wanted])
