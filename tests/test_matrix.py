"""The wide matrix, which only ``make test-matrix`` runs, can at least be collected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.wide
def test_the_wide_matrix_can_be_collected() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    environment = {**os.environ, "TTLSNAP_MATRIX": "full"}
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
