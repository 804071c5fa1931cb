"""The bytes around Avro keys and values: prefixes, ordered numbers, schema ids."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.avro.decode import decode
from ttlsnap.avro.encode import encode
from ttlsnap.avro.keys import KeyLayout, decode_keys, encode_keys
from ttlsnap.avro.types import explain_unsupported
from ttlsnap.avro.unsaferows import stored_values
from ttlsnap.avro.values import ValueSchemas, decode_values, encode_values
from ttlsnap.checkpoint.state_schema import ColumnFamilySchema
from ttlsnap.errors import CorruptionError, UnsupportedError, UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.arrow import arrow_type
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.unsaferow.encode import encode as encode_unsaferow
from ttlsnap.unsaferow.rows import Rows

ORDERED = KeyLayout(parse_ddl("moment BIGINT, key STRUCT<k: STRING>"), 0, 1, ordered=True)
PREFIX = KeyLayout(parse_ddl("key STRUCT<k: STRING>, user STRUCT<n: INT>"), 0, 1)
PLAIN = KeyLayout(parse_ddl("k STRING"))
MOMENTS = [None, 2**63 - 1, 1, 0, -1, -(2**63)]


def test_the_bytes_of_ordered_keys_sort_like_their_moments() -> None:
    keys = [{"moment": moment, "key": {"k": "x"}} for moment in MOMENTS]
    stored = encode_keys(pa.array(keys, arrow_type(ORDERED.schema)), ORDERED).to_arrow().to_pylist()
    assert stored == sorted(stored, reverse=True)
    assert stored[3].hex() == "0e000000" + "00" + "020201" + "0210" + "00" * 8 + "000000" + "02" + "020278"
    assert decode_keys(Rows.of(stored), ORDERED).to_pylist() == keys


GOOD = {
    "ordered": (ORDERED, "0e000000" + "00" + "020201" + "0210" + "00" * 8 + "000000" + "02020278"),
    "prefix": (PREFIX, "05000000" + "0002020278" + "000000" + "020202"),
    "plain": (PLAIN, "000000" + "020278"),
}


@pytest.mark.parametrize(
    ("kind", "place", "byte", "message"),
    [
        ("plain", 0, 1, "no row of a known version of the encoding begins where it should"),
        ("plain", 1, 1, "a key names the schema 1, where 0 is that of this state's keys"),
        ("plain", 2, 0x80, "a key names the schema -32768"),
        ("prefix", 0, 0, "there is no prefix of a key and no rest where they should be"),
        ("prefix", 3, 0x80, "there is no prefix of a key"),
        ("prefix", 1, 1, "there is no prefix of a key"),
        ("prefix", 4, 1, "no row of a known version"),
        ("prefix", 9, 1, "no row of a known version"),
        ("prefix", 10, 7, "a key names the schema 7"),
        ("ordered", 7, 0, "it does not begin with a number in order"),
        ("ordered", 7, 3, "it does not begin with a number in order"),
        ("ordered", 10, 0x80, "it does not begin with a number in order"),
        ("ordered", 5, 0, "it does not begin with a number in order"),
        ("ordered", 9, 0, "it does not begin with a number in order"),
        ("ordered", 0, 13, "it does not begin with a number in order"),
    ],
)
def test_an_error_in_a_damaged_key_names_the_row_and_the_fault(kind: str, place: int, byte: int, message: str) -> None:
    layout, text = GOOD[kind]
    good = bytes.fromhex(text)
    assert decode_keys(Rows.of([good]), layout).null_count == 0
    damaged = bytearray(good)
    damaged[place] = byte
    with pytest.raises(CorruptionError, match=f"row 1: {message}"):
        decode_keys(Rows.of([good, bytes(damaged)]), layout)


@pytest.mark.parametrize("kind", GOOD)
def test_a_truncated_key_is_an_error(kind: str) -> None:
    layout, text = GOOD[kind]
    for size in range(len(text) // 2):
        with pytest.raises(CorruptionError, match="row 0"):
            decode_keys(Rows.of([bytes.fromhex(text)[:size]]), layout)


def test_an_order_other_than_one_bigint_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="only for the order of one first bigint"):
        KeyLayout(parse_ddl("a INT, b STRING"), 0, 1, ordered=True)
    with pytest.raises(UnsupportedError, match="only for the order of one first bigint"):
        KeyLayout(parse_ddl("a BIGINT, b BIGINT, c STRING"), 0, 2, ordered=True)


SCHEMAS = ValueSchemas({0: parse_ddl("a INT"), 1: parse_ddl("b STRING, a BIGINT")}, 1)
OLD, NEW = bytes.fromhex("0000000206"), bytes.fromhex("000100" + "020278" + "0208")


def test_values_of_several_schemas_keep_their_order() -> None:
    a, b = {"b": None, "a": 3}, {"b": "x", "a": 4}
    assert decode_values(Rows.of([NEW, OLD, OLD, NEW]), SCHEMAS).to_pylist() == [b, a, a, b]
    assert encode_values(pa.array([b], arrow_type(SCHEMAS.current)), SCHEMAS).to_arrow().to_pylist() == [NEW]


def test_the_newest_schema_of_an_id_is_used() -> None:
    key, files = parse_ddl("k STRING"), [("a INT", 0), ("b INT", 0), ("c INT", 1)]
    families = [ColumnFamilySchema("v", key, parse_ddl(ddl), value_id=number) for ddl, number in files]
    schemas = ValueSchemas.of(families)
    assert schemas.by_id == {0: parse_ddl("b INT"), 1: parse_ddl("c INT")}
    assert (schemas.current_id, schemas.current) == (1, parse_ddl("c INT"))


def test_an_error_counts_rows_across_all_schemas() -> None:
    with pytest.raises(CorruptionError, match="row 2, field a: the byte 05 is neither"):
        decode_values(Rows.of([NEW, OLD, bytes.fromhex("00000005"), NEW]), SCHEMAS)
    with pytest.raises(CorruptionError, match=r"row 1: it names the schema 2, which no schema file has \(.*: 0, 1\)"):
        decode_values(Rows.of([NEW, bytes.fromhex("000200"), OLD]), SCHEMAS)
    with pytest.raises(CorruptionError, match="row 1: it is too short to name a schema"):
        decode_values(Rows.of([NEW, b"\0\0"]), SCHEMAS)


@pytest.mark.parametrize(
    ("old", "new"),
    [("BIGINT", "INT"), ("DOUBLE", "FLOAT"), ("BOOLEAN", "INT"), ("DECIMAL(5,2)", "DECIMAL(10,2)"), ("INT", "STRING")],
)
def test_schema_changes_that_spark_rejects_are_refused(old: str, new: str) -> None:
    schemas = ValueSchemas({0: parse_ddl(f"a {old}"), 1: parse_ddl(f"a {new}")}, 1)
    with pytest.raises(UnsupportedError, match=r"field a, written with an older schema: .* cannot be read as"):
        decode_values(Rows.of([b"\0\0\0\0"]), schemas)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("a STRING, b STRUCT<c: ARRAY<MAP<STRING, DECIMAL(38,2)>>>, d VOID", None),
        ("a STRUCT<b: TINYINT>", "field a.b: the type tinyint is unknown in Avro"),
        ("a ARRAY<SMALLINT>", "field a.element: the type smallint is unknown in Avro"),
        ("a MAP<INT, INT>", "field a: the type map<int,int> is unknown in Avro"),
        ("a MAP<STRING, VOID>", "field a: the type map<string,void> is unknown in Avro"),
        ("a ARRAY<VOID>", "field a: the type array<void> is unknown in Avro"),
        ("a INTERVAL DAY TO SECOND", "field a: the type interval day to second is unknown in Avro"),
        ("a VARIANT", "field a: the type variant is unknown in Avro"),
        ("a TIME", "field a: the type time(6) is unknown in Avro"),
    ],
)
def test_types_that_spark_does_not_write_are_refused_without_data(ddl: str, reason: str | None) -> None:
    schema = parse_ddl(ddl)
    found = explain_unsupported(schema)
    assert (found or "").startswith(reason or "")
    assert (found is None) == (reason is None)
    assert ValueSchemas({0: schema}, 0).unsupported == found
    if reason is not None:
        empty = pa.array([], arrow_type(schema))
        for refused in (lambda: decode(Rows.none(), schema), lambda: encode(empty, schema)):
            with pytest.raises(UnsupportedError, match=reason.split(":")[0]):
                refused()


def test_nulls_that_avro_cannot_store_are_refused() -> None:
    schema = parse_ddl("a ARRAY<STRING>, n BIGINT NOT NULL")
    with pytest.raises(UsageError, match=r"field a\.element has no nulls in Avro but value 1 is null"):
        encode(pa.array([{"a": ["x", None], "n": 1}], arrow_type(schema)), schema)
    with pytest.raises(UsageError, match="field n is not nullable but value 0 is null"):
        encode(pa.array([{"a": [], "n": None}], arrow_type(schema)), schema)
    with pytest.raises(UsageError, match="a row cannot be null"):
        encode(pa.array([None], arrow_type(schema)), schema)


def test_a_forbidden_null_is_read_and_written_back_as_null() -> None:
    schemas = ValueSchemas({0: parse_ddl("n BIGINT NOT NULL")}, 0)
    stored = bytes.fromhex("00000000")
    values = decode_values(Rows.of([stored]), schemas)
    assert values.to_pylist() == [{"n": None}]
    rows = encode_unsaferow(values, parse_ddl("n BIGINT"))
    assert stored_values(rows, schemas).to_arrow().to_pylist() == [stored]


def test_rows_without_columns_consist_of_their_header() -> None:
    schema = T.StructType((T.StructField("__dummy__", T.NullType()),))
    schemas = ValueSchemas({0: schema}, 0)
    values = decode_values(Rows.of([b"\0\0\0"] * 3), schemas)
    assert values.to_pylist() == [{"__dummy__": None}] * 3
    assert encode_values(values, schemas).to_arrow().to_pylist() == [b"\0\0\0"] * 3
    assert decode(Rows.of([b"", b""]), T.StructType()).to_pylist() == [{}, {}]
    assert encode(pa.array([{}, {}], pa.struct([])), T.StructType()).size.tolist() == [0, 0]


def test_zero_rows_give_zero_rows() -> None:
    schema = parse_ddl("a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: DECIMAL(30,2), y: DATE>")
    none = decode(Rows.none(), schema)
    assert (len(none), none.type) == (0, arrow_type(schema))
    assert len(encode(none, schema)) == 0
