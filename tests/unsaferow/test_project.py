"""Rows without their last field are byte for byte what Spark's own projection makes of the other fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.errors import CorruptionError
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.project import without_last_field
from ttlsnap.unsaferow.rows import Rows

SCHEMAS: list[tuple[str, list[list[Any]]]] = [
    ("a BIGINT", [[1], [None], [-5]]),
    ("a STRING", [["x"], [None], [""], ["a longer text"]]),
    ("a STRING, b INT, c STRING", [["x", 1, "y"], [None, None, None], ["", 2, "eight ch"]]),
    ("a DECIMAL(38, 2), b STRING", [[None, "z"], [None, None]]),
    ("a STRUCT<b: STRING, c: BIGINT>, d STRING", [[{"b": "q", "c": 1}, "t"], [None, "t"], [{"b": None, "c": 2}, None]]),
    ("a ARRAY<STRING>, b STRING", [[["x", None], "u"], [[], None], [None, "v"]]),
    (", ".join(f"f{i} BIGINT" for i in range(63)), [list(range(63)), [None] * 63]),
    (", ".join(f"f{i} BIGINT" for i in range(64)), [list(range(64)), [None] * 64]),
    (", ".join(f"f{i} STRING" for i in range(64)), [[str(i) for i in range(64)], [None] * 64]),
    (", ".join(f"f{i} STRING" for i in range(65)), [[str(i) for i in range(65)], [None] * 65]),
]


def rows_of(ddl: str, rows: list[list[Any]]) -> tuple[Rows, StructType]:
    schema = parse_ddl(ddl)
    columns = [pa.array([row[i] for row in rows], arrow_type(field.type)) for i, field in enumerate(schema.fields)]
    return encode(pa.StructArray.from_arrays(columns, names=[str(i) for i in range(len(columns))]), schema), schema


@pytest.mark.parametrize(("ddl", "values"), SCHEMAS)
def test_the_last_field_goes(ddl: str, values: list[list[Any]]) -> None:
    wanted, _ = rows_of(ddl, values)
    rows, schema = rows_of(f"{ddl}, last BIGINT", [[*row, i << 40 | 7] for i, row in enumerate(values)])
    found = without_last_field(rows, [field.type for field in schema.fields])
    assert found.to_arrow().to_pylist() == wanted.to_arrow().to_pylist()


def test_rows_that_are_too_short() -> None:
    rows = Rows(np.zeros(16, np.uint8), np.zeros(1, np.int64), np.full(1, 16, np.int64))
    with pytest.raises(CorruptionError, match="no room"):
        without_last_field(rows, [field.type for field in parse_ddl("a STRING, last BIGINT").fields])
