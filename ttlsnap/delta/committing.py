"""Commits to a table: with the run's name, repeated if another writer was faster, with errors of ttlsnap's own."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ttlsnap.amounts import quantity
from ttlsnap.delta.cutoff import quote_identifier
from ttlsnap.delta.log import Commit, commits, newest_version
from ttlsnap.engines.launch import first_lines, set_temporarily
from ttlsnap.errors import BusyError, TtlsnapError, UnsupportedError
from ttlsnap.interrupts import note_run
from ttlsnap.quoting import quote
from ttlsnap.storage.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "ttlsnap"
"""What our part of a commit's ``userMetadata`` goes by."""

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CHANGED = "num_affected_rows"  # a column of the result of DELETE, UPDATE and MERGE
_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
TRIES = 6
PAUSE_S = 0.5


class ConflictError(TtlsnapError):
    """Another writer has committed a change to the rows that this transaction has read."""


class UnsureError(TtlsnapError):
    """Delta raised an unexpected error, so it is not known whether it committed."""


def read_run_metadata(commit: Commit) -> Mapping[str, Any] | None:
    """Return the metadata that a run has left in its commit; None for a commit that is not of a run."""
    try:
        user_metadata = json.loads(commit.user_metadata or "")
    except ValueError:
        return None
    run_metadata = user_metadata.get(METADATA) if isinstance(user_metadata, dict) else None
    return run_metadata if isinstance(run_metadata, dict) else None


def count_changed_rows(table_commits: Sequence[Commit]) -> tuple[int, int]:
    """Return the numbers of rows that these commits dropped and rewrote, from their ``operationMetrics``; 0 without."""
    kinds = (("numDeletedRows", "numTargetRowsDeleted"), ("numTargetRowsUpdated",))
    dropped, rewritten = (sum(_first(commit.metrics, names) for commit in table_commits) for names in kinds)
    return dropped, rewritten


def changes_rows(table_commit: Commit) -> bool:
    """Return whether a run's commit drops or rewrites rows; a purge and a new property do not."""
    return table_commit.operation in ("DELETE", "MERGE")


def _first(metrics: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((int(metrics[name]) for name in names if name in metrics), 0)


def table_path(files: Directory) -> str:
    """Return the table's path for Spark, on this machine's file system whatever Spark's default is."""
    return f"file://{files.root}"


def sql_name(files: Directory) -> str:
    """Return the table's name in SQL."""
    return f"delta.{quote_identifier(table_path(files))}"


def commit(
    spark: SparkSession, files: Directory, statement: str | Callable[[], str], run_metadata: Mapping[str, Any]
) -> None:
    """Run ``statement`` as one commit with ``run_metadata`` in its ``userMetadata``, which no other commit has.

    If another writer was faster, run it again after a growing pause. Raise BusyError if that happened every time.
    """
    version_before, run = newest_version(files), str(run_metadata.get("run"))
    for attempt in range(1, TRIES + 1):
        note_run(files.root, run, "open")
        try:
            with set_run_metadata(spark, run_metadata), translate_errors(files):
                result = spark.sql(statement if isinstance(statement, str) else statement())
                first_row = result.first() if _CHANGED in result.columns else None
            if first_row is not None and first_row[_CHANGED] and not _is_made(files, run_metadata, version_before):
                raise TtlsnapError(
                    f"{files.root}: Spark says that it changed {quantity(first_row[_CHANGED], 'row')}, but the log "
                    "of this table has no such commit. It may have changed another table. Nothing more is done. "
                    "Look at the settings of the Spark session"
                )
            note_run(files.root, run, "done")
            return
        except ConflictError as conflict:
            note_run(files.root, run, "undone")
            if attempt == TRIES:
                raise BusyError(
                    f"{files.root}: another writer committed first, {TRIES} times; this statement changed nothing. "
                    "Run again when that stream is less busy, or stopped. Smaller commits (--max-files, --max-bytes) "
                    "conflict less often.\n" + conflict.text
                ) from conflict
            time.sleep(PAUSE_S * 2**attempt * (0.5 + random.random()))
        except UnsureError:
            # It may fail behind the commit, as in a hook: the log has the last word.
            if _is_made(files, run_metadata, version_before):
                note_run(files.root, run, "done")
                return
            raise


def _is_made(files: Directory, run_metadata: Mapping[str, Any], version_before: int) -> bool:
    """Return whether the table's log has a commit with ``run_metadata`` after version ``version_before``."""
    return any(
        read_run_metadata(table_commit) == run_metadata
        for table_commit in commits(files)
        if table_commit.version > version_before
    )


@contextmanager
def set_run_metadata(spark: SparkSession, run_metadata: Mapping[str, Any]) -> Iterator[None]:
    """Give commits within the block ``run_metadata`` as their user metadata."""
    # Spark would replace variables, as in ${env:HOME}, in the values of settings.
    text = json.dumps({METADATA: run_metadata}).replace("$", "\\u0024")
    with set_temporarily(spark, {_USER_METADATA: text}):
        yield


@contextmanager
def translate_errors(files: Directory) -> Iterator[None]:
    """Turn the errors of Delta into errors of ttlsnap."""
    try:
        yield
    except TtlsnapError:
        raise
    except Exception as error:
        text = first_lines(error, 6)
        # Delta's Python package turns some conflicts into classes of its own (delta.exceptions).
        if any(name in text for name in _CONFLICTS) or "Concurrent" in type(error).__name__:
            raise ConflictError(quote(text)) from error
        unsupported = "DELTA_UNSUPPORTED_FEATURES" in text or "DELTA_INVALID_PROTOCOL" in text
        kind = UnsupportedError if unsupported else UnsureError
        raise kind(
            f"{files.root}: Delta refuses the statement: {text}\n`ttlsnap history` shows what was committed"
        ) from error
