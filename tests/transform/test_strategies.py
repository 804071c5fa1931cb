"""Strategies for lists: a transformer sees every value, or only the values up to the first kept one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttlsnap import CollectionStrategy, Drop, Keep, LocalEngine, Replace, compact, inspect
from ttlsnap.checkpoint import open_checkpoint
from ttlsnap.entries.batch import StateEntries
from ttlsnap.errors import UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.storage.open import open_directory
from ttlsnap.transform.protocols import EntryTransformerFactory, Verdict
from ttlsnap.transformers import TtlTransformerFactory
from ttlsnap.transformers.registry import load_factory

from ..consistency import check_links
from ..samples import sample

ALL, STOP = CollectionStrategy.TRANSFORM_ALL, CollectionStrategy.STOP_ON_FIRST_INCLUDED
BEFORE = [[0, 10, 20, 30], [1, 11, 21, 31], [2, 12, 22], [3, 13, 23], [4, 14], [5, 15], [6], [7]]


def lists(target: Path) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for entry in inspect(str(target), entries=1000).samples or []:
        if entry["state"] == "numbers":
            found.setdefault(entry["key"]["key"], []).append(entry["value"]["number"])
    return sorted(found.values())


def no_even_tens(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Drop 0 to 9 and 20 to 29, keep 31, and double the others."""
    number = value["number"]
    if number // 10 % 2 == 0:
        return Drop()
    return Keep() if number == 31 else Replace({"number": 2 * number})


@pytest.mark.parametrize(
    ("strategy", "after"),
    [
        (ALL, [[20, 60], [22, 31], [24], [26], [28], [30]]),
        # Values after the first kept one are neither dropped nor doubled.
        (STOP, [[20, 20, 30], [22, 21, 31], [24, 22], [26, 23], [28], [30]]),
    ],
)
def test_the_strategy_decides_how_far_a_list_is_transformed(
    tmp_path: Path, strategy: CollectionStrategy, after: list[list[int]]
) -> None:
    target = sample("visits-4.2", tmp_path)
    assert lists(target) == BEFORE
    factory = EntryTransformerFactory(no_even_tens, strategy)
    options: dict[str, Any] = {
        "selection": Selection(state="numbers"),
        "engine": LocalEngine(1),
        "stopped": True,
        "max_drop": 1.0,
    }
    report = compact(str(target), [factory], **options)
    assert lists(target) == after
    assert report.totals.dropped == 20 - sum(map(len, after))
    assert check_links(open_checkpoint(open_directory(str(target))))


class Values:
    """A transformer that keeps numbers of at least ``least``."""

    def __init__(self, least: int, strategy: CollectionStrategy) -> None:
        self.least, self.strategy = least, strategy

    def create(self, *_: object) -> Values:
        return self

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        numbers = np.asarray(entries.column("value.number"))
        return entries.filter(numbers >= self.least)


MADE = Values(1, ALL)


def test_each_transformer_has_its_own_strategy(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    options: dict[str, Any] = {
        "selection": Selection(state="numbers"),
        "engine": LocalEngine(1),
        "stopped": True,
        "max_drop": 1.0,
    }
    compact(str(target), [EntryTransformerFactory(no_even_tens, STOP), Values(22, ALL)], **options)
    assert lists(target) == [[22, 31], [24, 22], [26, 23], [28], [30], [30]]


def test_the_strategy_is_set_by_an_option() -> None:
    options = {"ttl": "1h", "timestamp": "value.seen:s", "strategy": "stop_on_first_included"}
    made = load_factory("ttl", options)
    assert isinstance(made, TtlTransformerFactory)
    assert made.strategy is STOP
    function = load_factory(f"{__name__}:no_even_tens", {"strategy": "STOP_ON_FIRST_INCLUDED"})
    assert isinstance(function, EntryTransformerFactory)
    assert function.strategy is STOP
    with pytest.raises(UsageError, match="strategy is TRANSFORM_ALL or STOP_ON_FIRST_INCLUDED, not 'first'"):
        load_factory("ttl", {"strategy": "first"})
    told = r"whose only option is strategy \(TRANSFORM_ALL or STOP_ON_FIRST_INCLUDED\), not other\. A factory"
    with pytest.raises(UsageError, match=told):
        load_factory(f"{__name__}:no_even_tens", {"other": "1", "strategy": "TRANSFORM_ALL"})
    for name in ("Values", "MADE"):
        with pytest.raises(UsageError, match="takes no options: it has no from_options"):
            load_factory(f"{__name__}:{name}", {"strategy": "TRANSFORM_ALL"})
