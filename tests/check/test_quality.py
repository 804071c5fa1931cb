"""The checker's verdicts agree with real Spark over all pairs, and the docs show the result."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from ttlsnap.check import Verdict, check

from ..matrix import FULL, rotating
from ..new_query.migrating import MIGRATED
from . import processors, queries
from .contracts import as_recorded
from .pair import NEWEST
from .pairs import PAIRS
from .quality import KEPT, contracts_of, document_of, figures, judged, pages, rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPAIRED = {one.name for one in MIGRATED}

for _module in (processors, queries):
    register_pickle_by_value(_module)  # Spark's workers do not find this package


def test_no_pair_that_breaks_is_as_is() -> None:
    assert [one.name for one in judged() if one.breaks and one.verdict is Verdict.AS_IS] == []


def test_false_alarms_are_rare() -> None:
    found = figures()
    assert found["that work"] >= 80
    assert found["that work, called anything else"] * 20 <= found["that work"]
    assert found["that work, called unknown"] * 9 <= found["that work"]


@pytest.mark.parametrize("side", ["old", "new", "both"])
def test_a_checkpoint_alone_never_costs_the_state(side: str) -> None:
    worse = []
    for name, pair in PAIRS.items():
        old, new = contracts_of(name)
        if pair.versions != (NEWEST, NEWEST) or isinstance(old, str) or isinstance(new, str):
            continue
        known = check(old, new)
        old = old if side == "new" else as_recorded(old)
        new = new if side == "old" else as_recorded(new)
        found = check(old, new)
        if found.verdict is Verdict.INCOMPATIBLE is not known.verdict or (
            name in REPAIRED and any("new checkpoint" in one.fix for one in found.findings)
        ):
            worse.append(name)
    assert not worse


def test_what_a_migration_with_an_answer_repairs_is_not_given_up() -> None:
    for one in judged():
        if one.name in REPAIRED and one.report is not None:
            assert one.verdict is not Verdict.INCOMPATIBLE, one.name


@pytest.mark.parametrize("name", [one.name for one in judged() if one.seen["change"] in ("nothing", "harmless")])
def test_a_harmless_change_is_as_is(name: str) -> None:
    (one,) = (one for one in judged() if one.name == name)
    assert (one.verdict is Verdict.AS_IS) == one.works, one.codes


@pytest.mark.parametrize(
    "name",
    [name for name, pair in PAIRS.items() if pair.versions == (NEWEST, NEWEST)]
    if FULL
    else rotating(
        ["agg-min-to-max", "agg-values-selected-in-another-order", "join-sides-same-types", "tws-ttl-on"],
        2,
        "contracts",
    ),
)
def test_real_spark_makes_the_stored_contracts(spark: SparkSession, name: str) -> None:
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    for side, key in enumerate(kept["pairs"][name]):
        assert document_of(PAIRS[name], side, spark) == kept["contracts"][key]


def test_the_docs_show_the_current_rules_and_pairs() -> None:
    for path, text in pages().items():
        assert path.read_text() == text, "python -m tests.check.quality document writes it"


def test_each_rule_has_a_case() -> None:
    assert all(len(section.splitlines()) > 4 for section in rules().split("\n\n### "))


def test_the_docs_say_of_each_finding_that_a_migration_repairs_that_its_rule_softens() -> None:
    sections = {section.removeprefix("### ").split("`")[1]: section for section in rules().split("\n\n### ")}
    repaired = [
        (finding.code, finding.migration["change"])
        for one in judged()
        if one.report is not None
        for finding in one.report.findings
        if finding.migration
    ]
    assert ("value-widened", "widen") in repaired
    for code, change in repaired:
        (row,) = (line for line in sections[code].splitlines() if line.startswith("| `after_migration` | as above"))
        assert f"`{change}`" in row
        assert "ttlsnap migrate CHECKPOINT --from OLD --to NEW" in row
