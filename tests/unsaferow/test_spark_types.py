"""Comparison with Spark, type by type: its bytes decode to its values, and its values encode to its bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode, decode_column, decode_words
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.words import read_words


def values(*rows: str) -> str:
    width = rows[0].count("|") + 1
    table = ", ".join(f"({row.replace('|', ',')})" for row in rows)
    return f"SELECT * FROM VALUES {table} AS t({', '.join(f'c{i}' for i in range(width))})"


# The number of bytes changes at these numbers. They are texts, so that SQL does not choose their decimal types.
ODD_NUMBERS = [
    *["null", "'0'", "'-1'", "'127'", "'128'", "'-128'", "'-129'", "'255'", "'256'", "'32767'", "'32768'"],
    *["'9223372036854775807'", "'-9223372036854775808'", "'9223372036854775808'", "null"],
]

# Columns are separated by |. Every column has a null: in the first row, in the last row, or in between.
CASES = {
    "boolean": values("true|null", "false|true", "null|false"),
    "integers": values(
        "null|1S|-1|null",
        "-128Y|-32768S|-2147483648|-9223372036854775807L",
        "127Y|32767S|2147483647|9223372036854775807L",
        "-1Y|null|null|0L",
    ),
    "floats": values(
        "float('nan')|double('nan')",
        "float('-inf')|double('inf')",
        "float('-0.0')|double('-0.0')",
        "float('1.17549435E-38')|double('4.9e-324')",
        "null|1.5D",
        "float('3.5')|null",
    ),
    "void": values("null|1", "null|null"),
    "strings": values(
        "'a'|'x'|null", "''|'eight by'|'nine char'", "null|''|'é€😀'", "'日本語'|null|'\\u0000'"
    ),
    "binaries": values("x''|x'00'", "x'0011223344556677'|null", "null|x'ff'", "x'001122334455667788'|x'80'"),
    "small decimals": values(
        "0.00BD|cast(-999999999999999999 as decimal(18,0))",
        "-1.25BD|null",
        "null|cast(999999999999999999 as decimal(18,0))",
        "99999.99BD|cast(-1 as decimal(18,0))",
    ),
    "wide decimals": "SELECT cast(a AS decimal(19,0)) a, cast(a AS decimal(38,0)) b, a s FROM VALUES "
    + ", ".join(f"({n})" for n in ODD_NUMBERS)
    + " AS t(a)",
    "widest decimals": "SELECT cast(a AS decimal(38,10)) a, 1 b FROM VALUES "
    "('9999999999999999999999999999.9999999999'), ('-9999999999999999999999999999.9999999999'), (null), "
    "('1844674407370955161.6'), ('-1844674407370955161.6'), ('0.0000000001'), ('-0.0000000001') AS t(a)",
    "dates": values("date'1970-01-01'", "null", "date'0001-01-01'", "date'9999-12-31'", "date'1969-12-31'"),
    "timestamps": values(
        "timestamp'1970-01-01 00:00:00'|timestamp_ntz'1970-01-01 00:00:00'",
        "null|timestamp_ntz'9999-12-31 23:59:59.999999'",
        "timestamp'1969-12-31 23:59:59.999999'|null",
        "timestamp'0001-01-01 00:00:00'|timestamp_ntz'0001-01-01 00:00:00'",
    ),
    "times": values("time'00:00:00'", "time'23:59:59.999999'", "null"),
    "day-time intervals": values(
        "interval '1 02:03:04.5' day to second|interval -1 day",
        "interval '-1 02:03:04.5' day to second|null",
        "null|interval 5 day",
    ),
    "variants": "SELECT parse_json(a) a, b FROM VALUES ('{\"k\":[1,\"é\"]}', 1), ('1', null), "
    "('\"a long string of text\"', 3) AS t(a, b)",
    "collated": "SELECT cast(a AS string COLLATE UNICODE_CI) a FROM VALUES ('É'), (null) AS t(a)",
    "structs": values(
        "named_struct('a', 1, 'b', 'x')|1",
        "null|2",
        "named_struct('a', null, 'b', '')|null",
        "named_struct('a', 3, 'b', null)|4",
    ),
    "deep structs": values(
        "named_struct('a', named_struct('b', named_struct('c', 'text', 'd', 1L)), 'e', 2S)",
        "named_struct('a', null, 'e', null)",
        "null",
        "named_struct('a', named_struct('b', null), 'e', 5S)",
        "named_struct('a', named_struct('b', named_struct('c', null, 'd', null)), 'e', 6S)",
    ),
    "empty struct": "SELECT struct() a, 1 b, array(struct(), null) c",
    "arrays of primitives": values(
        "array(true,null)|array(1Y)|array(1S,-1S,null)|array(1,2,3)|array(1L,null)|array(float('nan'),null)",
        "array()|null|array()|array(null)|array()|array()",
        "null|array(1Y,2Y,3Y,4Y,5Y,6Y,7Y,8Y,null)|null|null|null|array(float(1))",
        "array(false)|array()|array(-2S)|array(-1)|array(-1L)|null",
    ),
    "arrays of other widths": values(
        "array(double(1),null)|array(date'1969-12-31',null)|array(timestamp'1969-12-31 00:00:00')|"
        "array(1.5BD,null)",
        "null|array()|array(null)|array(-1.5BD)",
    ),
    "long array with nulls": "SELECT transform(sequence(1, 200), x -> if(x % 3 = 0, null, x)) a, "
    "transform(sequence(1, 130), x -> if(x % 65 = 0, null, cast(x AS string))) b, sequence(1, 64) c",
    "arrays of text": values("array('a',null,'')|1", "null|2", "array()|3", "array('a longer one','é')|null"),
    "arrays of wide decimals": "SELECT array(cast('-1' AS decimal(38,2)), null, cast(1e30 AS decimal(38,2))) "
    "a UNION ALL SELECT null",
    "arrays of arrays": values(
        "array(array(1,null),null,array())|array(array('a'),array('b',null))",
        "array()|null",
        "null|array(null,array())",
    ),
    "arrays of structs": values(
        "array(named_struct('a',1,'b','x'),null,named_struct('a',null,'b',null))",
        "null",
        "array(named_struct('a',2,'b',''))",
    ),
    "arrays of variants": "SELECT array(parse_json('1'), parse_json('{\"a\":2}')) a",
    "maps": values(
        "map('a',1,'',null)|map(1,'x')", "null|map()", "map()|null", "map('é',-1)|map(2,null,3,'y')"
    ),
    # The cast makes the structs' fields nullable, because toArrow fails on null structs whose fields are not.
    "nested maps": "SELECT a, cast(b AS map<struct<a:int>,struct<b:string>>) b FROM VALUES "
    "(map('k',map(1,array('a',null))), map(named_struct('a',1),named_struct('b','c'))), (null, map()), "
    "(map('l',null,'m',map()), map(named_struct('a',2),null)) AS t(a, b)",
    "all together": "SELECT named_struct('l', array(map('k', named_struct('d', cast('-5' AS decimal(30,5)), "
    "'t', timestamp'2024-02-29 12:00:00', 'v', array(1Y, null))), null), 'n', null) a, 'end' b",
    "65 fields": "SELECT "
    + ", ".join(f"if(id % {i + 2} = 0, null, id + {i}) c{i}" for i in range(65))
    + " FROM range(5)",
    "129 mixed fields": "SELECT "
    + ", ".join(
        [f"if(id % {i % 3 + 1} = 0, null, 's{i}') c{i}" if i % 2 else f"id c{i}" for i in range(129)]
    )
    + " FROM range(4)",
    "64 fields": "SELECT " + ", ".join(f"if(id = {i}, null, 1) c{i}" for i in range(64)) + " FROM range(64)",
    "not nullable": "SELECT id, cast(id AS string) s, struct(id) t, array(id) u FROM range(3)",
    "no rows": "SELECT id, 'x' s, array(id) a, map(id, 's') m FROM range(0)",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("gap", [4, 8, 3])
def test_spark_bytes_decode_to_spark_values(name: str, gap: int, run: Any, lay_out: Any) -> None:
    spark = run(CASES[name])
    rows = lay_out(spark.payloads, gap)
    check_rows(rows, spark.schema)

    decoded = decode(rows, spark.schema)

    decoded.validate(full=True)
    assert repr(decoded.to_pylist()) == repr(spark.values.to_pylist())


@pytest.mark.parametrize("name", CASES)
def test_decoded_rows_encode_to_the_same_bytes(name: str, run: Any, lay_out: Any, payloads_of: Any) -> None:
    spark = run(CASES[name])
    rows = lay_out(spark.payloads)

    again = encode(decode(rows, spark.schema), spark.schema)

    assert [p.hex(" ", 8) for p in payloads_of(again)] == [p.hex(" ", 8) for p in spark.payloads]


@pytest.mark.parametrize("name", CASES)
def test_spark_values_encode_to_spark_bytes(name: str, run: Any, payloads_of: Any) -> None:
    spark = run(CASES[name])

    encoded = encode(spark.values, spark.schema)

    assert [p.hex(" ", 8) for p in payloads_of(encoded)] == [p.hex(" ", 8) for p in spark.payloads]


@pytest.mark.parametrize("name", ["integers", "65 fields", "64 fields", "129 mixed fields", "not nullable"])
@pytest.mark.parametrize("gap", [0, 4, 5])
def test_words_and_columns_agree_with_whole_rows(name: str, gap: int, run: Any, lay_out: Any) -> None:
    spark = run(CASES[name])
    rows, width = lay_out(spark.payloads, gap), len(spark.schema)
    whole = decode(rows, spark.schema)
    for ordinal, field in enumerate(spark.schema):
        column = decode_column(rows, spark.schema, [ordinal])
        assert column.equals(whole.field(ordinal))
        words, nulls = read_words(rows, width, ordinal)
        assert nulls.tolist() == column.is_null().to_pylist()
        if field.type.simple_string == "bigint":
            assert words[~nulls].tolist() == column.drop_null().to_pylist()


def test_a_column_in_a_null_struct_is_null(run: Any, lay_out: Any) -> None:
    spark = run(CASES["deep structs"])
    rows = lay_out(spark.payloads)
    assert decode_column(rows, spark.schema, [0, 0, 0, 0]).to_pylist() == ["text", None, None, None, None]
    assert decode_column(rows, spark.schema, [0, 0, 0, 1]).to_pylist() == [1, None, None, None, None]
    assert decode_column(rows, spark.schema, [0, 1]).to_pylist() == [2, None, None, 5, 6]
    words, nulls = decode_words(rows, spark.schema, [0, 1])
    assert (words.tolist(), nulls.tolist()) == ([2, 0, 0, 5, 6], [False, True, True, False, False])


def test_intervals_equal_those_of_the_jvm(run: Any, lay_out: Any, payloads_of: Any) -> None:
    from py4j.java_gateway import get_field  # type: ignore[import-untyped, unused-ignore]

    # The null comes first, because Spark does not clear the bytes that it reserves for it.
    spark = run(
        values(
            "null|null|null",
            "make_interval(1,2,0,3,4,5,6.5)|interval '1-2' year to month|interval 3 year",
            "make_interval(-1,-2,0,-3,-4,-5,-6.000001)|interval '-1-2' year to month|interval -3 month",
            "make_interval(0)|interval '0-0' year to month|interval 0 year",
        )
    )
    rows = lay_out(spark.payloads)
    decoded = decode(rows, spark.schema)
    decoded.validate(full=True)
    for i, jvm_row in enumerate(spark.jvm_rows[1:], start=1):
        months, days, nanos = decoded.field(0)[i].as_py()
        interval = jvm_row.getInterval(0)
        assert [months, days, nanos] == [
            get_field(interval, "months"),
            get_field(interval, "days"),
            get_field(interval, "microseconds") * 1000,
        ]
        assert decoded.field(1)[i].as_py() == jvm_row.getInt(1)
        assert decoded.field(2)[i].as_py() == jvm_row.getInt(2)
    assert [decoded.field(k)[0].as_py() for k in range(3)] == [None] * 3
    assert payloads_of(encode(decoded, spark.schema)) == spark.payloads


def test_intervals_in_arrays_and_structs_keep_their_bytes(run: Any, lay_out: Any, payloads_of: Any) -> None:
    spark = run(
        "SELECT array(null, make_interval(1,2,0,3), null, make_interval(0,0,0,-1)) a, "
        "named_struct('i', cast(null AS interval), 's', 'x') b, "
        "named_struct('i', make_interval(1), 's', '') c, "
        "array(interval 1 month, null) d, map(1, make_interval(0,0,0,1)) e"
    )
    decoded = decode(lay_out(spark.payloads), spark.schema)
    assert decoded.field(0).to_pylist() == [[None, (14, 3, 0), None, (0, -1, 0)]]
    assert decoded.field(3).to_pylist() == [[1, None]]
    assert payloads_of(encode(decoded, spark.schema)) == spark.payloads


def test_arrays_of_void_keep_their_bytes(run: Any, lay_out: Any, payloads_of: Any) -> None:
    # These types have their own test, because Spark's toArrow fails on them.
    spark = run("SELECT array(null, null) a, array() b")
    decoded = decode(lay_out(spark.payloads), spark.schema)
    assert decoded.to_pylist() == [{"a": [None, None], "b": []}]
    assert payloads_of(encode(decoded, spark.schema)) == spark.payloads


def test_null_variants_keep_their_bytes(run: Any, lay_out: Any, payloads_of: Any) -> None:
    # These types have their own test, because Spark's toArrow fails on them.
    spark = run(
        "SELECT parse_json(a) v, array(parse_json(a), null, parse_json('[]')) w "
        "FROM VALUES (null), ('{\"k\":1}'), (null) AS t(a)"
    )
    decoded = decode(lay_out(spark.payloads), spark.schema)
    for got, row in zip(decoded.to_pylist(), spark.frame.collect(), strict=True):
        for mine, theirs in zip([got["v"], *got["w"]], [row.v, *row.w], strict=True):
            assert mine == (theirs and {"value": theirs.value, "metadata": theirs.metadata})
    assert payloads_of(encode(decoded, spark.schema)) == spark.payloads


def test_the_reserved_bytes_of_a_null_interval_are_cleared(run: Any, lay_out: Any, payloads_of: Any) -> None:
    spark = run(values("make_interval(1)|1", "null|2"))
    encoded = payloads_of(encode(decode(lay_out(spark.payloads), spark.schema), spark.schema))
    assert encoded[0] == spark.payloads[0]
    assert encoded[1] == spark.payloads[1][:24] + bytes(16)


def test_times_outside_pythons_range_keep_their_bytes(run: Any, lay_out: Any, payloads_of: Any) -> None:
    spark = run(
        "SELECT timestamp_micros(9223372036854775807) a, timestamp_micros(-9223372036854775808) b, "
        "date_from_unix_date(2147483647) c, date_from_unix_date(-2147483648) d"
    )
    decoded = decode(lay_out(spark.payloads), spark.schema)
    assert decoded.field(0).cast(pa.int64()).to_pylist() == [2**63 - 1]
    assert decoded.field(1).cast(pa.int64()).to_pylist() == [-(2**63)]
    assert decoded.field(2).cast(pa.int32()).to_pylist() == [2**31 - 1]
    assert decoded.field(3).cast(pa.int32()).to_pylist() == [-(2**31)]
    assert payloads_of(encode(decoded, spark.schema)) == spark.payloads


def test_field_names_may_repeat(run: Any, lay_out: Any, payloads_of: Any) -> None:
    spark = run("SELECT 1 a, 'x' a, named_struct('b', 1, 'b', 'y') c")
    rows = lay_out(spark.payloads)
    assert decode_column(rows, spark.schema, [0]).to_pylist() == [1]
    assert decode_column(rows, spark.schema, [1]).to_pylist() == ["x"]
    assert decode_column(rows, spark.schema, [2, 1]).to_pylist() == ["y"]
    assert payloads_of(encode(decode(rows, spark.schema), spark.schema)) == spark.payloads
