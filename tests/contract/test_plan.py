"""The lines of a plan: two different queries must not have the same lines.

Spark only analyzes the queries, and does not run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ttlsnap.contract.of_query import find_functions
from ttlsnap.contract.plan import stateful_operators
from ttlsnap.contract.recording import intercept_queries, record_functions

from . import jobs

EVENTS = "user string, other string, amount bigint, price bigint, ms bigint, ts timestamp"
PAIR = "user string, amount bigint"
Sources = Mapping[str, DataFrame]
Build = Callable[[Sources], DataFrame]


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Return two streams and some static tables."""
    streams, folder = {}, tmp_path_factory.mktemp("sources")
    for name in ("a", "b"):
        (folder / f"source-{name}").mkdir()
        streams[name] = spark.readStream.schema(EVENTS).json(str(folder / f"source-{name}"))
    for name in ("prices", "costs"):
        spark.createDataFrame([("u", "x")], "user string, region string").write.parquet(str(folder / name))
        streams[name] = spark.read.parquet(str(folder / name))
    return {**streams, "static": spark.createDataFrame([("u", 1)], PAIR)}


def told(build: Build, sources: Sources) -> list[tuple[tuple[str, ...], Mapping[str, Any], Mapping[str, Any]]]:
    """Return the lines of each operator, its functions, and the TTLs of its variables."""
    with record_functions() as recording:
        frame = build(sources)
    planned = stateful_operators(frame._jdf.queryExecution().analyzed())
    functions = find_functions(planned, recording)
    return [(operator.lines, *function) for operator, function in zip(planned, functions, strict=True)]


