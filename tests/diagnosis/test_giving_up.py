"""A repair that gives up committed batches needs consent: at a terminal, by an option, or from the caller."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ttlsnap import doctor as look
from ttlsnap import rollback
from ttlsnap.diagnosis import GoingBack
from ttlsnap.errors import RefusedError

from ..samples import bytes_of, moved_sample, sample, without_own
from .asked import doctor

NAME = "agg-deltas-lz4-4.2"
FIX = ("--fix", "last-batch-lost", "--stopped")
QUESTION = "gives up committed batches 2 to 6 of"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return a checkpoint that can only be restored to the state after batch 1."""
    target = sample(NAME, tmp_path)
    for path in (target / "state/0/0/3.delta", target / "state/0/0/.3.delta.crc"):
        path.unlink()
    return target


def test_the_repair_is_refused_without_a_terminal(damaged: Path) -> None:
    before = bytes_of(damaged)
    answer = doctor(damaged, *FIX)
    assert answer.code == 4
    for words in (QUESTION, "the state after batch 1", "--yes", "Nothing was changed"):
        assert words in answer.error
    assert bytes_of(damaged) == before
    with pytest.raises(RefusedError, match=r"confirm=\.\.\."):
        look(str(damaged), fix=["last-batch-lost"], stopped=True)
    assert bytes_of(damaged) == before


def test_the_option_yes_is_consent(damaged: Path) -> None:
    answer = doctor(damaged, *FIX, "--yes")
    assert answer.document["fixed"] == ["last-batch-lost"], answer.error
    assert answer.document["batch"] == 6  # it has the state of batch 1


def test_no_file_of_a_batch_that_is_given_up_stays(damaged: Path) -> None:
    before = bytes_of(damaged)
    look(str(damaged), fix=["last-batch-lost"], stopped=True, confirm=lambda going_back: True)
    # The numbers of batches go on: the state of batch 1 is that of batch 6, and batch 7 is planned.
    kept = [name for name in without_own(bytes_of(damaged)) if not name.startswith("sources")]
    numbers = {
        folder: {
            int(name.split("/")[-1].strip(".").split(".")[0]) for name in kept if re.match(rf"{folder}/\.?\d", name)
        }
        for folder in ("offsets", "commits", "state/0/0", "state/0/1")
    }
    assert numbers == {"offsets": {5, 6, 7}, "commits": {6}, "state/0/0": {7}, "state/0/1": {7}}
    rollback(str(damaged), stopped=True)
    assert without_own(bytes_of(damaged)) == before


@pytest.mark.parametrize("answer", [False, True])
def test_a_caller_is_asked_with_the_batches_to_give_up(damaged: Path, answer: bool) -> None:
    before = bytes_of(damaged)
    asked = []

    def confirm(going_back: GoingBack) -> bool:
        asked.append(going_back)
        assert without_own(bytes_of(damaged)) == before
        return answer

    report = look(str(damaged), fix=["last-batch-lost"], stopped=True, confirm=confirm)
    assert asked == [GoingBack(str(damaged), "last-batch-lost", 1, (2, 3, 4, 5, 6))]
    assert report.fixed == (("last-batch-lost",) if answer else ())
    assert (bytes_of(damaged) == before) is not answer


@pytest.mark.parametrize("answer", ["n", "y"])
def test_the_repair_asks_at_a_terminal(damaged: Path, answer: str) -> None:
    before = bytes_of(damaged)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "ttlsnap", "doctor", str(damaged), *FIX, "--parallelism", "1"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert QUESTION in done.stderr and "Give them up? [y/N]" in done.stderr
    if answer == "y":
        assert (done.returncode, "repaired by run" in done.stdout) == (0, True), done
    else:
        assert (done.returncode, "Nothing was changed." in done.stderr) == (1, True), done
        assert bytes_of(damaged) == before


def test_other_repairs_do_not_ask(tmp_path: Path) -> None:
    target = moved_sample("visits-4.2", tmp_path)
    (target / "offsets/4").write_bytes(b"")
    answer = doctor(target, "--fix", "torn-offset", "--fix", "moved-schema-paths", "--stopped")
    assert answer.document["fixed"] == ["torn-offset", "moved-schema-paths"], answer.error
