"""The trees of expressions: nothing of a text is lost, and no text is too deep."""

from __future__ import annotations

import gzip
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap.check.trees import Tree, parse, rewrite

from .nesting import nest, surroundings
from .quality import KEPT

LONG = 20_000
MOST_S = 5
"""CPU time that no text needs. Quadratic time would be more than a minute."""


def shown(tree: Tree) -> object:
    """Return the forms in a tree, each with those of its parts."""
    return (tree.form, *map(shown, tree.parts)) if tree.parts else tree.form


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("amount", "amount"),
        ("count()", "count()"),
        ("sum((amount * 2))", ("sum(?)", ("(?)", ("?????", "amount", " ", "*", " ", "2")))),
        ("cast(a as decimal(10,2))", ("cast(? as ?)", "a", ("decimal(?)", ("???", "10", ",", "2")))),
        ("cast(a as array<int>)", ("cast(? as ?)", "a", ("array<?>", "int"))),
        (
            "cast(left.ts - INTERVAL '1' DAY as timestamp)",
            ("cast(? as ?)", ("? - ?", "left.ts", "INTERVAL '1' DAY"), "timestamp"),
        ),
        ("session_window(ts, 5 minutes)", ("session_window(?, ?)", "ts", "5 minutes")),
        ("concat('a, (b', c)", ("concat(?, ?)", "'a, (b'", "c")),
        ("a[0]", ("??", "a", ("[?]", "0"))),
        ("a, b", ("?, ?", "a", "b")),
    ],
)
def test_a_text_has_its_tree(text: str, wanted: object) -> None:
    assert shown(parse(text)) == wanted


@given(st.text("ab ,.(<=>)[]'\\0-?"), st.text("ab ,.(<=>)[]'\\0-?"))
def test_only_equal_texts_have_equal_trees(one: str, other: str) -> None:
    for text in (one, f"f({one})", nest(one, ["cast({} as bigint)", "[{}]"])):
        tree = parse(text)
        assert tree == parse(text)
        assert tree == rewrite(tree, lambda _, new: new)
        if one != other and " = " not in text and " <=> " not in text:
            assert parse(other) != tree


@given(surroundings)
def test_the_sides_of_an_equation_have_no_order(around: list[str]) -> None:
    assert parse(nest("(a = cast(b as int))", around)) == parse(nest("(cast(b as int) = a)", around))
    assert parse(nest("(a <=> 'b')", around)) == parse(nest("('b' <=> a)", around))
    for one, other in (
        ("(a > b)", "(b > a)"),
        ("(a + b)", "(b + a)"),
        ("f(a = b)", "f(b = a)"),
        ("'(a = b)'", "'(b = a)'"),
    ):
        assert parse(nest(one, around)) != parse(nest(other, around))


def test_every_text_of_the_stored_contracts_has_a_tree() -> None:
    contracts = json.loads(gzip.decompress(KEPT.read_bytes()))["contracts"].values()
    operators = [operator for contract in contracts for operator in contract.get("operators", ())]
    texts = {line for operator in operators for line in operator["plan"] or ()}
    assert {text for text in texts if "(" in text and not parse(text).parts} == set()


@pytest.mark.parametrize("text", ["f(a", "a)", "f(a]", "f(a<b)", "[a)", "f(')"])
def test_a_text_whose_parentheses_do_not_match_stays_whole(text: str) -> None:
    assert (parse(text).form, parse(text).parts) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        "(" * LONG + ")" * LONG,
        "f(" * LONG + "a" + ", b)" * LONG,
        "(a = " * LONG + "b" + ")" * LONG,
        "cast(" * LONG + "a" + " as bigint)" * LONG,
        "a<" * LONG + ">" * LONG,
        "[" * LONG,
        "\\'" * LONG,
        "INTERVAL '" * LONG,
        "1" * LONG + " minutes" + "1 " * LONG,
        " as " * LONG,
        "-nvl(" * LONG + "a" + ", 0)" * LONG,
    ],
    ids=lambda text: text[:8],
)
def test_a_long_or_deep_text_takes_linear_time(text: str) -> None:
    before = time.process_time()
    tree = parse(text)
    assert rewrite(tree, lambda _, new: new) == tree
    assert not rewrite(tree, lambda _, new: new.parts[0] if new.parts else new).parts
    assert time.process_time() - before < MOST_S
