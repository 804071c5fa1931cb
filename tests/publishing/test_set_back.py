"""ttlsnap's snapshot never hides the new result of a batch that was compacted, set back and run again.

The operator replaces a wrong input file, and deletes its batch from the logs. Real Spark then runs the batch again, and
is the judge of the result.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap import doctor, inspect, migrate, rollback
from ttlsnap.cli.app import run
from ttlsnap.errors import RefusedError

from ..compaction.stories import BATCHES, MORE, T, drop_expired, settled, unwanted
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..samples import sample
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


@pytest.mark.parametrize("offsets_stay", [False, True], ids=["all logs", "only its commit"])
def test_a_migration_can_be_rolled_back_before_the_batch_runs_again(
    judge: Judge, inputs: Judge, capsys: pytest.CaptureFixture[str], offsets_stay: bool
) -> None:
    """A migration moves the earlier logs away, so Spark does not start without those of the last batch."""
    written = inputs.write(QUERIES[0], BATCHES)
    settled(written.path)
    migrate(str(written.path), partitions=3, stopped=True)
    offsets = (written.path / "offsets/2").read_bytes()
    set_back(judge, written)
    if offsets_stay:
        (written.path / "offsets/2").write_bytes(offsets)
    capsys.readouterr()
    for command in ("inspect", "doctor"):
        assert run([command, str(written.path)]) == 2
        assert f"run: ttlsnap rollback {written.path}" in capsys.readouterr().err
    rollback(str(written.path), stopped=True)
    assert not inspect(str(written.path)).warnings
    assert judge.restart(written, []) == written.expected.run([CORRECTED])
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)


def test_a_repair_is_not_rolled_back_after_the_batch_was_set_back(tmp_path: Path) -> None:
    """It would bring the later logs back, but not those of the batch."""
    target = sample("uncommitted-batch-4.2", tmp_path)
    batch = inspect(str(target)).checkpoint.batch.id
    torn = target / f"offsets/{batch + 1}"
    torn.write_bytes(torn.read_bytes()[:40])
    torn.with_name(f".{torn.name}.crc").unlink()
    doctor(str(target), fix=["torn-offset"], stopped=True)
    for name in ("offsets", "commits"):
        (target / name / str(batch)).unlink()
    with pytest.raises(RefusedError, match="was set back after the repair"):
        rollback(str(target), stopped=True)


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
