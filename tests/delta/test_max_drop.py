"""A run drops every row of a table only if the user agrees to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..judge.processes import Server, SparkFailed
from ..matrix import FULL
from .tables import Table


@pytest.mark.wide
@pytest.mark.parametrize("options", [{}, {"limits": [1, None]}] if FULL else [{}])
def test_dropping_every_row_is_refused(delta_server: Server, tmp_path: Path, options: dict[str, Any]) -> None:
    # The run uses ``DELETE``, or a scan and ``MERGE`` if the files are too many for one commit.
    table = Table(delta_server, tmp_path, "seconds")
    table.sql(f"DELETE FROM delta.`{table.path}` WHERE at IS NULL")
    before, version = table.rows(), table.version()
    dry = table.compact(timestamp="at:ms", dry_run=True, **options)
    assert dry["totals"]["dropped"] == dry["totals"]["entries"] == len(before)
    assert [f"would drop all {len(before)} entries of the table" in text for text in dry["warnings"]] == [True]
    with pytest.raises(SparkFailed) as refused:
        table.compact(timestamp="at:ms", **options)
    told = str(refused.value)
    assert f"this run would drop all {len(before)} entries of the table" in told
    assert "Timestamps are those of value.at, read in milliseconds (ms): the oldest is 1970-01-21T" in told
    assert "Read in seconds (s), they are from 2026-02-" in told and "the timestamp is value.at:s" in told
    assert (table.rows(), table.version()) == (before, version)
    with pytest.raises(SparkFailed, match="and the limit is 10%"):
        table.compact(max_drop=0.1, **options)
    report = table.compact(timestamp="at:ms", max_drop=1.0, **options)
    assert report["totals"]["dropped"] == len(before) and table.rows() == []


@pytest.mark.wide
def test_a_unit_that_is_too_large_is_a_warning(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path, "millis")
    for options in ({"dry_run": True}, {}):
        report = table.compact(timestamp="at:s", **options)
        assert report["totals"]["dropped"] == 0
        (warning,) = report["warnings"]
        assert warning.startswith("this run drops no entry of the table: every timestamp is more than 30 years")
        assert warning.endswith("If that is right, the timestamp is value.at:ms")
