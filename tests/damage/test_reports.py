"""Damaged reports of runs: ``history`` names them, and ``recover`` and ``compact`` ignore them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..samples import bytes_of, sample
from . import wreck
from .conftest import Refuses, Ttlsnap

LZ4 = "agg-deltas-lz4-4.2"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("totals", "default"),
        ("totals", 255),
        ("totals", {"dropped": "7"}),
        ("totals", {"dropped": -1}),
        ("totals", {"kept": 10**400}),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_history_names_a_report_with_other_fields(
    ttlsnap: Ttlsnap, refuses: Refuses, tmp_path: Path, field: str, value: Any, form: str
) -> None:
    target = sample(LZ4, tmp_path)
    assert ttlsnap("compact", target, *wreck.compacting(LZ4)).code == 0
    (path,) = target.glob("_ttlsnap/runs/*/report.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert f"the report of run {path.parent.name} has" in refuses(5, target, "history", target, "--format", form)


@pytest.mark.parametrize("command", [("recover",), ("compact", *wreck.compacting(LZ4))], ids=lambda c: c[0])
def test_a_damaged_report_of_an_interrupted_run_is_kept(
    ttlsnap: Ttlsnap, tmp_path: Path, command: tuple[str, ...]
) -> None:
    target = sample(LZ4, tmp_path)
    folder = target / "_ttlsnap/runs/20260101T000000Z-abcdef"
    folder.mkdir(parents=True)
    (folder / "report.json").write_text('"totals": {')
    before = bytes_of(folder)
    assert ttlsnap(command[0], target, *command[1:]).code == 0
    assert bytes_of(folder) == before
