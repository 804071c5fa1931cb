"""Texts that quote entries, and the same texts without them."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from ttlsnap.errors import MAX_MESSAGE, CorruptionError, RefusedError, TtlsnapError, UsageError
from ttlsnap.quoting import quote, quotes_nothing, without_keys

SEVERAL = "several rows have " + quote("user=u1") + ". Nothing was changed"
WITHOUT = "several rows have [not shown]. Nothing was changed"


def test_a_text_has_its_keys_for_those_who_may_see_them() -> None:
    assert SEVERAL == "several rows have user=u1. Nothing was changed"
    assert json.loads(json.dumps([SEVERAL])) == ["several rows have user=u1. Nothing was changed"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SEVERAL, WITHOUT),
        ("ck: " + SEVERAL + "!", f"ck: {WITHOUT}!"),
        (SEVERAL + quote(7), f"{WITHOUT}[not shown]"),
        (copy.deepcopy(SEVERAL), WITHOUT),
        (pickle.loads(pickle.dumps(SEVERAL)), WITHOUT),
        (RefusedError(SEVERAL).text, WITHOUT),
        (pickle.loads(pickle.dumps(RefusedError(SEVERAL))).text, WITHOUT),
        (CorruptionError(SEVERAL).text, WITHOUT),
        (RefusedError("the query is running").text, "the query is running"),
        (UsageError(quotes_nothing("no field a")).text, "no field a"),
        ("state/0: " + CorruptionError("u1 is wrong").text, "state/0: The target is damaged."),
        (TtlsnapError("ValueError: u1").text, "The run failed."),
        ("no key", "no key"),
    ],
)
def test_a_text_is_known_without_the_keys_that_it_quotes(text: str, shown: str) -> None:
    assert without_keys(text) == shown


def test_a_long_message_is_shortened_with_and_without_its_keys() -> None:
    error = RefusedError("a" * MAX_MESSAGE + quote("u1") + "b" * MAX_MESSAGE)
    assert "[not shown]" not in error.text and len(error.text.without_keys) < MAX_MESSAGE + 100
    long = RefusedError("key " + quote("u1 " * MAX_MESSAGE))
    assert long.text.without_keys == "key [not shown]"
