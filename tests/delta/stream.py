"""Functions for the process with Spark and Delta: a stream that merges, runs, and queries on tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import rules

CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED")
EVENTS = "user STRING, visits BIGINT, at STRING"


def sql(spark: Any, statements: list[str]) -> list[list[Any]]:
    """Run statements. Return the rows of the last one, with times as text."""
    found = None
    for statement in statements:
        found = spark.sql(statement)
    return [] if found is None else [[_plain(value) for value in row] for row in found.collect()]


def merge(spark: Any, path: str, source: str, checkpoint: str, columns: str, pause_s: float = 0.0) -> int:
    """Run a stream that merges the last event of each user into the table, with retries. Return the number of batches.

    ``columns`` are expressions over the events, which give the table's columns. The stream waits ``pause_s`` between
    batches.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    done = []

    def write(frame: Any, batch: int) -> None:
        last = frame.selectExpr("*", "row_number() OVER (PARTITION BY user ORDER BY at DESC) AS nth").where("nth = 1")
        last.selectExpr(*columns.split(";")).createOrReplaceTempView("news")
        for attempt in range(20):
            try:
                frame.sparkSession.sql(
                    f"MERGE INTO delta.`{path}` t USING news s ON t.user = s.user "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
                break
            except Exception as error:
                if not any(name in str(error) for name in CONFLICTS) or attempt == 19:
                    raise
        done.append(batch)
        time.sleep(pause_s)

    events = session.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(source)
    query = events.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return len(done)


def alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the server run no other function while this one changes modules."""
    vars(function)["alone"] = True
    return function


def compact(
    spark: Any,
    path: str,
    ttl: str | None = None,
    timestamp: str | None = None,
    rule: str | None = None,
    limits: tuple[int | None, int | None] | None = None,
    erase: tuple[int | None, bool] | None = None,
    meanwhile: dict[str, Any] | None = None,
    others: list[str] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Compact a table like the command line.

    ``meanwhile`` is an order for ``merge`` once the table has been read, and ``others`` are statements at that moment.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.run import Erase, compact_table
    from ttlsnap.transform.protocols import EntryTransformerFactory
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

    register_pickle_by_value(rules)  # Spark's workers do not find this package
    factories: list[Any] = []
    if ttl is not None:
        factories.append(TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp))
    if rule is not None:
        found = getattr(rules, rule)
        factories.append(found() if isinstance(found, type) else EntryTransformerFactory(found))
    confirm: Callable[[Any], bool] | None = None
    if meanwhile is not None or others is not None:

        def confirm(report: Any) -> bool:
            if meanwhile is not None:
                merge(spark, path, **meanwhile)
            sql(spark, others or [])
            return True

    return compact_table(
        path,
        factories,
        session=spark,
        limits=Limits(*limits) if limits else None,
        erasing=Erase(*erase) if erase else None,
        confirm=confirm,
        **options,
    ).to_json()


def refused(spark: Any, path: str, **options: Any) -> list[str]:
    """Compact a table, which must fail. Return the error as a terminal shows it, and as a page without keys does."""
    from ttlsnap.errors import TtlsnapError

    try:
        compact(spark, path, **options)
    except TtlsnapError as error:
        return [str(error), error.text.without_keys]
    raise AssertionError("the run did not fail")


class Killed(BaseException):
    """Stand-in for the death of the process."""


@alone
def killed(spark: Any, path: str, at: str, late: bool = False, verb: str = "compact", **options: Any) -> None:
    """Start a run or a rollback, and kill it when it calls the function ``at``. With ``late``, kill it after that."""
    from pkgutil import resolve_name
    from unittest import mock

    called = resolve_name(f"ttlsnap.delta.{at}")

    def stop(*given: Any, **more: Any) -> None:
        if late:
            called(*given, **more)
        raise Killed

    verbs: dict[str, Callable[..., Any]] = {"compact": compact, "rollback": rollback, "heard": heard}
    # A dead process does not clean up.
    with mock.patch(f"ttlsnap.delta.{at}", stop), mock.patch("ttlsnap.delta.archiving.TableArchive.discard"):
        try:
            verbs[verb](spark, path, **options)
        except Killed:
            return
    raise AssertionError(f"nobody came to {at}")


def heard(spark: Any, path: str, notes: str, **options: Any) -> dict[str, Any]:
    """Compact a table with a callback that writes the keys of dropped rows into a file."""
    from pathlib import Path

    from ttlsnap.archives.receivers import ExpiredCallback

    def note(key: dict[str, Any], value: dict[str, Any], run: str) -> None:
        with Path(notes).open("a") as file:
            print(run, key["user"], file=file)

    return compact(spark, path, expired_to=ExpiredCallback("tests:note", note), **options)


def rollback(spark: Any, path: str, expired_to: str | None = None) -> int:
    """Roll back the last run. Return the table's version after it."""
    from ttlsnap.delta.history import rollback_table

    return rollback_table(path, session=spark, expired_to=expired_to)[1]


def rollback_warns(spark: Any, path: str, expired_to: str | None = None) -> list[str]:
    """Roll back the last run. Return its warnings."""
    from ttlsnap.delta.history import rollback_table

    warnings: list[str] = []
    rollback_table(path, session=spark, expired_to=expired_to, warnings=warnings)
    return warnings


@alone
def undone_late(spark: Any, path: str) -> None:
    """Roll back the last run, while another writer commits just after the check for other commits."""
    from ttlsnap.delta import history

    names = vars(history)
    newest = names["newest_version"]

    def late(files: Any) -> int:
        found: int = newest(files)
        spark.newSession().sql(f"INSERT INTO delta.`{path}` (user, visits) VALUES ('late', 1)")
        return found

    names["newest_version"] = late
    try:
        history.rollback_table(path, session=spark)
    finally:
        names["newest_version"] = newest


@alone
def beaten(spark: Any, path: str) -> int:
    """Try twice to commit, while another writer is always faster. Return the number of commits of that writer."""
    from pyspark.sql.types import BooleanType

    from ttlsnap.delta import committing
    from ttlsnap.storage.open import open_directory

    session = spark.newSession()
    lock = threading.Lock()
    tries = []

    def write() -> None:
        # This changes every file while the other writer reads them.
        with lock:
            spark.newSession().sql(f"UPDATE delta.`{path}` SET visits = visits")
            tries.append(1)

    def slow(visits: int) -> bool:
        time.sleep(2 if visits == 1 else 0)
        return visits >= 0

    session.udf.register("slow", slow, BooleanType())
    before, committing.PAUSE_S, committing.TRIES = (committing.PAUSE_S, committing.TRIES), 0.01, 2
    sql_of = session.sql

    def statement(text: str) -> Any:
        thread = threading.Thread(target=write)
        thread.start()
        try:
            return sql_of(text)
        finally:
            thread.join()

    session.sql = statement
    try:
        committing.commit(
            session, open_directory(path), f"DELETE FROM delta.`{path}` WHERE visits = 1 AND slow(visits)", {"run": "x"}
        )
    finally:
        committing.PAUSE_S, committing.TRIES = before
    return len(tries)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
