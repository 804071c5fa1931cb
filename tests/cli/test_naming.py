"""In a run over several targets, every message names its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttlsnap.cli.app import run
from ttlsnap.cli.output import name_target

from ..samples import sample

WORDS = ("--ttl", "7d", "--engine", "local", "--stopped")


def test_each_message_of_compact_names_its_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample("visits-4.2", tmp_path)  # the run would drop all its entries
    sample("no-schema-3.0", tmp_path)
    sample("rocksdb-4.2", tmp_path)  # its state lacks the field
    monkeypatch.chdir(tmp_path)
    targets = ["visits-4.2", "no-schema-3.0", "rocksdb-4.2"]
    assert run(["compact", *targets, *WORDS, "--timestamp", "value.seen:ms", "--dry-run"]) == 3
    captured = capsys.readouterr()
    assert "\nWarning: visits-4.2: this run would drop all 8 entries" in captured.err
    errors = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert [line.split(": ")[1].rpartition("/")[2] for line in errors] == targets[1:]
    assert "\nvisits-4.2: Dry run: nothing was changed." in captured.out
    assert run(["compact", *targets, *WORDS, "--timestamp", "value.seen:ms"]) == 4
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    assert [line.split(": ")[1].rpartition("/")[2] for line in errors] == targets


def test_messages_of_a_single_target_do_not_name_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = sample("visits-4.2", tmp_path)
    assert run(["compact", str(target), *WORDS, "--timestamp", "value.seen:ms", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("Warning: this run")
    assert "\nDry run: nothing was changed." in captured.out


def test_each_warning_of_a_plan_names_its_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("visits-4.2", "agg-deltas-lz4-4.2"):
        sample(name, tmp_path)
    policy = tmp_path / "policy.toml"
    policy.write_text('[[target]]\npath = "*4.2"\nstopped = true\nttl = "7d"\ntimestamp = "value.seen:ms"\n')
    assert run(["maintain", str(policy), "--engine", "local", "--plan"]) == 2
    out = capsys.readouterr().out
    assert f"\n{tmp_path}/visits-4.2: this run would drop all 8 entries" in out
    assert f"\n{tmp_path}/agg-deltas-lz4-4.2 (target 1): " in out


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("{root}: it is", True),
        ("{root}/state is", True),
        ("{root} is", True),
        ("{root}s: it is", False),
        ("it is", False),
    ],
)
def test_a_message_names_its_target_only_once(tmp_path: Path, text: str, is_named: bool) -> None:
    text = text.format(root=tmp_path)
    assert name_target(text, str(tmp_path)) == (text if is_named else f"{tmp_path}: {text}")
    assert name_target(text, None) == text
