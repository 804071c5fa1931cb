"""ttlsnap reads the Avro states of real Spark as Spark does, and writes the same bytes."""

from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.avro.keys import KeyLayout, decode_keys, encode_keys
from ttlsnap.avro.unsaferows import key_rows, nullable, stored_keys, stored_values, value_rows
from ttlsnap.avro.values import ValueSchemas, decode_values, encode_values
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.unsaferow import decode as unsaferow
from ttlsnap.unsaferow.project import side_by_side
from ttlsnap.unsaferow.rows import Rows
from ttlsnap.unsaferow.words import long_rows

from .recorded import VERSIONS, Sample, sample, samples

ALL = samples()
TWINS = [each for each in ALL if each.query != "evolving"]
MAPS = ("nested",)
"""States with maps in their values. Avro stores the map entries in another order."""


def bytes_of(rows: Rows) -> list[bytes]:
    return [bytes(row) for row in rows.to_arrow().to_pylist()]


@pytest.mark.usefixtures("walking")
@pytest.mark.parametrize("found", ALL, ids=str)
def test_keys_are_written_back_byte_for_byte(found: Sample) -> None:
    keys = decode_keys(Rows.of(found.keys), found.layout)
    keys.validate(full=True)
    assert keys.type == arrow_type(found.layout.schema)
    assert bytes_of(encode_keys(keys, found.layout)) == found.keys


@pytest.mark.usefixtures("walking")
@pytest.mark.parametrize("found", ALL, ids=str)
def test_values_are_written_back_byte_for_byte(found: Sample) -> None:
    for number, schema in found.schemas.by_id.items():
        rows = [row for row in found.rows if struct.unpack_from("<h", row, 1)[0] == number]
        schemas = ValueSchemas({number: schema}, number)
        values = decode_values(Rows.of(rows), schemas)
        values.validate(full=True)
        assert values.type == arrow_type(schema)
        assert bytes_of(encode_values(values, schemas)) == rows


@pytest.mark.parametrize("found", TWINS, ids=str)
def test_rows_equal_those_that_spark_wrote_in_unsaferow(found: Sample) -> None:
    keys = bytes_of(key_rows(Rows.of(found.keys), found.layout))
    twin = {_whole_key(key, found.layout): value for key, value in found.twin}
    assert sorted(keys) == sorted(twin)
    for key, value in zip(keys, found.values, strict=True):
        rows = value_rows(Rows.of(found.elements(value)), found.schemas)
        theirs = [row[1:] for row in found.elements(twin[key])]
        if found.state in MAPS:
            assert _in_order(rows, found) == _in_order(Rows.of(theirs), found)
        else:
            assert bytes_of(rows) == theirs


@pytest.mark.parametrize("found", TWINS, ids=str)
def test_rows_from_unsaferow_equal_those_that_spark_wrote_in_avro(found: Sample) -> None:
    whole = Rows.of([_whole_key(key, found.layout) for key, _ in found.twin])
    keys = bytes_of(stored_keys(whole, found.layout))
    assert sorted(keys) == sorted(found.keys)
    if found.state in MAPS:
        return
    for (_, value), key in zip(found.twin, keys, strict=True):
        rows = Rows.of([row[1:] for row in found.elements(value)])
        assert bytes_of(stored_values(rows, found.schemas)) == found.elements(found.values[found.keys.index(key)])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", ["value", "map", "list", "later"])
def test_values_of_older_schemas_are_read_as_spark_reads_them(version: str, state: str) -> None:
    found = sample(version, "evolving", state)
    assert state == "later" or {row[1] for row in found.rows} == {0, 1, 2}
    keys = decode_keys(Rows.of(found.keys), found.layout).to_pylist()
    values = decode_values(Rows.of(found.rows), found.schemas)
    values.validate(full=True)
    assert values.type == arrow_type(found.schemas.current)
    ours = [key for key, value in zip(keys, found.values, strict=True) for _ in found.elements(value)]
    said = [json.loads(text, parse_float=_digits) for text in found.said]
    shown = zip(ours, _shown(values, found.schemas.current), strict=True)
    if state == "map":
        entries = [{"key": k["key"], "user_map_key": k["userKey"], "user_map_value": value} for k, value in shown]
    else:
        entries = [{"key": key, "list_element" if state == "list" else "value": value} for key, value in shown]
    assert sorted(map(str, entries)) == sorted(map(str, said))


def _whole_key(key: bytes, layout: KeyLayout) -> bytes:
    """Return a key's UnsafeRow, joined from the parts that the store keeps."""
    if not layout.prefix_columns:
        return key[1:]
    (size,) = struct.unpack_from("<i", key)
    prefix, rest = Rows.of([key[5 : 4 + size]]), Rows.of([key[5 + size :]])
    if layout.ordered:
        assert key[5 + 16] == 1
        prefix = long_rows(np.array(struct.unpack_from(">q", key, 5 + 17)))
    fields = [field.type for field in layout.schema]
    whole = side_by_side(prefix, rest, fields[: layout.prefix_columns], fields[layout.prefix_columns :])
    return bytes_of(whole)[0]


def _in_order(rows: Rows, found: Sample) -> str:
    """Return the values as text, with the entries of their maps sorted."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: ordered(each) for name, each in value.items()}
        if isinstance(value, list):
            inner = [ordered(each) for each in value]
            return sorted(inner, key=repr) if inner and isinstance(inner[0], tuple) else inner
        return value

    return repr(ordered(unsaferow.decode(rows, nullable(found.schemas.current)).to_pylist()))


def _shown(values: pa.StructArray, schema: T.StructType) -> list[Any]:
    """Return the values as they are in Spark's JSON."""
    return [_as_json(value, schema) for value in values.to_pylist()]


def _as_json(value: Any, data_type: T.DataType) -> Any:
    if value is None:
        return None
    match data_type:
        case T.StructType(fields):
            return {f.name: _as_json(value[f.name], f.type) for f in fields}
        case T.ArrayType(element):
            return [_as_json(each, element) for each in value]
        case T.MapType(_, item):
            return {key: _as_json(each, item) for key, each in value}
        case T.TimestampType() | T.TimestampNTZType():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case T.DateType():
            return value.isoformat()
        case T.BinaryType():
            return base64.b64encode(value).decode()
        case T.DoubleType():
            return _digits(repr(value))
        case T.DecimalType():
            return _digits(str(value))
    return value


def _digits(number: str) -> str:
    """Return a number's text in one spelling."""
    return f"{Decimal(number).normalize():f}"
