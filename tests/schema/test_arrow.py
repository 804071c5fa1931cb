"""The Arrow types of Spark's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.errors import UnsupportedError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import DataType, LongType, UserDefinedType


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("VOID", pa.null()), ("BOOLEAN", pa.bool_()), ("TINYINT", pa.int8()), ("SMALLINT", pa.int16()),
        ("INT", pa.int32()), ("BIGINT", pa.int64()), ("FLOAT", pa.float32()), ("DOUBLE", pa.float64()),
        ("STRING", pa.large_string()), ("VARCHAR(3)", pa.large_string()), ("CHAR(3)", pa.large_string()),
        ("STRING COLLATE UNICODE", pa.large_string()), ("BINARY", pa.large_binary()), ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", "UTC")), ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("TIME", pa.time64("ns")),
        ("DECIMAL(38,2)", pa.decimal128(38, 2)), ("INTERVAL DAY", pa.duration("us")),
        ("INTERVAL YEAR", pa.int32()), ("INTERVAL", pa.month_day_nano_interval()),
        ("ARRAY<INT>", pa.large_list(pa.field("element", pa.int32()))),
        ("MAP<STRING, INT>", pa.map_(pa.large_string(), pa.int32())),
        ("STRUCT<a: INT NOT NULL, a: STRING>", pa.struct([("a", pa.int32()), ("a", pa.large_string())])),
    ],
)  # fmt: skip
def test_each_type_has_its_arrow_type(ddl: str, expected: Any) -> None:
    assert arrow_type(parse_ddl(f"c {ddl}").fields[0].type) == expected


def test_a_variant_is_two_binaries() -> None:
    variant = arrow_type(parse_ddl("c VARIANT").fields[0].type)
    assert [(f.name, f.type, f.nullable) for f in variant] == [
        ("value", pa.large_binary(), False),
        ("metadata", pa.large_binary(), False),
    ]


def test_a_user_defined_type_has_the_arrow_type_of_its_sql_type() -> None:
    assert arrow_type(UserDefinedType(LongType())) == pa.int64()


def test_a_map_of_void_keys_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="keys are void"):
        arrow_type(parse_ddl("c MAP<VOID, VOID>").fields[0].type)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no Arrow type"):
        arrow_type(DataType())
