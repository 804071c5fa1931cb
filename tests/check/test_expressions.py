"""Expressions that differ only in what does not matter to the state, at any depth of nesting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.check.expressions import (
    are_narrower,
    are_same,
    differ_by_casts,
    differ_by_types,
    differ_for_null,
    differ_in_counted_nulls,
    find_changed,
    find_rename,
    find_retyped,
    is_longer,
    reads_same_buffer,
    rename_columns,
)

from .nesting import AROUND, nest, surroundings, without_casts

DEEP = [*AROUND, "f({}, 1)"] * 30
HARMLESS = ("bigint", "double", "string", "timestamp")
OTHERS = (
    "c",
    "'a'",
    "upper(a)",
    "cast(a as int)",
    "cast(a as decimal(10,2))",
    "try_cast(a as bigint)",
    "cast(cast(a as string) as bigint)",
    "(a + 0)",
    "coalesce(a, 0, 1)",
    "a.b",
)
"""Expressions that are neither ``a`` nor a harmless cast of it."""


@given(without_casts, without_casts, st.sampled_from(HARMLESS))
def test_a_harmless_cast_is_seen_through(inner: list[str], outer: list[str], kind: str) -> None:
    plain = nest("a", inner)
    cast = f"cast({plain} as {kind})"
    whole, with_cast = nest(plain, outer), nest(cast, outer)
    assert differ_by_casts(whole, with_cast) and differ_for_null(with_cast, whole) and differ_by_types(whole, with_cast)
    assert are_same(whole, with_cast, retyped=["a", "z"])
    assert are_same(whole, with_cast, retyped=["z"]) == (not outer)
    assert are_same(whole, with_cast, retyped=[]) == (not outer)
    assert are_same(f"sum({whole})", f"sum({with_cast})", retyped=[], aggregate=True) == (not outer)
    for function in ("count", "avg", "try_avg", "stddev", "collect_set", "approx_count_distinct"):
        assert not are_same(f"{function}({plain})", f"{function}({cast})", retyped=[], aggregate=True)


@given(surroundings, st.sampled_from(OTHERS))
def test_any_other_change_is_found(around: list[str], other: str) -> None:
    was, now = nest("a", around), nest(other, around)
    for one, two in ((was, now), (now, was)):
        assert not differ_by_casts(one, two) and not differ_for_null(one, two)
        assert not are_same(one, two, retyped=["a"], aggregate=True)
        assert not reads_same_buffer(f"sum({one})", f"sum({two})", needs_a_row=True)
        assert find_changed([one], [two]) == ([one], [two])
    assert differ_by_types(was, now) == (other.startswith("cast("))


@given(surroundings, st.sampled_from(["cast(a as int)", "cast(cast(a as map<string,int>) as decimal(10,2))"]))
def test_types_are_seen_through(around: list[str], cast: str) -> None:
    assert differ_by_types(nest("a", around), nest(cast, around))
    assert not differ_by_types(nest("b", around), nest(cast, around))


@pytest.mark.parametrize("around", [[], AROUND[:3], DEEP])
def test_a_cast_back_and_forth_changes_a_value(around: list[str]) -> None:
    plain = nest("a", around)
    assert not differ_by_casts(f"cast(cast({plain} as string) as bigint)", plain)
    assert not differ_by_casts(f"cast(f(cast({plain} as string)) as bigint)", f"f({plain})")


def test_a_text_in_quotes_is_no_expression() -> None:
    assert not differ_by_casts("concat(a, 'cast(b as string)')", "concat(a, 'b')")
    assert not differ_by_casts(r"concat('\'cast(b as string)', a)", r"concat('\'b', a)")
    assert differ_by_casts("concat('(', cast(a as string))", "concat('(', a)")


@pytest.mark.parametrize("function", ["coalesce", "nullif", "nvl", "ifnull"])
def test_what_is_done_with_nulls_is_seen_through(function: str) -> None:
    deep = nest("a", DEEP)
    assert differ_for_null(nest(f"{function}({deep}, g(h(i(0)), cast(1 as int)))", DEEP), nest(deep, DEEP))
    assert differ_for_null(f"{function}({function}(cast(a as bigint), 0), 1)", "a")
    assert not differ_for_null(f"{function}(a, 0, 1)", "a")


@given(surroundings)
def test_the_same_equation_is_the_same_column(around: list[str]) -> None:
    one, other = nest("(a = upper(b))", around), nest("(upper(b) = a)", around)
    assert are_same(one, other, retyped=[]) and find_changed([one], [other]) == ([], [])
    assert not are_same(one, nest("(a = lower(b))", around), retyped=[])


@given(surroundings)
def test_a_renamed_column_is_found(around: list[str]) -> None:
    before, after = (
        ["left: clicks: a string, s struct<a b:int>, b int"],
        ["left: clicks: n string, s struct<a b:int>, b int"],
    )
    was, now = nest("upper(left.a)", around), nest("upper(left.n)", around)
    assert find_rename(was, now, before, after) == ("a", "n")
    assert find_rename(was, nest("lower(left.n)", around), before, after) is None
    assert find_rename(was, nest("upper('n')", around), before, after) is None
    assert find_rename(was, now, before, [*before, *after]) is None


def test_a_function_is_not_renamed_with_a_column_of_its_name() -> None:
    assert find_rename("max(max)", "min(min)", ["max int"], ["min int"]) is None
    assert find_rename("max(max)", "max(min)", ["max int"], ["min int"]) == ("max", "min")


def test_columns_are_renamed_where_they_are_columns() -> None:
    text = "concat(day, 'day \\'day', day(ts), INTERVAL '1' DAY, left.day, day[0], window(ts, 1 day), today)"
    wanted = "concat(date, 'day \\'day', day(ts), INTERVAL '1' DAY, left.date, date[0], window(ts, 1 day), today)"
    assert rename_columns(text, {"day": "date"}) == wanted
    assert rename_columns(text, {}) == text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a int", "a bigint"),
        ("clicks: a int, b int", "clicks: a bigint, b int"),
        ("left: clicks: a int, b int", "left: clicks: a bigint, b int"),
        ("a array<int>", "a array<bigint>"),
        ("a struct<x y:int,z:int>", "a struct<x y:int,z:bigint>"),
        ("a bigint", "a interval day to second"),
        ("a string", "a string collate UTF8_LCASE"),
        ("a decimal(8,2)", "a decimal(9,2)"),
    ],
)
def test_a_retyped_column_is_found(old: str, new: str) -> None:
    assert find_retyped([old], [new]) == {"a"}
    assert find_retyped([old, "from b int"], [old, new, "b int"]) == {"a"}
    assert find_retyped([old], [f"{old}, more string"]) == set()


@pytest.mark.parametrize(
    ("was", "now", "longer"),
    [
        ("30 minutes", "31 minutes", True),
        ("30 minutes", "1 hour", True),
        ("1 hours 30 minutes", "2 hours", True),
        ("INTERVAL '30' MINUTE", "1 hour", True),
        ("1 hours 30 minutes", "45 minutes", False),
        ("30 minutes", "30 minutes", False),
        ("1.5 seconds", "4 seconds", False),
        ("5 minutes", "CASE WHEN (user = 'a') THEN 1 minutes ELSE 9 minutes END", False),
        ("5 minutes", "if ((user = 'a')) 1 minutes else 9 minutes", False),
        ("5 minutes", "1 months 9 minutes", False),
    ],
)
def test_a_gap_is_longer_if_all_of_it_is_known(was: str, now: str, longer: bool) -> None:
    assert is_longer(f"session_window(ts, {was})", f"session_window(ts, {now})") is longer
    assert not is_longer(f"session_window(ts, {was})", f"session_window(seen, {now})")
    assert not is_longer(f"session_window(ts, {was})", f"session_window(ts, {now}")


RANGE = "between({}, cast({} - INTERVAL '{}' MINUTE as timestamp), cast(left.ts + INTERVAL '{}' HOUR as timestamp))"


@given(surroundings)
def test_a_shorter_time_range_is_narrower(around: list[str]) -> None:
    time, start = nest("right.ts", around), nest("left.ts", around)
    was = RANGE.format(time, start, 60, 2)
    assert are_narrower([was], [RANGE.format(time, start, 30, 2)])
    assert are_narrower([was], [RANGE.format(time, start, 60, 1)])
    assert not are_narrower([was], [RANGE.format(time, start, 61, 2)])
    assert not are_narrower([was], [RANGE.format(time, start, 60, 3)])
    assert not are_narrower([was], [RANGE.format(f"upper({time})", start, 30, 1)])
    assert not are_narrower([was], [RANGE.format(time, f"upper({start})", 30, 1)])
    assert not are_narrower([was], [RANGE.format(time, start, 30, 1).replace("timestamp", "date")])
    assert not are_narrower([was], [RANGE.format(time, start, 30, 1).replace("'30'", "'-30'")])
    assert not are_narrower([was], []) and not are_narrower([was], ["(a > b)"])


@given(surroundings)
def test_a_buffer_of_the_same_values_is_read(around: list[str]) -> None:
    value, filtered = nest("a", around), " FILTER (WHERE (b > 0))"
    same = [
        (f"collect_list({value}, 0, 0, true)", f"collect_set({value}, 0, 0, true)", False),
        (f"collect_list({value}){filtered}", f"collect_set({value}){filtered}", False),
        (f"first({value}, false)", f"last({value}, false)", True),
        (f"sum({value})", f"sum(coalesce({value}, 0))", True),
        (f"sum({value})", f"sum(coalesce({value}, cast(0 as bigint)))", True),
    ]
    for was, now, needs_a_row in same:
        assert reads_same_buffer(was, now, needs_a_row=True)
        assert reads_same_buffer(was, now, needs_a_row=False) != needs_a_row
        assert not reads_same_buffer(now, was, needs_a_row=True)
        assert not reads_same_buffer(was, now.replace("a", "c", 1), needs_a_row=True)
        assert not reads_same_buffer(was, now + filtered, needs_a_row=True)
        # A new row may not pass the filter.
        both = needs_a_row and reads_same_buffer(was + filtered, now + filtered, needs_a_row=True)
        assert not both
    assert not reads_same_buffer("sum(a)", "sum(coalesce(a, cast(0 as decimal(10,2))))", needs_a_row=True)
    assert not reads_same_buffer("first(a, true)", "last(a, true)", needs_a_row=True)
    assert not reads_same_buffer("sum()", "sum()", needs_a_row=True)


def test_a_cast_of_an_argument_is_seen_through_beside_a_filter() -> None:
    was, now = (f"sum({value}) FILTER (WHERE (b > 0))" for value in ("a", "cast(a as bigint)"))
    assert are_same(was, now, retyped=[], aggregate=True)
    assert not are_same(was, now.replace("> 0", "> 1"), retyped=[], aggregate=True)


@pytest.mark.parametrize("counted", ["amount", "left.amount", "upper(a)", nest("a", DEEP[:1] * 40)])
def test_counts_differ_only_for_nulls(counted: str) -> None:
    assert differ_in_counted_nulls("count(1)", f"count({counted})")
    assert differ_in_counted_nulls(f"count({counted})", "count(1)")
    assert not differ_in_counted_nulls("count(a)", f"count({counted})")
    assert not differ_in_counted_nulls("count(1)", f"count(distinct {counted})")
    assert not differ_in_counted_nulls("count(1)", f"count({counted}) FILTER (WHERE a)")
    assert not differ_in_counted_nulls("count(1)", f"max({counted})")
