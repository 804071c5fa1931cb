"""Real Spark refuses to start at a fence with an error that names the remedy, and restarts after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..judge.outcomes import expired
from ..judge.processes import NEWEST, VERSIONS
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow
from .commands import Commands
from .faults import KILL, Point, Workshop
from .stories import BATCHES, FIELD, LATER, compact, limit
from .trees import end_halfway, is_fenced, tree


@pytest.mark.parametrize("version", VERSIONS if FULL else narrow([NEWEST, "3.5"]))
def test_spark_refuses_half_a_compaction_and_restarts_after_recover(
    judge: Judge, commands: Commands, tmp_path: Path, version: str
) -> None:
    written = judge.write(Query(), BATCHES, layout="both", version=version, uncommitted=LATER[0])
    end_halfway(written.path)
    workshop = Workshop(commands, tmp_path)
    step = workshop.step("compact", written.path, compact)
    moved = [
        call
        for call in step.calls
        if call.name == "rename" and call.path.endswith("/3.snapshot") and "staged" in call.path
    ]
    assert len(moved) == 2
    finished, undone = (judge.at(written, workshop.cut(step, Point(call, KILL))[0]) for call in (moved[1], moved[1]))
    for checkpoint, options in ((finished, ()), (undone, ("--undo",))):
        half = tree(checkpoint.path)
        assert is_fenced(checkpoint.path) and half not in (step.old, step.new)
        words = judge.refusal(checkpoint)
        assert "ttlsnap fence" in words
        assert f"run `ttlsnap recover {checkpoint.path}` and start the query again" in words
        assert tree(checkpoint.path) == half
        assert commands.run("recover", str(checkpoint.path), *options).code == 0
    assert (tree(finished.path), tree(undone.path)) == (step.new, step.old)
    assert finished.expected.drop(expired(FIELD, limit())) > 0
    for checkpoint in (finished, undone):
        assert judge.restart(checkpoint, LATER[1:]) == checkpoint.expected.run(LATER[1:])
