"""Policies that migrate checkpoints: the rules run in the same pass, and later runs compact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run

from ..migration.entries import entries_of
from ..samples import bytes_of
from .targets import fresh

Maintain = Callable[..., tuple[int, Any]]
DEFAULTS = """
[defaults]
stopped = true
[[target]]
path = "ck"
"""
TTL = """
ttl = "7d"
timestamp = "value.max"
"""


@pytest.fixture
def maintain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Maintain:
    def invoke(text: str, *options: str) -> tuple[int, Any]:
        (tmp_path / "policy.toml").write_text(DEFAULTS + text)
        code = run(["maintain", str(tmp_path / "policy.toml"), "--engine", "local", *options])
        captured = capsys.readouterr()
        if "json" not in options:
            return code, captured.out
        return code, json.loads(captured.out)["targets"] if captured.out else captured.err

    return invoke


def json_of(maintain: Maintain, text: str, *options: str) -> tuple[int, Any]:
    return maintain(text, "--format", "json", *options)


def test_a_target_is_migrated_once_and_compacted_every_time(maintain: Maintain, tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    before, metrics = entries_of(target), tmp_path / "metrics"
    code, (done,) = json_of(maintain, "partitions = 3" + TTL, "--metrics", str(metrics))
    assert (code, done["status"], done["kind"]) == (0, "done", "migrate")
    dropped = done["compaction"]["totals"]["dropped"]
    assert dropped == done["totals"]["dropped"] > 0
    assert entries_of(target).total() == before.total() - dropped
    assert f'dropped_entries{{target="{target}"}} {dropped}' in metrics.read_text()
    assert {path.name for path in (target / "state/0").iterdir()} == {"_metadata", "0", "1", "2"}
    code, (again,) = json_of(maintain, "partitions = 3" + TTL)
    assert (code, again["status"], again["kind"]) == (0, "nothing", "checkpoint")


def test_a_target_without_rules_is_only_migrated(maintain: Maintain, tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    before = entries_of(target)
    policy = 'provider = "rocksdb"\nsettings = {codec = "zstd", checkpoint-format = 2}\nexpired_to = "expired"'
    code, shown = maintain(policy)
    assert code == 0
    assert "session must have spark.sql.streaming.stateStore.checkpointFormatVersion=2" in " ".join(shown.split())
    assert entries_of(target).total() == before.total()
    code, (again,) = json_of(maintain, policy)
    assert (code, again["status"], again["kind"], again["published"]) == (0, "nothing", "migrate", False)


def test_a_migration_visits_every_partition_whatever_the_strategy_is(maintain: Maintain, tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck")
    rule = TTL + 'strategy = "incremental"\nmax_partitions = 1\n'
    code, (done,) = json_of(maintain, "partitions = 4" + rule)
    assert (code, done["kind"], len(done["stores"][0]["partitions"])) == (0, "migrate", 4)
    assert done["compaction"]["totals"]["dropped"] > 0
    code, (again,) = json_of(maintain, "partitions = 4" + rule)
    assert (code, again["kind"], again["visited"]["partitions"]) == (0, "checkpoint", 1)
    assert entries_of(target)


def test_apply_migrates_as_the_plan_says_or_not_at_all(maintain: Maintain, tmp_path: Path) -> None:
    target, plan = fresh(tmp_path, "ck"), str(tmp_path / "plan.json")
    policy, before = "partitions = 3" + TTL, bytes_of(target)
    code, (planned,) = json_of(maintain, policy, "--plan-out", plan)
    assert (code, planned["status"]) == (0, "planned")
    assert bytes_of(target) == before
    delta = next((target / "state/0/0").glob("*.delta"))
    delta.touch()  # another time is another file
    code, (refused,) = json_of(maintain, policy, "--apply", plan)
    assert (code, refused["status"]) == (4, "refused")
    assert "its files differ from the plan" in refused["error"]
    assert bytes_of(target) == before
    json_of(maintain, policy, "--plan-out", plan)
    code, (done,) = json_of(maintain, policy, "--apply", plan)
    assert (code, done["status"], done["totals"]["dropped"]) == (0, "done", planned["totals"]["dropped"])
    code, (again,) = json_of(maintain, policy, "--apply", plan)
    assert (code, again["status"]) == (0, "nothing")


def test_a_change_without_effect_does_not_stop_the_rules(maintain: Maintain, tmp_path: Path) -> None:
    target = fresh(tmp_path, "ck", "rocksdb-4.2")
    rule = TTL.replace("7d", "1d") + 'now = "wall"\nmax_drop = "100%"'
    code, (done,) = json_of(maintain, "settings = {changelog = true}" + rule)
    assert (code, done["status"], done["kind"]) == (0, "done", "checkpoint")
    assert done["totals"]["dropped"] > 0 == entries_of(target).total()
    code, (failed,) = json_of(maintain, "settings = {changelog = true}")
    assert (code, failed["status"]) == (2, "failed")
    assert "Spark does not record whether it writes changelogs" in failed["error"]
    for kind in ("migrate", "checkpoint"):
        code, (again,) = json_of(maintain, "partitions = 3\nsettings = {changelog = true}" + rule)
        assert (code, again["kind"]) == (0, kind)


def test_a_table_cannot_be_migrated(maintain: Maintain, tmp_path: Path) -> None:
    (tmp_path / "ck/_delta_log").mkdir(parents=True)
    code, (failed,) = json_of(maintain, "partitions = 3")
    assert (code, failed["status"]) == (2, "failed")
    assert "partitions, provider and settings are not for Delta tables" in failed["error"]


WRONG = [
    ("partitions = 0", ":6: target 1, partitions must be bigger than or equal to 1"),
    ("partitions = 1000000000", ":6: partitions is 1000000000; it must be a whole number from 1 to"),
    ('provider = "redis"', ":6: target 1, provider must be one of ['hdfs', 'rocksdb']"),
    ("settings = {colour = 1}", ":6: unknown setting colour; use one of"),
    ('settings = {codec = "none"}', ":6: the setting codec is 'none'; it must be one of"),
    ("settings = {}", ":6: target 1, settings must contain at least 1 properties"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_an_impossible_change_is_an_error_at_its_line(
    maintain: Maintain, tmp_path: Path, text: str, message: str
) -> None:
    before = bytes_of(fresh(tmp_path, "ck"))
    code, said = json_of(maintain, text)
    assert code == 2 and message in said
    assert bytes_of(tmp_path / "ck") == before
