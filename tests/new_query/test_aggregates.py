"""Aggregates that the new query computes in another way: what ``check`` and ``migrate`` say of them."""

from __future__ import annotations

import json

import pytest

from ttlsnap.check import Verdict, check
from ttlsnap.contract import Contract, parse_contract
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.plan import find_evolution

from .aggregating import aggregation

USER = ("user", "user", "string")
SUM, OTHER_SUM = ("sum(amount)", "sum", "long"), ("sum((amount * 2))", "sum", "long")
MOST, DECIMAL = ("max(price)", "max", "double"), ("max(cast(price as decimal(20,2)))", "max", "decimal(20,2)")
TEXT = ("max(cast(price as string))", "max", "string")


@pytest.mark.parametrize("new", [DECIMAL, TEXT, ("max(price)", "max", "boolean")])
@pytest.mark.parametrize("renamed", [False, True])
def test_check_names_the_option_that_starts_an_aggregate_afresh(new: tuple[str, str, str], renamed: bool) -> None:
    contracts = aggregation([USER], [SUM, MOST]), aggregation([USER], [SUM, new])
    names = {"max(price)": new[0]} if renamed else {}
    (obstacle,) = find_evolution(*contracts, Answers(renamed=names))[1]
    assert obstacle.message.endswith("its buffer cannot be converted. To start it afresh, add --drop 'max(price)'")
    report = check(*contracts, renamed=names)
    assert (report.next or "").endswith(" --drop 'max(price)'")
    evolution, obstacles = find_evolution(*contracts, Answers(renamed=names, drops=frozenset({"max(price)"})))
    assert not obstacles
    assert [(step.change, step.old, step.new) for step in evolution.steps] == [
        ("add", None, new[0]),
        ("drop", "max(price)", None),
    ]


def test_each_changed_aggregate_has_its_own_question() -> None:
    contracts = aggregation([USER], [SUM, MOST]), aggregation([USER], [OTHER_SUM, DECIMAL])
    report = check(*contracts)
    fixes = {finding.old: finding.fix for finding in report.findings if finding.code == "aggregate-changed"}
    assert "give migrate --rename 'sum(amount)=sum((amount * 2))'; if not, --drop" in fixes["sum(amount)"]
    assert fixes["max(price)"].endswith("Give migrate --drop 'max(price)'")
    more = check(*contracts, renamed={SUM[0]: OTHER_SUM[0]})
    assert (more.next or "").endswith(" --drop 'max(price)'")


@pytest.mark.parametrize("back", [False, True])
def test_another_type_is_found_beside_another_number_of_aggregates(back: bool) -> None:
    old = aggregation([USER], [SUM, MOST])
    new = aggregation([USER], [("sum(cast(amount as double))", "sum", "double"), MOST, ("min(price)", "min", "double")])
    report = check(*((new, old) if back else (old, new)))
    assert [(found.code, found.place.field) for found in report.findings] == [
        ("value-removed" if back else "value-added", "value.min"),
        ("value-retyped", "value.sum"),
    ]
    narrow = (report.next or "").endswith(" --narrow")
    assert report.verdict is Verdict.AFTER_MIGRATION and narrow


def test_columns_with_one_name_are_compared_in_their_order() -> None:
    totals = [("sum(amount)", "sum", "long"), ("sum(price)", "sum", "double")]
    changed = [totals[0], ("sum(cast(price as bigint))", "sum", "long"), ("min(price)", "min", "double")]
    report = check(aggregation([USER], totals), aggregation([USER], changed))
    assert [(found.code, found.old) for found in report.findings] == [
        ("value-added", None),
        ("value-retyped", "double"),
    ]
    more = [*totals[::-1], ("sum(price)", "sum", "double")]
    assert [found.code for found in check(aggregation([USER], totals), aggregation([USER], more)).findings] == [
        "value-added"
    ]


def test_the_advice_for_another_order_is_not_to_switch_off_the_check() -> None:
    """By position, the types and the nullability differ. Without the check, Spark would mix up the aggregates."""
    counted = ("count(1)", "count", "long")
    documents = [aggregation([USER], order).to_json() for order in ([counted, MOST], [MOST, counted])]
    for document in documents:
        for column in document["operators"][0]["stores"][0]["states"][0]["value"]:
            column["nullable"] = column["name"] != "count"
    old, new = (parse_contract(json.dumps(document), "it") for document in documents)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    report = check(old, new)
    fixes = {finding.code: finding.fix for finding in report.findings if finding.verdict is not Verdict.AS_IS}
    assert fixes.keys() == {"values-swapped", "value-retyped", "value-nullability"}
    assert "restore the old order, or migrate" in fixes["value-nullability"]
    assert not any("stateSchemaCheck" in fix for fix in fixes.values())


@pytest.mark.parametrize("back", [False, True])
def test_an_aggregate_with_the_columns_of_another_is_named(back: bool) -> None:
    counted, average = ("count(1)", "count", "long"), "avg(amount)"
    old = aggregation([USER], [SUM, counted])
    columns = [("avg(amount)", "sum", "double"), (average, "count", "long")]
    document = aggregation([USER], [SUM, counted, *columns]).to_json()
    (operator,) = document["operators"]
    first, second = operator["buffers"][2:]
    initial = [first["initial"][0], second["initial"][0]]
    operator["buffers"][2:] = [{**first, "columns": ["sum", "count"], "initial": initial}]
    operator["plan"].remove(f"aggregate {average}")
    new = parse_contract(json.dumps(document), "new")
    assert isinstance(new, Contract)
    report = check(*((new, old) if back else (old, new)))
    (finding,) = report.findings
    side, numbers = ("removed", "4 columns and now has 2") if back else ("added", "2 columns and now has 4")
    assert (finding.code, str(finding.place)) == (f"value-{side}", "0.default.default.value")
    assert finding.message.partition(". ")[0] == f"avg(amount) was {side}; the value had {numbers}"
    assert ("The migration can drop values" in finding.message) == (side == "removed")
    text = "avg(amount): sum, count"
    assert (finding.old, finding.new) == ((text, None) if back else (None, text))
    assert finding.migration is not None and average in (finding.migration["old"], finding.migration["new"])


def test_an_aggregate_with_a_column_of_its_own_keeps_the_place_of_the_column() -> None:
    (finding,) = check(aggregation([USER], [SUM]), aggregation([USER], [SUM, MOST])).findings
    assert (finding.message, finding.place.field, finding.new) == (
        "max(price) was added; the value had 1 column and now has 2",
        "value.max",
        "max double",
    )
