"""State variables that return: Spark has kept the values and the type that an earlier query gave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap.check import check
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract

from ..cli.running import Ttlsnap
from ..new_query.contracts import Change
from ..samples import SAMPLES, sample
from .returned import another_name, as_map, as_value, with_text, with_variable, without_ttl, write

REMOVED = SAMPLES / "removed-4.2"


def parsed(document: object) -> Contract:
    found = parse_contract(json.dumps(document), "new")
    assert isinstance(found, Contract)
    return found


@pytest.mark.parametrize(
    ("name", "change", "verdict", "does"),
    [
        *((name, dict, "unknown", "the old values are there again") for name in ("last", "always", "digits", "all")),
        ("always", with_text, "incompatible", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
        ("all", with_text, "incompatible", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
        ("last", without_ttl, "incompatible", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
        ("digits", without_ttl, "incompatible", "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"),
        ("all", as_value, "incompatible", "silent: wrong results"),
        ("all", as_map, "incompatible", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"),
    ],
)
def test_a_variable_that_returns_is_compared_with_the_earlier_one(
    name: str, change: Change, verdict: str, does: str
) -> None:
    report = check(contract_of_checkpoint(str(REMOVED)), parsed(with_variable(REMOVED, name, change)))
    (found,) = report.findings
    assert (found.code, found.verdict.value, found.place.state) == ("variable-returned", verdict, name)
    assert (does in found.spark, f"ttlsnap migrate CHECKPOINT --drop {name}" in found.fix) == (True, True)


def test_a_variable_with_a_new_name_is_empty() -> None:
    report = check(contract_of_checkpoint(str(REMOVED)), parsed(with_variable(REMOVED, "last", another_name)))
    assert [(found.code, found.message) for found in report.findings] == [
        ("variable-added", "the variable never was added; it is empty for every key")
    ]


def test_a_contract_carries_the_unused_variables(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    ended = ttlsnap("contract", REMOVED)
    (store,) = ended.json["operators"][0]["stores"]
    assert [(one["name"], one["kind"], one["ttl"], one["kept"]) for one in store["unused"]] == [
        ("all", "list", False, True),
        ("always", "map", False, True),
        ("digits", "map", True, True),
        ("last", "value", True, True),
        ("recent", "list", True, True),
    ]
    old = tmp_path / "old.json"
    old.write_text(ended.out)
    new = write(tmp_path / "new.json", with_variable(REMOVED, "always", with_text))
    assert [found["code"] for found in ttlsnap("check", old, new, "--format", "json").json["findings"]] == [
        "variable-returned"
    ]
    made = parse_contract(ended.out, "old")
    assert (made.dumps(), made) == (ended.out, contract_of_checkpoint(str(REMOVED)))


def test_a_contract_without_unused_variables_leaves_open_whether_there_are_any() -> None:
    document = contract_of_checkpoint(str(REMOVED)).to_json()
    del document["operators"][0]["stores"][0]["unused"]
    (found,) = check(parsed(document), parsed(with_variable(REMOVED, "last"))).findings
    assert (found.code, "unless an earlier query had" in found.message) == ("variable-added", True)


def test_a_migration_makes_room_for_a_variable_that_returns(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("removed-4.2", tmp_path)
    new = write(tmp_path / "new.json", with_variable(target, "always", with_text))
    words = ["migrate", target, "--to", new, "--stopped", "--yes"]
    ended = ttlsnap(*words)
    assert (ended.code, "--drop always" in ended.err) == (3, True)
    assert ttlsnap(*words, "--drop", "always", "--dry-run").code == 0
    assert ttlsnap(*words, "--drop", "always").code == 0
    found = ttlsnap("check", target, new, "--format", "json").json
    assert [(one["code"], one["verdict"]) for one in found["findings"]] == [("variable-added", "as_is")]
