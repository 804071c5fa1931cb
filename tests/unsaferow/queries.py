"""Queries whose results have values of every type."""

from __future__ import annotations


def values(*rows: str) -> str:
    """Return a query of these rows. A ``|`` separates their columns."""
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
