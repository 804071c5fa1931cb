"""State variables that the query no longer has: ``inspect`` shows what Spark has kept of them."""

from __future__ import annotations

import json

import pytest

from ttlsnap import inspect
from ttlsnap.cli.app import run

from ..samples import SAMPLES

REMOVED = str(SAMPLES / "removed-4.2")
UNUSED = {
    # name: type, role, entries, variable
    "last": ("value", "primary", 4, "last"),
    "$ttl_last": ("index", "derived", 4, "last"),
    "digits": ("map", "primary", 4, "digits"),
    "$ttl_digits": ("index", "derived", 4, "digits"),
    "always": ("map", "primary", 4, "always"),
    "recent": ("list", "primary", 6, "recent"),
    "$ttl_recent": ("index", "derived", 4, "recent"),
    "$min_recent": ("index", "derived", 4, "recent"),
    "$count_recent": ("count", "derived", 4, "recent"),
    "all": ("list", "primary", 6, "all"),
    "$rowCounter_all": ("count", "derived", 4, "all"),
}


def test_inspect_lists_what_no_variable_uses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", REMOVED, "--sizes", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    states = document["operators"][0]["stores"][0]["states"]
    unused = {
        state["name"]: (state["type"], state["role"], state["entries"], state["variable"])
        for state in states
        if state.get("unused")
    }
    assert unused == UNUSED
    assert {state["name"] for state in states if "unused" not in state} == {
        "$procTimers_keyToTimestamp",
        "$procTimers_timestampToKey",
        "$ttl_numbers",
        "numbers",
    }
    sizes = {state["state"]: state["bytes"] for state in document["sizes"]["states"]}
    assert all(sizes[name] > 0 for name in UNUSED)
    assert document["sizes"]["growth"]["unknown"] == []


def test_unused_states_are_marked_in_the_text_and_on_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = tmp_path_factory.mktemp("page") / "state.html"
    names = "state variables that the query no longer has: all, always, digits, last, recent"
    assert run(["inspect", REMOVED, "--report", f"html={page}"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (f"{names} (48 entries)" in out, "default recent (unused) 1" in out) == (True, True)
    assert (names in page.read_text(), "recent (unused)" in page.read_text()) == (True, True)
    assert run(["inspect", REMOVED, "--sizes"]) == 0
    assert f"{names} (48 entries)" in " ".join(capsys.readouterr().out.split())


def test_the_entries_of_an_unused_state_can_be_read() -> None:
    found = inspect(REMOVED, entries=100)
    shown = [sample for sample in found.samples or () if sample["state"] == "always"]
    assert sorted((sample["key"]["key"], sample["map_key"]["digit"]) for sample in shown) == [
        (f"key-{number}", str(number)) for number in range(4)
    ]
    assert found.state(0, state="last").descriptor is not None


def test_a_rule_leaves_unused_states_alone() -> None:
    assert run(["compact", REMOVED, "--ttl", "1s", "--now", "wall", "--dry-run", "--state", "last"]) == 2
    assert run(["inspect", REMOVED, "--sizes", "--ttl", "1s", "--state", "last"]) == 0


@pytest.mark.parametrize("name", ["visits-4.2", "lists-4.2", "alarms-4.2"])
def test_all_states_are_used_if_the_variables_are_the_first_ones(name: str) -> None:
    assert not any(state.unused for state in inspect(str(SAMPLES / name)).states())
