"""``inspect`` refuses a selection that matches nothing, like every command."""

from __future__ import annotations

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
    assert run(["inspect", str(SAMPLES / "visits-4.2"), "--state", "default.last"]) == 2
    told = "it has 0.default with the states $rowCounter_numbers, last, numbers"
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_selection_that_matches_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(SAMPLES / NAME), "--operator", "0", "--state", "default"]) == 0
    assert "stateStoreSave" in capsys.readouterr().out
