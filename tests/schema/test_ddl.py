"""Schemas that users type, and the errors for mistakes in them."""

from __future__ import annotations

import pytest

from ttlsnap.errors import UsageError
from ttlsnap.schema import types as T
from ttlsnap.schema.ddl import parse_ddl

GOOD = [
    ("k STRING NOT NULL, ts TIMESTAMP", "struct<k:string,ts:timestamp>"),
    ("s STRUCT<a: INT, b: ARRAY<STRING>>, d DECIMAL(10,2)",
     "struct<s:struct<a:int,b:array<string>>,d:decimal(10,2)>"),
    ("m MAP<STRING,INT>", "struct<m:map<string,int>>"),
    ("m map<string,array<array<struct<a int,b:int>>>>",
     "struct<m:map<string,array<array<struct<a:int,b:int>>>>>"),
    ("a tinyint, b smallint, c int, d bigint", "struct<a:tinyint,b:smallint,c:int,d:bigint>"),
    ("a BYTE, b SHORT, c INTEGER, d LONG", "struct<a:tinyint,b:smallint,c:int,d:bigint>"),
    ("a FLOAT, b REAL, c DOUBLE, d BOOLEAN", "struct<a:float,b:float,c:double,d:boolean>"),
    ("a BINARY, b DATE, c VARIANT, d VOID", "struct<a:binary,b:date,c:variant,d:void>"),
    ("a DECIMAL, b DEC(5), c NUMERIC(38, 38)", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(38,38)>"),
    ("a CHAR(3), b CHARACTER(4), c VARCHAR(5)", "struct<a:char(3),b:char(4),c:varchar(5)>"),
    ("a TIMESTAMP_NTZ, b TIMESTAMP_LTZ", "struct<a:timestamp_ntz,b:timestamp>"),
    ("a TIMESTAMP WITHOUT TIME ZONE, b TIME WITHOUT TIME ZONE", "struct<a:timestamp_ntz,b:time(6)>"),
    ("a TIME, b TIME(0)", "struct<a:time(6),b:time(0)>"),
    ("a INTERVAL, b INTERVAL DAY", "struct<a:interval,b:interval day>"),
    ("a INTERVAL DAY TO SECOND, b INTERVAL YEAR TO MONTH",
     "struct<a:interval day to second,b:interval year to month>"),
    ("a INTERVAL HOUR TO MINUTE, b INTERVAL MONTH", "struct<a:interval hour to minute,b:interval month>"),
    ("a STRING COLLATE UNICODE_CI, b STRING COLLATE `en_AI`",
     "struct<a:string collate UNICODE_CI,b:string collate en_AI>"),
    ("a STRUCT<>, b STRUCT< >", "struct<a:struct<>,b:struct<>>"),
    ("`a b` INT, `c``d` INT, `e,f` INT", "struct<a b:int,c`d:int,e,f:int>"),
    ("1a INT, select INT, date DATE, null INT", "struct<1a:int,select:int,date:date,null:int>"),
    ("é INT", "struct<é:int>"),
    ("a: INT , b :STRING", "struct<a:int,b:string>"),
    ("\n  a INT,\n  b INT\n", "struct<a:int,b:int>"),
]  # fmt: skip

BAD = [
    ("", "a column name at position 1, found the end"),
    ("   ", "a column name at position 4, found the end"),
    ("a", "a type at position 2, found the end"),
    ("a INT,", "a column name at position 7, found the end"),
    ("a INT b", "',' or the end at position 7, found 'b'"),
    ("a INT NOT", "'NULL' at position 10, found the end"),
    ("a INTT", "a type at position 3, found 'INTT'"),
    ("a `INT`", "a type at position 3, found '`INT`'"),
    ("a GEOMETRY(4326)", "a type at position 3, found 'GEOMETRY'"),
    ("a ARRAY<INT", "'>' at position 12, found the end"),
    ("a ARRAY", "'<' at position 8, found the end"),
    ("a ARRAY<>", "a type at position 9, found '>'"),
    ("a MAP<INT>", "',' at position 10, found '>'"),
    ("a STRUCT<b>", "a type at position 11, found '>'"),
    ("a DECIMAL(39,0)", "a number from 1 to 38 at position 11, found '39'"),
    ("a DECIMAL(5,6)", "a number from 0 to 5 at position 13, found '6'"),
    ("a DECIMAL(5,-2)", "a number from 0 to 5 at position 13, found '-'"),
    ("a DECIMAL(٣,1)", "a number from 1 to 38 at position 11"),
    ("a DECIMAL(5,2", "')' at position 14, found the end"),
    ("a VARCHAR", "'(' at position 10, found the end"),
    ("a CHAR(0)", "a number from 1 to 2147483647 at position 8, found '0'"),
    ("a TIME(7)", "a number from 0 to 6 at position 8, found '7'"),
    ("a INTERVAL DAY TO MONTH", "hour or minute or second at position 19, found 'MONTH'"),
    ("a INTERVAL SECOND TO DAY", "no TO after second at position 22, found 'DAY'"),
    ("a INT COMMENT x", "a quoted comment at position 15, found 'x'"),
    ("a INT COMMENT 'x", "a name, a type or punctuation at position 15, found \"'\""),
    ("`` INT", "a column name at position 1, found '``'"),
    ("a.b INT", "a name, a type or punctuation at position 2, found '.'"),
    ("a TIMESTAMP WITHOUT ZONE", "'TIME' at position 21, found 'ZONE'"),
    ("a " + "ARRAY<" * 100 + "INT" + ">" * 100, "at most 64 levels of nesting at position 393"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "simple"), GOOD)
def test_columns_are_parsed(text: str, simple: str) -> None:
    assert parse_ddl(text).simple_string == simple


@pytest.mark.parametrize(("text", "message"), BAD)
def test_mistakes_are_located(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_ddl(text)
    assert f"expected {message}" in str(caught.value)


def test_not_null_and_comments_are_parsed() -> None:
    parsed = parse_ddl(
        "a INT NOT NULL COMMENT 'it''s', b STRUCT<c: INT NOT NULL COMMENT \"x\\n\\\"\">".replace("''", "\\'")
    )
    assert parsed.fields[0] == T.StructField("a", T.IntegerType(), False, {"comment": "it's"})
    inner = parsed.fields[1].type
    assert isinstance(inner, T.StructType)
    assert inner.fields[0] == T.StructField("c", T.IntegerType(), False, {"comment": 'x\n"'})


def test_nesting_is_parsed_up_to_64_levels() -> None:
    assert parse_ddl("a " + "ARRAY<" * 64 + "INT" + ">" * 64).simple_string.count("array") == 64
