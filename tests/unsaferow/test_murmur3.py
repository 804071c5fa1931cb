"""``murmur3`` gives the same hashes as Spark, type by type, and for random tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.murmur3 import first_seeds, has_two_hashes, hash_columns, partitions_of
from ttlsnap.unsaferow.rows import Rows

from ..both_ways import both_ways  # noqa: F401
from ..matrix import rotating
from .queries import CASES, values
from .random_tables import RandomTable

INTERVALS = values(
    "null|null|null",
    "make_interval(1,2,0,3,4,5,6.5)|interval '1-2' year to month|interval 3 year",
    "make_interval(-1,-2,0,-3,-4,-5,-6.000001)|interval '-1-2' year to month|interval -3 month",
)
NESTED = values(
    "struct(make_interval(1,2,0,3), 1)|array(make_interval(0,1,0,2), null)|map(make_interval(0,5,0,6), 'a')",
    "struct(make_interval(0,2,0,1), 2)|array()|map()",
)
NANS = "SELECT float('NaN') a, -float('NaN') b, double('NaN') c, sqrt(-1) d, -0.0D e, float('-0.0') f, 0.0D g"
UNKNOWN = ("variants", "arrays of variants", "collated")
QUERIES = {
    **{name: query for name, query in CASES.items() if name not in UNKNOWN},
    "intervals": INTERVALS,
    "nested": NESTED,
    "nan": NANS,
}


RULES = "org.apache.spark.sql.catalyst.optimizer."
SETTINGS = {
    # Spark hashes maps only as parts of a key that it has put in order.
    "spark.sql.legacy.allowHashOnMapType": "true",
    # Otherwise the optimizer computes the hashes of constants, by interpreted code.
    "spark.sql.optimizer.excludedRules": ",".join(
        RULES + name for name in ("ConvertToLocalRelation", "ConstantFolding", "OptimizeCsvJsonExprs")
    ),
}


def hashes_of(rows: Rows, schema: StructType, *, with_days: bool = False) -> list[int]:
    kinds = [field.type for field in schema.fields]
    columns = decode(rows, schema).flatten()
    found = hash_columns(columns, kinds, first_seeds(len(rows)), with_days=with_days)
    return [int(value) for value in found.view(np.int32)]


def hashes_by_spark(frame: Any) -> list[int]:
    return [row[0] for row in frame.selectExpr("hash(*)").collect()]


@pytest.fixture(autouse=True)
def _settings(spark: Any) -> Iterator[None]:
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name in SETTINGS:
        spark.conf.unset(name)


@pytest.fixture(params=[False, True], ids=["generated", "interpreted"])
def interpreted(request: pytest.FixtureRequest, spark: Any) -> Iterator[bool]:
    """Let Spark generate code, or interpret its expressions."""
    settings = {
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if request.param else "CODEGEN_ONLY",
        "spark.sql.codegen.wholeStage": str(not request.param).lower(),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield request.param
    for name in settings:
        spark.conf.unset(name)


@pytest.mark.parametrize("name", rotating(list(QUERIES), 24, "hashed types"))
def test_hashes_are_those_of_spark(name: str, interpreted: bool, run: Any, lay_out: Any) -> None:
    made = run(QUERIES[name])
    found = hashes_of(lay_out(made.payloads), made.schema, with_days=interpreted)
    assert found == hashes_by_spark(made.frame)


def test_only_types_with_an_interval_have_two_hashes(run: Any, lay_out: Any) -> None:
    for query in QUERIES.values():
        made = run(query)
        rows = lay_out(made.payloads)
        differ = hashes_of(rows, made.schema) != hashes_of(rows, made.schema, with_days=True)
        assert not differ or any(has_two_hashes(field.type) for field in made.schema.fields)


@pytest.mark.parametrize("seed", range(6))
def test_hashes_of_random_tables_are_those_of_spark(seed: int, spark: Any, collect: Any, lay_out: Any) -> None:
    made = collect(spark.createDataFrame(RandomTable(seed + 100).table(40)))
    assert hashes_of(lay_out(made.payloads), made.schema) == hashes_by_spark(made.frame)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_type_whose_hash_is_unknown_is_refused(name: str, run: Any, lay_out: Any) -> None:
    made = run(CASES[name])
    with pytest.raises(UnsupportedError, match="is not known"):
        hashes_of(lay_out(made.payloads), made.schema)


@pytest.mark.parametrize("partitions", [1, 7, 200])
def test_partitions_are_those_of_spark(partitions: int, spark: Any, collect: Any, lay_out: Any) -> None:
    frame = spark.range(500).selectExpr("id", "concat('key-', id) name")
    made = collect(frame)
    placed = frame.repartition(partitions, "id", "name").selectExpr("id", "spark_partition_id()").collect()
    columns = decode(lay_out(made.payloads), made.schema).flatten()
    kinds = [field.type for field in made.schema.fields]
    found = partitions_of(hash_columns(columns, kinds, first_seeds(500)), partitions)
    assert dict(zip(columns[0].to_pylist(), found.tolist(), strict=True)) == dict(map(tuple, placed))
