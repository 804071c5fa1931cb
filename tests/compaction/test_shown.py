"""``compact --show N``: the first entries that a run drops or rewrites, with the time and the rule that decided."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ttlsnap import Clock, LocalEngine, StateDescriptor, StateEntries, compact, inspect
from ttlsnap.cli.app import run
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..samples import SAMPLES, sample

AGG, JOIN = str(SAMPLES / "agg-deltas-lz4-4.2"), str(SAMPLES / "join-4.2")
NOW = "2026-11-21T09:00:00Z"
DAY = 86_400_000_000
WEEK = TtlTransformerFactory(StateTtlConfig(7 * DAY), timestamp="value.max")


@dataclass(frozen=True)
class CountsDoubled:
    """A factory of transformers that double the counts above 2."""

    def create(self, state: StateDescriptor, clock: Clock) -> CountsDoubled:
        return self

    def filter_or_transform(self, entries: StateEntries) -> StateEntries:
        values = entries.value_structs
        where = np.asarray(pc.greater(values.field("count"), 2))
        counts = pc.multiply(values.field("count"), 2)
        new = pa.StructArray.from_arrays([values.field(0), counts, values.field(2)], values.type.names)
        return entries.replace_values(new.filter(pa.array(where)), where)


def every_entry(target: str) -> dict[str, Mapping[str, Any]]:
    """Return all entries by their keys."""
    return {json.dumps(entry["key"]): entry for entry in inspect(target, entries=10_000).samples or ()}


@pytest.mark.parametrize("show", [0, 1, 7, 10_000])
def test_dropped_entries_are_shown(show: int) -> None:
    report = compact(AGG, [WEEK], now=NOW, dry_run=True, show=show)
    assert len(report.shown) == min(show, report.totals.dropped)
    entries = every_entry(AGG)
    for shown in report.shown:
        entry = entries[json.dumps(shown["key"])]
        assert (shown["change"], shown["value"]) == ("dropped", entry["value"])
        assert shown["partition"] == entry["partition"]
        assert shown["time"].replace("T", " ")[:19] == entry["value"]["max"][:19] < "2026-11-14 09:00:00"
        assert shown["rule"] == report.rules[0]
    if show > report.totals.dropped:
        assert len({json.dumps(shown["key"]) for shown in report.shown}) == report.totals.dropped


def test_rewritten_entries_are_shown_with_the_rule_that_decided() -> None:
    report = compact(AGG, [CountsDoubled(), WEEK], now=NOW, dry_run=True, show=10_000, engine=LocalEngine(1))
    changes = [shown["change"] for shown in report.shown]
    # An entry that is rewritten and then dropped is shown twice.
    assert changes.count("dropped") == report.totals.dropped
    assert changes.count("rewritten") > report.totals.rewritten > 0
    for shown in report.shown:
        if shown["change"] == "rewritten":
            assert shown["rule"] == report.rules[0]
            assert shown["new_value"] == {**shown["value"], "count": 2 * shown["value"]["count"]}
            assert shown["time"] is None
        else:
            assert shown["rule"] == report.rules[1]
            assert "new_value" not in shown


def test_rows_of_a_join_are_shown_without_what_is_derived() -> None:
    rule = TtlTransformerFactory(StateTtlConfig(3600 * 1_000_000))
    report = compact(JOIN, [rule], now="2026-11-20", dry_run=True, drop_unmatched=True, show=1000)
    assert {shown["store"] for shown in report.shown} == {"left-keyWithIndexToValue", "right-keyWithIndexToValue"}
    assert len(report.shown) == report.totals.dropped
    assert all("index" not in shown["key"] for shown in report.shown)


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(sample("agg-deltas-lz4-4.2", tmp_path))
    words = ["compact", target, "--ttl", "7d", "--timestamp", "value.max", "--now", NOW, "--stopped", "--yes"]
    assert run([*words, "--dry-run", "--show", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("dropped in")]
    assert len(lines) == 2
    assert lines[0].startswith('dropped in operator 0, partition 0: key {"key": "user-')
    assert lines[0].endswith("by rule: ttl 7d by value.max")
    assert run([*words, "--show", "1", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["shown"]) == 1 and document["published"]
