"""``inspect`` refuses a selection that matches nothing, like every command."""

from __future__ import annotations

import json

import pytest

from ttlsnap.cli.app import run

from ..samples import SAMPLES

NAME = "agg-deltas-lz4-4.2"


@pytest.mark.parametrize("option", [("--operator", "5"), ("--store", "nosuch"), ("--state", "nosuch")])
@pytest.mark.parametrize("more", [(), ("--age", "--timestamp", "value.max"), ("--entries", "1")])
def test_a_selection_that_matches_nothing_is_an_error(
    capsys: pytest.CaptureFixture[str], option: tuple[str, str], more: tuple[str, ...]
) -> None:
    assert run(["inspect", str(SAMPLES / NAME), *option, *more]) == 2
    assert f"has nothing that matches {' '.join(option)}; it has 0.default" in capsys.readouterr().err


def test_a_wrong_state_gets_the_names_of_the_states(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(SAMPLES / "visits-4.2"), "--state", "default.lost"]) == 2
    told = "it has 0.default with the states $rowCounter_numbers, last, numbers"
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "state", "shown"),
    [
        *(("visits-4.2", state, ["last"]) for state in ("last", "default.last", "0.default.last", "0.last")),
        *(("join-4.2", state, ["left-keyWithIndexToValue"]) for state in ("0.left", "0.left-keyWithIndexToValue")),
    ],
)
def test_every_name_of_a_state_selects_it(
    name: str, state: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(SAMPLES / name), "--state", state, "--format", "json"]) == 0
    (operator,) = json.loads(capsys.readouterr().out)["operators"]
    stores = [(store["name"], found["name"]) for store in operator["stores"] for found in store["states"]]
    assert [place if found == "default" else found for place, found in stores] == shown


def test_a_state_has_one_name_in_all_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "visits-4.2")
    for words in (
        ["inspect", target],
        ["inspect", target, "--show", "1"],
        ["inspect", target, "--sizes"],
        ["compact", target, "--dry-run"],
    ):
        assert run(words) == 0
        assert "0.default.last" in capsys.readouterr().out, words


def test_a_selection_that_matches_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(SAMPLES / NAME), "--operator", "0", "--state", "default"]) == 0
    assert "stateStoreSave" in capsys.readouterr().out
