"""The ages of a run with a page: they add up to what the run counts and drops, and are those of ``inspect --sizes``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ttlsnap import Clock, StateDescriptor, StateEntries, compact, inspect
from ttlsnap.cli.app import run
from ttlsnap.entries.ages import AgeBuckets, AgeCounts
from ttlsnap.errors import TransformerError
from ttlsnap.schema.units import parse_duration
from ttlsnap.transform.chain import StateResult
from ttlsnap.transform.protocols import TimeSummary, Transformer, TransformerFactory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.unsaferow.gather import Int64s, Mask

from ..samples import SAMPLES, sample

NOW = "2026-11-21T09:00:00Z"
PREFIXES = """
[[target]]
path = "agg-deltas-lz4-4.2"
[[target.rule]]
key_prefix = "user-00"
ttl = "7d"
timestamp = "value.max"
[[target.rule]]
key_prefix = "user-02"
ttl = "14d"
timestamp = "value.max"
"""


def week(timestamp: str | None, ttl: str = "7d") -> TtlTransformerFactory:
    return TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp)


@dataclass(frozen=True)
class TimesFail(TransformerFactory):
    """A factory of transformers that keep all entries, and cannot name their times."""

    def create(self, state: StateDescriptor, clock: Clock) -> Transformer:
        class Failing(Transformer):
            def filter_or_transform(self, entries: StateEntries) -> StateEntries:
                return entries

            def time_summary(self) -> TimeSummary:
                return TimeSummary("value.max", 0, None, None, 0)

            def moments(self, entries: StateEntries) -> tuple[Int64s, Mask]:
                raise ValueError("no times")

        return Failing()


def expired(ages: dict[str, Any]) -> int:
    """Return how many entries are beyond the cut-off."""
    return sum(
        bucket["entries"]
        for bucket in ages["buckets"]
        if bucket["up_to_seconds"] is None or bucket["up_to_seconds"] > ages["cutoff_seconds"]
    )


@pytest.mark.parametrize(
    ("name", "factory", "now"),
    [
        ("agg-deltas-lz4-4.2", week("value.max"), NOW),
        ("agg-deltas-lz4-4.2", week("value.max", "100d"), NOW),
        ("rocksdb-4.2", week("value.max", "1d"), NOW),
        ("join-format4-4.2", week(None, "1d"), "2026-11-16T00:00:00Z"),
        ("window-append-snappy-4.0", TtlTransformerFactory(), "checkpoint"),
        ("dedup-within-4.2", TtlTransformerFactory(), "checkpoint"),
        ("dedup-columns-3.1", week("@written", "1s"), "checkpoint"),
        ("visits-4.2", week("value.seen:s"), NOW),
    ],
)
def test_the_ages_add_up_to_what_is_kept_and_dropped(name: str, factory: TtlTransformerFactory, now: str) -> None:
    report = compact(str(SAMPLES / name), [factory], now=now, dry_run=True, drop_unmatched=True, ages=True).to_json()
    counted = [state for state in report["stores"] if "ages" in state]
    primary = [state for state in report["stores"] if state["role"] == "primary" and not state["left_alone"]]
    assert counted == primary and any(state["entries"] for state in counted)
    for state in counted:
        ages = state["ages"]
        entries = sum(bucket["entries"] for bucket in ages["buckets"]) + ages["future"] + ages["null"]
        assert (entries, expired(ages)) == (state["entries"], state["dropped"])
        assert ages["null"] == state["null_timestamps"]


def test_the_ages_are_those_of_inspect(tmp_path: Path) -> None:
    target, rule = str(SAMPLES / "agg-deltas-lz4-4.2"), week("value.max")
    (state,) = compact(target, [rule], now=NOW, dry_run=True, ages=True).to_json()["stores"]
    (measured,) = inspect(target, sizes=True, rule=rule, now=NOW).to_json()["sizes"]["states"]
    ages = measured["ages"]
    for bucket in ages["buckets"]:
        del bucket["bytes"]
    assert state["ages"] == {name: ages[name] for name in state["ages"]}


def test_ages_are_counted_only_for_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample("agg-deltas-lz4-4.2", tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ["compact", "agg-deltas-lz4-4.2", "--ttl", "7d", "--timestamp", "value.max", "--now", NOW, "--dry-run"]
    documents = []
    for more in ([], ["--report", "html=page.html"]):
        assert run([*words, "--format", "json", "--engine", "local", *more]) == 0
        documents.append(json.loads(capsys.readouterr().out)["stores"][0])
    assert "ages" not in documents[0] and expired(documents[1]["ages"]) == documents[1]["dropped"] == 369


def test_rules_for_parts_of_the_keys_count_each_entry_once_and_have_no_common_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample("agg-deltas-lz4-4.2", tmp_path)
    (tmp_path / "policy.toml").write_text(PREFIXES)
    monkeypatch.chdir(tmp_path)
    words = ["maintain", "policy.toml", "--plan", "--engine", "local", "--format", "json"]
    assert run([*words, "--report", "html=page.html"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    ages = target["stores"][0]["ages"]
    entries = inspect(str(tmp_path / "agg-deltas-lz4-4.2"), entries=1000).samples or ()
    seen = sum(entry["key"]["key"].startswith(("user-00", "user-02")) for entry in entries)
    assert 0 < seen < len(entries)
    assert sum(bucket["entries"] for bucket in ages["buckets"]) == seen
    assert ages["cutoff_seconds"] is None


def test_two_rules_for_all_entries_count_each_entry_once() -> None:
    rules = [week("value.max"), week("value.max", "1d")]
    report = compact(str(SAMPLES / "agg-deltas-lz4-4.2"), rules, now=NOW, dry_run=True, ages=True, max_drop=1.0)
    ages = report.to_json()["stores"][0]["ages"]
    assert sum(bucket["entries"] for bucket in ages["buckets"]) == 480
    assert ages["cutoff_seconds"] is None


def test_results_with_ages_come_back_from_spark() -> None:
    counts = AgeCounts.of(AgeBuckets(10**15, 7), pa.array([1, 10**15 - 8, 10**15 + 1]).to_numpy())
    result = StateResult("default", 3, 3, ages=counts)
    assert StateResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert (counts.future, sum(counts.entries)) == (1, 2)


def test_parts_whose_rules_end_at_different_ages_have_no_common_ages() -> None:
    parts = [AgeCounts.of(AgeBuckets(10**15, age), pa.array([1]).to_numpy()) for age in (7, 7, 8)]
    merged = AgeCounts.merged(parts[:2])
    assert merged is not None and sum(merged.entries) == 2
    assert AgeCounts.merged(parts) is None


def test_a_transformer_that_cannot_name_its_times_fails_with_its_name() -> None:
    with pytest.raises(TransformerError, match=r"operator 0.*raised ValueError at test_ages.py:\d+: no times"):
        compact(str(SAMPLES / "agg-deltas-lz4-4.2"), [TimesFail()], now=NOW, dry_run=True, ages=True)
