"""The worked example of the guide runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/history/start_with_history.py"


@pytest.mark.wide
@pytest.mark.spark
def test_a_query_begins_with_the_history_of_a_batch_job(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPARK")}
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "imported 50 customers; the query reads on from ({'logOffset': 0},)" in done.stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    assert rows == [["customer", "orders", "turnover"], ["customer-7", "16", "157"], ["customer-new", "1", "5"]]
