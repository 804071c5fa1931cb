"""A user's mistake has exit code 2 and is never reported as damage (5). A full disk below the output is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import SAMPLES, bytes_of, sample

FAILS = "def fails(key, value):\n    raise ValueError('out of order')\n"


def test_an_exception_in_a_transformer_has_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_rule.py").write_text(FAILS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before = bytes_of(target)
    assert run(["compact", str(target), "--transformer", "failing_rule:fails", "--engine", "local", "--stopped"]) == 2
    error = capsys.readouterr().err
    assert "ValueError at failing_rule.py:2: out of order" in error and "operator 0" in error
    assert bytes_of(target) == before


@pytest.mark.parametrize("name", ["nosuch.toml", ""])
def test_a_missing_policy_has_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["maintain", str(tmp_path / name)]) == 2
    assert f"{tmp_path / name} " in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", [False, True])
def test_an_output_that_cannot_be_written_has_exit_code_5(unbuffered: bool) -> None:
    words = [sys.executable, "-m", "ttlsnap", "inspect", str(SAMPLES / "agg-deltas-lz4-4.2")]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    given = plain | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=given, text=True, check=False)
    told = "Error: cannot write to the standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (5, told)
