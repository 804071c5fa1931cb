"""A plan of ``migrate`` has the options of its command, so that ``--apply`` needs no other option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..samples import bytes_of, sample
from .running import Ttlsnap

RULE = ("--ttl", "7d", "--timestamp", "value.max", "--time", "event", "--now", "2026-11-21T09:00:00Z")


def test_a_plan_is_applied_without_its_options_from_another_folder(
    ttlsnap: Ttlsnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    before = bytes_of(target)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("--partitions", "3", *RULE, "--expired-to", "archive", "--output", "new")
    assert ttlsnap("migrate", target.name, *words, "--plan-out", plan).code == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = ttlsnap("migrate", "--apply", plan, "--format", "json").json
    assert bytes_of(target) == before
    assert (done["output"], done["partitions"]) == (str(tmp_path / "new"), 3)
    assert done["compaction"]["totals"]["dropped"] == 369
    assert list((tmp_path / "archive").rglob("*.parquet")) and not list((tmp_path / "elsewhere").iterdir())


def test_a_plan_does_not_have_the_options_of_transformers(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    words = ("--partitions", "3", "--transformer", "ttl", "--set", "ttl=9999d", "--set", "timestamp=value.max")
    planned = ttlsnap("migrate", target, *words, "--plan-out", plan)
    assert "the same command, with --apply" in planned.out and "9999" not in json.dumps(json.loads(plan.read_text()))
    alone = ttlsnap("migrate", "--apply", plan)
    assert alone.code == 2 and "Repeat that command" in alone.err
    assert ttlsnap("migrate", target, *words, "--apply", plan).code == 0


def test_a_migration_without_a_target_needs_a_plan(ttlsnap: Ttlsnap) -> None:
    ended = ttlsnap("migrate", "--partitions", "3")
    assert ended.code == 2 and "name the checkpoint to migrate, or a plan with --apply" in ended.err


@pytest.mark.parametrize("name", ["stopped", "yes", "engine", "nonsense"])
def test_a_plan_cannot_have_options_that_are_said_when_it_is_applied(
    ttlsnap: Ttlsnap, tmp_path: Path, name: str
) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    assert ttlsnap("migrate", target, "--partitions", "3", "--plan-out", plan).code == 0
    document = json.loads(plan.read_text())
    document["command"][name] = True
    plan.write_text(json.dumps(document))
    before = bytes_of(target)
    ended = ttlsnap("migrate", "--apply", plan)
    assert ended.code == 2 and f"a plan cannot have {name}" in ended.err
    assert bytes_of(target) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"command": {"partitions": 3, "no_planned_batch": True}}, "another value of --no-planned-batch"),
        ({"command": {"partitions": 3, "output": "/elsewhere"}}, "another value of --output"),
        ({"options": {"--output": "/elsewhere"}}, "has unknown options, or lacks some: --expired-to"),
        ({"options": {}}, "has unknown options, or lacks some"),
        ({"nonsense": 1}, "the plan has the unknown key 'nonsense'"),
        ({"facts": {"nonsense": 1}}, "facts has the unknown key 'nonsense'"),
        ({"version": 0}, "there is no version 0"),
        ({"version": -1}, "there is no version -1"),
        ({"version": True}, "True is not a int"),
        ({"version": 2}, "is a plan of version 2; use a newer ttlsnap"),
    ],
)
def test_a_plan_that_contradicts_itself_or_is_unknown_is_refused(
    ttlsnap: Ttlsnap, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    assert ttlsnap("migrate", target, "--partitions", "3", "--plan-out", plan).code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), **change}))
    before = bytes_of(target)
    ended = ttlsnap("migrate", "--apply", plan, "--stopped")
    assert ended.code in (2, 3, 4) and told in ended.err
    assert bytes_of(target) == before


@pytest.mark.parametrize("options", [{"partitions": "3"}, {"time": "noon"}, {"timestamp": [3]}])
def test_wrong_options_in_a_plan_are_refused(ttlsnap: Ttlsnap, tmp_path: Path, options: dict[str, object]) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    assert ttlsnap("migrate", target, "--partitions", "3", "--plan-out", plan).code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "command": options}))
    ended = ttlsnap("migrate", "--apply", plan)
    assert ended.code == 2 and "the options in the plan cannot be read" in ended.err
