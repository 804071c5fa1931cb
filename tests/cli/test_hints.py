"""A target that is not a checkpoint is recognized, and the message says what to name instead."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import SAMPLES, sample

ON_CHECKPOINTS = [["compact", "--ttl", "7d", "--timestamp", "value.max"], ["doctor"], ["recover"], ["contract"]]


def refusal(command: list[str], target: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
    name, *options = command
    assert run([name, str(target), *options]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", ON_CHECKPOINTS, ids=lambda command: command[0])
def test_a_folder_within_a_checkpoint_names_the_checkpoint(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    assert f"Name the checkpoint that it belongs to: {target}\n" in refusal(command, target / "state", capsys)


@pytest.mark.parametrize("command", ON_CHECKPOINTS, ids=lambda command: command[0])
def test_a_folder_of_checkpoints_names_some_of_them(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abcd":
        shutil.copytree(SAMPLES / "visits-4.2", tmp_path / name)
    (tmp_path / "stray").mkdir()
    assert "It contains checkpoints: a, b, c and 1 more. Name one" in refusal(command, tmp_path, capsys)


@pytest.mark.parametrize("command", [["doctor"], ["recover"]], ids=lambda command: command[0])
def test_a_delta_table_names_the_commands_for_tables(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log/00000000000000000000.json").write_text("{}\n")
    assert "It is a Delta table; inspect, compact, maintain" in refusal(command, tmp_path, capsys)


def test_inspect_lists_the_checkpoints_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(SAMPLES / "visits-4.2", tmp_path / "good")
    shutil.copytree(SAMPLES / "visits-4.2", tmp_path / "new")
    shutil.rmtree(tmp_path / "new/commits")
    assert run(["inspect", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["checkpoint", "last"],
        ["good", "3"],
        ["new", "no"],
    ]
    assert lines[-1] == f"{tmp_path} contains 2 checkpoints. Next: ttlsnap inspect {tmp_path}/NAME"
    assert run(["inspect", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoints"] == [f"{tmp_path}/good", f"{tmp_path}/new"]


def test_a_dbfs_uri_names_its_mounted_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "dbfs:/jobs/ck"]) == 3
    assert "use /dbfs/jobs/ck\n" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--ttl", "7d"), 2)])
def test_deduplication_without_a_time_lists_the_options(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int
) -> None:
    assert run(["compact", str(SAMPLES / "dedup-columns-rocksdb-3.2"), *options, "--dry-run"]) == code
    told = capsys.readouterr()
    for words in (
        "stores no time",
        "--timestamp @written",
        "--transformer",
        "dropDuplicatesWithinWatermark",
    ):
        assert words in told.out + told.err


@pytest.mark.parametrize("place", ["state/0/1", "offsets", "offsets/0", "metadata", "nowhere"])
def test_a_path_within_a_checkpoint_names_the_checkpoint(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    assert f". Name the checkpoint that it belongs to: {target}\n" in refusal(["inspect"], target / place, capsys)


def test_a_mistyped_path_suggests_a_folder_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    told = refusal(["inspect"], str(target).replace("deltas", "delta"), capsys)
    assert "does not exist (did you mean agg-deltas-lz4-4.2?)\n" in told


AGG, JOIN = str(SAMPLES / "agg-deltas-lz4-4.2"), str(SAMPLES / "join-4.2")
VISITS = str(SAMPLES / "visits-4.2")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["compact", AGG, "--ttl", "7d", "--timestamp", "value.mx"], "field value.mx (did you mean value.max?)"),
        (["compact", AGG, "--ttl", "7d", "--timestamp", "max"], "'max' is not a field name (did you mean value.max?)"),
        (["compact", JOIN, "--ttl", "7d", "--timestamp", "left:value.att"], "value.att (did you mean value.at?)"),
        (["inspect", AGG, "--age", "--timestamp", "value.mx"], "value.mx (did you mean value.max?)"),
        (["export", AGG, "--to", "-", "--columns", "key.ky"], "key.ky (did you mean key.key?)"),
        (["export", AGG, "--to", "-", "--where", "value.cont > 3"], "value.cont (did you mean value.count?)"),
        (["export", AGG, "--to", "-", "--table", "0.stat"], "0.stat (did you mean 0.state?)"),
        (["compact", VISITS, "--state", "lst"], "--state lst (did you mean last?)"),
        (["inspect", VISITS, "--state", "lst", "--state", "last"], "--state lst (did you mean last?)"),
        (["doctor", AGG, "--fix", "torn-ofset"], "unknown problem (did you mean torn-offset?)"),
        (["compact", AGG, "--transformer", "tl"], "'tl' (did you mean ttl?)"),
        (["compact", AGG, "--transformer", "ttl", "--set", "til=7d"], "'til' (did you mean ttl?)"),
        (["migrate", AGG, "--set", "codek=lz4"], "codek (did you mean codec?)"),
        (["compact", AGG, "--timestmp", "value.max"], "--timestamp"),
    ],
    ids=" ".join,
)
def test_a_mistyped_name_suggests_names_that_exist(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert hint in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["agg-deltas-lz4-4.2", "join-4.2"])
def test_compact_without_a_rule_names_the_options_if_no_state_stores_an_expiry(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run(["compact", str(sample(name, tmp_path)), "--stopped", "--report", f"html={page}"]) == 0
    told = "Nothing to do: Spark stores no expiry time in any of these states. Give a rule: --ttl DURATION, and where"
    out = capsys.readouterr().out
    assert told in out and "Total:" not in out and told in page.read_text()


def test_compact_without_a_rule_counts_entries_if_a_state_stores_an_expiry(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["compact", str(SAMPLES / "dedup-within-4.2"), "--dry-run"]) == 0
    assert "Total: would drop 0 of 19 entries" in capsys.readouterr().out
