"""Encoding of values that do not come from Spark: other Arrow types, slices, and values that must be refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.errors import UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StringType, StructField, StructType, UserDefinedType
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.rows import Rows

WIDE = parse_ddl(
    "i INT, s STRING, d DECIMAL(30,2), a ARRAY<STRING>, m MAP<STRING, BIGINT>, t STRUCT<x: INT, y: STRING>, "
    "v VARIANT, n VOID, c INTERVAL, b BOOLEAN, f ARRAY<SMALLINT>"
)
VALUES: list[dict[str, Any]] = [
    {
        "i": i, "s": "é" * i, "d": Decimal(i) / 100 - 7, "a": ["a", None, "b" * i],
        "m": [("k", i), ("l", None)], "t": {"x": None, "y": f"y{i}"}, "n": None,
        "v": {"value": b"v" * i, "metadata": b"m"}, "c": (i, -i, i * 1_000_000), "b": i % 2 == 0,
        "f": [i, None] * i,
    }
    for i in range(12)
]  # fmt: skip
VALUES[1] = dict.fromkeys(VALUES[0])
VALUES[7] = dict.fromkeys(VALUES[0])


def structs(values: list[Any], schema: StructType) -> Any:
    return pa.array(values, arrow_type(schema))


def one(value: Any, kind: Any, field: str) -> Rows:
    return encode(pa.StructArray.from_arrays([pa.array([value], kind)], ["x"]), parse_ddl(field))


def test_encoded_values_decode_to_the_same_values() -> None:
    values = structs(VALUES, WIDE)
    decoded = decode(encode(values, WIDE), WIDE)
    decoded.validate(full=True)
    assert decoded.equals(values)


def test_a_slice_is_encoded_as_its_own_rows(payloads_of: Any) -> None:
    values = structs(VALUES, WIDE)
    whole = payloads_of(encode(values, WIDE))
    assert payloads_of(encode(values[3:9], WIDE)) == whole[3:9]
    assert payloads_of(encode(values[12:], WIDE)) == []


def test_values_under_a_null_are_ignored(payloads_of: Any) -> None:
    lists = pa.ListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]), mask=pa.array([True, False]))
    inner = pa.StructArray.from_arrays([pa.array(["hidden", "seen"])], ["y"], mask=pa.array([True, False]))
    schema = parse_ddl("l ARRAY<BIGINT>, t STRUCT<y: STRING>")
    encoded = encode(pa.StructArray.from_arrays([lists, inner], ["l", "t"]), schema)
    clean = structs([{"l": None, "t": None}, {"l": [3], "t": {"y": "seen"}}], schema)
    assert payloads_of(encoded) == payloads_of(encode(clean, schema))


@pytest.mark.parametrize(
    ("value", "kind", "field"),
    [
        (5, pa.int64(), "x INT"),
        ("a", pa.string(), "x STRING"),
        (b"a", pa.binary(), "x BINARY"),
        (Decimal("1.5"), pa.decimal128(5, 1), "x DECIMAL(20,4)"),
        (7, pa.int64(), "x TIMESTAMP"),
        (None, pa.null(), "x STRING"),
        (None, pa.null(), "x ARRAY<INT>"),
        ([None], pa.list_(pa.null()), "x ARRAY<STRING>"),
    ],
)
def test_other_arrow_types_are_cast(value: Any, kind: Any, field: str) -> None:
    assert len(one(value, kind, field)) == 1


@pytest.mark.parametrize(
    ("value", "kind", "field", "message"),
    [
        (2**40, pa.int64(), "x INT", "field x: int64 does not fit int"),
        (Decimal("1.55"), pa.decimal128(5, 2), "x DECIMAL(5,1)", "field x"),
        ([1], pa.list_(pa.int64()), "x STRING", "field x"),
        ("a", pa.string(), "x ARRAY<STRING>", "field x: string does not fit array"),
        ("a", pa.string(), "x STRUCT<y: STRING>", "field x: string is not a struct"),
        ({"y": 1, "z": 2}, pa.struct([("y", pa.int32()), ("z", pa.int32())]), "x STRUCT<y: INT>", "field x"),
        ((0, 0, 1), pa.month_day_nano_interval(), "x INTERVAL", "nanoseconds"),
        (None, pa.int32(), "x INT NOT NULL", "field x is not nullable but value 0 is null"),
        (
            {"y": None},
            pa.struct([("y", pa.int32())]),
            "x STRUCT<y: INT NOT NULL>",
            "field x.y is not nullable",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any, kind: Any, field: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        one(value, kind, field)


def test_a_null_row_is_refused() -> None:
    with pytest.raises(UsageError, match="row cannot be null"):
        encode(pa.array([None, {"x": 1}], pa.struct([("x", pa.int32())])), parse_ddl("x INT"))


def test_a_user_defined_type_is_encoded_as_its_sql_type(payloads_of: Any) -> None:
    plain = parse_ddl("x STRUCT<a: INT, b: STRING>, y STRING")
    udt = StructType(
        (
            StructField("x", UserDefinedType(plain.fields[0].type, "com.example.Point")),
            StructField("y", UserDefinedType(StringType())),
        )
    )
    values = structs([{"x": {"a": 1, "b": "c"}, "y": "d"}, {"x": None, "y": None}], plain)
    assert payloads_of(encode(values, udt)) == payloads_of(encode(values, plain))
    assert decode(encode(values, udt), udt).equals(values)


def test_every_nan_becomes_the_canonical_nan() -> None:
    odd = np.array([0x7FF8000000000001], "<u8").view("<f8")
    encoded = encode(pa.StructArray.from_arrays([pa.array(odd)], ["x"]), parse_ddl("x DOUBLE"))
    assert encoded.data[8:].tobytes() == np.array([np.nan], "<f8").tobytes() == bytes.fromhex("000000000000f87f")
