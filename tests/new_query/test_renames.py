"""What ``--rename`` says of expressions: ``check`` and ``migrate`` take it in the same way."""

from __future__ import annotations

import shlex

import pytest

from ttlsnap.check import Verdict, check
from ttlsnap.cli.renames import parse_rename
from ttlsnap.contract import Contract
from ttlsnap.errors import UsageError
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.plan import find_evolution

from ..check.quality import contracts_of
from .aggregating import Expression, aggregation

USER, OTHER = ("user", "user", "string"), ("other", "other", "string")
UPPER, CAST = (
    ("upper(user)", "_groupingexpression", "string"),
    ("cast(cast(user as int) as string)", "_groupingexpression", "string"),
)
SUM, LAST = ("sum(amount)", "sum", "long"), ("max(user)", "max", "string")


def steps_of(old: Contract, new: Contract, renamed: dict[str, str]) -> list[tuple[str, str | None, str | None]]:
    evolution, obstacles = find_evolution(old, new, Answers(renamed=renamed))
    assert not obstacles
    return [(step.change, step.old, step.new) for step in evolution.steps]


@pytest.mark.parametrize("new", [UPPER, CAST])
@pytest.mark.parametrize("back", [False, True])
def test_a_key_with_another_expression_is_accepted_as_the_same(new: Expression, back: bool) -> None:
    keys = (new, USER) if back else (USER, new)
    # An aggregate over the key stays as it is.
    contracts = aggregation([keys[0]], [SUM, LAST]), aggregation([keys[1]], [SUM, LAST])
    renamed = {keys[0][0]: keys[1][0]}
    (finding,) = check(*contracts).findings
    assert (finding.code, finding.verdict) == ("key-changed", Verdict.INCOMPATIBLE)
    (word,) = shlex.split(finding.fix.rpartition("--renamed ")[2])
    assert dict([parse_rename("--renamed", word)]) == renamed
    (obstacle,) = find_evolution(*contracts)[1]
    assert f"add --rename {shlex.quote(word)}; if not, keep {keys[0][0]}, or start" in obstacle.message
    report = check(*contracts, renamed=renamed)
    assert not report.findings and not report.unseen
    assert steps_of(*contracts, renamed) == [("rename", keys[0][1], keys[1][1])]


def test_an_expression_with_quotes_is_found_in_both_contracts() -> None:
    new = ("coalesce(user, '-\"-')", "_groupingexpression", "string")
    report = check(aggregation([USER], [SUM]), aggregation([new], [SUM]), renamed={"user": new[0]})
    assert not report.findings and not report.unseen


def test_columns_that_swap_their_names_stay_where_they_are() -> None:
    old = aggregation([USER, OTHER], [SUM])
    new = aggregation([OTHER, USER], [SUM], source="other string, user string, amount bigint")
    swapped = {"user": "other", "other": "user"}
    assert not check(old, new, renamed=swapped).findings
    assert steps_of(old, new, swapped) == []


def test_the_keys_of_a_join_can_have_other_expressions() -> None:
    old, new = contracts_of("join-key-another-same-type")
    assert isinstance(old, Contract) and isinstance(new, Contract)
    question = next(found.message for found in find_evolution(old, new)[1] if found.old == "user = user")
    (word,) = shlex.split(question.partition("--rename ")[2].partition(";")[0])
    key = dict([parse_rename("--rename", word)])
    assert key == {"user = user": "upper(user) = upper(user)"}
    renamed = {**key, "user": "upper(user)", "l_user": "l_copy", "r_user": "r_copy"}
    assert not check(old, new, renamed=renamed).findings
    assert steps_of(old, new, renamed) == [("rename", "l_user", "l_copy"), ("rename", "r_user", "r_copy")]


@pytest.mark.parametrize(
    "pair", ["agg-key-renamed", "dedup-column-renamed", "join-key-renamed", "join-value-renamed", "tws-key-renamed"]
)
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_a_column_that_only_the_query_renames_needs_no_rename(pair: str, direction: str) -> None:
    old, new = contracts_of(pair)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    for renamed in ({"user": "client"}, {"amount": "fee"}):
        report = check(old, new, renamed=renamed, direction=direction)
        codes = [[found.code for found in one.findings] for one in (report, check(old, new, direction=direction))]
        assert codes[0] == codes[1]
        if direction == "backward":
            ((old_name, new_name),) = renamed.items()
            assert f"the source still has {old_name}, and does not have {new_name}" in report.unseen[0]
        if pair == "agg-key-renamed":
            assert steps_of(old, new, renamed) == steps_of(old, new, {})


def test_a_renamed_column_of_joined_rows_keeps_its_meaning() -> None:
    old, new = contracts_of("join-value-renamed")
    assert isinstance(old, Contract) and isinstance(new, Contract)
    assert not check(old, new, renamed={"l_amount": "l_fee"}).findings
    # The key has another expression, and the rows have the old one.
    another = contracts_of("join-key-another-same-type")[1]
    assert isinstance(another, Contract)
    found = check(old, another, renamed={"user = user": "upper(user) = upper(user)"}).findings
    assert {finding.code for finding in found} == {"input-changed"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a=b", ("a", "b")),
        (" a = b ", ("a", "b")),
        ("a = a=b = b", ("a = a", "b = b")),
        ("a=(a = b)", ("a", "(a = b)")),
        ("(a <= b)=(a <=> b)", ("(a <= b)", "(a <=> b)")),
        ("concat(a, 'x=y')=b", ("concat(a, 'x=y')", "b")),
        ("it's=its", ("it's", "its")),
    ],
)
def test_the_names_of_a_rename_may_have_equations(text: str, names: tuple[str, str]) -> None:
    assert parse_rename("--rename", text) == names
    for wrong in ("a", "=b", "a=", ""):
        with pytest.raises(UsageError, match="--rename is OLD=NEW"):
            parse_rename("--rename", wrong)
