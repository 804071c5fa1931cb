"""``ttlsnap explain`` agrees with ``compact --dry-run --show`` on every entry, and says why."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ttlsnap import (
    CollectionStrategy,
    CompactionReport,
    Drop,
    ExplainReport,
    Keep,
    LocalEngine,
    Replace,
    compact,
    explain,
    export,
    inspect,
)
from ttlsnap.cli.app import run
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.reading.explained_key import Key
from ttlsnap.schema.ddl import parse_ddl, parse_schemas
from ttlsnap.transform.protocols import EntryTransformerFactory, StateSnapshotTransformerFactory, Verdict
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..publishing.trees import tree
from ..samples import COMPACTABLE, SAMPLES, sample

HOUR = 3_600_000_000
ALL = 1_000_000
NO_SCHEMA = parse_schemas(["0.default='key STRING | max TIMESTAMP, count BIGINT NOT NULL, sum BIGINT'"])
Rules = Sequence[StateSnapshotTransformerFactory]


def some(key: dict[str, Any], value: dict[str, Any]) -> Verdict:
    """Drop a third of the entries, and write another third with equal values."""
    number = crc32(repr((sorted(map(str, key.items())), sorted(map(str, value.items())))).encode()) % 3
    return Drop() if number == 0 else Replace(value) if number == 1 else Keep()


def ttl(hours: int, timestamp: str | tuple[str, ...] | None = None, **options: Any) -> TtlTransformerFactory:
    return TtlTransformerFactory(StateTtlConfig(hours * HOUR), timestamp, **options)


SOME = EntryTransformerFactory(some)
SPARKS = TtlTransformerFactory()
FIRST = CollectionStrategy.STOP_ON_FIRST_INCLUDED
Case = tuple[str, Rules, dict[str, Any]]
ONE_RULE: list[Case] = [
    (name, [ttl(24 * 7, field)], {"now": "2026-11-21T09:00:00Z"}) for name, field in COMPACTABLE.items()
]
TWO_RULES: list[Case] = [(name, [ttl(24, field), SOME], {}) for name, field in list(COMPACTABLE.items())[::3]]
CASES: list[Case] = [
    *ONE_RULE,
    *TWO_RULES,
    ("join-4.2", [ttl(1)], {"now": "2026-11-20"}),
    ("join-4.2", [SOME], {}),
    ("join-4.2", [ttl(1, ("left:value.at",))], {"now": "2026-11-20"}),
    ("join-format4-4.2", [ttl(1)], {"now": "2026-11-20"}),
    ("join-outer-3.1", [ttl(1)], {"now": "2026-11-20"}),
    ("lists-4.2", [SPARKS], {"now": "2026-11-22T22:00:00Z"}),
    ("lists-4.2", [SOME], {}),
    ("lists-4.2", [EntryTransformerFactory(some, FIRST)], {}),
    ("alarms-4.2", [ttl(24, "value.seen:s")], {"now": "2026-11-21", "timers": "follow"}),
    ("alarms-4.2", [SOME], {"timers": "follow"}),
    ("alarms-4.2", [SOME], {}),
    ("alarms-4.2", [SPARKS], {}),
    ("visits-4.2", [SOME], {"selection": Selection(state="last")}),
    ("groups-3.1", [TtlTransformerFactory(StateTtlConfig(HOUR), "value.groupState.seen:ms")], {}),
    ("groups-format1-3.1", [SOME], {}),
    ("sessions-rocksdb-3.2", [SPARKS], {"now": "2027-01-01"}),
    ("limit-3.1", [SPARKS], {}),
    ("agg-namesake-3.1", [SOME], {}),
    ("no-schema-3.0", [ttl(24, "value.max")], {"schemas": NO_SCHEMA}),
    ("dedup-within-4.2", [SPARKS], {"now": "2027-01-01"}),
    ("agg-deltas-lz4-4.2", [ttl(1, "@written")], {"now": "2026-11-21T09:00:00Z"}),
    ("alarms-4.2", [ttl(1, "@written")], {"now": "2026-11-22"}),
]


def both(name: str, rules: Rules, options: dict[str, Any]) -> tuple[CompactionReport, ExplainReport]:
    target = str(SAMPLES / name)
    dry = compact(target, rules, dry_run=True, show=ALL, drop_unmatched=True, engine=LocalEngine(1), **options)
    return dry, explain(target, "{}", rules, show=ALL, **options)


def text(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True)


def change(entry: Any, decision: str, rule: Any, time: Any, new_value: Any) -> str:
    facts = [entry.get(name) for name in ("operator", "store", "state", "partition", "key", "map_key", "side", "value")]
    return text(facts, decision, rule, time, new_value)


@pytest.mark.parametrize(("name", "rules", "options"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_it_agrees_with_a_dry_run_about_every_entry(name: str, rules: Rules, options: dict[str, Any]) -> None:
    dry, report = both(name, rules, options)
    assert report.found == len(report.entries) > 0
    assert report.rules == dry.rules
    wanted = Counter(change(e, e["change"], e["rule"], e["time"], e.get("new_value")) for e in dry.shown)
    found = Counter(
        change(entry, rule["decision"], rule["rule"], rule.get("time"), rule.get("new_value"))
        for entry in report.entries
        for rule in entry["rules"]
        if rule["decision"] != "kept"
    )
    assert found == wanted
    for state in dry.states:
        if state.counts.entries is None:
            continue
        place = state.state.operator, state.state.store, state.state.state
        decided = Counter(e["decision"] for e in report.entries if (e["operator"], e["store"], e["state"]) == place)
        counts = {"kept": state.counts.kept, "dropped": state.counts.dropped, "rewritten": state.counts.rewritten}
        assert decided == Counter(counts), place
    untouched = {str(state.state): state.left_alone for state in dry.states if state.left_alone}
    for entry in report.entries:
        assert entry["reasons"] or entry["rules"]
        for reason in untouched.values():
            if not entry["rules"] and entry["role"] == "primary":
                assert entry["decision"] == "kept"
                assert any(reason in words for reason in untouched.values() for words in entry["reasons"]), reason


def test_the_cases_reach_every_decision_of_every_kind_of_state() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for name, rules, options in CASES:
        if name.startswith(("join", "lists", "alarms")):
            _, report = both(name, rules, options)
            seen.update((entry["role"], entry["decision"]) for entry in report.entries)
    assert all(seen[role, what] for role in ("primary", "derived") for what in ("kept", "dropped", "rewritten")), seen


def test_each_key_is_found_where_spark_places_it() -> None:
    """Of checkpoints that pin strict placement, only one partition is read."""
    for name, field in [("agg-deltas-lz4-4.2", "value.max"), ("rocksdb-4.2", "value.max"), ("dedup-within-4.2", None)]:
        target = str(SAMPLES / name)
        entries = inspect(target, entries=20).samples or []
        assert entries
        for entry in entries:
            report = explain(target, json.dumps(entry["key"]), [ttl(24, field)])
            assert [(found["key"], found["value"]) for found in report.entries] == [(entry["key"], entry["value"])]
            assert [one.to_json() for one in report.looked] == [
                {"operator": 0, "partitions": [entry["partition"]], "of": 2}
            ]


def test_an_old_checkpoint_is_read_whole_only_if_the_key_is_not_in_its_place() -> None:
    target = str(SAMPLES / "agg-namesake-3.1")
    entry = (inspect(target, entries=1).samples or [])[0]
    (looked,) = explain(target, json.dumps(entry["key"]), [SOME]).looked
    assert looked.partitions == (entry["partition"],) and looked.of > 1
    missing = {name: "nobody" if isinstance(value, str) else 77 for name, value in entry["key"].items()}
    report = explain(target, json.dumps(missing), [SOME])
    assert report.found == 0 and len(report.looked[0].partitions) == looked.of


def test_a_part_of_a_key_is_enough() -> None:
    target = str(SAMPLES / "window-append-snappy-4.0")
    everything = explain(target, "{}", [SPARKS], now="2026-11-18", show=ALL).entries
    window = everything[0]["key"]["window"]
    wanted = [entry for entry in everything if entry["key"]["window"]["start"] == window["start"]]
    for start in (window["start"], window["start"].replace(" ", "T") + "Z"):
        found = explain(target, json.dumps({"window": {"start": start}}), [SPARKS], now="2026-11-18", show=ALL)
        assert list(found.entries) == wanted
    assert 0 < len(wanted) < len(everything)


def test_all_states_of_a_key_are_explained() -> None:
    report = explain(str(SAMPLES / "alarms-4.2"), '"key-0"', [ttl(24, "value.seen:s")], timers="follow")
    states = [entry["state"] for entry in report.entries]
    assert {"last", "all", "counts", "$eventTimers_keyToTimestamp"} <= set(states)
    assert all(entry["key"] == {"key": "key-0"} for entry in report.entries)
    roles = [entry["role"] for entry in report.entries]
    assert roles == sorted(roles, reverse=True)  # derived entries come last


def reasons(report: ExplainReport) -> set[str]:
    return {reason for entry in report.entries for reason in entry["reasons"]}


def test_special_reasons_are_told() -> None:
    _, report = both("join-format4-4.2", [ttl(1)], {"now": "2026-11-20"})
    assert "it has not matched yet: compact refuses to drop such rows without --drop-unmatched" in reasons(report)
    for entry in report.entries:
        if entry["decision"] == "dropped" and entry["role"] == "primary":
            told = any("--drop-unmatched" in reason for reason in entry["reasons"])
            assert told == (entry["matched"] is False)
    _, report = both("alarms-4.2", [ttl(24, "value.seen:s")], {"now": "2026-11-21", "timers": "follow"})
    assert {"its key still has state", "nothing of its key is left for it"} <= reasons(report)
    following = {"now": "2026-11-20", "selection": Selection(state="last"), "variables": "follow"}
    dry, report = both("alarms-4.2", [ttl(24, "value.seen:s")], following)
    assert 0 < dry.totals.dropped < (dry.totals.entries or 0)
    assert {
        "with --variables follow: a rule drops all entries of its key that it sees",
        "with --variables follow: a rule keeps another entry of its key, or sees none of them",
    } <= reasons(report)
    _, report = both("lists-4.2", [EntryTransformerFactory(some, FIRST)], {})
    assert "the rule does not look at it: an earlier value of its list is kept" in reasons(report)
    dry, report = both("groups-3.1", [ttl(1, "value.groupState.seen:s")], {})
    fired = [entry for entry in report.entries if "its timeout has not fired, and never will" in entry["reasons"]]
    assert len(fired) == sum(state.unclosed for state in dry.states) > 0
    dry, report = both("window-append-snappy-4.0", [ttl(1, "key.window.end")], {"now": "2027-01-01"})
    ahead = [e for e in report.entries if any("append mode" in reason for reason in e["reasons"])]
    assert len(ahead) == sum(state.unclosed for state in dry.states) > 0
    dry, report = both("dedup-columns-3.1", [ttl(1, "@written")], {"now": "2026-11-30"})
    assert dry.totals.dropped and not any("append mode" in reason for reason in reasons(report))
    _, report = both("agg-deltas-lz4-4.2", [ttl(1, "value.max")], {"now": "2026-11-01"})
    future = [e for e in report.entries if "value.max is after the current time" in e["reasons"]]
    assert future and all(e["rules"][0]["age_seconds"] < 0 and e["decision"] == "kept" for e in future)
    dry, report = both("join-format4-4.2", [ttl(1, "@written")], {"now": "2026-11-29"})
    old = [e for e in report.entries if any("before the known history" in reason for reason in e["reasons"])]
    assert len(old) == sum(state.older for state in dry.states) > 0
    _, report = both("limit-3.1", [SPARKS], {})
    assert reasons(report) == {"no rule sees this state: the count of a global limit is never changed"}


def test_rows_that_may_be_dropped_before_they_match_are_told() -> None:
    target = str(SAMPLES / "join-format4-4.2")
    report = explain(target, "{}", [ttl(1)], now="2026-11-20", drop_unmatched=True, show=ALL)
    lost = [e for e in report.entries if "an outer join will never emit it" in " ".join(e["reasons"])]
    dry = compact(target, [ttl(1)], now="2026-11-20", drop_unmatched=True, dry_run=True, engine=LocalEngine(1))
    assert len(lost) == sum(state.unmatched for state in dry.states) > 0
    assert all(entry["decision"] == "dropped" and entry["matched"] is False for entry in lost)


def test_the_rules_of_a_policy_are_those_of_maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("agg-deltas-lz4-4.2", "join-format4-4.2"):
        sample(name, tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        """
        [[target]]
        path = "agg-*"
        [[target.rule]]
        key_prefix = "user-00"
        ttl = "28d"
        timestamp = "value.max"
        [[target.rule]]
        ttl = "7d"
        timestamp = "value.max"
        [[target]]
        path = "join-*"
        drop_unmatched = true
        now = "2026-11-20T00:00:00Z"
        ttl = "1h"
        [[target]]
        path = "."
        partitions = 3
        """
    )
    assert run(["maintain", str(policy), "--plan", "--format", "json"]) in (0, 2, 3)
    planned = {Path(one["target"]).name: one for one in json.loads(capsys.readouterr().out)["targets"]}
    for name in ("agg-deltas-lz4-4.2", "join-format4-4.2"):
        words = ["explain", str(tmp_path / name), "--policy", str(policy), "--show", str(ALL), "--format", "json"]
        assert run([*words, "--key", "{}"]) == 0
        entries = json.loads(capsys.readouterr().out)["entries"]
        for store in planned[name]["stores"]:
            place = [store[part] for part in ("operator", "store", "state")]
            found = Counter(e["decision"] for e in entries if [e[p] for p in ("operator", "store", "state")] == place)
            assert found["dropped"] == store["dropped"], place
        assert planned[name]["totals"]["dropped"] > 0
        for entry in entries if name.startswith("agg") else ():
            first, *rest = entry["rules"]
            is_first = entry["key"]["key"].startswith("user-00")
            assert first.get("applies", True) == is_first
            assert [rule.get("applies", True) for rule in rest] == [not is_first] * len(rest)
            assert not any("has no time" in reason for reason in entry["reasons"])


def test_a_rotating_rule_tells_the_last_rotation_and_the_one_that_drops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample("agg-deltas-lz4-4.2", tmp_path)
    policy = tmp_path / "policy.toml"
    rule = '[[target]]\npath = "agg-*"\nttl = "7d"\ntimestamp = "value.max"\nstrategy = "rotating"\nbuckets = 3\n'

    def explained(now: str) -> Any:
        policy.write_text(f'{rule}now = "{now}"\n')
        words = ["explain", str(tmp_path / "agg-deltas-lz4-4.2"), "--policy", str(policy), "--format", "json"]
        assert run([*words, "--key", '"user-0100"']) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["now_source"] == "given"
        return document["entries"][0]

    kept = explained("2026-11-22T11:00:00Z")
    (rule_of_key,) = kept["rules"]
    assert (kept["decision"], rule_of_key["rotation_seconds"]) == ("kept", 7 * 86_400 // 2)
    expires = rule_of_key["expires"]
    assert explained(expires)["decision"] == "dropped"
    before = datetime.fromisoformat(expires) - timedelta(microseconds=1)
    assert explained(before.isoformat())["decision"] == "kept"


def test_rules_come_from_the_policy_or_from_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    policy = tmp_path / "policy.toml"
    policy.write_text(f"[[target]]\npath = {str(tmp_path)!r}\npartitions = 3\n")
    words = ["explain", target, "--key", "{}", "--policy", str(policy)]
    assert run(words) == 2
    assert f"no target of {policy} matches {target}" in capsys.readouterr().err
    assert run(["explain", str(tmp_path), *words[2:]]) == 2
    assert f"target 1 of {policy} has no rules" in capsys.readouterr().err
    for option in (["--ttl", "7d"], ["--now", "wall"], ["--drop-unmatched"], ["--state", "default"]):
        assert run([*words, *option]) == 2
        assert f"{option[0]} cannot be used with --policy" in capsys.readouterr().err


def test_an_entry_without_a_time_is_kept() -> None:
    dry, report = both("dedup-watermark-4.2", [ttl(1, "key.at")], {"now": "2030-01-01"})
    without = [e for e in report.entries if e["rules"][0]["time"] is None]
    assert len(without) == sum(state.null_timestamps for state in dry.states)
    for entry in without:
        assert entry["decision"] == "kept"
        assert entry["reasons"] == ["key.at has no time, and an entry without a time is kept"]


def test_times_are_those_of_the_rule() -> None:
    rule = ttl(24 * 7, "value.max")
    report = explain(str(SAMPLES / "agg-deltas-lz4-4.2"), '"user-0034"', [rule], now="2026-11-21T09:00:00Z")
    (entry,) = report.entries
    assert (entry["decision"], entry["operator_name"]) == ("dropped", "stateStoreSave")
    assert entry["rules"] == [
        {
            "rule": "ttl 7d by value.max",
            "decision": "dropped",
            "time": "2026-10-23T23:10:33.000Z",
            "timestamp": "value.max",
            "timestamp_unit": None,
            "clock": "processing",
            "now": "2026-11-21T09:00:00.000Z",
            "age_seconds": 2454567,
            "cutoff": "2026-11-14T09:00:00.000Z",
            "expires": "2026-10-30T23:10:33.000Z",
        }
    ]


def test_keys_of_every_kind_are_found(tmp_path: Path) -> None:
    """The key of each entry that ``export`` writes leads to that entry."""
    for name in ("join-format4-4.2", "dedup-columns-3.1", "sessions-rocksdb-3.2", "groups-3.1", "lists-4.2"):
        target = str(SAMPLES / name)
        export(target, str(tmp_path / f"{name}.ndjson"))
        rows = [json.loads(line) for line in (tmp_path / f"{name}.ndjson").read_text().splitlines()]
        for row in rows[:: max(1, len(rows) // 8)]:
            report = explain(target, json.dumps(row["key"]), [SPARKS], now="2026-11-20", show=ALL)
            mine = [e for e in report.entries if e["role"] == "primary" and e["partition"] == row["partition"]]
            assert row["key"] in [entry["key"] for entry in mine], (name, row)
            assert all(entry["key"] == row["key"] for entry in mine)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("user-1", r"""is not JSON. Write an object such as .* or '"user-1"' for a key with one column"""),
        ('{"user": 1}', "has no key column user; it has key"),
        ('["a"]', "is a list"),
        ('{"key": {"a": 1}}', "column key: this is not a string"),
        ('{"key": "a", "key": "b"}', "names a column twice"),
        ("[" * 20_000, r"key \[{200}\.\.\. is not JSON"),
    ],
)
def test_a_wrong_key_is_told(key: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        explain(str(SAMPLES / "agg-deltas-lz4-4.2"), key, [SOME])


def test_every_key_that_is_shown_can_be_asked_for() -> None:
    target = str(SAMPLES / "join-format4-4.2")
    for entry in explain(target, "{}", [SPARKS], now="2026-11-20", show=ALL).entries:
        found = explain(target, json.dumps(entry["key"]), [SPARKS], now="2026-11-20", show=ALL).entries
        assert entry in found


def test_a_key_with_several_columns_needs_an_object() -> None:
    with pytest.raises(
        UsageError, match=r"the key of operator 0.* has .*, .*\. Write an object .*\{\"\w+\": \"\.\.\.\", "
    ):
        explain(str(SAMPLES / "dedup-watermark-4.2"), '"a"', [SPARKS])


def test_the_example_of_a_key_has_the_form_of_each_column() -> None:
    key = parse_ddl("user STRING, window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, tags ARRAY<STRUCT<n: INT>>")
    state = StateDescriptor(0, "stateStoreSave", "default", "default", None, key, parse_ddl("n INT"))
    with pytest.raises(UsageError) as told:
        Key.parse('"u1"').of(state)
    (example,) = shlex.split(str(told.value).partition("them: ")[2])
    moment = {"start": "...", "end": "..."}
    assert json.loads(example) == {"user": "...", "window": moment, "tags": [{"n": "..."}]}
    known = {"user": "u1", "window": {"start": "2026-11-21", "end": "2026-11-22T00:00:00Z"}, "tags": [{"n": 1}]}
    Key.parse(json.dumps(known)).of(state)


def test_a_key_can_be_a_dict() -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    as_text, as_dict = (explain(target, key, [SOME]) for key in ('{"key": "user-0034"}', {"key": "user-0034"}))
    assert as_dict.found == 1 and replace(as_dict, seconds=0) == replace(as_text, seconds=0)
    deduplicated = str(SAMPLES / "dedup-watermark-4.2")
    shown = explain(deduplicated, {}, [SPARKS], show=ALL).entries
    key = next(entry["key"] for entry in shown if entry["key"]["at"] is not None)
    assert explain(deduplicated, {**key, "at": datetime.fromisoformat(key["at"])}, [SPARKS]).found == 1
    for wrong, words in ((7, "key is 7; it must be a text or a dict"), ({"key": {1}}, "a value is set")):
        with pytest.raises(UsageError, match=words):
            explain(target, wrong, [SOME])  # type: ignore[arg-type]


def test_nothing_is_written_and_damage_is_an_error(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = tree(tmp_path)
    explain(str(target), "{}", [ttl(1, "value.max")])
    assert tree(tmp_path) == before
    damaged = target / "state/0/1/7.delta"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(CorruptionError):
        explain(str(target), "{}", [ttl(1, "value.max")])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    words = ["explain", target, "--ttl", "7d", "--timestamp", "value.max"]
    assert run([*words, "--key", '"user-0034"']) == 0
    told = capsys.readouterr().out
    assert "operator 0 (stateStoreSave), partition 0: dropped" in told
    assert "Found 1 entry: 1 dropped. Read partition 0 of 2 of operator 0, after batch 6." in told
    assert run([*words, "--key", '"nobody"']) == 1
    assert 'No entry has the key "nobody". Read partition ' in capsys.readouterr().out
    assert run([*words, "--key", "{}", "--show", "3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["found"], len(document["entries"])) == (480, 3)
    join = str(SAMPLES / "join-4.2")
    assert run(["explain", join, "--key", '"key-20"', "--ttl", "1d", "--timestamp", "left:value.at"]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line == "Found 4 entries: 4 kept. Read partition 1 of 2 of operator 0, after batch 5."
    assert run([*words, "--key", "nobody"]) == 2
    assert run([*words, "--key", "{}", "--set", "a=1"]) == 2
    rule = ["--transformer", "ttl", "--set", "ttl=1d", "--set", "timestamp=value.max"]
    assert run(["explain", target, "--key", '"user-0034"', *rule]) == 0
    assert "rule: ttl 1d by value.max: " in capsys.readouterr().out


def test_a_second_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "agg-deltas-lz4-4.2")
    assert run(["explain", target, "--key", '"a"', "--key", '"b"', "--ttl", "7d", "--timestamp", "value.max"]) == 2
    assert "--key is given twice" in capsys.readouterr().err
