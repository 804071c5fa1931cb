"""Real Spark restarts the new query on migrated state, and gives the right rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ttlsnap.check import Verdict
from ttlsnap.contract import Contract
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.plan import find_evolution

from ..check.observe import normal, read_observed
from ..check.quality import contracts_of, judged
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from .migrating import MIGRATED, Migrated, Migrator
from .reasons import reason_of
from .tables import CASES

SLICE = (
    "agg-key-widened",
    "agg-value-added-rocksdb",
    "agg-values-swapped",
    "session-keys-swapped",
    "dedup-column-widened",
    "join-keys-swapped",
    "join-value-added",
    "tws-field-widened",
)
CHOSEN = MIGRATED if FULL else [one for one in MIGRATED if one.name in SLICE]


@pytest.fixture(scope="module")
def migrator(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Migrator:
    return Migrator(tmp_path_factory.mktemp("repairs"), judge)


@pytest.mark.parametrize("one", narrow(CHOSEN, 0, 3, 6), ids=lambda one: one.name)
def test_the_new_query_continues(migrator: Migrator, one: Migrated) -> None:
    report, done = migrator.restart(one)
    assert [step["change"] for step in report.plan] == list(one.steps)
    assert "error" not in done, done
    assert normal(done["rows"]) == one.right()
    if one.goes_on:
        for batch in (1, 2):
            assert normal(migrator.go_on(one, batch)["rows"]) == one.right(batch)


def test_spark_breaks_without_the_migration() -> None:
    observed = read_observed()
    assert {observed[one.name]["outcome"] for one in MIGRATED} == {"refused", "wrong"}


def test_each_pair_that_breaks_is_migrated_or_has_a_reason() -> None:
    migrated = {one.name for one in MIGRATED} | {name for name, *_ in CASES}
    for one in judged():
        if one.breaks:
            assert (one.name in migrated) != (reason_of(one.name) is not None), one.name
            assert one.verdict is not Verdict.AFTER_MIGRATION or one.name in migrated, one.name


@pytest.mark.parametrize(
    "name",
    [
        "agg-collect-list-argument-widened",
        "agg-approx-count-distinct-argument-widened",
        "agg-approx-count-distinct-beside-a-widened-value",
    ],
)
def test_a_buffer_with_arguments_of_another_type_is_not_used(name: str) -> None:
    old, new = contracts_of(name)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    (obstacle,) = find_evolution(old, new)[1]
    assert "its buffer cannot be converted" in obstacle.message
    text = obstacle.message.rpartition("--drop ")[2].strip("'")
    evolution, obstacles = find_evolution(old, new, Answers(drops=frozenset({text})))
    assert [step.change for step in evolution.steps][:2] == ["add", "drop"] and not obstacles


@pytest.mark.parametrize(
    "name",
    [
        "agg-approx-count-distinct-beside-a-widened-value",
        "agg-max-of-another-type",
        "agg-value-to-double",
        "agg-value-widened",
    ],
)
def test_what_a_number_means_is_not_guessed(name: str) -> None:
    """A checkpoint does not record what an aggregate is of, and which types its arguments have."""
    old, new = contracts_of(name)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    (operator,) = old.operators
    unplanned = replace(old, operators=(replace(operator, plan=None, buffers=None),))
    obstacles = find_evolution(unplanned, new)[1]
    assert any("ttlsnap contract CHECKPOINT --with" in obstacle.message for obstacle in obstacles)


@pytest.mark.parametrize("one", MIGRATED, ids=lambda one: one.name)
def test_the_plan_is_the_same_from_two_contracts(one: Migrated) -> None:
    old, new = contracts_of(one.name)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    evolution, obstacles = find_evolution(old, new, one.given)
    assert not obstacles
    assert [step.change for step in evolution.steps] == list(one.steps)
    assert evolution.changes
