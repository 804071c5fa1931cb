"""ttlsnap's snapshot never hides the new result of a batch that was compacted, set back and run again.

The operator replaces a wrong input file, and deletes its batch from the logs. Real Spark then runs the batch again, and
is the judge of the result.
"""

from __future__ import annotations

import json

import pytest

from ttlsnap import inspect, rollback
from ttlsnap.cli.app import run
from ttlsnap.errors import RefusedError

from ..compaction.stories import BATCHES, MORE, T, drop_expired, settled, unwanted
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from .interventions import CORRECTED, set_back

QUERIES = [Query("agg_update"), Query("agg_update", provider="rocksdb", changelog=True)]


@pytest.fixture(params=QUERIES if FULL else QUERIES[:1], ids=lambda query: query.provider)
def compacted(inputs: Judge, request: pytest.FixtureRequest) -> Checkpoint:
    written = inputs.write(request.param, BATCHES)
    settled(written.path)
    assert drop_expired(written.path, written.query).published
    return written


@pytest.mark.parametrize("planned", [True, False])
def test_a_run_can_be_rolled_back_before_the_batch_runs_again(
    judge: Judge, compacted: Checkpoint, planned: bool
) -> None:
    set_back(judge, compacted, planned=planned)
    (warning,) = inspect(str(compacted.path)).warnings
    assert "batch 2 was set back after ttlsnap run" in warning and "ttlsnap rollback" in warning
    with pytest.raises(RefusedError, match="batch 2 was set back"):
        drop_expired(compacted.path, compacted.query)
    rollback(str(compacted.path), stopped=True)
    assert not inspect(str(compacted.path)).warnings
    assert judge.restart(compacted, []) == compacted.expected.run([CORRECTED])
    assert judge.restart(compacted, MORE, fresh=True) == compacted.expected.run(MORE)


def test_doctor_repairs_a_hidden_batch_that_ran_again(
    judge: Judge, compacted: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    set_back(judge, compacted)
    model = compacted.expected
    assert judge.restart(compacted, []) == model.run([CORRECTED])
    target = str(compacted.path)
    assert "batch 2 was run again after ttlsnap run" in inspect(target).warnings[0]
    with pytest.raises(RefusedError, match=r"hide the new result .* --fix hidden-batch"):
        drop_expired(compacted.path, compacted.query)
    with pytest.raises(RefusedError, match="was run again after run"):
        rollback(target, stopped=True)
    capsys.readouterr()
    assert run(["doctor", target, "--format", "json"]) == 1
    assert "hidden-batch" in {found["code"] for found in json.loads(capsys.readouterr().out)["problems"]}
    assert run(["doctor", target, "--fix", "hidden-batch", "--stopped"]) == 0
    assert not inspect(target).warnings
    # Only a fresh process reads the state from the disk.
    assert judge.restart(compacted, MORE, fresh=True) == model.run(MORE)


def test_logs_that_spark_has_cleaned_up_cause_no_warning(judge: Judge, compacted: Checkpoint) -> None:
    more = [[Event(f"k{i}", T + i * 60, i)] for i in range(4)]
    model = compacted.expected
    model.drop(unwanted(compacted.query))
    assert judge.restart(compacted, more) == model.run(more)
    for name in ("offsets/2", "commits/2"):
        (compacted.path / name).unlink()
    assert not inspect(str(compacted.path)).warnings
