"""What doctor says of damage after a run of ttlsnap, and that its advice works."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ttlsnap.cli.app import run

from ..samples import bytes_of, sample, without_own
from .asked import Answer, doctor

NAME = "agg-deltas-lz4-4.2"
FIRST, SECOND = "state/0/0/7.snapshot", "state/0/1/7.snapshot"


def compacted(name: str, folder: Path) -> Path:
    """Return a copy of a sample that was compacted."""
    found = sample(name, folder)
    options = ["--ttl", "7d", "--timestamp", "value.max", "--stopped", "--yes", "--engine", "local"]
    assert run(["compact", str(found), *options]) == 0
    return found


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return compacted(NAME, tmp_path)


def codes(found: Answer) -> list[str]:
    """Return the codes without the note about the planned batch."""
    return [code for code in found.codes if code != "planned-batch"]


def roll_back(target: Path) -> int:
    return run(["rollback", str(target), "--stopped"])


def test_a_run_is_clean_also_in_a_copy_with_new_times(target: Path, tmp_path: Path) -> None:
    for each in (target, Path(shutil.copytree(target, tmp_path / "copy", copy_function=shutil.copyfile))):
        found = doctor(each)
        assert (found.code, codes(found)) == (0, [])


def test_rollback_needs_every_changed_file_out_of_the_way(target: Path, tmp_path: Path) -> None:
    (target / FIRST).unlink()
    shutil.copy(target / "state/0/1/6.delta", target / SECOND)
    found = doctor(target)
    assert sorted(codes(found)) == ["published-file-damaged", "published-file-missing"]
    assert roll_back(target) == 4
    for problem in found.document["problems"][:2]:
        assert f"move {target}/{SECOND} out of the checkpoint" in problem["fix"]
    (target / SECOND).unlink()
    assert roll_back(target) == 0
    assert without_own(bytes_of(target)) == bytes_of(sample(NAME, tmp_path / "before"))


def test_a_folder_in_the_place_of_a_published_file_is_damage(target: Path) -> None:
    (target / FIRST).unlink()
    (target / FIRST).mkdir()
    found = doctor(target)
    assert (found.code, codes(found)) == (1, ["published-file-damaged"])


def test_a_wrong_checksum_of_a_published_file_gives_up_no_batch(target: Path) -> None:
    shutil.copy(target / "state/0/0/.6.delta.crc", target / "state/0/0/.7.snapshot.crc")
    found = doctor(target)
    assert codes(found) == ["published-file-damaged"]
    (target / FIRST).unlink()
    assert roll_back(target) == 0


def test_going_back_is_offered_if_a_rollback_cannot_help(target: Path) -> None:
    damaged = (target / FIRST).read_bytes()[:-7]
    (target / FIRST).write_bytes(damaged)
    for path in ("3.delta", ".3.delta.crc"):
        (target / "state/0/0" / path).unlink()
    found = doctor(target)
    assert {"published-file-damaged", "last-batch-lost"} <= set(found.codes)
    assert "can no longer be rolled back" in found.problem("last-batch-lost")["fix"]
    assert "still has what that run dropped" in found.problem("last-batch-lost")["message"]
    (target / FIRST).unlink()
    assert roll_back(target) == 4, "the old state needs the missing delta"
    assert "last-batch-lost" in doctor(target).codes
    assert doctor(target, "--fix", "last-batch-lost", "--stopped", "--yes").document["fixed"] == ["last-batch-lost"]


def test_damage_is_found_after_a_repair_as_well(tmp_path: Path) -> None:
    target = compacted("lzf-both-4.2", tmp_path)
    older = target / "state/0/0/2.snapshot"
    older.write_bytes(older.read_bytes()[:-1])
    fixed = doctor(target, "--fix", "damaged-snapshot", "--stopped")
    assert (fixed.code, codes(fixed)) == (0, [])
    shutil.copyfile(target / "state/0/1/5.snapshot", target / "state/0/0/5.snapshot")
    found = doctor(target)
    assert set(codes(found)) == {"published-file-damaged", "last-batch-lost", "misplaced-keys"}
    assert found.restorable[5] is False
    assert "can no longer be rolled back" in found.problem("published-file-damaged")["fix"]
    (target / "state/0/0/5.snapshot").unlink()
    missing = doctor(target)
    assert set(codes(missing)) == {"published-file-missing", "last-batch-lost"}
    assert missing.restorable[5] is False


def test_a_damaged_journal_ends_in_a_report(target: Path) -> None:
    (journal,) = target.glob("_ttlsnap/runs/*/journal.json")
    journal.write_text("{")
    found = doctor(target)
    assert found.code == 1
    assert found.problem("damaged-log")["where"].startswith("_ttlsnap/runs")
