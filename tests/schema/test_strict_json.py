"""JSON that could be read in two ways is an error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ttlsnap.schema.strict_json import MAX_DEPTH, parse_json, require_type


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 1}', "the name 'a' occurs twice"),
        ('[{"b": {"a": 1, "c": 2, "a": 3}}]', "the name 'a' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[-Infinity]", "-Infinity is not a JSON number"),
        (b'"\xff"', "can't decode byte 0xff"),
        (r'"\ud800"', "is not Unicode text"),
        (r'{"\udfff": 1}', "is not Unicode text"),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), f"nested deeper than {MAX_DEPTH} levels"),
        ("[" * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("{} {}", "Extra data"),
        ("", "Expecting value"),
    ],
)
def test_unclear_json_is_an_error(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_json(text)


def test_plain_json_is_read() -> None:
    text = '{"a": [1, 2.5, true, null], "b": {"a": "é"}, "": {}}'
    assert parse_json(text) == parse_json(text.encode()) == {"a": [1, 2.5, True, None], "b": {"a": "é"}, "": {}}
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert parse_json(r'"\ud800"', any_text=True) == "\ud800"


@pytest.mark.parametrize(("value", "kind"), [(True, int), (1, bool), ("1", int), (None, str), (1.0, int), ([], dict)])
def test_a_value_of_another_type_is_an_error(value: Any, kind: type) -> None:
    with pytest.raises(TypeError, match=f"is not a {kind.__name__}"):
        require_type(value, kind)
    assert require_type(kind(), kind) == kind()
