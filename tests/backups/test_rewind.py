"""``rewind`` with sample checkpoints: it is a restore from a copy of the checkpoint itself."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ttlsnap import diff, doctor, history, rollback
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.copies.run import SilentCopyListener
from ttlsnap.errors import BusyError, RefusedError, TtlsnapError, UsageError
from ttlsnap.positions.rewinding import rewind
from ttlsnap.storage.open import open_directory

from ..cli.running import Ttlsnap
from ..publishing.trees import end_at_once, end_halfway, tree
from ..samples import NAMES, UNPLANNABLE, bytes_of, sample, without_own

AGG = "agg-deltas-lz4-4.2"


def make_backup(checkpoint: Path, place: Path) -> int | None:
    """Copy the oldest batch but the last one that can be restored. Return its number; None if there is none."""
    logs = read_logs(open_directory(str(checkpoint)))
    for batch in logs.commits[:-1]:
        try:
            return copy(str(checkpoint), str(place), batch=batch).batch
        except TtlsnapError:
            continue
    return None


def files_but_state(checkpoint: Path) -> dict[str, str]:
    """Return the content of all files of a checkpoint, except state and the ids of its files, which are random."""
    found = without_own(bytes_of(checkpoint))
    return {path: content for path, content in found.items() if path.split("/")[0] not in ("state", "commits")}


@pytest.mark.parametrize("name", NAMES)
def test_a_rewind_is_a_restore_from_a_copy_of_that_batch(tmp_path: Path, name: str) -> None:
    rewound, restored, backup = sample(name, tmp_path / "a"), sample(name, tmp_path / "b"), tmp_path / "backup"
    batch = make_backup(restored, backup)
    before = tree(rewound)
    if batch is None:
        with pytest.raises(TtlsnapError):
            rewind(str(rewound), 0, stopped=True)
        assert tree(rewound) == before
        return
    is_planned = name not in UNPLANNABLE
    report = rewind(str(rewound), batch, stopped=True, planned_batch=is_planned)
    copy(str(backup), str(restored), replace=True, stopped=True, planned_batch=is_planned)
    assert files_but_state(rewound) == files_but_state(restored)
    if name != "no-schema-3.0":
        assert diff(str(rewound), str(restored)).differs is False
        assert diff(str(rewound), str(backup)).differs is False
    assert (report.source, report.target, report.source_batch) == (str(rewound), str(rewound), batch)
    assert [problem.code for problem in doctor(str(rewound)).problems] == [
        problem.code for problem in doctor(str(restored)).problems
    ]
    assert [entry.kind for entry in history(str(rewound))][-1] == "restore"
    rollback(str(rewound), stopped=True)
    assert tree(rewound) == before


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (6, "is the last one of"),
        (7, "is not retained"),
        (99, r"batch 99 is not retained in .*\. These can be restored: 0 to 5"),
    ],
)
def test_a_batch_to_which_nothing_can_go_back_is_refused(tmp_path: Path, batch: int, message: str) -> None:
    checkpoint = sample(AGG, tmp_path)
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError, match=message):
        rewind(str(checkpoint), batch, stopped=True)
    assert without_own(bytes_of(checkpoint)) == before


def test_the_batches_that_are_possible_are_listed(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    (checkpoint / "state/0/0/3.delta").unlink()
    before = bytes_of(checkpoint)
    found = ttlsnap("rewind", str(checkpoint), "--format", "json").json["batches"]
    assert [(one["batch"], one["began_at"]) for one in found] == [
        (0, "2026-11-21T08:49:22.180Z"), (1, "2026-11-21T08:49:30.224Z")
    ]  # fmt: skip
    assert "    1  2026-11-21 08:49:30.224Z" in ttlsnap("rewind", str(checkpoint)).out
    assert ttlsnap("rewind", str(checkpoint), "--dry-run").code == 2
    assert bytes_of(checkpoint) == before


def test_the_last_batch_is_possible_only_if_another_was_begun(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)

    def listed() -> list[int]:
        return [one["batch"] for one in ttlsnap("rewind", str(checkpoint), "--format", "json").json["batches"]]

    assert listed() == [0, 1, 2, 3, 4, 5]
    (checkpoint / "commits/6").unlink()
    (checkpoint / "commits/.6.crc").unlink()
    assert listed() == [0, 1, 2, 3, 4, 5]
    rewind(str(checkpoint), 4, stopped=True)
    assert listed() == []
    assert "does not retain" in ttlsnap("rewind", str(checkpoint)).out
    shown = ttlsnap("sources", str(checkpoint))
    assert "has the state and the positions of batch 4. The query reads again what came after batch 4." in shown.out
    assert "back to batch 4" in ttlsnap("history", str(checkpoint)).out


@pytest.mark.parametrize("state", ["whole", "without a lost file", "none"])
@pytest.mark.parametrize("batch", [3, 5])
def test_the_number_of_a_batch_that_the_sink_may_have_is_not_used_again(tmp_path: Path, state: str, batch: int) -> None:
    checkpoint = sample(AGG, tmp_path)
    for name in ("6", ".6.crc"):
        (checkpoint / "commits" / name).unlink()
    if state == "without a lost file":
        end_halfway(checkpoint)
    elif state == "none":
        end_at_once(checkpoint)
    report = rewind(str(checkpoint), batch, stopped=True)
    assert report.batch == (5 if state == "none" else 6)
    assert any("the sink may have it" in warning for warning in report.warnings) is (state != "none")


def test_a_batch_that_spark_began_with_the_planned_number_can_be_gone_back_from(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    rewind(str(checkpoint), 4, stopped=True)
    state = checkpoint / "state/0/0"
    (state / "8.delta").write_bytes((state / "7.snapshot").read_bytes())
    assert rewind(str(checkpoint), 6, stopped=True).batch == 7


def test_a_planned_batch_is_nothing_to_go_back_from(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    rewind(str(checkpoint), 4, stopped=True)
    with pytest.raises(UsageError, match=r"is the last one of .* ttlsnap rollback"):
        rewind(str(checkpoint), 6, stopped=True)


def test_a_batch_whose_state_is_not_complete_is_refused(tmp_path: Path) -> None:
    checkpoint = sample(AGG, tmp_path)
    (checkpoint / "state/0/0/3.delta").unlink()
    before = bytes_of(checkpoint)
    with pytest.raises(UsageError, match=r"Batch 4 cannot be restored; these can: 0 to 1"):
        rewind(str(checkpoint), 4, stopped=True)
    assert without_own(bytes_of(checkpoint)) == before


@pytest.mark.parametrize("path", ["state/0/0/2.delta", "sources/0/1", "commits/7"])
def test_a_query_that_runs_meanwhile_is_noticed(tmp_path: Path, path: str) -> None:
    checkpoint = sample(AGG, tmp_path)

    class Meanwhile(SilentCopyListener):
        def confirm(self, report: object) -> bool:
            (checkpoint / path).write_text("another")
            return True

    with pytest.raises(BusyError, match="Nothing was changed"):
        rewind(str(checkpoint), 4, stopped=True, listener=Meanwhile())
    assert (checkpoint / path).read_text() == "another"
    assert read_logs(open_directory(str(checkpoint))).fence is None


def test_a_dry_run_says_what_a_run_does(tmp_path: Path, ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    checkpoint = sample(AGG, tmp_path)
    before = bytes_of(checkpoint)
    foreseen = ttlsnap("rewind", checkpoint, "--batch", "4", "--dry-run", "--stopped", "--exit-code")
    assert (foreseen.code, "Would set" in foreseen.out, "add --yes" in foreseen.err) == (4, True, True)
    assert ttlsnap("rewind", checkpoint, "--batch", "4", "--dry-run", "--stopped", "--yes", "--exit-code").code == 0
    assert bytes_of(checkpoint) == before
    asked = ttlsnap("rewind", checkpoint, "--batch", "4", "--stopped")
    assert (asked.code, "nobody can be asked" in " ".join(asked.err.split())) == (4, True)
    done = ttlsnap("rewind", checkpoint, "--batch", "4", "--stopped", "--yes")
    assert (done.code, "source 0: 1 file is read again" in done.out) == (0, True)
    assert ttlsnap("rollback", checkpoint, "--stopped").code == 0
    done = ttlsnap("rewind", checkpoint, "--batch", "4", "--stopped", "--yes", "--format", "json")
    document = json.loads(done.out)
    assert (done.code, document["replaced"], document["batch"], document["source_batch"]) == (0, True, 6, 4)


@pytest.mark.parametrize(
    "words",
    [("rewind", "--batch", "4"), ("sources", "--set", "0", "--to", '{"logOffset":4}')],
    ids=["rewind", "sources"],
)
def test_what_a_question_shows_is_not_in_the_document(tmp_path: Path, words: tuple[str, ...]) -> None:
    command, *options = words
    arguments = [command, str(sample(AGG, tmp_path)), *options, "--stopped", "--format", "json"]
    person, terminal = pty.openpty()
    os.write(person, b"n\n")
    done = subprocess.run([sys.executable, "-m", "ttlsnap", *arguments], stdin=terminal, capture_output=True, text=True)
    os.close(person)
    os.close(terminal)
    assert (done.returncode, json.loads(done.stdout)["backup"]) == (0, None), done.stderr
    assert "1 file is read again" in done.stderr and "[y/N]" in done.stderr
    assert ("reads again what came after batch 4" in done.stderr) == (command == "rewind")


def test_a_damaged_log_of_a_source_can_be_gone_back_from(tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    checkpoint = sample(AGG, tmp_path)
    (checkpoint / "sources/0/5").write_bytes(b"v1\n{")
    (checkpoint / "sources/0/.5.crc").unlink()
    done = ttlsnap("rewind", checkpoint, "--batch", "2", "--stopped", "--yes")
    assert (done.code, "the files of 3 entries of its log are read again" in done.out) == (0, True), done.err
    assert not [problem for problem in doctor(str(checkpoint)).problems if problem.severity == "error"]


def test_a_checkpoint_whose_query_has_just_committed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    checkpoint = sample(AGG, tmp_path)
    (checkpoint / "commits/6").touch()
    before = bytes_of(checkpoint)
    with pytest.raises(RefusedError, match="the query may be running"):
        rewind(str(checkpoint), 4)
    assert without_own(bytes_of(checkpoint)) == before
