"""Spark parses the same texts into the same schemas."""

from __future__ import annotations

from typing import Any

import pytest

from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.json import dump_type, parse_struct

DDL = [
    "k STRING NOT NULL, ts TIMESTAMP",
    "s STRUCT<a: INT NOT NULL COMMENT 'it\\'s', b ARRAY<STRING>>, d DECIMAL(10,2) COMMENT \"x\"",
    "m MAP<STRING,ARRAY<ARRAY<STRUCT<a INT,b:INT>>>>, e STRUCT<>",
    "a TINYINT, b BYTE, c SMALLINT, d SHORT, e INT, f INTEGER, g BIGINT, h LONG",
    "a FLOAT, b REAL, c DOUBLE, d BOOLEAN, e BINARY, f DATE, g VARIANT, h VOID",
    "a DECIMAL, b DEC(5), c NUMERIC(38, 38), d CHAR(3), e CHARACTER(4), f VARCHAR(5)",
    "a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c TIMESTAMP WITHOUT TIME ZONE, d TIME, e TIME(0)",
    "a INTERVAL, b INTERVAL DAY, c INTERVAL DAY TO SECOND, d INTERVAL YEAR TO MONTH, e INTERVAL MONTH",
    "a STRING COLLATE UNICODE_CI, b ARRAY<STRING COLLATE UTF8_LCASE>, c MAP<STRING COLLATE `en_AI`, STRING>",
    "`a b` INT, `c``d` INT, `e,f` INT, 1a INT, select INT, date DATE",
]


@pytest.mark.parametrize("text", DDL)
def test_ddl_is_parsed_as_spark_parses_it(text: str, spark: Any) -> None:
    theirs = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(text)
    mine = parse_ddl(text)
    assert dump_type(mine) == theirs.json()
    assert mine.simple_string == theirs.simpleString()
    assert parse_struct(theirs.json()) == mine
