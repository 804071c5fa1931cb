"""Old values become new ones, a whole array at once."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ttlsnap.migration.evolution import StateEvolution
from ttlsnap.migration.evolving import evolve_values
from ttlsnap.migration.struct_changes import (
    ArrayChange,
    Cast,
    Change,
    Constant,
    MapChange,
    StructChange,
    Take,
    apply,
    is_narrower,
    is_wider,
)
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import DataType
from ttlsnap.unsaferow.decode import decode
from ttlsnap.unsaferow.encode import encode

WHOLE = ("tinyint", "smallint", "int", "bigint")
EDGES: dict[str, list[Any]] = {
    "tinyint": [-128, -1, 0, 127],
    "smallint": [-32768, -129, 0, 128, 32767],
    "int": [-(2**31), -32769, 0, 2**24 + 1, 2**31 - 1],
    "bigint": [-(2**63), -(2**53) - 1, -(2**31) - 1, 0, 2**53 + 1, 2**63 - 1],
    "float": [-math.inf, -1.5, 0.0, 2.0**24, 3.0e38, math.nan],
    "double": [-math.inf, -1.5, -0.0, 0.1, 2.0**53, 2.0**63, -(2.0**63), 1e300, math.nan],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("0.00"), Decimal("0.10"), Decimal("999.00")],
    "decimal(7,3)": [Decimal("-9999.999"), Decimal("0.001"), Decimal("100.100"), Decimal("999.990")],
    "decimal(12,2)": [Decimal("-2147483648.00"), Decimal("1.25")],
    "decimal(20,0)": [Decimal(-(10**20) + 1), Decimal(0), Decimal(2**63), Decimal(-(2**63))],
    "string": [
        "0",
        "-1",
        "127",
        "128",
        "-9223372036854775808",
        "9223372036854775808",
        "01",
        "+1",
        " 1",
        "-0",
        "1.0",
        "",
    ],
}


def kind_of(name: str) -> DataType:
    return parse_ddl(f"x {name}").fields[0].type


def run(old: str, new: str, change: StructChange, rows: list[Any]) -> tuple[list[Any], dict[str, int]]:
    """Return rows of the schema ``new``, through the bytes of both schemas, and what did not fit."""
    before, after = parse_ddl(old), parse_ddl(new)
    lost: dict[str, int] = {}
    array = decode(encode(pa.array(rows, arrow_type(before)), before), before)
    made = apply(array, change, after, "value", lambda place, count: lost.update({place: lost.get(place, 0) + count}))
    return decode(encode(made, after), after).to_pylist(), lost


def convert(value: Any, new: str) -> Any:
    """Return the exact equal of a value in another type, by Python's own rules; None if it has none."""
    if isinstance(value, float) and math.isnan(value):
        return value if new in ("float", "double") else None
    if isinstance(value, str) and new in WHOLE:
        whole = re.fullmatch("-?[0-9]+", value) and int(value)
        return convert(whole, new) if str(whole) == value else None
    if new == "string":
        return str(value)
    if new in WHOLE:
        bits = 8 << WHOLE.index(new)
        whole = int(value) if not (isinstance(value, float) and math.isinf(value)) else None
        return whole if whole is not None and whole == value and -(2 ** (bits - 1)) <= whole < 2 ** (bits - 1) else None
    if new in ("float", "double"):
        made = pa.scalar(float(value), arrow_type(kind_of(new))).as_py() if abs(value) < 2**1000 else float(value)
        return made if made == value else None
    precision, scale = (int(n) for n in new[8:-1].split(","))
    exact = Decimal(value)
    fits = exact == exact.quantize(Decimal(1).scaleb(-scale)) if abs(exact) < 10**20 else False
    return exact if fits and abs(exact) < Decimal(10) ** (precision - scale) else None


PAIRS = [(old, new) for old in EDGES for new in EDGES if old != new]


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=lambda name: name)
def test_every_value_is_exact_or_does_not_fit(old: str, new: str) -> None:
    before, after = kind_of(old), kind_of(new)
    changes = [Cast()] if is_wider(before, after) else []
    changes += [Cast(narrow=True)] if is_narrower(before, after) else []
    if not changes:
        return
    wanted = [convert(pa.scalar(value, arrow_type(before)).as_py(), new) for value in EDGES[old]]
    assert Cast() not in changes or None not in wanted
    for change in changes:
        rows, lost = run(f"x {old}", f"x {new}", StructChange((Take(0, change),)), [{"x": v} for v in EDGES[old]])
        assert [repr(row["x"]) for row in rows] == [
            repr(None if w is None else pa.scalar(w, arrow_type(after)).as_py()) for w in wanted
        ]
        assert sum(lost.values()) == wanted.count(None)


