"""A Spark session that knows Delta: the one there is, or one of our own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ttlsnap.engines.launch import SessionSource, given, launched, own_session
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_PACKAGES = ("io/delta", "org/antlr/antlr4-runtime")
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@contextlib.contextmanager
def delta_session(
    session: SessionSource = None,
    *,
    jars: str | None = None,
    master: str | None = None,
    parallelism: int | None = None,
) -> Iterator[SparkSession]:
    """``session``, the active one, or one that is started on ``master`` and stopped again.

    Without a ``master`` it is on this machine with ``parallelism`` threads, unless spark-submit has named another.

    ``jars`` are the paths of Delta's jars, with commas between; without them Delta's own helper has Spark fetch them
    from Maven. Raises UsageError for a session without Delta, and in a sentence what keeps one from starting.
    """
    from pyspark.sql import SparkSession

    found = given(session) or SparkSession.getActiveSession()
    if found is not None:
        if EXTENSION not in str(found.conf.get("spark.sql.extensions", "")):
            raise UsageError(
                f"the Spark session that is active has no Delta: start it with spark.sql.extensions={EXTENSION}, "
                f"spark.sql.catalog.spark_catalog={CATALOG} and Delta's jars"
            )
        # Settings and views of our own are not to be anybody else's.
        yield found.newSession()
        return
    builder = own_session()
    if master is not None or "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master(master or f"local[{parallelism or '*'}]")
    builder = builder.config("spark.sql.extensions", EXTENSION).config("spark.sql.catalog.spark_catalog", CATALOG)
    if jars is not None:
        builder = builder.config("spark.jars", jars)
    else:
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(builder)
    with launched(builder, _failure) as started:
        yield started


def _failure(told: str) -> str:
    advice = (
        "Is there a Java 17? Delta's jars come from Maven Central; where that cannot be reached, give them by --jars, "
        "or run within a session that has Delta"
    )
    half = _without_jars(Path.home() / ".m2/repository")
    if half:
        advice = (
            f"{half[0]} has a package's .pom and not its .jar, for which Ivy then looks nowhere else, although it can "
            f"be had: remove that folder{'' if len(half) == 1 else f' and {len(half) - 1} more of that kind'}, or give "
            "Delta's jars by --jars"
        )
    return f"Spark could not be started with Delta, and nothing was changed: {told}\n{advice}"


def _without_jars(repository: Path) -> list[Path]:
    """The folders of Delta's packages in a local Maven repository that have no more than a description."""
    poms = (pom for group in _PACKAGES for pom in sorted((repository / group).rglob("*.pom")))
    return [pom.parent for pom in poms if not list(pom.parent.glob("*.jar"))]
