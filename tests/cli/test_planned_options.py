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


@pytest.mark.parametrize("options", [{"partitions": "3"}, {"time": "noon"}, {"timestamp": [3]}])
def test_wrong_options_in_a_plan_are_refused(ttlsnap: Ttlsnap, tmp_path: Path, options: dict[str, object]) -> None:
    target, plan = sample("agg-deltas-lz4-4.2", tmp_path), tmp_path / "plan.json"
    assert ttlsnap("migrate", target, "--partitions", "3", "--plan-out", plan).code == 0
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "command": options}))
    ended = ttlsnap("migrate", "--apply", plan)
    assert ended.code == 2 and "the options in the plan cannot be read" in ended.err
