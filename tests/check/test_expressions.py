"""Expressions that differ only in what does not matter to the state, at any depth of nesting."""

from __future__ import annotations

import pytest

from ttlsnap.check.expressions import are_same, differ_by_casts, differ_for_null


def nested(text: str, depth: int) -> str:
    for number in range(depth):
        text = f"f{number}(({text} + 1), 'it''s')"
    return text


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 8, 500])
def test_casts_are_seen_through(depth: int) -> None:
    plain = nested("a", depth)
    within = nested("cast(a as bigint)", depth)
    around = f"cast({plain} as double)"
    assert differ_by_casts(plain, within) and differ_by_casts(plain, around)
    assert differ_by_casts(f"(b + {plain})", f"(b + {around})")
    assert not differ_by_casts(plain, nested("b", depth))
    assert not differ_by_casts(plain, nested("cast(a as decimal(10,2))", depth))
    assert are_same(plain, around, same_sources=True) and are_same(around, plain, same_sources=True)
    assert are_same(f"sum({plain})", f"sum({around})", same_sources=True, aggregate=True)
    assert not are_same(f"count({plain})", f"count({around})", same_sources=True, aggregate=True)
    if depth:
        assert are_same(plain, within, same_sources=False) and not are_same(plain, within, same_sources=True)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_cast_back_and_forth_changes_a_value(depth: int) -> None:
    plain = nested("a", depth)
    assert not differ_by_casts(f"cast(cast({plain} as string) as bigint)", plain)
    assert not differ_by_casts(f"cast(f(cast({plain} as string)) as bigint)", f"f({plain})")


def test_a_text_in_quotes_is_no_expression() -> None:
    assert not differ_by_casts("concat(a, 'cast(b as string)')", "concat(a, 'b')")
    assert not differ_by_casts(r"concat('\'cast(b as string)', a)", r"concat('\'b', a)")
    assert differ_by_casts("concat('(', cast(a as string))", "concat('(', a)")


@pytest.mark.parametrize("function", ["coalesce", "nullif", "nvl", "ifnull"])
def test_what_is_done_with_nulls_is_seen_through(function: str) -> None:
    deep = nested("a", 5)
    assert differ_for_null(f"sum({function}({deep}, g(h(i(0)), 1)))", f"sum({deep})")
    assert differ_for_null(f"{function}({function}(cast(a as bigint), 0), 1)", "a")
    assert not differ_for_null(f"{function}(a, 0, 1)", "a")
