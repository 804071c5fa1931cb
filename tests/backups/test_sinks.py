"""What sinks do with batches that run again after a backup was used: real Spark shows each line of ``docs/copy.md``."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from ttlsnap.backups.rewinding import rewind
from ttlsnap.backups.run import copy

from ..compaction.stories import MORE_WHOLE, WHOLE
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import rotating


def files_of(out: Path) -> set[str]:
    """Return the files that a file sink or a Delta table names in its log."""
    names = set()
    for log in [*(out / "_spark_metadata").glob("[0-9]*"), *(out / "_delta_log").glob("*.json")]:
        for line in log.read_text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            names |= {entry["path"]} if "path" in entry else {entry["add"]["path"]} if "add" in entry else set()
    return names


@pytest.mark.wide
@pytest.mark.parametrize(
    ("sink", "new_id", "writes_again"),
    [("parquet", False, False), ("parquet", True, False), ("delta", False, False), ("delta", True, True)],
)
def test_a_sink_skips_the_numbers_that_it_knows(
    judge: Judge, tmp_path: Path, sink: str, new_id: bool, writes_again: bool
) -> None:
    checkpoint = judge.write(Query("agg_append", sink=sink), WHOLE)
    copied = judge.at(checkpoint, tmp_path / "copy")
    copy(str(checkpoint.path), str(copied.path), new_id=new_id)
    judge.restart(checkpoint, MORE_WHOLE)
    before = files_of(checkpoint.out)
    if writes_again:
        with pytest.raises(Exception, match="was written twice"):
            judge.restart(copied, MORE_WHOLE)
    else:
        judge.restart(copied, MORE_WHOLE)
    assert (files_of(checkpoint.out) > before) is writes_again


@pytest.mark.wide
@pytest.mark.parametrize(("sink", "rewinds"), rotating([*product(["parquet", "delta"], [False, True])], 2, "sinks"))
def test_a_sink_writes_again_what_is_read_again_after_a_restore_in_place(
    judge: Judge, tmp_path: Path, sink: str, rewinds: bool
) -> None:
    checkpoint = judge.write(Query("agg_append", sink=sink), WHOLE)
    batch = copy(str(checkpoint.path), str(tmp_path / "backup")).batch
    first = judge.restart(checkpoint, MORE_WHOLE)
    before = files_of(checkpoint.out)
    if rewinds:
        rewind(str(checkpoint.path), batch, stopped=True)
    else:
        copy(str(tmp_path / "backup"), str(checkpoint.path), replace=True, stopped=True)
    again = judge.restart(checkpoint, [])
    assert files_of(checkpoint.out) > before
    assert [batch.rows for batch in first if batch.rows] == [batch.rows for batch in again if batch.rows]
