"""A run drops every entry of a state only if the user agrees to it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import SilentListener, compact, migrate
from ttlsnap.cli.app import run as command
from ttlsnap.clock import MAX_INT64, iso
from ttlsnap.compaction.drop_limit import StateDrop, describe_excess, warn_of_far_future, warn_of_lag
from ttlsnap.compaction.incremental import Incremental
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.maintenance.policy import read_policy
from ttlsnap.operators.registry import Selection
from ttlsnap.transform.protocols import Drop, EntryTransformerFactory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample

SECONDS_AS_MILLIS = "value.seen:ms"  # the field holds seconds
QUICK = ("--engine", "local", "--stopped")
_S = 1_000_000
_NOW_US = 1_780_000_000 * _S


def test_a_query_that_seems_to_be_behind_its_input_is_warned_of(tmp_path: Path) -> None:
    """The newest entry of the sample is 49 minutes older than its last batch."""
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    for ttl, given, is_warned in (("3h", {}, True), ("4h", {}, False), ("3h", {"now": "2026-11-21T08:49:34Z"}, False)):
        report = run(checkpoint, "value.max", ttl, dry_run=True, **given)
        assert report.totals.dropped and is_warned == any("is behind its input" in text for text in report.warnings)
    words = "the newest value.max of operator 0 (stateStoreSave) is 49m older than the last batch, with whose time"
    assert words in run(checkpoint, "value.max", "3h", dry_run=True).warnings[0]
    behind = StateDrop("s", 10, 5, "f", None, "processing", _NOW_US, "checkpoint", 0, _NOW_US - 60 * _S, True, _NOW_US)
    assert not warn_of_lag([behind]), "an expiry time that Spark has stored is compared with the clock itself"
    assert warn_of_lag([replace(behind, cutoff_us=_NOW_US - 100 * _S)])


def run(target: Path, field: str, ttl: str = "7d", **options: Any) -> CompactionReport:
    factory = TtlTransformerFactory(StateTtlConfig(parse_duration(ttl)), field)
    return compact(str(target), [factory], stopped=True, **options)


def drop_all(key: dict[str, Any], value: dict[str, Any]) -> Drop:
    return Drop()


def test_a_dry_run_tells_that_a_run_refuses_unmatched_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("join-format4-4.2", tmp_path)
    rule = [TtlTransformerFactory(StateTtlConfig(86_400 * _S))]
    dry = compact(str(target), rule, now="2026-11-16", dry_run=True, stopped=True)
    (warning,) = dry.warnings
    assert dry.refused
    assert warning.startswith("a run refuses this. 5 of the rows to drop belong to a join and have not matched yet")
    with pytest.raises(RefusedError, match="5 of the rows to drop belong to a join and have not matched yet"):
        compact(str(target), rule, now="2026-11-16", stopped=True)
    assert not compact(str(target), rule, now="2026-11-16", dry_run=True, stopped=True, drop_unmatched=True).warnings
    moved = migrate(str(target), partitions=3, transformers=rule, now="2026-11-16", dry_run=True)
    assert warning in moved.warnings
    policy = tmp_path / "policy.toml"
    policy.write_text('[[target]]\npath = "join*"\nttl = "1d"\nnow = "2026-11-16T00:00:00Z"\n')
    assert command(["maintain", str(policy), "--plan", "--format", "json"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)["targets"]
    assert (planned["warnings"], planned["now_source"]) == ([warning], "given")
    words = ["--ttl", "1d", "--now", "2026-11-16", "--dry-run", "--engine", "local"]
    assert command(["compact", str(target), *words]) == 0
    shown = capsys.readouterr()
    assert "a run refuses this" in shown.err and "ttlsnap publishes this" not in shown.out


def test_dropping_every_entry_is_refused_with_an_explanation(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    before = bytes_of(target)
    with pytest.raises(RefusedError) as refused:
        run(target, SECONDS_AS_MILLIS)
    told = str(refused.value)
    assert refused.value.exit_code == 4
    assert told.startswith(f"{target}: this run would drop all 8 entries of operator 0 (transformWithState")
    assert "value.seen, read in milliseconds (ms): the oldest is 1970-01-21T18:23:56Z, the newest 1970-01-21T" in told
    assert "compared with processing time 2026-11-21T15:46:41Z (checkpoint)" in told
    assert "Read in seconds (s), they are from 2026-11-09T15:06:00Z to 2026-11-21T15:01:00Z" in told
    assert "the timestamp is value.seen:s" in told
    assert "If this is what you want, add max_drop=1.0" in told and "--" not in told
    assert {path: data for path, data in bytes_of(target).items() if "_ttlsnap" not in path} == before
    assert not (target / "_ttlsnap/runs").exists()


def test_a_run_with_the_suggested_unit_is_accepted(tmp_path: Path) -> None:
    report = run(sample("visits-4.2", tmp_path), "value.seen:s")
    assert 0 < report.totals.dropped < (report.totals.entries or 0)


def test_one_entry_with_an_odd_time_does_not_let_a_wrong_rule_through(tmp_path: Path) -> None:
    almost = StateDrop("s", 1000, 991)
    assert almost.exceeds(None) and not replace(almost, dropped=990).exceeds(None)
    assert not replace(almost, whole=False).exceeds(None) and not almost.exceeds(1.0)
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    newest = run(target, "value.max", "1h", dry_run=True, now="2026-11-21T08:00:00Z").states[0].newest_us
    assert newest is not None
    with pytest.raises(RefusedError, match=r"would drop 4\d\d of 480 .* without max_drop a run may drop 99%\."):
        run(target, "value.max", "1h", now=iso(newest + 3_600 * _S - 1))
    assert run(target, "value.max", "1h", now=iso(newest + 3_600 * _S - 1), max_drop=1.0).published


def test_variables_that_stay_when_another_one_of_their_keys_is_dropped_are_named(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    (warning,) = run(target, "value.seen:s", dry_run=True).warnings
    assert warning.startswith(
        "this run drops 4 entries of 0.default.last, and nothing of 0.default.numbers. A key that"
    )
    assert not run(target, "value.seen:s", dry_run=True, selection=Selection(state="last")).warnings
    lists = sample("lists-4.2", tmp_path)
    expired = compact(str(lists), [TtlTransformerFactory()], now="2026-11-22T21:56:05Z", dry_run=True, stopped=True)
    assert expired.totals.dropped and not expired.warnings, "Spark itself drops what has expired by its own TTL"


def test_max_drop_of_one_allows_dropping_every_entry(tmp_path: Path) -> None:
    report = run(sample("visits-4.2", tmp_path), SECONDS_AS_MILLIS, max_drop=1.0)
    assert report.published and report.totals.dropped == report.totals.entries == 8


def test_a_run_with_an_output_is_refused_too(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    with pytest.raises(RefusedError, match="would drop all 8 entries"):
        run(target, SECONDS_AS_MILLIS, output=str(tmp_path / "new"))
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_function_that_drops_everything_is_refused(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    with pytest.raises(RefusedError, match=r"would drop all 480 entries of operator 0 \(stateStoreSave\)\.\nNothing"):
        compact(str(target), [EntryTransformerFactory(drop_all)], stopped=True)


def test_a_share_sets_a_lower_limit(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    with pytest.raises(
        RefusedError, match=r"drop 369 of 480 entries \(76\.9%\) of operator 0 .* and the limit is 76%"
    ) as refused:
        run(target, "value.max", max_drop=0.76)
    assert "If this is what you want, use a higher max_drop; 100% allows everything" in str(refused.value)
    assert run(target, "value.max", max_drop=0.77).published


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_values_outside_zero_to_one_are_refused(tmp_path: Path, share: float) -> None:
    with pytest.raises(UsageError, match=r"max_drop is .*; it is a share from 0\.0 to 1\.0"):
        run(tmp_path, "value.max", max_drop=share)


def test_a_dry_run_warns_instead_of_refusing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("visits-4.2", tmp_path)
    before = bytes_of(target)
    words = [
        "compact",
        str(target),
        "--ttl",
        "7d",
        "--timestamp",
        SECONDS_AS_MILLIS,
        "--state",
        "last",
        "--dry-run",
        *QUICK,
    ]
    assert command([*words, "--format", "json"]) == 0
    captured = capsys.readouterr()
    (warning,) = json.loads(captured.out)["warnings"]
    assert "would drop all 8 entries" in warning and "Unless somebody agrees on a terminal, a run refuses" in warning
    assert captured.err.startswith("Warning: this run would drop all 8 entries")
    assert "ms" in [store["timestamp_unit"] for store in json.loads(captured.out)["stores"]]
    assert command([*words, "--max-drop", "100%", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    assert bytes_of(target) == before


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_compact_refuses_if_it_cannot_ask_a_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    target = sample("visits-4.2", tmp_path)
    words = ["compact", str(target), "--ttl", "7d", "--timestamp", SECONDS_AS_MILLIS, *QUICK, *more]
    assert command(words) == 4
    error = capsys.readouterr().err
    assert "Read in seconds (s)" in error
    assert " ".join(error.split()).endswith("add --max-drop 100%")
    assert command([*words, "--max-drop", "99.9%"]) == 4
    assert command([*words, "--max-drop", "100%"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "dropped"), [("y", 8), ("n", 0)])
def test_compact_warns_on_a_terminal_before_it_asks(tmp_path: Path, answer: str, dropped: int) -> None:
    target = sample("visits-4.2", tmp_path)
    words = ["compact", str(target), "--ttl", "7d", "--timestamp", SECONDS_AS_MILLIS, *QUICK, "--format", "json"]
    code, out, err = on_a_terminal(words, f"{answer}\n")
    assert code == 0, err
    assert "Warning: this run would drop all 8 entries" in err
    assert "If that is right, the timestamp is value.seen:s" in err
    before, question, after = err.partition(f"Drop 8 of 8 entries (100 %) from {target}? [y/N]")
    assert question and "would drop all 8 entries" in before
    assert before.count("and nothing of 0.default.numbers") == 1 and "Warning" not in after
    assert json.loads(out)["published"] is bool(dropped)


def test_the_option_yes_does_not_agree_to_dropping_every_entry(tmp_path: Path) -> None:
    target = sample("visits-4.2", tmp_path)
    words = ["compact", str(target), "--ttl", "7d", "--timestamp", SECONDS_AS_MILLIS, *QUICK, "--yes"]
    code, _, err = on_a_terminal(words, "")
    assert (code, "would drop all 8 entries" in err) == (4, True)


def on_a_terminal(words: list[str], answers: str) -> tuple[int, str, str]:
    """Run a command whose stdin is a terminal. Return its exit code, stdout and stderr."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ttlsnap", *words],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(terminal)
    os.write(controller, answers.encode())
    out, err = process.communicate(timeout=120)
    os.close(controller)
    return process.returncode, out, err


