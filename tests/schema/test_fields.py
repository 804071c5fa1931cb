"""Fields by the names that users type."""

from __future__ import annotations

import pytest

from ttlsnap.errors import UsageError
from ttlsnap.schema.ddl import parse_ddl
from ttlsnap.schema.fields import all_fields, find_field

KEY = parse_ddl("window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, user STRING")
VALUE = parse_ddl(
    "max TIMESTAMP, sum BIGINT, sum DECIMAL(20,2), `a.b` INT, `t``k` INT, `n#1` INT, s STRUCT<x: INT, x: INT>"
)


def test_every_listed_name_finds_its_own_field() -> None:
    listed = all_fields(KEY, VALUE)
    assert [field.name for field in listed] == [
        "key.window", "key.window.start", "key.window.end", "key.user", "value.max", "value.sum#1", "value.sum#2",
        "value.`a.b`", "value.`t``k`", "value.`n#1`", "value.s", "value.s.x#1", "value.s.x#2",
    ]  # fmt: skip
    for field in listed:
        assert find_field(field.name, KEY, VALUE) == field


def test_a_repeated_name_is_ambiguous_without_a_number() -> None:
    with pytest.raises(UsageError, match=r"write one of value\.sum#1, value\.sum#2"):
        find_field("value.sum", KEY, VALUE)


@pytest.mark.parametrize("name", ["value.min", "value.sum#3", "key.user.x", "key.window.middle", "value.a.b"])
def test_an_unknown_field_is_none(name: str) -> None:
    assert find_field(name, KEY, VALUE) is None


@pytest.mark.parametrize(
    "name", ["max", "keys.user", "value.", "value..max", "value.`max", "value.max#0", "value.max#x", "key"]
)
def test_an_invalid_name_is_an_error_that_quotes_it(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_field(name, KEY, VALUE)
    assert repr(name) in str(caught.value)
