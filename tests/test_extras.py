"""A package that is missing is named, with the command that installs it, by commands and by functions of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .compaction.stories import digest
from .samples import SAMPLES

ROOT = Path(__file__).parents[1]
WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None; "
COMMAND = WITHOUT_PYSPARK + "from ttlsnap.cli.app import run; sys.exit(run(sys.argv[1:]))"
EXPIRING = "--ttl 7d --timestamp value.max --stopped"
QUERY = "def build(frame):\n    raise AssertionError\n"
TEST = "def test_query(state_contract):\n    state_contract('jobs:build', 'user string')\n"


def run_python(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in which ttlsnap is the one of this repository."""
    words = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a checkpoint, the module of a query, and a test of it."""
    shutil.copytree(SAMPLES / "agg-deltas-lz4-4.2", tmp_path / "checkpoint")
    (tmp_path / "jobs.py").write_text(QUERY)
    (tmp_path / "test_jobs.py").write_text(TEST)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "contract jobs:build --schema user\tstring",
        f"compact checkpoint {EXPIRING} --engine spark",
        f"compact checkpoint {EXPIRING} --master local",
    ],
)
def test_a_command_that_needs_pyspark_says_how_to_install_it(folder: Path, command: str) -> None:
    before = digest(folder / "checkpoint")
    words = [word.replace("\t", " ") for word in command.split(" ")]
    done = run_python(COMMAND, *words, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert f"the package pyspark is not installed in this Python, {sys.executable}." in done.stderr
    assert done.stderr.endswith("Install it with: pip install 'pyspark>=3.5,<4.4'\n")
    assert digest(folder / "checkpoint") == before


@pytest.mark.parametrize(
    "call",
    [
        "from ttlsnap.contract.of_query import contract_of_query as f; f('jobs:build', 'user string')",
        "from ttlsnap.engines.spark import start_engine as f; f(None, None).__enter__()",
        "from ttlsnap.spark import StateListener",
        "import pytest; pytest.main(['-p', 'no:cacheprovider', 'test_jobs.py'])",
    ],
)
def test_a_function_that_needs_pyspark_raises_the_same_error(folder: Path, call: str) -> None:
    done = run_python(WITHOUT_PYSPARK + call, cwd=folder)
    assert "UsageError: the package pyspark is not installed in this Python" in done.stdout + done.stderr


def test_a_state_is_compacted_without_pyspark(folder: Path) -> None:
    done = run_python(COMMAND, "compact", "checkpoint", *EXPIRING.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
