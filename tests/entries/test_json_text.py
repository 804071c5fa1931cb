"""JSON texts of whole columns equal Python's JSON of each value."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.entries.json_text import json_texts

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats()),
    (pa.large_string(), st.text()),
    (pa.large_binary(), st.binary(max_size=4)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.decimal128(38, 6), st.decimals(-(10**20), 10**20, places=6)),
]


def expected(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return str(value)
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict():
            return {name: expected(inner) for name, inner in value.items()}
        case list():
            return [expected(inner) for inner in value]
    return value


def nested(leaf: tuple[pa.DataType, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    kind, values = leaf
    values = st.none() | values
    lists = st.none() | st.lists(values, max_size=3)
    struct, inner = pa.struct([("a", kind), ('b "c"', pa.large_list(kind))]), {"a": values, 'b "c"': lists}
    shapes: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
        (kind, values),
        (pa.large_list(kind), lists),
        (struct, st.none() | st.fixed_dictionaries(inner)),
        (pa.large_list(struct), st.none() | st.lists(st.none() | st.fixed_dictionaries(inner), max_size=2)),
    ]
    return st.one_of([st.tuples(st.just(shape), st.lists(made, max_size=6)) for shape, made in shapes])


@given(st.one_of([nested(leaf) for leaf in LEAVES]), st.integers(0, 3))
def test_column_json_equals_pythons_json(made: tuple[pa.DataType, list[Any]], first: int) -> None:
    kind, values = made
    array = pa.array(values, kind).slice(first)  # a slice, as of a batch that was partly consumed
    found = [json.loads(text) for text in json_texts(array).to_pylist()]
    assert found == expected(values[first:])


def test_maps_are_lists_of_pairs_and_names_may_repeat() -> None:
    array = pa.array(
        [{"m": [("k", 1), ('"', None)]}, None, {"m": None}], pa.struct([("m", pa.map_(pa.string(), pa.int32()))])
    )
    assert [json.loads(text) for text in json_texts(array).to_pylist()] == [
        {"m": [{"key": "k", "value": 1}, {"key": '"', "value": None}]}, None, {"m": None},
    ]  # fmt: skip
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["sum", "sum"])
    assert json_texts(twice).to_pylist() == ['{"sum#1": 1, "sum#2": 2}']


@pytest.mark.parametrize("kind", [pa.null(), pa.struct([]), pa.duration("us"), pa.month_day_nano_interval()])
def test_other_types_are_valid_json(kind: pa.DataType) -> None:
    value: Any = {pa.null(): None, pa.struct([]): {}, pa.duration("us"): 5}.get(kind, (1, 2, 3))
    (text,) = json_texts(pa.array([value], kind)).to_pylist()
    assert json.loads(text) is None or json.loads(text) is not False
