"""Remove dropped rows from the disk: purge deletion vectors, then vacuum old files.

Before that, a dropped row is in files of older versions, or in a file of the table with a vector that marks it. The
order matters: a file becomes old only when the purge replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttlsnap.delta.committing import commit, read_run_metadata, set_run_metadata, sql_name, translate_errors
from ttlsnap.delta.log import TableMetadata, commits, live_files, read_table
from ttlsnap.delta.reading import place_of
from ttlsnap.delta.report import Erasure
from ttlsnap.delta.vectors import vector_path
from ttlsnap.engines.launch import set_temporarily
from ttlsnap.errors import UsageError
from ttlsnap.storage.local import LocalDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETENTION = "delta.deletedFileRetentionDuration"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
# VACUUM makes as many tasks, ten thousand if nobody says otherwise, however small the table.
_LISTING, _LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism", 64
_HOUR_MS = 3_600_000
_UNITS = {"week": 604_800.0, "day": 86_400.0, "hour": 3_600.0, "minute": 60.0, "second": 1.0, "millisecond": 1e-3}


def read_retention(metadata: TableMetadata) -> timedelta | None:
    """Return how long the table keeps old files; None if the property is not understood."""
    words = metadata.properties.get(_RETENTION, "interval 1 week").lower().removeprefix("interval").split()
    numbers, units = words[::2], [_UNITS.get(word.removesuffix("s")) for word in words[1::2]]
    if (
        not words
        or len(words) % 2
        or None in units
        or not all(number.removeprefix("+").isdigit() for number in numbers)
    ):
        return None
    return timedelta(seconds=sum(int(number) * unit for number, unit in zip(numbers, units, strict=True) if unit))


def check_retention(
    files: LocalDirectory, metadata: TableMetadata, retention_ms: int | None, is_accepted: bool
) -> tuple[str, ...]:
    """Return a warning for a retention below the table's. Raise UsageError for one that is not accepted."""
    if retention_ms is None:
        return ()
    retention = read_retention(metadata)
    if retention is not None and retention_ms >= retention / timedelta(milliseconds=1):
        return ()
    consequence = (
        f"{files.root} keeps old files for {metadata.properties.get(_RETENTION, 'interval 1 week')}. With a shorter "
        "time, older versions cannot be read or restored (ttlsnap rollback), readers and streams that use one of them "
        "fail, and a write that is in progress may lose its files"
    )
    if not is_accepted:
        raise UsageError(f"{consequence}. To accept that, add --yes")
    return (consequence,)


def erase(
    spark: SparkSession, files: LocalDirectory, run_metadata: Mapping[str, Any], retention_ms: int | None
) -> tuple[Erasure, datetime | None]:
    """Purge and vacuum. Return the results, and when the remaining old files may go (None: none, or unknown)."""
    table = read_table(files)
    purged = None
    if any(file.vector is not None for file in live_files(files, table.version)):
        purge_metadata = {**run_metadata, "part": "purge"}
        commit(spark, files, f"REORG TABLE {sql_name(files)} APPLY (PURGE)", purge_metadata)
        purged = next(
            (
                table_commit.version
                for table_commit in commits(files)
                if read_run_metadata(table_commit) == purge_metadata
            ),
            None,
        )
    statement = f"VACUUM {sql_name(files)}"
    settings = {_LISTING: str(min(int(str(spark.conf.get(_LISTING))), _LISTING_TASKS))}
    if retention_ms is not None:
        statement += f" RETAIN {retention_ms / _HOUR_MS:.6f} HOURS"
        # VACUUM refuses a retention below the table's unless this check is off.
        settings[_CHECK] = "false"
    with (
        set_temporarily(spark, settings),
        set_run_metadata(spark, {**run_metadata, "part": "vacuum"}),
        translate_errors(files),
    ):
        spark.sql(statement)
    files_left = _list_old_files(files)
    retention = read_retention(table.metadata)
    removal_time = None
    if files_left and retention is not None:
        removal_time = datetime.now(UTC) + retention
    return Erasure(purged, retention_ms, None if files_left is None else len(files_left)), removal_time


def _list_old_files(files: LocalDirectory) -> list[str] | None:
    """Return the files in the table's folder that its newest version does not have; None if it has files elsewhere.

    As for ``VACUUM``, folders and files whose names begin with a dot or an underscore are not data, except change data
    and partitions by such a column.
    """
    current_files = live_files(files, read_table(files).version)
    live_paths = {place_of(file) for file in current_files}
    if None in live_paths:
        return None
    live_paths |= {path for file in current_files if file.vector is not None and (path := vector_path(file.vector))}
    root = Path(files.root)
    old_paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _hidden(name)]
        for name in names:
            path = (Path(folder) / name).relative_to(root).as_posix()
            if path not in live_paths and not _hidden(name):
                old_paths.append(path)
    return old_paths


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) and name != "_change_data" and "=" not in name