def twice(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        batch["amount"] = batch["amount"] * 2
        yield batch


def more(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        batch["amount"] = batch["amount"] + 1
        yield batch


def named(function: Callable[[str], str]) -> Any:
    def clean(text):  # type: ignore[no-untyped-def]  # PySpark would read hints for its own ends
        return function(text)

    return F.udf(clean)


LOWER, UPPER = named(str.lower), named(str.title)


def with_common(query: str) -> Build:
    def build(sources: Sources) -> DataFrame:
        sources["a"].createOrReplaceTempView("src")
        return sources["a"].sparkSession.sql(query)

    return build


def joined(left: int, right: int) -> Build:
    def build(sources: Sources) -> DataFrame:
        sides = [sources[name].withWatermark("ts", "1 minute") for name in ("a", "b")]
        both = sides[0].join(sides[1], (sides[0].user == sides[1].user) & (sides[0].ts == sides[1].ts))
        columns = [sides[0].ts.alias("t"), sides[left].amount.alias("x"), sides[right].amount.alias("y")]
        return both.select(*columns).groupBy(F.window("t", "1 minute")).agg(F.sum("x"), F.max("y"))

    return build


def enriched(side: str) -> Build:
    def build(sources: Sources) -> DataFrame:
        sides = {"a": sources["a"], "static": sources["static"]}
        both = sides["a"].join(sides["static"], sides["a"].user == sides["static"].user)
        return both.groupBy(sides["a"].user).agg(F.sum(sides[side].amount))

    return build


def by(key: Any, of: Any = None) -> Build:
    return lambda sources: (
        sources["a"]
        .groupBy(F.expr(key) if isinstance(key, str) else key())
        .agg(F.count("*") if of is None else F.sum(F.expr(of)))
    )


def mapped(*functions: Any, branches: bool = False) -> Build:
    def build(sources: Sources) -> DataFrame:
        frames = [sources["a"].where(f"price > {n}").select("user", "amount") for n in range(1 + branches)]
        if branches:
            first, second = (frame.mapInPandas(f, PAIR) for frame, f in zip(frames, functions, strict=True))
            return first.union(second).groupBy("user").sum("amount")
        for function in functions:
            frames[0] = frames[0].mapInPandas(function, PAIR)
        return frames[0].groupBy("user").sum("amount")

    return build


def region(table: str) -> Build:
    return lambda sources: sources["a"].join(sources[table], "user").groupBy("region").sum("amount")


def unpivoted(column: str) -> Build:
    return lambda sources: sources["a"].unpivot("user", ["amount", column], "n", "v").groupBy("user").sum("v")


COMMON = "with c as (select user, {} as v from src where amount > {}) select user, sum(v) from c group by user"
BRANCHES = "select user, amount from src union all select user, {} from src"
UNION = f"with c as ({BRANCHES}) select user, sum(amount) from c group by user"
LATERAL = "select user, sum(v) from src, lateral (select amount * {} as v) group by user"
SCALAR = "select user, sum(amount) from src where amount > (select max(id) from range({})) group by user"


@pytest.mark.parametrize(
    ("one", "other"),
    {
        "a common table": (with_common(COMMON.format("amount", 1)), with_common(COMMON.format("price", 1))),
        "its filter": (with_common(COMMON.format("amount", 1)), with_common(COMMON.format("amount", 2))),
        "its later branch": (with_common(UNION.format("price")), with_common(UNION.format("ms"))),
        "a lateral": (with_common(LATERAL.format(2)), with_common(LATERAL.format(3))),
        "a subquery": (with_common(SCALAR.format(2)), with_common(SCALAR.format(3))),
        "columns of a join": (joined(0, 1), joined(1, 0)),
        "a column of a table": (enriched("a"), enriched("static")),
        "a text and a column": (by("case when amount > 3 then 'user' end"), by("case when amount > 3 then user end")),
        "two texts and one": (by("concat(user, 'a', 'b')"), by("concat(user, 'a, b')")),
        "a text with a number sign": (by("user", "int(other = 'page#1')"), by("user", "int(other = 'page#2')")),
        "a quoted text": (by("concat(user, '\\'')"), by("concat(user, '\\\\\\'')")),
        "rollup and cube": (
            lambda sources: sources["a"].rollup("user", "other").sum("amount"),
            lambda sources: sources["a"].cube("user", "other").sum("amount"),
        ),
        "unpivot": (unpivoted("price"), unpivoted("ms")),
        "functions of one name": (
            lambda sources: sources["a"].groupBy(LOWER("user")).agg(F.max(UPPER("user"))),
            lambda sources: sources["a"].groupBy(UPPER("user")).agg(F.max(LOWER("user"))),
        ),
        "those called in one order": (
            lambda sources: (lambda x, y: sources["a"].groupBy(x).agg(F.max(y)))(LOWER("user"), UPPER("user")),
            lambda sources: (lambda x, y: sources["a"].groupBy(y).agg(F.max(x)))(LOWER("user"), UPPER("user")),
        ),
        "one after the other": (mapped(twice, more), mapped(more, twice)),
        "one in each branch": (mapped(twice, more, branches=True), mapped(more, twice, branches=True)),
        "another table": (region("prices"), region("costs")),
    }.values(),
)
def test_different_queries_have_different_plans(sources: Sources, one: Build, other: Build) -> None:
    assert told(one, sources) != told(other, sources)


@pytest.mark.parametrize(
    ("one", "other"),
    {
        "chance": (by(F.rand), by(F.rand)),
        "an observation": (
            by("user"),
            lambda sources: sources["a"].observe("n", F.count(F.lit(1)).alias("n")).groupBy("user").count(),
        ),
        "a common table": (
            with_common("with c as (select user as u from src) select u, count(1) from c group by u"),
            with_common("select user, count(1) from src group by user"),
        ),
        "names on the way": (
            lambda sources: sources["a"].select("user", F.col("amount").alias("v")).groupBy("user").sum("v"),
            by("user", "amount"),
        ),
    }.values(),
)
def test_equal_queries_have_the_same_plan(sources: Sources, one: Build, other: Build) -> None:
    assert told(one, sources) == told(other, sources)


class Longer(jobs.Last):
    """Another processor, with another TTL."""

    def init(self, handle: Any) -> None:
        self._last = handle.getValueState("last", "v bigint", 7200_000)


@pytest.mark.parametrize("swapped", [False, True])
def test_each_operator_has_its_own_processor(sources: Sources, swapped: bool) -> None:
    """The order of the calls and of the branches does not matter."""

    def build(sources: Sources) -> DataFrame:
        by_kind = {}
        for kind in (Longer, jobs.Last) if swapped else (jobs.Last, Longer):
            frame = sources["a"].where(f"price = {len(kind.__name__)}").groupBy("user")
            by_kind[kind] = frame.transformWithStateInPandas(kind(), "user string", "append", "ProcessingTime")
        return by_kind[jobs.Last].union(by_kind[Longer])

    found = [
        (next(line for line in lines if line.startswith("filter")), set(functions), ttls)
        for lines, functions, ttls in told(build, sources)
    ]
    assert [(line, functions) for line, functions, _ in found] == [
        ("filter (price = cast(4 as bigint))", {"Last"}), ("filter (price = cast(6 as bigint))", {"Longer"}),
    ]  # fmt: skip
    assert found[0][2] != found[1][2] == {"last": 7200_000}


def test_sources_with_the_same_last_folder_have_different_names(spark: SparkSession, sources: Sources) -> None:
    names: list[str] = []
    source_names: list[str | None] = []

    def empty(schema: Any, name: str, source_name: str | None) -> DataFrame:
        names.append(name)
        source_names.append(source_name)
        return sources["a"]

    with record_functions() as recording, intercept_queries(recording, {}, empty):
        for path in ("/data/eu/events", "/data/us/events/", "/data/eu/events", "/data/clicks"):
            spark.readStream.schema(EVENTS).json(path)
        spark.readStream.name("seen").schema(EVENTS).json("/data/visits")
    assert names == ["events", "/data/us/events/", "events", "clicks", "visits"]
    assert source_names == [None, None, None, None, "seen"]
