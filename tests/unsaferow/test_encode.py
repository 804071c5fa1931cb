"""Encoding what did not come from Spark: other Arrow types, slices, and what must be refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StringType, StructField, StructType, UserDefinedType
from ttlsnap.unsaferow.decode import decode, decode_column
from ttlsnap.unsaferow.encode import encode, replace_word
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


def test_values_come_back() -> None:
    values = structs(VALUES, WIDE)
    decoded = decode(encode(values, WIDE), WIDE)
    decoded.validate(full=True)
    assert decoded.equals(values)


def test_a_slice_is_encoded_as_its_own_rows(payloads_of: Any) -> None:
    values = structs(VALUES, WIDE)
    whole = payloads_of(encode(values, WIDE))
    assert payloads_of(encode(values[3:9], WIDE)) == whole[3:9]
    assert payloads_of(encode(values[12:], WIDE)) == []


def test_what_stands_under_a_null_does_not_matter(payloads_of: Any) -> None:
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
        (2**40, pa.int64(), "x INT", "field x: int64 is no int"),
        (Decimal("1.55"), pa.decimal128(5, 2), "x DECIMAL(5,1)", "field x"),
        ([1], pa.list_(pa.int64()), "x STRING", "field x"),
        ("a", pa.string(), "x ARRAY<STRING>", "field x: string is no array"),
        ("a", pa.string(), "x STRUCT<y: STRING>", "field x: string is no struct"),
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
def test_what_does_not_fit_is_refused(value: Any, kind: Any, field: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        one(value, kind, field)


def test_a_null_row_is_refused() -> None:
    with pytest.raises(UsageError, match="row cannot be null"):
        encode(pa.array([None, {"x": 1}], pa.struct([("x", pa.int32())])), parse_ddl("x INT"))


def test_a_user_defined_type_is_what_it_stands_for(payloads_of: Any) -> None:
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


@pytest.mark.parametrize("name", ["i", "b"])
def test_replacing_a_word_equals_encoding_anew(name: str, lay_out: Any, payloads_of: Any) -> None:
    ordinal = WIDE.names.index(name)
    changed = [dict(v) for v in VALUES]
    for i, value in enumerate(changed):
        value[name] = None if i % 3 == 0 else (i + 1 if name == "i" else i % 4 == 0)
    before = lay_out(payloads_of(encode(structs(VALUES, WIDE), WIDE)))
    column = pa.array([v[name] for v in changed], arrow_type(WIDE.fields[ordinal].type))

    after = replace_word(before, WIDE, ordinal, column)

    assert payloads_of(after) == payloads_of(encode(structs(changed, WIDE), WIDE))


def test_replacing_a_word_leaves_the_source_alone(payloads_of: Any) -> None:
    schema = parse_ddl("a BIGINT, b STRING")
    rows = encode(structs([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], schema), schema)
    before = payloads_of(rows)
    after = replace_word(rows, schema, 0, pa.array([8, None], pa.int64()))
    assert payloads_of(rows) == before
    assert decode_column(after, schema, [0]).to_pylist() == [8, None]


def test_replacing_the_word_of_field_63_and_beyond() -> None:
    schema = parse_ddl(", ".join(f"c{i} INT" for i in range(130)))
    rows = encode(structs([{f"c{i}": i for i in range(130)}] * 2, schema), schema)
    for ordinal in (63, 64, 127, 129):
        after = replace_word(rows, schema, ordinal, pa.array([None, -1], pa.int32()))
        assert decode_column(after, schema, [ordinal]).to_pylist() == [None, -1]
        assert decode(after, schema).field(0).to_pylist() == [0, 0]


@pytest.mark.parametrize(
    ("ordinal", "values", "message"),
    [
        (1, pa.array(["x"]), "no fixed width"),
        (2, pa.array([None], pa.int32()), "not nullable"),
        (3, pa.array([1]), "no field 3"),
        (0, pa.array([1, 2]), "2 values for 1 rows"),
        (0, pa.array([2**40]), "is no int"),
    ],
)
def test_words_that_cannot_be_replaced(ordinal: int, values: Any, message: str) -> None:
    schema = parse_ddl("a INT, b STRING, c INT NOT NULL")
    rows = encode(structs([{"a": 1, "b": "", "c": 1}], schema), schema)
    with pytest.raises(UsageError, match=message):
        replace_word(rows, schema, ordinal, values)


def test_replacing_words_of_damaged_rows_is_refused(lay_out: Any) -> None:
    with pytest.raises(CorruptionError, match="row 0: its size of 20 bytes is not a multiple of 8"):
        replace_word(lay_out([bytes(20)]), parse_ddl("a INT"), 0, pa.array([1], pa.int32()))


def test_every_nan_becomes_the_canonical_one() -> None:
    odd = np.array([0x7FF8000000000001], "<u8").view("<f8")
    encoded = encode(pa.StructArray.from_arrays([pa.array(odd)], ["x"]), parse_ddl("x DOUBLE"))
    assert encoded.data[8:].tobytes() == np.array([np.nan], "<f8").tobytes() == bytes.fromhex("000000000000f87f")
