"""Rows with fewer or more fields have the same bytes as Spark's own projection of those fields."""

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
from ttlsnap.unsaferow.project import side_by_side, without_last_field
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
def test_the_last_field_is_removed(ddl: str, values: list[list[Any]]) -> None:
    wanted, _ = rows_of(ddl, values)
    rows, schema = rows_of(f"{ddl}, last BIGINT", [[*row, i << 40 | 7] for i, row in enumerate(values)])
    found = without_last_field(rows, [field.type for field in schema.fields])
    assert found.to_arrow().to_pylist() == wanted.to_arrow().to_pylist()


@pytest.mark.parametrize(("first", "left"), SCHEMAS)
@pytest.mark.parametrize(("second", "right"), SCHEMAS)
def test_two_rows_are_joined_side_by_side(
    first: str, left: list[list[Any]], second: str, right: list[list[Any]]
) -> None:
    pairs = [(a, b) for a in left for b in right]
    renamed = ", ".join(f"g{i} {field.split(' ', 1)[1]}" for i, field in enumerate(_fields(second)))
    wanted, _ = rows_of(f"{first}, {renamed}", [[*a, *b] for a, b in pairs])
    one, one_schema = rows_of(first, [a for a, _ in pairs])
    two, two_schema = rows_of(second, [b for _, b in pairs])
    types = [[field.type for field in schema.fields] for schema in (one_schema, two_schema)]
    assert side_by_side(one, two, *types).to_arrow().to_pylist() == wanted.to_arrow().to_pylist()


def _fields(ddl: str) -> list[str]:
    """Return the top-level columns."""
    found, depth = [""], 0
    for letter in ddl:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [field.strip() for field in found]


def test_no_rows_give_no_rows() -> None:
    types = [field.type for field in parse_ddl("a STRING, last BIGINT").fields]
    assert len(without_last_field(Rows.none(), types)) == len(side_by_side(Rows.none(), Rows.none(), types, types)) == 0


def test_rows_that_are_too_short_are_damage() -> None:
    rows = Rows(np.zeros(16, np.uint8), np.zeros(1, np.int64), np.full(1, 16, np.int64))
    with pytest.raises(CorruptionError, match="no room"):
        without_last_field(rows, [field.type for field in parse_ddl("a STRING, last BIGINT").fields])
