"""Each value of a table becomes exactly its equal in the type of the state, or its row is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ttlsnap.errors import UsageError
from ttlsnap.imports.conforming import Conforming
from ttlsnap.schema import types as T

LONG, INT, DOUBLE, FLOAT, TEXT = T.LongType(), T.IntegerType(), T.DoubleType(), T.FloatType(), T.StringType()
BIG = 2**53 + 1
CASES: list[tuple[pa.Array, T.DataType, list[int]]] = [
    (pa.array([1, 2**40, -1]), INT, [1]),
    (pa.array([1.0, 1.5, float("nan"), 2.0**63, -0.0]), LONG, [1, 2, 3]),
    (pa.array([BIG, 5, -BIG]), DOUBLE, [0, 2]),
    (pa.array([2**24 + 1, 2**24], pa.int32()), FLOAT, [0]),
    (pa.array([0.1, 0.5, float("nan"), float("inf")]), FLOAT, [0]),
    (pa.array([2**63, 2**63 - 1], pa.uint64()), LONG, [0]),
    (pa.array([2**63, 200, 100], pa.uint64()), T.ByteType(), [0, 1]),
    (pa.array([Decimal("1.50"), Decimal("1.55"), Decimal("99999.90")]), T.DecimalType(5, 1), [1, 2]),
    (pa.array([5, 123456]), T.DecimalType(5, 1), [1]),
    (pa.array([Decimal("5.0"), Decimal("5.5")]), LONG, [1]),
    (pa.array([1, 2000], pa.timestamp("ns")), T.TimestampType(), [0]),
    (pa.array([1, 2**62], pa.timestamp("s", "Europe/Berlin")), T.TimestampType(), [1]),
    (pa.array([86_400_000, 5], pa.date64()), T.DateType(), [1]),
    (pa.array(["a", None, ""]), T.StringType(), []),
    (pa.array(["a", "b"]).dictionary_encode(), T.StringType(), []),
    (pa.array([b"\x00", b""]), T.BinaryType(), []),
    (pa.array([[1, 2], None, [2**40], []]), T.ArrayType(INT), [2]),
    (pa.array([[1], None, [None]]).slice(1), T.ArrayType(INT, contains_null=False), [1]),
    (pa.array([[("a", 1)], None, [("b", 2**40)]], pa.map_(pa.string(), pa.int64())), T.MapType(TEXT, INT), [2]),
    (pa.array([[("a", 1), ("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int64())), T.MapType(TEXT, LONG), [0]),
]


@pytest.mark.parametrize(("values", "kind", "wrong"), CASES, ids=lambda v: str(getattr(v, "type", v))[:40])
def test_values_stay_what_they_are(values: pa.Array, kind: T.DataType, wrong: list[int]) -> None:
    conforming = Conforming("table")
    made = conforming.conform(values, kind, "value.x")
    kept = conforming.kept(len(values))
    right = [n for n in range(len(values)) if n not in wrong]
    assert (list(range(len(values))) if kept is None else kept.tolist()) == right
    for n in right:
        assert equal(made[n].as_py(), values[n].as_py()), (made[n], values[n])


def equal(made: Any, given: Any) -> bool:
    if hasattr(given, "tzinfo") and given.tzinfo is None and getattr(made, "tzinfo", None) is not None:
        given = given.replace(tzinfo=made.tzinfo)  # a time without a zone is one of UTC
    return bool(made == given) or (made != made and given != given)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([True]), INT),
        (pa.array(["1"]), INT),
        (pa.array([b"x"]), T.StringType()),
        (pa.array([1.5]), T.DecimalType(5, 1)),
        (pa.array([1]), T.TimestampType()),
        (pa.array([0], pa.timestamp("us", "UTC")), T.TimestampNTZType()),
        (pa.array([Decimal("1")], pa.decimal256(50, 0)), LONG),
        (pa.array([{"a": 1}]), LONG),
    ],
)
def test_types_without_equal_values_are_refused(values: pa.Array, kind: T.DataType) -> None:
    with pytest.raises(UsageError, match=r"value\.x is .* in the table, and"):
        Conforming("table").conform(values, kind, "value.x")


def test_keys_have_one_zero_and_one_nan() -> None:
    found = Conforming("table").conform(pa.array([-0.0, float("nan"), 1.5, None]), DOUBLE, "key.x", normal=True)
    assert [str(value) for value in found.to_pylist()] == ["0.0", "nan", "1.5", "None"]
