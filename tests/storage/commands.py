"""Commands that run in this process, and their JSON documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ttlsnap.cli.app import run


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Run a command that must succeed. Return the JSON document that it prints."""
    assert run([*words, "--format", "json"]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)
