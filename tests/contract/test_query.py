"""Contracts that real Spark makes from queries without data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as F

from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION
from ttlsnap.contract import Contract
from ttlsnap.contract.of_query import contract_of_query, contract_of_script, join_contracts
from ttlsnap.errors import UsageError

from . import jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


TWO = {"clicks": jobs.EVENTS, "views": "viewer string, at timestamp"}

register_pickle_by_value(jobs)  # Spark's workers do not find this package


def made(spark: SparkSession, build: Any, schemas: Any = jobs.EVENTS, **options: Any) -> Contract:
    return contract_of_query(build, schemas, session=spark.newSession(), **options)


def test_a_contract_has_the_plan_of_the_query(spark: SparkSession) -> None:
    found = made(spark, jobs.totals, output_mode="update", conf={"spark.sql.shuffle.partitions": "64"})
    (operator,) = found.operators
    assert (found.made_from, found.output_mode, found.spark) == ("query", "update", spark.version)
    assert (operator.name, operator.partitions, found.conf["spark.sql.shuffle.partitions"]) == (
        "stateStoreSave",
        64,
        "64",
    )
    assert operator.plan == (
        "group by user",
        "group by window(ts, 1 hour)",
        "aggregate sum((amount * cast(2 as bigint)))",
        "watermark ts, 10 minutes",
        "filter (amount > cast(0 as bigint))",
        "from user string, other string, amount bigint, ts timestamp",
    )
    assert operator.functions == {}


def test_a_number_in_the_name_of_a_column_stays(spark: SparkSession) -> None:
    def build(rows: DataFrame) -> DataFrame:
        named = rows.withColumnRenamed("user", "a#1").withColumn("b#2", F.upper(F.col("`a#1`")))
        return named.groupBy("`a#1`", "`b#2`").agg(F.max("`c#3`"), F.count(F.lit("#4")))

    (operator,) = made(spark, build, "user string, `c#3` int", output_mode="update").operators
    assert operator.plan == (
        "group by user",
        "group by upper(user)",
        "aggregate max(c#3)",
        "aggregate count('#4')",
        "from user string, c#3 int",
    )


def test_a_contract_has_the_session_window(spark: SparkSession) -> None:
    (operator,) = made(spark, "tests.contract.jobs:sessions").operators
    assert (operator.plan or ())[:3] == (
        "group by user",
        "group by session_window(ts, 5 minutes)",
        "aggregate count(1)",
    )


def test_a_query_with_two_sources_and_a_writer_has_a_contract(spark: SparkSession) -> None:
    found = made(spark, jobs.joined, TWO)
    (operator,) = found.operators
    assert (found.sources, found.output_mode, operator.name) == (2, "append", "symmetricHashJoin")
    assert (operator.plan or ())[:2] == ("join Inner", "on user = viewer")
    assert "right viewer" in (operator.plan or ())
    assert found.source_names is None
    # With source evolution, Spark demands names, and those of the schemas are theirs.
    named = made(spark, jobs.joined, TWO, conf={SOURCE_EVOLUTION: "true"})
    assert (named.offset_log, named.source_names) == (1, ("clicks", "views"))


def test_a_contract_has_the_ttl_of_a_processor(spark: SparkSession) -> None:
    """The processor's ``init`` runs and declares the variables, but it handles no row."""
    found = made(spark, jobs.last, output_mode="update", conf=ROCKSDB)
    (operator,) = found.operators
    states = {state.name: (state.ttl, state.ttl_ms) for store in operator.stores for state in store.states or ()}
    assert states["last"] == (True, jobs.LIMIT_MS)
    assert operator.time_mode == "ProcessingTime"
    assert set(operator.functions or {}) == {"Last"}
    assert {"attributes", "names", "handleInputRows", "close"} <= set((operator.functions or {})["Last"])


def test_a_query_with_a_processing_time_timeout_has_a_contract(spark: SparkSession) -> None:
    """Such a query never ends by itself."""
    (operator,) = made(spark, jobs.timed_out, output_mode="update").operators
    assert "timeout ProcessingTimeTimeout" in (operator.plan or ())


def test_a_contract_has_the_udf_of_a_key(spark: SparkSession) -> None:
    (operator,) = made(spark, jobs.by_udf, output_mode="update").operators
    assert (operator.plan or ())[0] == "group by initial(user)"
    assert list(operator.functions or {}) == ["initial"]