def test_wider_types_have_every_value() -> None:
    wider = {(old, new) for old, new in PAIRS if is_wider(kind_of(old), kind_of(new))}
    assert wider == {
        *((a, b) for n, a in enumerate(WHOLE) for b in WHOLE[n + 1 :]),
        *(("tinyint", name) for name in ("float", "double", "decimal(5,2)", "decimal(7,3)", "decimal(12,2)")),
        *(("smallint", name) for name in ("float", "double", "decimal(12,2)")),
        *(("int", name) for name in ("double", "decimal(12,2)")),
        *((name, kind) for name in WHOLE for kind in ("decimal(20,0)", "string")),
        ("float", "double"),
        ("decimal(5,2)", "decimal(7,3)"),
        ("decimal(5,2)", "decimal(12,2)"),
    }


NESTED = "a int, s struct<x: int, y: string>, l array<struct<p: int, r: string>>, m map<string, struct<u: int>>"
ROWS: list[dict[str, Any]] = [
    {
        "a": 1,
        "s": {"x": 2, "y": "two"},
        "l": [{"p": 3, "r": "three"}, None, {"p": None, "r": None}],
        "m": [("k", {"u": 4}), ("n", None)],
    },
    {"a": None, "s": None, "l": None, "m": None},
    {"a": 5, "s": {"x": None, "y": None}, "l": [], "m": []},
]
CHANGES: list[tuple[str, str, Change, list[Any]]] = [
    (
        "s",
        "struct<y: string, z: int>",
        StructChange((Take(1), Constant(7))),
        [{"y": "two", "z": 7}, None, {"y": None, "z": 7}],
    ),
    (
        "l",
        "array<struct<p: bigint, q: date>>",
        ArrayChange(StructChange((Take(0, Cast()), Constant(None)))),
        [[{"p": 3, "q": None}, None, {"p": None, "q": None}], None, []],
    ),
    (
        "m",
        "map<string, struct<w: string, u: int>>",
        MapChange(StructChange((Constant("w"), Take(0)))),
        [[("k", {"w": "w", "u": 4}), ("n", None)], None, []],
    ),
]


@pytest.mark.parametrize(("field", "new", "change", "wanted"), CHANGES)
def test_what_is_within_a_column_changes(field: str, new: str, change: Change, wanted: list[Any]) -> None:
    ordinal = parse_ddl(NESTED).names.index(field)
    rows, lost = run(NESTED, f"{field} {new}, a int", StructChange((Take(ordinal, change), Take(0))), ROWS)
    assert [row[field] for row in rows] == wanted
    assert [row["a"] for row in rows] == [1, None, 5]
    assert not lost


def test_a_null_within_a_column_that_may_not_be_is_counted_and_no_error() -> None:
    old, new = parse_ddl(NESTED), parse_ddl("s struct<x: int not null, y: string>")
    change = StructChange((Take(1, StructChange((Take(0), Take(1)))),))
    lost: list[tuple[str, int]] = []
    evolution = StateEvolution(0, "default", "default", "default", None, change, parse_ddl("k int"), new)
    rows = encode(pa.array(ROWS, arrow_type(old)), old)
    evolve_values(evolution, old, rows, lambda place, count: lost.append((place, count)))
    assert lost == [("value.s.x", 1)]


def test_a_null_that_may_not_be_is_counted() -> None:
    change = StructChange((Take(0), Take(1, StructChange((Take(0), Take(1))))))
    before, lost = parse_ddl(NESTED), {}
    array = pa.array(ROWS, arrow_type(before))
    new = parse_ddl("a int not null, s struct<x: int not null, y: string>")
    apply(array, change, new, "value", lambda place, count: lost.update({place: count}))
    # The struct that is null itself does not count.
    assert lost == {"value.a": 1, "value.s.x": 1}
