"""``history`` shows when a run was made, by which rule, and how much it dropped."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from ttlsnap.cli import history
from ttlsnap.cli.app import run
from ttlsnap.transform.adapters import describe_rule
from ttlsnap.transform.protocols import EntryTransformerFactory, Keep
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory
from ttlsnap.transformers.keep import KeepTransformerFactory

from ..samples import sample
from .running import Ttlsnap

DAY = 86_400_000_000
NOW = r"2026-11-21 08:49:33Z \(checkpoint\)"


def keep_all(key: object, value: object) -> Keep:
    return Keep()


@pytest.fixture
def compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    rule = ["--ttl", "7d", "--timestamp", "value.max", "--engine", "local"]
    assert run(["compact", str(target), *rule, "--stopped", "--yes"]) == 0
    capsys.readouterr()
    return target


def test_history_shows_when_by_which_rule_and_how_much(compacted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history", str(compacted)]) == 0
    header, line, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "when", "kind", "status", "batch", "dropped", "of", "old", "files", "now", "rule"]
    assert re.search(
        rf" 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ  compact  done +6 +369  480  kept +{NOW}  ttl 7d by value\.max$", line
    )


def test_history_says_what_a_migration_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    assert run(["migrate", target.name, "--partitions", "3", "--stopped", "--yes", "--engine", "local"]) == 0
    assert f"\n{target.name}, batch 6\n" in f"\n{capsys.readouterr().out}"  # a path in the current folder is relative
    assert run(["history", str(target)]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("  kept       shuffle.partitions = 3")


def test_history_shows_the_steps_of_a_migration_and_its_clock(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("removed-4.2", tmp_path)
    words = ("--drop", "last", "--ttl", "30d", "--timestamp", "@written", "--now", "2026-11-28T00:00:00Z")
    assert ttlsnap("migrate", target, *words, "--stopped", "--yes").code == 0
    _, run_line, *lines = ttlsnap("history", target).out.splitlines()
    assert "  2026-11-28 00:00:00Z (given)  " in run_line and "removal of what Spark has kept of last" in run_line
    assert f"{run_line.split()[0]}: drop-unused 0.default.last: last" in lines


def test_reports_have_the_rules(compacted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history", str(compacted), "--format", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["runs"]
    assert entry["report"]["rules"] == ["ttl 7d by value.max"]


def test_a_narrow_terminal_gets_a_narrow_table_and_whole_run_ids(
    compacted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "console", lambda: Console(soft_wrap=True, width=80, highlight=False))
    assert run(["history", str(compacted)]) == 0
    header, line, rule, *_ = capsys.readouterr().out.splitlines()
    assert len(line) <= 80 and header.split()[:2] == ["run", "when"]
    assert rule == f"{line.split()[0]}: ttl 7d by value.max, now 2026-11-21 08:49:33Z (checkpoint)"


def test_a_narrow_terminal_lists_each_change_of_a_migration_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(sample("removed-4.2", tmp_path))
    assert run(["migrate", target, "--drop", "last", "--stopped", "--yes", "--engine", "local"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(history, "console", lambda: Console(soft_wrap=True, width=80, highlight=False))
    assert run(["history", target]) == 0
    _, line, *below = capsys.readouterr().out.splitlines()
    assert below[0] == f"{line.split()[0]}: drop-unused 0.default.last: last"


@pytest.mark.parametrize(
    ("factory", "rule"),
    [
        (TtlTransformerFactory(StateTtlConfig(DAY), "value.at"), "ttl 1d by value.at"),
        (TtlTransformerFactory(StateTtlConfig(DAY // 16)), "ttl 90m after the time that Spark stores"),
        (
            TtlTransformerFactory(StateTtlConfig(DAY), old_ttl_us=7 * DAY),
            "ttl 1d instead of 7d after the time that Spark stores",
        ),
        (
            TtlTransformerFactory(StateTtlConfig(DAY), ("left:value.a", "right:value.b")),
            "ttl 1d by left:value.a, right:value.b",
        ),
        (TtlTransformerFactory(), "Spark's expiry times"),
        (KeepTransformerFactory(), "keep"),
        (EntryTransformerFactory(keep_all), f"{__name__}:keep_all"),
        (object(), "builtins:object"),
    ],
)
def test_each_factory_describes_its_rule(factory: object, rule: str) -> None:
    assert describe_rule(factory) == rule