def test_a_run_is_not_refused_if_its_listener_asks_the_user(tmp_path: Path) -> None:
    class Asking(SilentListener):
        asks = True

    assert run(sample("visits-4.2", tmp_path), SECONDS_AS_MILLIS, listener=Asking()).published


Maintain = Callable[..., tuple[int, Any]]


@pytest.fixture
def maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Maintain:
    def invoke(text: str, *options: str) -> tuple[int, Any]:
        policy = tmp_path / "policy.toml"
        policy.write_text(f"[defaults]\nstopped = true\nttl = '7d'\n{text}")
        code = command(["maintain", str(policy), "--engine", "local", "--format", "json", *options])
        return code, json.loads(capsys.readouterr().out)["targets"]

    return invoke


def test_maintain_refuses_unless_the_policy_allows_it(maintain: Maintain, tmp_path: Path) -> None:
    sample("visits-4.2", tmp_path)
    target = f'[[target]]\npath = "visits-4.2"\ntimestamp = "{SECONDS_AS_MILLIS}"\n'
    code, (planned,) = maintain(target, "--plan")
    assert code == 0 and "a run refuses this" in planned["warnings"][-1]
    code, (found,) = maintain(target)
    assert (code, found["status"], "Read in seconds (s)" in found["error"]) == (4, "refused", True)
    code, (found,) = maintain(f'{target}max_drop = "100%"\n')
    assert (code, found["status"], found["totals"]["dropped"]) == (0, "done", 8)


