"""``inspect --sizes`` against an independent count of the stored bytes and of the exported rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from ttlsnap import compact, inspect, migrate
from ttlsnap.clock import iso
from ttlsnap.operators.registry import Selection
from ttlsnap.reading.inspected import Inspection
from ttlsnap.reading.partition_sizes import Largest
from ttlsnap.reading.sizes import Sizes, StateSizes
from ttlsnap.stores.protocols import StoredSizes
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration
from ttlsnap.unsaferow.rows import Rows

from ..publishing.trees import tree
from ..samples import COMPACTABLE, SAMPLES, sample
from .raw import exported_rows, nearest_rank, raw_pairs

ALL = sorted(path.name for path in SAMPLES.iterdir() if (path / "offsets").exists())
NOW = "2026-11-21T09:00:00Z"


def measured(target: Path, **options: Any) -> Sizes:
    found = inspect(str(target), sizes=True, **options).sizes
    assert found is not None
    return found


def place(state: StateSizes) -> tuple[int, str, str]:
    return state.operator, state.store, state.state


def is_list(found: Inspection, state: StateSizes) -> bool:
    described = found.state(*place(state)).descriptor
    return described is not None and described.lists


def rule(ttl: str, timestamp: str | None) -> TtlTransformerFactory:
    return TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), timestamp)


@pytest.mark.parametrize("name", ALL)
def test_bytes_and_percentiles_are_those_of_a_count_of_raw_entries(name: str) -> None:
    target = SAMPLES / name
    before, wanted = tree(target), raw_pairs(target)
    found = inspect(str(target), sizes=True, parallelism=2)
    sizes = found.sizes
    assert sizes is not None and sizes.is_complete
    assert {place(state) for state in sizes.states} == wanted.keys()
    for state in sizes.states:
        pairs = wanted[place(state)]
        for part in state.parts:
            mine = pairs[part.partition]
            assert part.stored_keys == len(mine)
            assert (part.key_bytes, part.value_bytes) == tuple(sum(len(pair[i]) for pair in mine) for i in (0, 1))
            assert is_list(found, state) or part.entries == len(mine)
        every = [pair for mine in pairs.values() for pair in mine]
        if not every:
            assert state.keys.highest is None and state.largest == ()
            continue
        document = state.to_json()
        bytes_of = [sum(len(key) + len(value) for key, value in pairs[part.partition]) for part in state.parts]
        assert document["skew_bytes"] == (round(max(bytes_of) / median(bytes_of), 2) if median(bytes_of) else None)
        assert document["bytes"] == sum(bytes_of)
        lists = is_list(found, state)
        for shown, lengths in (
            (document["key_sizes"], [len(key) for key, _ in every]),
            (document["value_sizes"], [len(value) for _, value in every]),
        ):
            if not lists or shown is document["key_sizes"]:
                assert shown["max"] == max(lengths)
                assert [shown[f"p{p}"] for p in (50, 90, 99)] == [nearest_rank(lengths, p) for p in (50, 90, 99)]
        if not lists:
            largest = sorted((len(key) + len(value) for key, value in every), reverse=True)[:5]
            assert [entry.bytes for entry in state.largest] == largest
    assert tree(target) == before


@pytest.mark.parametrize("name", [name for name in ALL if name != "no-schema-3.0"])
def test_entries_and_rows_by_key_are_those_of_an_export(name: str) -> None:
    target = SAMPLES / name
    rows = exported_rows(target)
    found = inspect(str(target), sizes=True)
    assert found.sizes is not None
    for state in found.sizes.states:
        described = found.state(*place(state)).descriptor
        if described is None or described.opaque or state.role == "derived":
            assert state.with_rows is None
            continue
        if described.unused:
            continue  # an export leaves it out
        mine = rows[described.table]
        assert state.entries == state.entries_read == len(mine)
        counts = Counter(row["partition"] for row in mine)
        assert {part.partition: part.entries for part in state.parts if part.entries} == counts
        keys: list[Any] = [row.get("key") for row in mine]
        if described.grouping_without_last and described.kind != "row":  # a session has its start in the key
            keys = [{column: key[column] for column in [*key][:-1]} for key in keys]
        by_key = Counter(json.dumps(key) for key in keys)
        if state.with_rows is None:
            assert set(by_key.values()) <= {1}
            continue
        assert [key.rows for key in state.with_rows] == [count for _, count in by_key.most_common(5)]
        for key in state.with_rows:
            assert by_key[json.dumps(key.key)] == key.rows


def test_the_bytes_of_a_key_with_many_rows_are_those_of_all_its_rows() -> None:
    (left, _) = [s for s in measured(SAMPLES / "join-format4-4.2").states if s.role == "primary"]
    wanted: defaultdict[int, int] = defaultdict(int)
    for partition in raw_pairs(SAMPLES / "join-format4-4.2")[place(left)].values():
        for key, value in partition:
            wanted[hash(key[:-8])] += len(key) + len(value)  # the time is last, and not what the query joins by
    assert left.with_rows is not None
    assert sorted(key.bytes for key in left.with_rows) == sorted(wanted.values())
    assert max(key.rows for key in left.with_rows) > 1


@pytest.mark.parametrize(("name", "field"), COMPACTABLE.items())
def test_a_rule_frees_what_a_dry_run_drops(name: str, field: str) -> None:
    target = str(SAMPLES / name)
    dropped = compact(target, [rule("7d", field)], now=NOW, dry_run=True)
    found = measured(SAMPLES / name, rule=rule("7d", field), timestamp=field, now=NOW)
    outcomes = {place(state): state.rule for state in found.states}
    for report in dropped.states:
        outcome = outcomes[report.state.operator, report.state.store, report.state.state]
        assert outcome is not None
        reason, _, hint = (outcome.left_alone or "").partition(". With --variables follow, ")
        assert (reason or None) == report.left_alone or report.state.role == "derived"
        assert bool(hint) is (name == "visits-4.2" and report.state.state == "numbers")
        if report.state.role == "primary":
            assert outcome.freed.entries == report.counts.dropped
    assert found.rule == f"ttl 7d by {field}"


@pytest.mark.parametrize(
    "name", ["agg-deltas-lz4-4.2", "rocksdb-4.2", "agg-rowchecksum-deletes-4.2", "visits-4.2", "lists-4.2"]
)
def test_a_run_frees_the_bytes_that_were_announced(tmp_path: Path, name: str) -> None:
    field = COMPACTABLE.get(name)
    target, factory = sample(name, tmp_path), rule("1h", field)
    times = [state.ages.newest_us for state in measured(target, timestamp=field).states if state.ages is not None]
    # The newest entries of all expire a moment later, except in the sample in which all have one time.
    now = str(iso(max(filter(None, times)) + 3_600_000_000 - (name != "lists-4.2")))
    before = measured(target, rule=factory, timestamp=field, now=now)
    compact(str(target), [factory], now=now, stopped=True, max_drop=1.0)
    after = {place(state): state for state in measured(target).states}
    announced = 0
    for state in before.states:
        if state.rule is None or state.rule.left_alone is not None:
            continue
        left = after[place(state)]
        announced += state.rule.freed.entries
        assert state.entries_read - left.entries_read == state.rule.freed.entries
        assert state.bytes_read - left.bytes_read == state.rule.freed.bytes
    assert announced > 0


def test_the_largest_entries_are_found_in_all_batches() -> None:
    random = np.random.default_rng(3)
    found = Largest(5)
    every: list[tuple[int, bytes, int, int]] = []
    for _ in range(30):
        keys, values = random.integers(1, 500, 40), random.integers(0, 20_000, 40)
        rows = Rows.of([bytes([size % 251]) * size for size in keys.tolist()])
        found.add(rows, StoredSizes(keys, values, values), keys + values)
        every += zip((keys + values).tolist(), rows.to_list(), keys.tolist(), values.tolist(), strict=True)
    wanted = sorted(every, key=lambda entry: -entry[0])[:5]
    assert found.found == [(key, key_size, value_size, size) for size, key, key_size, value_size in wanted]


def test_linked_states_name_what_follows() -> None:
    found = measured(SAMPLES / "join-4.2", rule=rule("1h", None), now="2026-11-30T00:00:00Z")
    outcomes = {state.store: state.rule for state in found.states}
    left = outcomes["left-keyWithIndexToValue"]
    assert left is not None and left.freed.entries > 0
    assert left.followers == ("0.left-keyToNumValues.default",)
    counts = outcomes["left-keyToNumValues"]
    assert counts is not None and counts.left_alone == "it is derived from other entries, and follows them"


@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "rocksdb-ids-4.2"])
def test_ages_are_those_of_the_exported_rows(name: str) -> None:
    field = COMPACTABLE[name]
    (state,) = [s for s in measured(SAMPLES / name, timestamp=field, now=NOW).states if s.role == "primary"]
    (rows,) = exported_rows(SAMPLES / name, timestamp=field, now=NOW).values()
    ages = [row["age_seconds"] for row in rows if row["age_seconds"] is not None and row["age_seconds"] >= 0]
    assert state.ages is not None and ages
    document = state.ages.to_sizes_json()
    assert state.ages.future == sum(row["age_seconds"] < 0 for row in rows)
    assert document["seconds"]["max"] == max(ages)
    for percent in (50, 90, 99):
        exact = nearest_rank(ages, percent)
        assert exact <= document["seconds"][f"p{percent}"] <= exact * 1.004 + 1
    below = 0
    for bucket in document["buckets"]:
        below += bucket["entries"]
        if bucket["up_to_seconds"] is not None:
            # A bucket ends at a whole second; the exported age is rounded down.
            at_most = sum(age < bucket["up_to_seconds"] for age in ages)
            assert at_most <= below <= sum(age <= bucket["up_to_seconds"] for age in ages)
    assert below == len(ages)
    assert sum(bucket["bytes"] for bucket in document["buckets"]) == state.bytes_read - _bytes_of_future(state)


def _bytes_of_future(state: StateSizes) -> int:
    """Return the bytes of entries in the future, in a state whose entries all have the same size."""
    assert state.keys.percentile(1) == state.keys.highest and state.values.percentile(1) == state.values.highest
    assert state.ages is not None
    return state.ages.future * ((state.keys.highest or 0) + (state.values.highest or 0))


def test_the_histogram_has_a_bucket_that_ends_at_the_ttl() -> None:
    found = measured(SAMPLES / "agg-deltas-lz4-4.2", rule=rule("11d", "value.max"), timestamp="value.max", now=NOW)
    (state,) = found.states
    assert state.ages is not None and state.rule is not None
    document = state.ages.to_sizes_json()
    assert document["cutoff_seconds"] == 11 * 86_400
    older = [b for b in document["buckets"] if b["up_to_seconds"] is None or b["up_to_seconds"] > 11 * 86_400]
    assert sum(bucket["entries"] for bucket in older) == state.rule.freed.entries > 0
    assert sum(bucket["bytes"] for bucket in older) == state.rule.freed.bytes


@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "rocksdb-4.2"])
def test_a_sample_has_whole_partitions_and_says_so(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    migrate(str(target), partitions=12, stopped=True)
    whole = measured(target)
    (state,) = whole.states
    exact = {part.partition: (part.entries, part.bytes) for part in state.parts}
    found = inspect(str(target), sizes=True, sample=whole.file_bytes // 3 + 1)
    sizes = found.sizes
    assert sizes is not None and not sizes.is_complete
    (part_of,) = sizes.states
    assert len(part_of.parts) == 4
    assert {part.partition: (part.entries, part.bytes) for part in part_of.parts}.items() <= exact.items()
    assert 0.2 < sizes.share < 0.5
    assert abs(part_of.estimated_bytes - state.bytes_read) < state.bytes_read / 4
    document = sizes.to_json()
    assert document["complete"] is False and document["states"][0]["bytes"] is None
    assert document["states"][0]["skew"] is None and document["stores"][0]["skew"] is not None
    assert [each["read"] for each in document["stores"][0]["partitions"]].count(True) == 4
    # A snapshot of RocksDB has the exact number of entries.
    known = state.entries if name.startswith("rocksdb") else None
    assert part_of.entries == known
    assert found.states()[0].entries == known
    if known is not None:
        assert part_of.estimated_bytes == round(part_of.bytes_read * known / part_of.entries_read)
    (least,) = measured(target, sample=1).states
    assert len(least.parts) == 1


def test_only_the_selected_states_are_measured() -> None:
    found = measured(SAMPLES / "alarms-4.2", selection=Selection(state="counts"))
    assert [str(state) for state in found.states] == ["0.default.counts"]
    assert found.states[0].entries == 6
    # The files count all states together.
    assert found.growth.batches[-1].stored_keys == 26


def test_both_ways_of_asking_give_the_same_ages() -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    alone = inspect(target, age=True, timestamp="value.max", now=NOW)
    together = inspect(target, age=True, sizes=True, entries=2, timestamp="value.max", now=NOW, sample=1)
    assert alone.sizes is None and together.sizes is not None and together.sizes.is_complete
    assert alone.states()[0].age == together.states()[0].age
    assert alone.states()[0].entries == together.states()[0].entries == 480
    assert together.samples is not None and len(together.samples) == 2
    age = alone.states()[0].age
    assert age is not None
    (rows,) = exported_rows(Path(target), timestamp="value.max", now=NOW).values()
    for bucket, days in (("1d", 1), ("30d", 30)):
        counted = sum(row["age_seconds"] < days * 86_400 for row in rows)
        ends = [b["up_to"] for b in age["buckets"]].index(bucket)
        assert sum(b["entries"] for b in age["buckets"][: ends + 1]) == counted
