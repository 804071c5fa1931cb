"""ttlsnap's snapshot never hides the new result of a batch that was compacted, set back and run again.

The operator replaces a wrong input file, and deletes its batch from the logs. Real Spark then runs the batch again, and
is the judge of the result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from ttlsnap import Drop, Keep, compact, doctor, inspect, migrate, rollback
from ttlsnap.cli.app import run
from ttlsnap.errors import RefusedError
from ttlsnap.spark import read_state
from ttlsnap.transform.protocols import EntryTransformerFactory

from ..compaction.stories import BATCHES, MORE, T, digest, drop_expired, rocksdb, settled, unwanted
from ..diagnosis.asked import doctor as ask
from ..judge.model import Model
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL, narrow
from ..samples import sample
from .interventions import CORRECTED, set_back
from .publishers import drop_some
from .trees import end_halfway

QUERIES = [Query("agg_update"), Query("agg_update", provider="rocksdb", changelog=True)]


@pytest.fixture(params=QUERIES if FULL else QUERIES[:1], ids=lambda query: query.provider)
def compacted(inputs: Judge, request: pytest.FixtureRequest) -> Checkpoint:
    written = inputs.write(request.param, BATCHES)
    settled(written.path)
    assert drop_expired(written.path, written.query).published
    return written


def test_snapshots_of_withdrawn_batches_are_named_before_these_run_again(tmp_path: Path) -> None:
    target = sample("lzf-both-4.2", tmp_path)
    assert not inspect(str(target)).warnings
    for batch in range(1, 5):
        for folder in ("commits", "offsets"):
            (target / folder / str(batch)).unlink()
    end_halfway(target)
    (warning,) = inspect(str(target)).warnings
    assert "2.snapshot (such files: " in warning and "the newest batch that has begun is 0" in warning
    drop_some(target, stopped=True)
    assert not inspect(str(target)).warnings
    assert warning in rollback(str(target), stopped=True).warnings
    doctor(str(target), fix=["stale-snapshot"], stopped=True)
    assert not inspect(str(target)).warnings


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


def test_snapshots_of_partitions_that_the_run_left_alone_move_away_with_a_rollback(judge: Judge, inputs: Judge) -> None:
    """Spark wrote them itself, and would load them instead of the new result."""
    written = inputs.write(QUERIES[0], BATCHES, layout="snapshots")
    settled(written.path)
    one_key = EntryTransformerFactory(lambda key, value: Drop() if key["key"] == "k2" else Keep())
    report = compact(str(written.path), [one_key], stopped=True)
    assert len(list(written.path.glob(f"_ttlsnap/runs/{report.run}/backup/state/0/*/3.snapshot"))) == 1
    assert len(snapshots_of(written, 3)) == 2
    set_back(judge, written)
    assert rollback(str(written.path), stopped=True).set_back_to == 1
    assert not snapshots_of(written, 3)
    assert judge.restart(written, []) == written.expected.run([CORRECTED])
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)


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


def age(snapshots: Iterable[Path]) -> None:
    """Make snapshots older than the deltas of their versions, as a copy may that does not keep times."""
    for path in snapshots:
        then = path.with_suffix(".delta").stat().st_mtime - 1
        os.utime(path, (then, then))


def snapshots_of(checkpoint: Checkpoint, version: int) -> list[Path]:
    return [path for path in checkpoint.path.glob(f"state/0/*/{version}.*") if path.suffix in (".snapshot", ".zip")]


@pytest.mark.parametrize("query", narrow(QUERIES))
def test_the_snapshot_of_a_withdrawn_batch_is_found_and_moved_away(
    judge: Judge, query: Query, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """ttlsnap has not been involved before, so that no journal identifies the snapshot."""
    written = judge.write(query, BATCHES, layout="snapshots")
    settled(written.path)
    set_back(judge, written, planned=False)
    model = written.expected
    assert ask(written.path).codes == ["stale-snapshot"]
    assert judge.restart(written, []) == model.run([CORRECTED])
    before, target = settled(written.path), str(written.path)
    names = sorted(str(path.relative_to(written.path)) for path in snapshots_of(written, 3))

    wrong = judge.copy(written)
    assert judge.restart(wrong, MORE, fresh=True) != model.run(MORE), "Spark loads the withdrawn snapshot"
    found = ask(written.path)
    assert (found.code, sorted(each["where"] for each in found.document["problems"])) == (1, names)
    assert set(found.codes) == {"stale-snapshot"} and all(each["fixable"] for each in found.document["problems"])
    assert "ran again" in inspect(target).warnings[0]
    for command in (["compact", "--ttl", "2h", "--timestamp", "value.max"], ["migrate", "--partitions", "3"]):
        assert run([command[0], target, *command[1:], "--stopped", "--yes"]) == 4
        assert "--fix stale-snapshot" in capsys.readouterr().err
    # A copy would not have the newer delta, which shows that the snapshot is stale.
    assert run(["copy", target, str(tmp_path / "copy")]) == 4
    assert "--fix stale-snapshot" in capsys.readouterr().err and not (tmp_path / "copy").exists()
    assert run(["export", target, "--to", str(tmp_path / "tables")]) == 0
    assert run(["diff", target]) == 1
    assert capsys.readouterr().err.count("ran again") == 2
    assert settled(written.path) == before

    assert run(["doctor", target, "--fix", "stale-snapshot", "--stopped"]) == 0
    assert not inspect(target).warnings
    rollback(target, stopped=True)
    assert digest(written.path) == before
    assert run(["doctor", target, "--fix", "stale-snapshot", "--stopped"]) == 0
    corrected = Model(query)
    corrected.run([*BATCHES[:2], CORRECTED])
    assert judge.restart(written, MORE, fresh=True) == corrected.run(MORE)
    # After this restart of the copy, a repair is too late for the batches that were based on the withdrawn state.
    assert all("set them back as well" in each["fix"] for each in ask(wrong.path).document["problems"])


@pytest.mark.wide
@pytest.mark.parametrize(
    ("query", "codes"), [(rocksdb("agg_update", True, 2), []), (rocksdb("agg_update", False), ["stale-snapshot"])]
)
def test_spark_replaces_snapshots_without_changelogs_and_does_not_read_others_with_ids(
    judge: Judge, query: Query, codes: list[str]
) -> None:
    written = judge.write(query, BATCHES, layout="snapshot")
    settled(written.path)
    set_back(judge, written, planned=False)
    assert ask(written.path).codes == codes
    assert judge.restart(written, []) == written.expected.run([CORRECTED])
    settled(written.path)
    assert ask(written.path).codes == []
    assert judge.restart(written, MORE, fresh=True) == written.expected.run(MORE)


def test_a_withdrawn_batch_of_rocksdb_is_not_taken_for_a_repartition(inputs: Judge) -> None:
    written = inputs.write(rocksdb("agg_update", False), BATCHES, layout="snapshot")
    set_back(inputs, written, planned=False)
    assert ask(written.path).codes == ["stale-snapshot"]


@pytest.mark.parametrize("with_older_files", [True, False])
def test_an_old_snapshot_with_the_state_of_its_batch_is_not_stale(inputs: Judge, with_older_files: bool) -> None:
    """A copy does not keep times. Without older files, the content cannot be compared, and ttlsnap only warns."""
    written = inputs.write(QUERIES[0], BATCHES, layout="snapshots")
    age(snapshots_of(written, 3))
    if not with_older_files:
        for path in (
            path for name in ("1.*", ".1.*", "2.*", ".2.*") for path in written.path.glob(f"state/0/*/{name}")
        ):
            path.unlink()
    found = ask(written.path)
    assert (found.code, set(found.codes)) == (0, set() if with_older_files else {"maybe-stale-snapshot"})
    assert len(inspect(str(written.path)).warnings) == 1
    with pytest.warns(UserWarning, match="ran again"), pytest.raises(AttributeError):
        read_state(None, str(written.path))  # the warning comes before the session is used
    assert drop_expired(written.path, written.query).published


@pytest.mark.parametrize("stale", [(2,), (2, 3)])
def test_a_snapshot_is_compared_with_older_files_that_are_right(inputs: Judge, stale: tuple[int, ...]) -> None:
    """The stale snapshots here have the state of the version before them."""
    written = inputs.write(QUERIES[0], BATCHES, layout="snapshots")
    for version in sorted(stale, reverse=True):
        for path, older in zip(snapshots_of(written, version), snapshots_of(written, version - 1), strict=True):
            path.write_bytes(older.read_bytes())
            path.with_name(f".{path.name}.crc").write_bytes(older.with_name(f".{older.name}.crc").read_bytes())
    for version in (2, 3):
        age(snapshots_of(written, version))
    found = ask(written.path)
    assert {each["where"] for each in found.document["problems"]} == {
        str(path.relative_to(written.path)) for version in stale for path in snapshots_of(written, version)
    }
    severities = {each["where"]: each["severity"] for each in found.document["problems"]}
    if 3 not in stale:
        assert set(severities.values()) == {"warning"}
        assert drop_expired(written.path, written.query).published
        return
    assert "error" in severities.values()
    fixed = ask(written.path, "--fix", "stale-snapshot", "--stopped")
    assert (fixed.code, fixed.codes) == (0, [])
    assert not any(snapshots_of(written, version) for version in stale)
