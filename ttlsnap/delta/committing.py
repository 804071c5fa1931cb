"""Committing to a table: under a run's name, once more where another writer was faster, errors in our own words."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ttlsnap.delta.cutoff import quoted
from ttlsnap.delta.log import Commit, commits, newest_version
from ttlsnap.engines.launch import first_lines, set_for_now
from ttlsnap.errors import BusyError, TtlsnapError, UnsupportedError
from ttlsnap.filesystem import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "ttlsnap"
"""What our part of a commit's ``userMetadata`` goes by."""

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_TRIES = 6
_PAUSE_S = 0.5


class ConflictError(TtlsnapError):
    """Another writer has committed what this transaction had read."""


class UnsureError(TtlsnapError):
    """Delta raised, for whatever reason."""


def words_of(commit: Commit) -> Mapping[str, Any] | None:
    """What a run has left in its commit; None for a commit that is no run's."""
    try:
        found = json.loads(commit.user_metadata or "")
    except ValueError:
        return None
    mine = found.get(METADATA) if isinstance(found, dict) else None
    return mine if isinstance(mine, dict) else None


def rows_changed(made: Sequence[Commit]) -> tuple[int, int]:
    """How many rows these commits dropped and rewrote, as their ``operationMetrics`` say; 0 where they do not."""
    kinds = (("numDeletedRows", "numTargetRowsDeleted"), ("numTargetRowsUpdated",))
    dropped, rewritten = (sum(_first(commit.metrics, names) for commit in made) for names in kinds)
    return dropped, rewritten


def changes_rows(made: Commit) -> bool:
    """Whether a run's commit drops or rewrites rows, and does not only purge or remember."""
    return made.operation in ("DELETE", "MERGE")


def _first(metrics: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((int(metrics[name]) for name in names if name in metrics), 0)


def table_path(files: Directory) -> str:
    """The table's path for Spark: on this machine's own file system, whichever Spark's default is."""
    return f"file://{files.root}"


def sql_name(files: Directory) -> str:
    """The table's name in SQL."""
    return f"delta.{quoted(table_path(files))}"


def commit(spark: SparkSession, files: Directory, statement: str | Callable[[], str], words: Mapping[str, Any]) -> None:
    """Run ``statement`` as one commit with ``words`` in its ``userMetadata``, which no other commit has.

    Where another writer was faster it is run again, after a pause that grows; BusyError when it was so every time.
    """
    before = newest_version(files)
    for attempt in range(1, _TRIES + 1):
        try:
            with named(spark, words), told(files):
                spark.sql(statement if isinstance(statement, str) else statement())
            return
        except ConflictError as conflict:
            if attempt == _TRIES:
                raise BusyError(
                    f"{files.root}: another writer was faster {_TRIES} times; this statement has changed nothing. Run "
                    "again when the stream that writes is less busy, or is stopped; less at a time (--max-files, "
                    f"--max-bytes) meets it less often.\n{conflict}"
                ) from conflict
            time.sleep(_PAUSE_S * 2**attempt * (0.5 + random.random()))
        except UnsureError:
            # It may fail behind the commit, as in a hook: the log has the last word.
            if any(words_of(made) == words for made in commits(files) if made.version > before):
                return
            raise


@contextmanager
def named(spark: SparkSession, words: Mapping[str, Any]) -> Iterator[None]:
    """What is committed within has ``words`` as its user metadata."""
    with set_for_now(spark, {_USER_METADATA: json.dumps({METADATA: words})}):
        yield


@contextmanager
def told(files: Directory) -> Iterator[None]:
    """What Delta raises, as errors of our own."""
    try:
        yield
    except TtlsnapError:
        raise
    except Exception as error:
        text = first_lines(error, 6)
        if any(name in text for name in _CONFLICTS) or "Concurrent" in type(error).__name__:
            raise ConflictError(text) from error
        unsupported = "DELTA_UNSUPPORTED_FEATURES" in text or "DELTA_INVALID_PROTOCOL" in text
        kind = UnsupportedError if unsupported else UnsureError
        raise kind(f"{files.root}: Delta refuses it: {text}\n`ttlsnap history` tells what was committed") from error
