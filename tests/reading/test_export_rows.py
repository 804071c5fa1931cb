"""Exported rows are those that Spark's own ``statestore`` source reads, for every operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ttlsnap import export

from ..compaction.stories import BATCHES, WHOLE, settled
from ..judge.processes import NEWEST
from ..judge.queries import ENDLESS, ONLY_ROCKSDB, Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from .export_queries import EVERYTHING, SLICE


def source_options(table: dict[str, Any], name: str) -> dict[str, str]:
    """Return the options of Spark's source for the state of an exported table."""
    operator, _, state = name.partition(".")
    options = {"operatorId": operator}
    if state in ("left", "right"):
        return {**options, "joinSide": state}
    if state in ("eventTimers", "procTimers"):
        return {**options, "readRegisteredTimers": "true"}
    return options if state == "state" else {**options, "stateVarName": state}


@pytest.mark.parametrize(
    "query",
    EVERYTHING if FULL else narrow(SLICE, 1, 2, 4, 6),
    ids=lambda q: f"{q.operator}-{q.provider}-{q.join_format}-{q.checkpoint_format}",
)
def test_exported_rows_are_those_that_spark_reads(judge: Judge, tmp_path: Path, query: Query) -> None:
    layout = "both" if query.operator in ENDLESS else "snapshot"
    # The code of these operators takes no event without a time.
    whole = query.operator in (*ENDLESS, *ONLY_ROCKSDB) or query.operator.startswith("groups")
    written = judge.write(query, WHOLE if whole else BATCHES, layout=layout)
    settled(written.path)
    report = export(str(written.path), str(tmp_path / "state"))
    assert not report.left_out
    assert sum(report.rows.values()) > 0
    for table in report.to_json()["tables"]:
        found = judge.call_in(
            Path(__file__).parent,
            written.version,
            "read_exports.read_both",
            checkpoint=str(written.path),
            exported=str(tmp_path / "state" / table["name"]),
            options=source_options(table, table["name"]),
            checkpoint_format=query.checkpoint_format,
        )
        assert found[0] == found[1]
        assert len(found[1]) == table["rows"]


@pytest.mark.wide
@pytest.mark.parametrize("version", ["3.5", "4.0", "4.3"] if FULL else ["3.5"])
def test_a_dataframe_has_the_exported_rows(judge: Judge, tmp_path: Path, version: str) -> None:
    """Spark's own source reads checkpoints of Spark 4.0 and later; ttlsnap's also those of older versions."""
    written = judge.write(Query("join_parities"), BATCHES, layout="both", version=version)
    settled(written.path)
    export(str(written.path), str(tmp_path / "state"))
    found = judge.call_in(
        Path(__file__).parent,
        NEWEST,
        "read_exports.read_state_and_files",
        checkpoint=str(written.path),
        exported=str(tmp_path / "state/0.left"),
        store="left-keyWithIndexToValue",
    )
    assert found[0] == found[1] != []
