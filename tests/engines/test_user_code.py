"""No process takes code from the current folder, which may be a checkpoint, except modules that the user named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import ttlsnap

from ..samples import sample

pytestmark = pytest.mark.slow

TARGET = "agg-deltas-lz4-4.2"
WEEK = ("--ttl", "7d", "--timestamp", "value.max", "--dry-run")
MINE = """
import re
import sibling

from ttlsnap import Drop, Keep

def rule(key, value):
    import later  # beside this file, too
    return Drop() if later.is_old(value["count"]) and sibling.YES else Keep()

def of_rows(key, value):
    return rule(key, value["value"])

def query(df):
    return df.groupBy("key").count()
"""
NOT_INSTALLED = ("usercustomize", "sitecustomize", "not_there", "IPython", "pandas", "obstore", "polars", "tomli")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return a checkpoint with a file for every name of a library, and with a Spark in the folder above it."""
    made = sample(TARGET, tmp_path)
    says = f"open({str(tmp_path / 'ran')!r}, 'a').write(__file__ + chr(10))\n"
    libraries = {*sys.stdlib_module_names, *packages_distributions(), *NOT_INSTALLED}
    for name in libraries - {"ttlsnap", "mine", "sibling", "later"}:
        if name.isidentifier():
            (made / f"{name}.py").write_text(says)
    (made / "mine.py").write_text(MINE)
    (made / "sibling.py").write_text("YES = True\n")
    (made / "later.py").write_text("def is_old(count):\n    return count < 3\n")
    (tmp_path / "jars").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spark-submit").write_text(f"#!/bin/sh\necho spark-submit >> {tmp_path / 'ran'}\nexit 1\n")
    (tmp_path / "bin/spark-submit").chmod(0o755)
    info = made / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ttlsnap.transformers]\nevil = not_there:anything\n")
    return made


def run(checkpoint: Path, *words: str) -> str:
    """Run a command in the checkpoint, and return what it prints. It must succeed, and run nothing there."""
    unset = ("PYTHONSAFEPATH", "SPARK_HOME", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["PYTHONPATH"] = str(Path(ttlsnap.__file__).parents[1])  # the code that is tested
    done = subprocess.run(
        [Path(sys.executable).with_name("ttlsnap"), *words],
        cwd=checkpoint,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ran = checkpoint.parent / "ran"
    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done
    return done.stdout


def dropped(checkpoint: Path, *words: str, rule: str = "rule") -> int:
    """Return how many entries a dry run drops with the user's rule."""
    found = run(checkpoint, *words, "--transformer", f"mine:{rule}", "--dry-run", "--format", "json")
    return int(json.loads(found)["totals"]["dropped"])


def test_commands_without_spark_run_nothing(checkpoint: Path) -> None:
    for words in (
        ("inspect", ".", "--age", "--timestamp", "value.max", "--sizes", "--entries", "1"),
        ("doctor", "."),
        ("contract", "."),
        ("check", ".", "."),
        ("export", ".", "--to", "delta:../table"),
        ("inspect", "../table/0.state"),
        ("compact", ".", *WEEK, "--report", "html=../page.html", "--engine", "local"),
        ("migrate", ".", "--partitions", "3", "--dry-run", "--engine", "local"),
    ):
        run(checkpoint, *words)
    assert dropped(checkpoint, "compact", ".", "--engine", "local") > 0
    assert "evil" not in run(checkpoint, "transformers")


@pytest.mark.spark
def test_spark_and_its_workers_run_only_what_was_named(checkpoint: Path) -> None:
    local = dropped(checkpoint, "compact", ".", "--engine", "local")
    assert dropped(checkpoint, "compact", ".", "--engine", "spark") == local


@pytest.mark.wide
@pytest.mark.spark
def test_spark_runs_only_what_was_named_on_tables_and_queries(checkpoint: Path) -> None:
    local = dropped(checkpoint, "compact", ".", "--engine", "local")
    run(checkpoint, "export", ".", "--to", "delta:../tables")
    assert dropped(checkpoint, "compact", "../tables/0.state", "--key", "key", rule="of_rows") == local
    contract = json.loads(
        run(checkpoint, "contract", "mine:query", "--schema", "key STRING", "--output-mode", "update")
    )
    assert contract["operators"][0]["name"] == "stateStoreSave"
