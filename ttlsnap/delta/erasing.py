"""Making what is logically gone physically gone: deletion vectors are purged, then old files vacuumed.

Up to then a row that was deleted is in files that older versions still have, or in one that is still part of the table
with a vector that marks it. The order matters: what the purge replaces is only old when it has been replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ttlsnap.delta.committing import commit, named, sql_name, told
from ttlsnap.delta.log import LOG, TableMetadata, live_files, read_table
from ttlsnap.delta.report import Erasure
from ttlsnap.delta.vectors import vector_path
from ttlsnap.errors import UsageError
from ttlsnap.filesystem import LocalDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETENTION = "delta.deletedFileRetentionDuration"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_HOUR_MS = 3_600_000
_UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}


def retention_of(metadata: TableMetadata) -> timedelta | None:
    """How long the table wants old files to be kept; None where that is not understood."""
    words = metadata.properties.get(_RETENTION, "interval 1 week").lower().removeprefix("interval").split()
    if not words or len(words) % 2 or not all(word.isdigit() for word in words[::2]):
        return None
    units = [_UNITS.get(word.rstrip("s")) for word in words[1::2]]
    if None in units:
        return None
    return timedelta(seconds=sum(int(n) * unit for n, unit in zip(words[::2], units, strict=True) if unit))


def check_retention(files: LocalDirectory, metadata: TableMetadata, retention_ms: int | None, yes: bool) -> None:
    """Raises UsageError for a retention below the table's without ``yes``, and says what it breaks."""
    if retention_ms is None:
        return
    least = retention_of(metadata)
    if not yes and (least is None or retention_ms < least / timedelta(milliseconds=1)):
        raise UsageError(
            f"{files.root} wants old files to be kept for {metadata.properties.get(_RETENTION, 'interval 1 week')}: "
            "with less, older versions cannot be read any more, nor be restored (ttlsnap rollback), readers and "
            "streams that are at one of them fail, and a write that is under way may lose its files. If that may be: "
            "--yes"
        )


def erase(
    spark: SparkSession, files: LocalDirectory, words: Mapping[str, Any], retention_ms: int | None
) -> tuple[Erasure, datetime | None]:
    """Purge and vacuum. Also when the rest of the old files may go; None where nothing is left of them."""
    table = read_table(files)
    purged = None
    if any(file.vector is not None for file in live_files(files)):
        commit(spark, files, f"REORG TABLE {sql_name(files)} APPLY (PURGE)", words)
        purged = read_table(files).version
    statement = f"VACUUM {sql_name(files)}"
    checked = spark.conf.get(_CHECK, None)
    if retention_ms is not None:
        statement += f" RETAIN {retention_ms / _HOUR_MS:.6f} HOURS"
        spark.conf.set(_CHECK, "false")
    try:
        with named(spark, words), told(files):
            spark.sql(statement)
    finally:
        if checked is None:
            spark.conf.unset(_CHECK)
        else:
            spark.conf.set(_CHECK, checked)
    left = _left(files)
    least = retention_of(table.metadata)
    gone = None
    if left and least is not None:
        gone = datetime.now(UTC) + least
    return Erasure(purged, retention_ms, len(left)), gone


def _left(files: LocalDirectory) -> list[str]:
    """The files in the table's folder that are no part of its newest version."""
    live = {unquote(file.path) for file in live_files(files)}
    live |= {path for file in live_files(files) if file.vector is not None and (path := vector_path(file.vector))}
    root = Path(files.root)
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(folder) != root or name != LOG]
        for name in names:
            path = (Path(folder) / name).relative_to(root).as_posix()
            if path not in live and not name.startswith("."):
                found.append(path)
    return found