@pytest.mark.parametrize(
    ("build", "options", "match"),
    [
        ("tests.contract.jobs:nosuch", {}, "cannot be loaded: tests.contract.jobs has no nosuch"),
        ("jobs/sums.py:build", {}, r"names a file\. Name its module: jobs\.sums:build"),
        ("no_such_module:build", {}, "cannot be loaded: ModuleNotFoundError"),
        ("tests.contract.jobs:A_NUMBER", {}, "is int, not a function"),
        (jobs.no_state, {}, "the query has no state"),
        (jobs.nothing, {}, "returned NoneType"),
        (jobs.raises, {}, r"raised ValueError at jobs.py:\d+: out of order"),
        (jobs.last, {"conf": {"spark.sql.warehouse.dir": "w"}}, "warehouse.dir=w must be made before Spark starts"),
        (jobs.no_column, {}, "nosuch"),
        (jobs.three, {}, "takes 3 arguments"),
        (jobs.swapped, {"schemas": TWO}, r"raised \w+ at .*It was called as swapped\(spark, sources\); sources has "),
        (jobs.no_stream, {}, "does not stream"),
        (jobs.totals, {"output_mode": "sometimes"}, "output mode|output-mode"),
        (jobs.totals, {"schemas": {}}, "needs the schema"),
        (jobs.totals, {"schemas": {"a": "a int", "b": "b int"}}, "takes one DataFrame, but 2 schemas"),
        (jobs.totals, {"schemas": "user strin"}, "'user strin' is not a schema"),
        (jobs.last, {"output_mode": "update"}, "Spark (cannot run|refuses) the query"),
        (jobs.joined, {"schemas": TWO, "output_mode": "update"}, "but the query sets append"),
        (jobs.totals, {"conf": {"spark.sql.shuffle.partitions": "many"}}, "rejects conf"),
    ],
)  # fmt: skip
def test_invalid_queries_are_refused(spark: SparkSession, build: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        made(spark, build, options.pop("schemas", jobs.EVENTS), **options)


def test_a_query_of_a_module_beside_a_test_has_a_contract(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs_beside_a_test.py").write_text(Path(jobs.__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    assert made(spark, "jobs_beside_a_test:last", output_mode="update", conf=ROCKSDB).operators


def test_a_schema_can_be_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """``state_contract`` of pytest passes its arguments on to the same function."""
    path = tmp_path / "events.ddl"
    path.write_text(f"{jobs.EVENTS}\n")
    of_ddl = made(spark, jobs.totals, output_mode="update")
    assert of_ddl == made(spark, jobs.totals, str(path), output_mode="update")
    assert of_ddl == made(spark, jobs.totals, {"": path}, output_mode="update")


SCRIPT = """
import sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("job").getOrCreate()
events = spark.readStream.format("kafka").option("subscribe", sys.argv[1]).load()
counts = events.withWatermark("timestamp", "5 minutes").dropDuplicates(["key", "timestamp"])
query = counts.writeStream.queryName("once").format("kafka").option("checkpointLocation", "/nowhere").start()
lines = spark.readStream.table("lines").groupBy("word").count()
lines.writeStream.queryName("words").outputMode("complete").toTable("counts")
spark.streams.awaitAnyTermination()
query.awaitTermination()
spark.stop()
"""


def test_a_script_that_opens_its_own_sources_has_a_contract(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)

    def of(query: str | None) -> Contract:
        session = spark.newSession()
        return contract_of_script(str(script), ["topic"], {"lines": "word string"}, query=query, session=session)

    once = of("once")
    assert [operator.name for operator in once.operators] == ["dedupe"]
    assert (once.operators[0].plan or ())[:2] == ("key key", "key timestamp")
    assert of("words").output_mode == "complete"
    with pytest.raises(UsageError, match="starts 2 queries"):
        of(None)
    with pytest.raises(UsageError, match="table lines; describe its schema"):
        contract_of_script(str(script), ["topic"], session=spark.newSession())
    with pytest.raises(UsageError, match="raised IndexError"):
        contract_of_script(str(script), session=spark.newSession())
    # Scripts do not affect later contracts.
    assert made(spark, jobs.totals).output_mode == "append"


def test_contracts_are_joined_only_if_they_belong_together(spark: SparkSession) -> None:
    query = made(spark, jobs.totals, output_mode="update")
    assert join_contracts(query, query).made_from == "checkpoint and query"
    with pytest.raises(UsageError, match="do not belong together"):
        join_contracts(query, made(spark, jobs.sessions))


@pytest.mark.wide
def test_a_module_that_the_driver_worker_lacks_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "google" / "protobuf"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'google.protobuf'\")")
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(tmp_path), str(root)])
    words = ["-m", "ttlsnap", "contract", "tests.contract.jobs:last", "--schema", "user string, n long"]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, *words], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "driver worker exited unexpectedly" in done.stderr
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'google.protobuf'\n")
