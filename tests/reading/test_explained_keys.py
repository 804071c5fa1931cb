"""Keys as JSON: what ``inspect`` prints of a key, of any type, leads to the entries with that key."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ttlsnap.entries.batch import RowEntries, StateEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.entries.json_text import to_json_values
from ttlsnap.operators.placement import find_partitions
from ttlsnap.reading.explained_key import Key
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.types import StructType
from ttlsnap.unsaferow.encode import encode

NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "STRING": ["u1", "", 'a "quoted" \\ \n text', "ü", None],
    "BIGINT": [5, -1, 2**63 - 1, None],
    "TINYINT": [5, -128],
    "BOOLEAN": [True, False, None],
    "DOUBLE": [1.5, float("nan"), float("inf"), 1e300, 3.0],
    "FLOAT": [1.5, float("-inf"), 0.1],
    "DECIMAL(10,2)": [Decimal("1.10"), Decimal("-7.00")],
    "DECIMAL(30,5)": [Decimal("12345678901234567890.12345"), Decimal("1.00000")],
    "DATE": [date(2026, 11, 21), date(1969, 1, 1), None],
    "TIMESTAMP": [NOON, datetime(1960, 1, 1, tzinfo=UTC), None],
    "TIMESTAMP_NTZ": [NOON.replace(tzinfo=None)],
    "BINARY": [b"\x00\xff", b""],
    "STRUCT<start TIMESTAMP, n INT>": [{"start": NOON, "n": 1}, {"start": None, "n": 1}, {"start": NOON, "n": None}],
    "ARRAY<STRING>": [["a", "b"], [], ["b"], [None]],
}


def entries_with(schema: StructType, rows: list[Any]) -> RowEntries:
    state = StateDescriptor(0, "stateStoreSave", "default", "default", None, schema, parse_ddl("n BIGINT"))
    keys = encode(pa.array(rows, arrow_type(schema)), schema)
    values = encode(pa.array([{"n": n} for n in range(len(rows))], arrow_type(state.value_schema)), state.value_schema)
    return StateEntries.of(state, keys, values)


@pytest.mark.parametrize("kind", VALUES)
def test_a_printed_key_is_found_and_placed(kind: str) -> None:
    rows = [{"a": value, "b": number % 2} for value in VALUES[kind] for number in range(2)]
    entries = entries_with(parse_ddl(f"a {kind}, b INT"), rows)
    placed = find_partitions(entries.state, entries.keys, 7)
    printed = to_json_values(entries.key_structs)
    for number, key in enumerate(printed):
        found = Key.parse(json.dumps(key)).of(entries.state)
        assert np.flatnonzero(found.matches(entries)).tolist() == [number], key
        # No list is hashed, so all partitions are read.
        assert found.partition(7) == (None if kind.startswith("ARRAY") else placed[number])
        part = Key.parse(json.dumps({"a": key["a"]})).of(entries.state)
        assert np.flatnonzero(part.matches(entries)).tolist() == [number - number % 2, number - number % 2 + 1]
        assert part.partition(7) is None


def test_a_scalar_is_the_only_column() -> None:
    entries = entries_with(parse_ddl("a BIGINT"), [{"a": 5}, {"a": 6}, {"a": None}])
    for text, number in (("5", 0), ("6", 1), ("null", 2)):
        found = Key.parse(text).of(entries.state)
        assert np.flatnonzero(found.matches(entries)).tolist() == [number]
        assert found.partition(3) is not None