def test_every_command_warns_of_a_unit_that_is_too_large(
    maintain: Maintain, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = sample("dedup-within-4.2", tmp_path)
    words = [
        str(target),
        "--ttl",
        "7d",
        "--timestamp",
        "value.expiresAtMicros:ms",
        *QUICK,
    ]  # the field is in microseconds
    for command_words in (
        ["compact", *words, "--dry-run"],
        ["compact", *words],
        ["migrate", *words, "--partitions", "3"],
    ):
        assert command([*command_words, "--format", "json"]) == 0
        captured = capsys.readouterr()
        (warning,) = json.loads(captured.out)["warnings"]
        assert warning.startswith("this run drops no entry of operator 0 (dedupeWithinWatermark): every timestamp is")
        assert "Read in microseconds (us), they are from " in warning
        assert warning.endswith("If that is right, the timestamp is value.expiresAtMicros:us")
        assert "Warning: this run drops no entry" in captured.err
    rule = '[[target]]\npath = "dedup-within-4.2"\nttl = "7d"\ntimestamp = "value.expiresAtMicros:ms"\nstopped = true\n'
    for options in (["--plan"], []):
        code, (found,) = maintain(rule, *options)
        assert (code, found["status"], found["warnings"]) == (0, "nothing", [warning])


def test_a_policy_may_set_a_lower_limit_for_all_targets(maintain: Maintain, tmp_path: Path) -> None:
    sample("agg-deltas-lz4-4.2", tmp_path)
    target = '[[target]]\npath = "agg-deltas-lz4-4.2"\ntimestamp = "value.max"\n'
    code, (found,) = maintain(f"max_drop = 0.3\n{target}")
    assert (code, found["status"], "the limit is 30%" in found["error"]) == (4, "refused", True)
    code, (found,) = maintain(f'max_drop = 0.3\n{target}max_drop = "80%"\n')
    assert (code, found["status"]) == (0, "done")


@pytest.mark.parametrize("value", ["1", '"1"', '"30"', '"a lot"', "-0.5", "true"])
def test_a_policy_with_an_invalid_share_is_refused(tmp_path: Path, value: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[target]]\npath = "ck"\nmax_drop = {value}\n')
    with pytest.raises(UsageError, match=r"policy\.toml:3: "):
        read_policy(str(policy))


def test_some_partitions_may_lose_everything_if_their_dates_are_plausible(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    options: dict[str, Any] = {"parts": [(Selection(), Incremental(1))]}
    newest = run(target, "value.max", dry_run=True).states[0].newest_us
    assert newest is not None
    report = run(target, "value.max", now="2027-01-01", **options)
    assert report.published and report.totals.dropped == report.totals.entries
    with pytest.raises(RefusedError, match="would drop all"):
        run(target, "value.max", now="2127-01-01", **options)


def drop_of(newest_us: int, unit: str, **facts: Any) -> StateDrop:
    return StateDrop(
        "operator 0", 10, 10, "value.at", unit, "event", _NOW_US, "wall", newest_us - _S, newest_us, **facts
    )


@pytest.mark.parametrize(
    ("number", "read_as", "right"),
    [
        (1_779_000_000, "ms", "s"),
        (1_779_000_000, "ns", "s"),
        (1_779_000_000_000, "us", "ms"),
        (1_779_000_000_000, "s", "ms"),
        (1_779_000_000_000_000, "ns", "us"),
        (1_779_000_000_000_000_000, "us", "ns"),
        (1_779_000_000_000_000_000, "ms", None),  # exceeds the range of timestamps, so that the number is lost
        (1_779_000_000, "s", None),
        (12, "ms", None),
    ],
)
def test_the_unit_that_gives_plausible_dates_is_suggested(number: int, read_as: str, right: str | None) -> None:
    scale = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}[read_as]
    newest = min(int(number * scale), MAX_INT64)
    told = describe_excess([drop_of(newest, read_as)], None) or ""
    suggested = told.rpartition("the timestamp is value.at:")[2] if "If that is right" in told else None
    assert suggested == right
    if read_as == "s" and right:
        assert "the newest in the year 58344" in told


@pytest.mark.parametrize(
    ("number", "read_as", "warns"),
    [
        (1_779_000_000_000, "s", True),
        (1_779_000_000_000_000, "s", True),  # exceeds the range of timestamps
        (1_779_000_000_000_000, "ms", True),
        (1_779_000_000_000_000_000, "us", True),
        (1_779_000_000, "s", False),
        (1_779_000_000_000, "us", False),  # in the past
        (4_000_000_000, "s", False),  # in the year 2096, and no unit is likelier
    ],
)
def test_times_that_are_far_in_the_future_are_a_warning(number: int, read_as: str, warns: bool) -> None:
    newest = min(number * {"s": 1_000_000, "ms": 1_000, "us": 1}[read_as], MAX_INT64 + _S)
    drop = replace(drop_of(newest, read_as), dropped=0)
    assert bool(warn_of_far_future([drop])) is warns
    assert not warn_of_far_future([replace(drop, oldest_us=_NOW_US)])  # only some entries never expire


def test_at_most_five_states_are_listed() -> None:
    drops = [StateDrop(f"operator {n}", 1, 1) for n in range(9)]
    told = describe_excess(drops, None) or ""
    assert "operator 4" in told and "operator 5" not in told and "true of 4 more states" in told
