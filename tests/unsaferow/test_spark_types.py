"""Comparison with Spark, type by type: its bytes decode to its values, and its values encode to its bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pytest

from ttlsnap.unsaferow.check import check_rows
from ttlsnap.unsaferow.decode import decode, decode_column, decode_words
from ttlsnap.unsaferow.encode import encode
from ttlsnap.unsaferow.words import read_words

from .queries import CASES, values


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
