"""A worker of Spark with another ttlsnap, or with another transformer, is refused before it reads an entry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ttlsnap

from ..samples import sample

pytestmark = pytest.mark.spark

# The workers take ttlsnap and the user's module from PYTHONPATH, which is set after this process has imported both.
SCRIPT = """
import json, os, sys
import ttlsnap.engines.workers
from ttlsnap import SparkEngine, compact, migrate
from ttlsnap.spark import read_state
from ttlsnap.transformers.registry import load_factory
from pyspark.sql import SparkSession

checkpoint, installed, outcomes = *sys.argv[1:], {}
factory = load_factory("rules:only_one", {})
os.environ["PYTHONPATH"] = installed
build = SparkSession.builder.master("local[1]").config("spark.python.worker.reuse", "false")
session = build.config("spark.ui.enabled", "false").getOrCreate()
engine = SparkEngine(session)
calls = {
    "compact": lambda: compact(checkpoint, [factory], engine=engine, dry_run=True).totals.dropped,
    "migrate": lambda: migrate(checkpoint, partitions=4, engine=engine, dry_run=True).entries,
    "read": lambda: read_state(session, checkpoint).count(),
}

def attempt(name):
    try:
        return calls[name]()
    except Exception as error:
        return str(error)

for line in sys.stdin:
    name = line.strip()
    print("answer " + json.dumps(attempt(name)), flush=True)
"""
RULES = """
from ttlsnap import Drop, Keep

def only_one(key, value):
    return Keep() if key["key"] == "user-0001" else Drop()
"""


def test_workers_with_other_code_are_refused(tmp_path: Path) -> None:
    package = Path(ttlsnap.__file__).parent
    installed, here = tmp_path / "installed", tmp_path / "here"
    shutil.copytree(package, installed / "ttlsnap")  # with its bytecode, or each worker would compile it
    here.mkdir()
    for folder in (installed, here):
        (folder / "rules.py").write_text(RULES)
    checkpoint = sample("agg-deltas-lz4-4.2", tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", SCRIPT, str(checkpoint), str(installed)],
        env={**os.environ, "PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1", "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin as orders, process.stdout as answers:

        def ask(name: str) -> object:
            print(name, file=orders, flush=True)
            for line in answers:
                if line.startswith("answer "):
                    return json.loads(line.removeprefix("answer "))
            raise AssertionError("the process has ended")

        dropped, entries, rows = (ask(name) for name in ("compact", "migrate", "read"))
        assert isinstance(dropped, int) and isinstance(entries, int)
        assert entries == rows and entries > dropped > 0

        rule = installed / "rules.py"
        rule.write_text(RULES.replace("user-0001", "user-0002"))
        refused = ask("compact")
        assert "has another rules. Install there" in str(refused) and "Traceback" not in str(refused)
        rule.unlink()
        refused = ask("compact")
        assert "No module named 'rules'" in str(refused) and "set PYSPARK_PYTHON" in str(refused)
        rule.write_text(RULES)
        assert ask("compact") == dropped

        changed = installed / "ttlsnap/transform/chain.py"
        code = changed.read_text()
        changed.write_text(code + "# another rule\n")
        for name in ("compact", "migrate", "read"):
            assert "has another ttlsnap. Install there" in str(ask(name))
        changed.write_text(code)
        (installed / "ttlsnap/engines/workers.py").unlink()  # as in versions before this comparison
        refused = ask("compact")
        assert "has no ttlsnap, or an older one. Install there" in str(refused) and "set PYSPARK_PYTHON" in str(refused)


def test_only_one_function_starts_workers() -> None:
    sources = Path(ttlsnap.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if ".mapInArrow(" in path.read_text()] == ["workers.py"]
