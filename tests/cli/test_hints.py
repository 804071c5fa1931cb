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
