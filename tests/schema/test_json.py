"""Spark's schema JSON is read and written back unchanged. Unknown types are refused by name."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema import types as T
from ttlsnap.schema.json import dump_type, parse_name, parse_struct, parse_type


def field(kind: str, metadata: str = "{}") -> str:
    """Return a struct of one field ``c``, in the JSON of Spark 4.2."""
    return f'{{"type":"struct","fields":[{{"name":"c","type":{kind},"nullable":true,"metadata":{metadata}}}]}}'


# Spark 4.2.0 wrote these texts with `DataType.json` and `simpleString`.
SPARK_WROTE = [
    (field('"string"', '{"__COLLATIONS":{"c":"icu.UNICODE_CI"}}'), "struct<c:string collate UNICODE_CI>"),
    (
        field(
            '{"type":"array","elementType":"string","containsNull":false}',
            '{"__COLLATIONS":{"c.element":"spark.UTF8_LCASE"}}',
        ),
        "struct<c:array<string collate UTF8_LCASE>>",
    ),
    (
        field(
            '{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[{"name":"q","type":"string",'
            '"nullable":false,"metadata":{"__COLLATIONS":{"q":"icu.UNICODE_RTRIM"}}}]},"valueContainsNull":false}',
            '{"__COLLATIONS":{"c.key":"icu.en_AI"}}',
        ),
        "struct<c:map<string collate en_AI,struct<q:string collate UNICODE_RTRIM>>>",
    ),
    (field('"string"', '{"__CHAR_VARCHAR_TYPE_STRING":"varchar(5)"}'), "struct<c:string>"),
    (field('"integer"', '{"comment":"x"}'), "struct<c:int>"),
    (field('{"type":"struct","fields":[]}'), "struct<c:struct<>>"),
    *[
        (field(f'"{name}"'), f"struct<c:{simple}>")
        for name, simple in [
            ("void", "void"), ("boolean", "boolean"), ("byte", "tinyint"), ("short", "smallint"),
            ("integer", "int"), ("long", "bigint"), ("float", "float"), ("double", "double"),
            ("binary", "binary"), ("date", "date"), ("timestamp", "timestamp"),
            ("timestamp_ntz", "timestamp_ntz"), ("time(6)", "time(6)"), ("variant", "variant"),
            ("decimal(38,18)", "decimal(38,18)"), ("decimal(5,-2)", "decimal(5,-2)"), ("char(3)", "char(3)"),
            ("varchar(5)", "varchar(5)"), ("interval", "interval"), ("interval day", "interval day"),
            ("interval day to second", "interval day to second"), ("interval month", "interval month"),
            ("interval year to month", "interval year to month"),
            ("interval hour to minute", "interval hour to minute"),
        ]
    ],
    ('"string collate UNICODE_CI"', "string collate UNICODE_CI"),
    (
        '{"type":"udt","class":"org.apache.spark.ml.linalg.VectorUDT","pyClass":"pyspark.ml.linalg.VectorUDT",'
        '"sqlType":{"type":"array","elementType":"double","containsNull":false}}',
        "array<double>",
    ),
    ('{"type":"udt","class":"com.example.PointUDT","pyClass":null,"sqlType":"long"}', "bigint"),
    ('{"type":"udt","pyClass":"m.C","serializedClass":"gASV","sqlType":"string"}', "string"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "simple"), SPARK_WROTE)
def test_spark_json_is_read_and_written_back_unchanged(text: str, simple: str) -> None:
    parsed = parse_type(text)
    assert parsed.simple_string == simple
    assert dump_type(parsed) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [('"null"', '"void"'), ('"timestamp_ltz"', '"timestamp"'), ('"decimal"', '"decimal(10,0)"')],
)
def test_older_spellings_are_read(old: str, new: str) -> None:
    assert dump_type(parse_type(old)) == new


def test_nullable_and_metadata_may_be_missing() -> None:
    parsed = parse_struct('{"type":"struct","fields":[{"name":"a","type":"string"}]}')
    assert parsed == T.StructType((T.StructField("a", T.StringType()),))


@pytest.mark.parametrize(
    "name",
    [
        "geometry(OGC:CRS84)",
        "geography",
        "int",
        "bigint",
        "time",
        "decimal(39,0)",
        "decimal(3,5)",
        "nanos",
        "",
        "Long",
    ],
)
def test_unknown_types_are_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_type(field(json.dumps(name)))
    assert repr(name) in str(caught.value)


def test_unknown_kinds_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="'tensor'"):
        parse_type(field('{"type":"tensor","of":"long"}'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("3", "not 3"),
        ("null", "not None"),
        ("[]", "not \\[\\]"),
        ('{"fields":[]}', "an object with a type"),
        ('{"type":3}', "an object with a type"),
        ('{"type":"struct"}', "'fields' is missing"),
        ('{"type":"struct","fields":{}}', "'fields' should be list"),
        ('{"type":"struct","fields":["a"]}', "a field should be an object"),
        ('{"type":"struct","fields":[{"type":"long"}]}', "'name' is missing"),
        ('{"type":"struct","fields":[{"name":1,"type":"long"}]}', "'name' should be str"),
        ('{"type":"struct","fields":[{"name":"\\ud800","type":"long"}]}', "is not Unicode"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":1}]}', "'nullable' should be bool"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","metadata":[]}]}', "should be dict"),
        (field('"string"', '{"__COLLATIONS":[]}'), "__COLLATIONS"),
        (field('"string"', '{"__COLLATIONS":{"c":1}}'), "__COLLATIONS"),
        ('{"type":"array","elementType":"long"}', "'containsNull' is missing"),
        ('{"type":"map","keyType":"long","valueType":"long","valueContainsNull":0}', "should be bool"),
        ('{"type":"udt","class":1,"sqlType":"long"}', "class name"),
        ("[" * 100_000, "nested deeper"),
        ('{"type":"array","containsNull":true,"elementType":' * 200 + '"long"' + "}" * 200, "nested deeper"),
    ],
)  # fmt: skip
def test_broken_json_is_corruption(text: str, message: str) -> None:
    with pytest.raises(CorruptionError, match=message):
        parse_type(text)


def test_a_state_schema_must_be_a_struct() -> None:
    with pytest.raises(CorruptionError, match="should be a struct but is 'bigint'"):
        parse_struct('"long"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["struct", "array", "long"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "fields", "name", "elementType", "keyType", "nullable", "metadata"]),
            inner,
        )
    ),
)


@given(JSON)
def test_any_json_is_parsed_or_refused(value: object) -> None:
    try:
        parsed = parse_type(json.dumps(value))
    except (CorruptionError, UnsupportedError):
        return
    assert parse_type(dump_type(parsed)) == parsed


def test_types_compare_by_value_and_survive_pickling() -> None:
    one, two = (parse_type(SPARK_WROTE[2][0]) for _ in range(2))
    assert one == two and hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    assert T.DayTimeIntervalType("day", "hour") != T.DayTimeIntervalType()


@pytest.mark.parametrize(
    ("name", "inline"),
    [("long", True), ("boolean", True), ("void", True), ("time(6)", True), ("interval day", True),
     ("interval month", True), ("decimal(18,2)", True), ("decimal(19,2)", False), ("string", False),
     ("interval", False), ("variant", False), ("char(3)", False)],
)  # fmt: skip
def test_types_with_inline_values_are_fixed_width(name: str, inline: bool) -> None:
    assert T.is_fixed_width(parse_name(name)) is inline
    assert T.is_fixed_width(T.UserDefinedType(parse_name(name))) is inline


def test_reading_schemas_needs_no_arrow() -> None:
    code = (
        "import sys; import ttlsnap.schema.json, ttlsnap.schema.ddl; "
        "sys.exit(any(m in sys.modules for m in ('pyarrow', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
