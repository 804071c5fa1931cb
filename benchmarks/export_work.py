"""The export of state, and Spark's own way to the same files."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ttlsnap import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PEAK = "from ttlsnap import export; from worker import peak; import json, sys; rows = export(*sys.argv[1:3]).rows; "


def export_with_ttlsnap(checkpoint: Path, folder: Path) -> int:
    """Export all state to Parquet, and return the number of rows."""
    shutil.rmtree(folder, ignore_errors=True)
    return sum(export(str(checkpoint), str(folder)).rows.values())


def export_with_spark(session: SparkSession, checkpoint: Path, folder: Path) -> None:
    """Write what Spark's reader gives of a checkpoint with one state to Parquet."""
    session.streams.active  # noqa: B018 - creates the coordinator of state stores
    state = session.read.format("statestore").load(str(checkpoint)).select("partition_id", "key", "value")
    state.write.mode("overwrite").parquet(str(folder))


def peak_of_export(checkpoint: Path, folder: Path) -> int:
    """Return the largest resident size, in bytes, of a process that exports all state."""
    shutil.rmtree(folder, ignore_errors=True)
    script = f"{_PEAK}print(json.dumps(peak()))"
    command = [sys.executable, "-c", script, str(checkpoint), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent)
    found: int = json.loads(done.stdout)
    return found
