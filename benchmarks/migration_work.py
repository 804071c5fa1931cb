"""Migrations to another number of partitions, and Spark's own repartition."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttlsnap import LocalEngine, migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def migration(source: Path, target: Path, partitions: int, parallelism: int) -> Callable[[], Any]:
    """Copy a checkpoint. Return a function that migrates the copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return lambda: migrate(str(target), partitions=partitions, engine=LocalEngine(parallelism), stopped=True)


def repartition(session: SparkSession, source: Path, target: Path, partitions: int) -> Callable[[], Any]:
    """Copy a checkpoint. Return a function that runs Spark 4.2's offline repartition on the copy (RocksDB only)."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    manager: Any = session._streamingCheckpointManager
    return lambda: manager.repartition(str(target), partitions)
