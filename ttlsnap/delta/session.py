"""A Spark session with Delta: the active one, or one of ttlsnap's own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ttlsnap.engines.launch import SessionSource, build_session, find_session, launch_session
from ttlsnap.errors import UsageError
from ttlsnap.extras import describe_installed, require_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_PACKAGES = ("io/delta", "org/antlr/antlr4-runtime")
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def require_delta(session: SessionSource, jars: str | None) -> None:
    """Raise UsageError if ``delta_session`` would need a package that is not installed: delta-spark or PySpark."""
    if session is None and find_session() is None:
        if jars is None:
            require_package("delta-spark")
        require_package("pyspark")


@contextlib.contextmanager
def delta_session(
    session: SessionSource = None,
    *,
    jars: str | None = None,
    master: str | None = None,
    parallelism: int | None = None,
) -> Iterator[SparkSession]:
    """Yield ``session``, the active one, or one that is started on ``master`` and stopped at the end.

    Without a ``master`` it runs on this machine with ``parallelism`` threads, unless spark-submit has named another.

    ``jars`` has the paths of Delta's jars, separated by commas. Without them, Delta's own helper lets Spark download
    them from Maven. Raise UsageError for a session without Delta, and for one that does not start, with the reason.
    """
    given_session = find_session(session)
    if given_session is not None:
        if EXTENSION not in str(given_session.conf.get("spark.sql.extensions", "")):
            raise UsageError(
                f"the active Spark session has no Delta. Start it with spark.sql.extensions={EXTENSION}, "
                f"spark.sql.catalog.spark_catalog={CATALOG}, and Delta's jars"
            )
        # Settings and views of our own are not to be anybody else's.
        yield _without_variables(given_session.newSession())
        return
    builder = build_session()
    if master is not None or "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master(master or f"local[{parallelism or '*'}]")
    builder = builder.config("spark.sql.extensions", EXTENSION).config("spark.sql.catalog.spark_catalog", CATALOG)
    if jars is not None:
        builder = builder.config("spark.jars", jars)
    else:
        require_package("delta-spark")
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(builder)
    with launch_session(builder, explain_failure) as started:
        yield _without_variables(started)


def _without_variables(session: SparkSession) -> SparkSession:
    """Let Spark take ``${...}`` in the name of a table or a column as it is, and not for a variable."""
    session.conf.set("spark.sql.variable.substitute", "false")
    return session


def explain_failure(reason: str) -> str:
    """Return the message of an error: what Spark told when it did not start, and what to do."""
    advice = (
        "Check that Java 17 is installed. Delta's jars come from Maven Central; without access to it, name them with "
        "--jars, or run in a session that has Delta. The releases of Delta and Spark must fit each other; here are "
        f"{describe_installed('pyspark', 'delta-spark')}"
    )
    half = _without_jars(Path.home() / ".m2/repository")
    if half:
        advice = (
            f"{half[0]} has the .pom of a package without its .jar, so Ivy does not look elsewhere. Remove that "
            f"folder{'' if len(half) == 1 else f' and {len(half) - 1} more like it'}, or name Delta's jars with --jars"
        )
    return f"Spark could not be started with Delta, and nothing was changed: {reason}\n{advice}"


def _without_jars(repository: Path) -> list[Path]:
    """Return the folders of Delta's packages in a local Maven repository that have a description but no jar."""
    poms = (pom for group in _PACKAGES for pom in sorted((repository / group).rglob("*.pom")))
    return [pom.parent for pom in poms if not list(pom.parent.glob("*.jar"))]
