"""Real Spark still behaves as ``observed.json`` records: a slice runs again, or all of it with the whole matrix."""

from __future__ import annotations

import pytest

from ..judge.spark import Judge
from ..matrix import FULL
from .observe import Observation, Observer, read_observed
from .pairs import CHANGES, PAIRS

SLICE = (
    "nothing-join-near",
    "agg-min-to-max",
    "agg-key-added",
    "agg-key-added-unchecked",
    "set-partitions-more",
    "tws-variable-renamed",
)
CHOSEN = tuple(PAIRS) if FULL else SLICE
EITHER = {"agg-key-added-3.5": {"StateSchemaNotCompatible", "InvalidUnsafeRowException"}}
"""Two tasks fail with these errors, and the first of them ends the query."""


@pytest.fixture(scope="module")
def anew(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Observation | None, str]]:
    """Return Spark's current outcomes of the chosen pairs."""
    observer = Observer(tmp_path_factory.mktemp("check"), judge)
    return {pair.name: (seen, words) for pair, seen, words in observer.observe_all(PAIRS[name] for name in CHOSEN)}


@pytest.mark.parametrize("name", CHOSEN)
def test_spark_does_what_was_observed(anew: dict[str, tuple[Observation | None, str]], name: str) -> None:
    seen, words = anew[name]
    observed = read_observed()[name]
    if seen is not None and seen.get("error") in EITHER.get(name, ()):
        observed["error"] = seen["error"]
    assert seen == observed, words


def test_the_slice_has_every_outcome() -> None:
    observed = read_observed()
    seen = {(observed[name]["outcome"], observed[name].get("where")) for name in SLICE}
    assert seen == {("right", None), ("wrong", None), ("ignored", None), ("refused", "start"), ("refused", "batch")}


def test_every_pair_was_observed() -> None:
    observed = read_observed()
    assert list(observed) == sorted(PAIRS)
    assert {name: (seen["change"], seen["old"], seen["new"]) for name, seen in observed.items()} == {
        name: (pair.change, *pair.versions) for name, pair in PAIRS.items()
    }


def test_every_kind_of_change_has_a_pair() -> None:
    assert {pair.change for pair in PAIRS.values()} == set(CHANGES)


def test_harmless_pairs_restart_right() -> None:
    unharmed = [name for name, pair in PAIRS.items() if pair.change in ("nothing", "harmless")]
    assert len(unharmed) >= 25
    assert {read_observed()[name]["outcome"] for name in unharmed} == {"right"}
