"""Numbers in words."""

from __future__ import annotations

import pytest

from ttlsnap.amounts import quantity


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 rows were"), (1, "1 row was"), (2, "2 rows were"), (1234, "1,234 rows were"), (None, "- rows were")],
)
def test_a_noun_and_its_verb_agree_with_the_number(value: int | None, words: str) -> None:
    assert quantity(value, "row was", "rows were") == words


def test_a_plural_ends_with_an_s() -> None:
    assert (quantity(1, "thing"), quantity(3, "thing")) == ("1 thing", "3 things")
