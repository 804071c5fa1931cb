"""Migrations to another number of partitions, another state store or other schemas, and Spark's own repartition.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker import peak

from ttlsnap import LocalEngine, migrate
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.entries.place import Place
from ttlsnap.migration import run
from ttlsnap.migration.evolution import Evolution, StateEvolution, Step
from ttlsnap.migration.struct_changes import Cast, Column, Constant, StructChange, Take
from ttlsnap.schema.types import DecimalType, LongType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class OtherSchema:
    """A new query whose values have a column more, or a wider first column of integers. See ``NewSchemas``."""

    widen: bool

    def evolve(self, checkpoint: Checkpoint) -> Evolution:
        (operator,) = checkpoint.operators
        (store,) = operator.stores
        (family,) = store.families
        fields, columns = list(family.value.fields), [Take(n) for n in range(len(family.value))]
        added: list[Column] = []
        if self.widen:
            place = next(n for n, field in enumerate(fields) if isinstance(field.type, LongType))
            fields[place] = replace(fields[place], type=DecimalType(20, 0))
            columns[place] = Take(place, Cast())
        else:
            fields.append(StructField("added", LongType()))
            added = [Constant(0)]
        change = StructChange((*columns, *added))
        value = StructType(tuple(fields))
        state = StateEvolution(operator.id, store.name, family.name, family.name, None, change, family.key, value)
        return Evolution((state,), (Step("change", Place(operator.id), None, "another schema"),))


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
    run.Migration._check = lambda self, results: None  # type: ignore[method-assign]
    started = time.process_time()
    report = migrate(checkpoint, partitions=int(partitions), provider=provider, engine=LocalEngine(1), stopped=True)
    print(json.dumps({"entries": report.entries, "cpu": time.process_time() - started, "peak": peak()}))


if __name__ == "__main__":
    main()
