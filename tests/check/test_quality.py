"""The checker against real Spark, over all pairs: how often it is wrong, and that the docs say so."""

from __future__ import annotations

import pytest

from ttlsnap.check import Verdict

from .quality import PAGE, figures, judged, page


def test_nothing_that_breaks_is_called_as_is() -> None:
    assert [one.name for one in judged() if one.breaks and one.verdict is Verdict.AS_IS] == []


def test_it_does_not_cry_wolf() -> None:
    found = figures()
    assert found["that work"] >= 80
    assert found["that work, called anything else"] * 20 <= found["that work"]
    assert found["called unknown"] * 10 <= found["pairs"]


@pytest.mark.parametrize("name", [one.name for one in judged() if one.seen["change"] in ("nothing", "harmless")])
def test_what_changes_nothing_is_as_is(name: str) -> None:
    (one,) = (one for one in judged() if one.name == name)
    assert (one.verdict is Verdict.AS_IS) == one.works, one.codes


def test_the_docs_have_the_table() -> None:
    assert PAGE.read_text() == page()
