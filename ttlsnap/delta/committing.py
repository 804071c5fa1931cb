"""Committing to a table: under a run's name, once more where another writer was faster, errors in our own words."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ttlsnap.delta.cutoff import quoted
from ttlsnap.delta.log import Commit
from ttlsnap.engines.launch import first_lines
from ttlsnap.errors import RefusedError, TtlsnapError, UnsupportedError
from ttlsnap.filesystem import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = "ttlsnap"
"""What our part of a commit's ``userMetadata`` goes by."""

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_TRIES = 6
_PAUSE_S = 0.5


class ConflictError(TtlsnapError):
    """Another writer has committed what this transaction had read."""


def words_of(commit: Commit) -> Mapping[str, Any] | None:
    """What a run has left in its commit; None for a commit that is no run's."""
    try:
        found = json.loads(commit.user_metadata or "")
    except ValueError:
        return None
    mine = found.get(METADATA) if isinstance(found, dict) else None
    return mine if isinstance(mine, dict) else None


def metric(made: Commit, *names: str) -> int:
    """The first of these of a commit's ``operationMetrics`` that it has; 0 where it has none."""
    return next((int(made.metrics[name]) for name in names if name in made.metrics), 0)


def sql_name(files: Directory) -> str:
    """The table's name in SQL."""
    return f"delta.{quoted(files.root)}"


def commit(spark: SparkSession, files: Directory, statement: str, words: Mapping[str, Any]) -> None:
    """Run ``statement`` as one commit with ``words`` in its ``userMetadata``.

    Where another writer was faster it is run again, after a pause that grows; RefusedError when it was so every time.
    """
    for attempt in range(1, _TRIES + 1):
        try:
            with named(spark, words), told(files):
                spark.sql(statement)
            return
        except ConflictError as conflict:
            if attempt == _TRIES:
                raise RefusedError(
                    f"{files.root}: another writer was faster {_TRIES} times; this statement has changed nothing. Run "
                    "again when the stream that writes is less busy, or is stopped; less at a time (--max-files, "
                    f"--max-bytes) meets it less often.\n{conflict}"
                ) from conflict
            time.sleep(_PAUSE_S * 2**attempt * (0.5 + random.random()))


@contextmanager
def named(spark: SparkSession, words: Mapping[str, Any]) -> Iterator[None]:
    """What is committed within has ``words`` as its user metadata."""
    before = spark.conf.get(_USER_METADATA, None)
    spark.conf.set(_USER_METADATA, json.dumps({METADATA: words}))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_USER_METADATA)
        else:
            spark.conf.set(_USER_METADATA, before)


@contextmanager
def told(files: Directory) -> Iterator[None]:
    """What Delta raises, as errors of our own."""
    try:
        yield
    except TtlsnapError:
        raise
    except Exception as error:
        text = first_lines(error, 6)
        if "DELTA_CONCURRENT" in text or "Concurrent" in type(error).__name__:
            raise ConflictError(text) from error
        unsupported = "DELTA_UNSUPPORTED_FEATURES" in text or "DELTA_INVALID_PROTOCOL" in text
        kind = UnsupportedError if unsupported else TtlsnapError
        raise kind(f"Delta refuses it, and this statement has changed nothing in {files.root}: {text}") from error
