"""The checker against real Spark, over all pairs: how often it is wrong, and that the docs say so."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from ttlsnap.check import Verdict

from ..matrix import FULL
from . import processors, queries
from .pair import NEWEST
from .pairs import PAIRS
from .quality import KEPT, PAGE, document_of, figures, judged, page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

for _module in (processors, queries):
    register_pickle_by_value(_module)  # Spark's workers do not find this package


def test_nothing_that_breaks_is_called_as_is() -> None:
    assert [one.name for one in judged() if one.breaks and one.verdict is Verdict.AS_IS] == []


def test_it_does_not_cry_wolf() -> None:
    found = figures()
    assert found["that work"] >= 80
    assert found["that work, called anything else"] * 20 <= found["that work"]
    assert found["called unknown"] * 10 <= found["pairs"]


@pytest.mark.parametrize("name", [one.name for one in judged() if one.seen["change"] in ("nothing", "harmless")])
def test_what_changes_nothing_is_as_is(name: str) -> None:
    (one,) = (one for one in judged() if one.name == name)
    assert (one.verdict is Verdict.AS_IS) == one.works, one.codes


@pytest.mark.parametrize(
    "name",
    [name for name, pair in PAIRS.items() if pair.versions == (NEWEST, NEWEST)]
    if FULL
    else ["agg-min-to-max", "join-sides-same-types", "tws-ttl-on"],
)
def test_real_spark_makes_the_contracts_that_are_kept(spark: SparkSession, name: str) -> None:
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))
    for side, key in enumerate(kept["pairs"][name]):
        assert document_of(PAIRS[name], side, spark) == kept["contracts"][key]


def test_the_docs_have_the_table() -> None:
    assert PAGE.read_text() == page()
