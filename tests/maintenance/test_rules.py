"""Rules on a checkpoint leave the same entries as the same rules in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttlsnap import compact
from ttlsnap.clock import iso
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import UsageError
from ttlsnap.maintenance.policy import PolicyRule, read_policy
from ttlsnap.maintenance.rules import find_rotation, rule_factories
from ttlsnap.operators.registry import AnyOf
from ttlsnap.reading.inspect import inspect
from ttlsnap.transformers import expired

from ..samples import sample
from .rewriting import halved, small

Entries = dict[tuple[str, str], list[Any]]
HALVED, SMALL = (f"{function.__module__}:{function.__name__}" for function in (halved, small))


def entries(target: Path) -> Entries:
    """Return all values by state and key."""
    found: Entries = {}
    for entry in inspect(str(target), entries=10**6).samples or []:
        found.setdefault((entry["state"], entry["key"]["key"]), []).append(entry["value"])
    return found


def rules(folder: Path, text: str) -> tuple[PolicyRule, ...]:
    path = folder / "policy.toml"
    path.write_text(f'[[target]]\npath = "x"\n{text}')
    (target,) = read_policy(str(path)).targets
    return target.rules


def run(target: Path, folder: Path, text: str) -> CompactionReport:
    found = rules(folder, text)
    selection = AnyOf(tuple(rule.selection for rule in found), rules=tuple(rule.name for rule in found))
    return compact(str(target), rule_factories(found), selection=selection, stopped=True, max_drop=1.0)


def after(before: Entries, decide: Callable[[str, str, Any], Any]) -> Entries:
    """Return the values that ``decide`` returns for the state, key and value of each entry. None drops the entry."""
    left = {place: [decide(*place, value) for value in values] for place, values in before.items()}
    return {place: kept for place, values in left.items() if (kept := [value for value in values if value is not None])}


@pytest.mark.parametrize(
    ("name", "spared", "rewritten", "now"),
    [
        ("agg-deltas-lz4-4.2", "user-01", "user-0", datetime(2026, 11, 1)),
        ("agg-deltas-lz4-4.2", "user-00", "user-02", datetime(2026, 11, 1)),
        ("rocksdb-4.2", "key-1", "key-2", datetime(2026, 11, 30)),
    ],
)
def test_the_first_rule_that_matches_an_entry_decides(
    tmp_path: Path, name: str, spared: str, rewritten: str, now: datetime
) -> None:
    target = sample(name, tmp_path)
    before = entries(target)
    text = f"""
[[target.rule]]
key_prefix = "{spared}"
ttl = "365d"
timestamp = "value.max"
[[target.rule]]
key_prefix = "{rewritten}"
transformer = "{HALVED}"
[[target.rule]]
ttl = "6d"
timestamp = "value.max"
now = "{now.isoformat()}Z"
"""
    with pytest.raises(
        UsageError, match=r"target 1, rule 4: .* has nothing that matches operator = 1; it has 0.default"
    ):
        run(target, tmp_path, f"{text}[[target.rule]]\noperator = 1\n")
    run(target, tmp_path, text)

    def decide(state: str, key: str, value: Any) -> Any:
        if key.startswith(spared):
            return value
        if key.startswith(rewritten):
            if value["sum"] % 10 == 0:
                return None
            return {**value, "sum": value["sum"] // 2} if value["sum"] % 2 else value
        return None if datetime.fromisoformat(value["max"]) + timedelta(days=6) <= now else value

    wanted = after(before, decide)
    assert entries(target) == wanted
    assert any(place not in wanted for place in before)
    assert any(before[place] != values for place, values in wanted.items())


def test_rules_apply_only_to_their_own_state(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    before = entries(target)
    report = run(
        target,
        tmp_path,
        """
[[target.rule]]
state = "last"
key_prefix = ["key-0"]
ttl = "1s"
timestamp = "value.seen:s"
now = "2100-01-01"
[[target.rule]]
state = "last"
ttl = "100000d"
timestamp = "value.seen:s"
""",
    )
    wanted = after(before, lambda state, key, value: None if (state, key) == ("last", "key-0") else value)
    assert entries(target) == wanted != before
    left_alone = {state.state.state: state.left_alone for state in report.states}
    assert left_alone["last"] is None


def test_a_rule_selects_lists_by_their_key(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    before = entries(target)
    text = f"""
[[target.rule]]
state = "numbers"
key_prefix = "key-2"
transformer = "{SMALL}"
"""
    run(target, tmp_path, text)

    def decide(state: str, key: str, value: Any) -> Any:
        return None if (state, key) == ("numbers", "key-2") and value["number"] < 10 else value

    assert entries(target) == after(before, decide) != before


@pytest.mark.parametrize(
    ("prefix", "told"),
    [
        ("[1]", r"key_prefix: 1 does not fit key\.key of operator 0 .*, a string"),
        ('["a", "b"]', r"key_prefix has 2 values, and the key of operator 0 .* 1 column"),
        ("[true]", "key_prefix: True does not fit key"),
    ],
)
def test_a_prefix_that_does_not_fit_the_key_is_an_error(tmp_path: Path, prefix: str, told: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    rule = f'[[target.rule]]\nttl = "1d"\ntimestamp = "value.max"\nkey_prefix = {prefix}\n'
    with pytest.raises(UsageError, match=told):
        run(target, tmp_path, rule)


@given(st.integers(2, 12), st.integers(1, 10**6), st.integers(-(10**12), 10**12), st.integers(0, 4 * 10**6))
def test_buckets_expire_entries_like_the_rotating_map_of_storm(buckets: int, width: int, born: int, age: int) -> None:
    # An entry lives for at least a ttl and less than one bucket more. A dropped entry never comes back.
    ttl, now = width * (buckets - 1), born + age

    def gone(now: int) -> bool:
        return bool(expired(np.array([born]), ttl, find_rotation(now, width))[0])

    assert not gone(now) or age >= ttl
    assert gone(now) or age < ttl + width
    # As in a RotatingMap with n buckets, the n-th rotation drops the entry.
    assert gone(now) == (now // width - born // width >= buckets)
    assert gone(now) <= gone(now + width)


def test_the_clock_of_a_rule_with_buckets_advances_only_at_rotations(tmp_path: Path) -> None:
    text = '[[target.rule]]\nttl = "6d"\nbuckets = 4\nstrategy = "rotating"\ntimestamp = "value.max"\nnow = "{}"\n'
    reports = [
        compact(
            str(sample("agg-deltas-lz4-4.2", tmp_path / str(n))),
            rule_factories(rules(tmp_path, text.format(now))),
            dry_run=True,
        )
        for n, now in enumerate(("2026-11-01T00:00:00Z", "2026-11-02T23:00:00Z", "2026-11-03T00:00:00Z"))
    ]
    gone = [report.totals.dropped for report in reports]
    assert 0 < gone[0] == gone[1] < gone[2]
    assert [iso(report.now_us) for report in reports[:2]] == ["2026-10-31T23:59:59.999999Z"] * 2


@pytest.mark.parametrize(
    ("more", "has_cutoff"),
    [("", True), ('[[target.rule]]\nkey_prefix = "user-00"\nttl = "14d"\ntimestamp = "value.max"\n', False)],
)
def test_a_report_has_a_cutoff_only_if_it_is_that_of_all_entries(more: str, has_cutoff: bool, tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (state,) = run(target, tmp_path, f'{more}[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n').states
    assert state.now_us is not None and state.counts.dropped
    assert state.cutoff_us == (state.now_us - 7 * 24 * 3_600_000_000 if has_cutoff else None)
