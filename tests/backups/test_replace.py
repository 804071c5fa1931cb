"""``copy --replace`` with sample checkpoints: what the restored checkpoint has, and how it is undone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import diff, doctor, history, inspect, recover, rollback
from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.source_logs import UNREAD, line_of
from ttlsnap.copies.manifest import MANIFEST
from ttlsnap.copies.report import CopyReport
from ttlsnap.errors import BusyError, CorruptionError, FencedError, RefusedError, TtlsnapError, UsageError
from ttlsnap.storage.open import open_directory

from ..cli.running import Ttlsnap
from ..compaction.joins import BATCHES, nullable
from ..judge.queries import Query
from ..judge.spark import Judge
from ..publishing.trees import end_at_once, tree
from ..samples import NAMES, UNPLANNABLE, bytes_of, sample, without_own
from ..transaction.killing import killed
from .sources import read_one_source_twice

AGG, VISITS, BEGUN = "agg-deltas-lz4-4.2", "visits-4.2", "uncommitted-batch-4.2"
HARMLESS = {"no-schema", "planned-batch", "uncommitted-batch"}


def make_backup(checkpoint: Path, place: Path) -> int:
    """Copy the oldest batch of a checkpoint that can be restored. Return its number."""
    for batch in read_logs(open_directory(str(checkpoint))).commits:
        try:
            return copy(str(checkpoint), str(place), batch=batch).batch
        except TtlsnapError:
            continue
    raise AssertionError(f"{checkpoint} has no batch that can be restored")


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_gets_the_state_of_its_backup_and_a_rollback_takes_it_back(tmp_path: Path, name: str) -> None:
    checkpoint, backup = sample(name, tmp_path, whole=True), tmp_path / "backup"
    batch = make_backup(checkpoint, backup)
    before = tree(checkpoint)
    # Its sink may have the batch that was begun.
    last = read_logs(open_directory(str(checkpoint))).commits[-1] + (name == BEGUN)
    is_planned = name not in UNPLANNABLE
    report = copy(str(backup), str(checkpoint), replace=True, stopped=True, planned_batch=is_planned)
    after = read_logs(open_directory(str(checkpoint)))
    assert (report.replaced, report.source_batch, report.batch) == (True, batch, last)
    assert (after.commits[-1], after.offsets[-1]) == (last, last + is_planned)
    assert {problem.code for problem in doctor(str(checkpoint)).problems} <= HARMLESS
    if name != "no-schema-3.0":
        assert diff(str(backup), str(checkpoint)).differs is False
    assert [entry.kind for entry in history(str(checkpoint))][-1] == "restore"
    rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == before


def restore(backup: Path, checkpoint: Path, **options: Any) -> CopyReport:
    """Restore a checkpoint in place from a copy."""
    return copy(str(backup), str(checkpoint), replace=True, stopped=True, **options)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Return a checkpoint at batch 6, and its copy as of batch 4."""
    checkpoint, backup = sample(AGG, tmp_path), tmp_path / "backup"
    copy(str(checkpoint), str(backup), batch=4)
    return checkpoint, backup


def test_the_log_of_a_source_goes_on_where_it_ended(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    for number in range(6, 10):
        (checkpoint / f"sources/0/{number}").write_text((checkpoint / "sources/0/5").read_text())
    restore(backup, checkpoint)
    assert sorted(path.name for path in (checkpoint / "sources/0").glob("[0-9]*")) == [str(n) for n in range(10)]
    assert {(checkpoint / f"offsets/{n}").read_text().splitlines()[2] for n in (5, 6, 7)} == {'{"logOffset":9}'}
    assert [(checkpoint / f"sources/0/{n}").read_bytes() for n in range(5)] == [
        (backup / f"sources/0/{n}").read_bytes() for n in range(5)
    ]
    path = json.loads((backup / "sources/0/4").read_text().splitlines()[1])["path"]
    nothing = ["v1", line_of(f"{path}{UNREAD}", 0, 0).decode()]
    assert [(checkpoint / f"sources/0/{n}").read_text().splitlines() for n in range(5, 10)] == [nothing] * 5


def test_a_log_that_spark_compacted_meanwhile_has_what_the_backup_had_read(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    log = checkpoint / "sources/0"
    for number in (3, 7):
        (log / f"{number}.compact").write_text("v1\n" + "\n".join(read_entries(log, range(min(number, 5) + 1))))
    (log / "8").write_text((log / "5").read_text())
    restore(backup, checkpoint)
    assert sorted(path.name for path in log.glob("[0-9]*")) == ["3.compact", "7.compact", "8"]
    known = read_entries(backup / "sources/0", range(5))
    assert (log / "7.compact").read_text().splitlines() == ["v1", *known]
    path = json.loads(known[-1])["path"]
    assert (log / "8").read_text().splitlines() == ["v1", line_of(f"{path}{UNREAD}", 0, 0).decode()]
    assert (checkpoint / "offsets/6").read_text().splitlines()[2] == '{"logOffset":8}'
    assert {problem.code for problem in doctor(str(checkpoint)).problems} <= HARMLESS


def test_the_logs_of_a_source_that_the_query_uses_twice_and_of_another_one_go_on(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    for folder in pair:
        read_one_source_twice(folder, lambda batch: (batch, batch, batch // 2))
    (checkpoint / "sources/1/6").unlink()
    (backup / "_ttlsnap/copy.json").unlink()
    restore(backup, checkpoint)
    logs = {n: sorted(path.name for path in (checkpoint / f"sources/{n}").glob("[0-9]*")) for n in (0, 1)}
    assert logs == {0: [str(n) for n in range(7)], 1: [str(n) for n in range(6)]}
    assert (checkpoint / "offsets/6").read_text().splitlines()[2:] == [f'{{"logOffset":{n}}}' for n in (6, 6, 5)]


def test_a_log_that_has_lost_a_file_becomes_that_of_the_backup(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    log = checkpoint / "sources/0"
    for number in range(6, 12):
        if number != 9:  # Spark's file of this number was 9.compact, which is lost
            (log / str(number)).write_text((log / "5").read_text())
    warnings = restore(backup, checkpoint).warnings
    warning = next(warning for warning in warnings if "end with a lower number than before" in warning)
    assert "they have: 0. If a query" in warning
    assert tree(log) == tree(backup / "sources/0")
    assert (checkpoint / "offsets/6").read_text().splitlines()[2] == '{"logOffset":4}'


def read_entries(log: Path, numbers: Iterable[int]) -> list[str]:
    """Return the entries of some files in the log of a source."""
    return [line for number in numbers for line in (log / str(number)).read_text().splitlines()[1:]]


def test_a_batch_that_was_begun_becomes_the_planned_one(tmp_path: Path) -> None:
    checkpoint, backup = end_at_once(sample(BEGUN, tmp_path)), tmp_path / "backup"
    copy(str(checkpoint), str(backup), batch=1)
    before = tree(checkpoint)
    report = restore(backup, checkpoint)
    assert (report.batch, read_logs(open_directory(str(checkpoint))).offsets[-1]) == (3, 4)
    planned, last = ((checkpoint / f"offsets/{number}").read_text().splitlines()[2:] for number in (4, 3))
    assert planned == last
    rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == before


def test_a_clone_and_its_original_can_restore_each_other(pair: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, clone = pair[0], tmp_path / "clone"
    cloned = copy(str(checkpoint), str(clone), new_id=True)
    assert restore(pair[1], clone).query_id == cloned.query_id
    assert restore(clone, checkpoint).query_id != cloned.query_id
    assert diff(str(pair[1]), str(checkpoint)).differs is False


def test_a_newer_backup_raises_the_numbers_and_blocks_the_next_batch(pair: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, older, newer = pair[0], tmp_path / "older", tmp_path / "newer"
    copy(str(checkpoint), str(older), batch=3)
    copy(str(checkpoint), str(newer))
    before = tree(older)
    with pytest.raises(UsageError, match=r"ends with batch 3, and the copy with batch 6.* Add last_batch N"):
        restore(newer, older)
    assert tree(older) == before
    assert restore(newer, older, last_batch=6).batch == 6
    # An idle query at batch 3 would begin batch 4.
    assert read_logs(open_directory(str(older))).offsets == (4, 5, 6, 7)
    assert diff(str(newer), str(older)).differs is False


def test_the_numbers_up_to_the_last_batch_of_the_sink_are_blocked(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """An old image of the disk says nothing about the batches of a query that is still idle."""
    image, newer = tmp_path / "image", tmp_path / "newer"
    copy(str(pair[0]), str(image), batch=3)
    copy(str(pair[0]), str(newer))
    assert restore(newer, image, last_batch=20).batch == 20
    assert read_logs(open_directory(str(image))).offsets == tuple(range(4, 22))
    shutil.rmtree(image)
    assert restore(newer, image, last_batch=300).batch == 300
    blocked = read_logs(open_directory(str(image))).blocked
    assert {*range(100), *range(202, 300)} <= {*blocked} and 150 not in blocked


@pytest.mark.parametrize("after", ["another restore", "a commit is lost", "undone, commits lost"])
def test_the_next_batch_of_an_idle_query_stays_taken(pair: tuple[Path, Path], tmp_path: Path, after: str) -> None:
    """A query that is idle at batch 6 would begin batch 7, and go on with the state in its memory."""
    checkpoint, backup = pair
    if after == "a commit is lost":
        (checkpoint / "commits/6").unlink()
    else:
        assert restore(backup, checkpoint, last_batch=20).batch == 20
    if after == "another restore":
        assert restore(backup, checkpoint).batch == 20
    else:
        if after == "undone, commits lost":
            rollback(str(checkpoint), stopped=True)
            (checkpoint / "commits").rename(tmp_path / "lost")
        report = restore(backup, checkpoint, last_batch=12)
        # The numbers of a run that was undone are not used again either.
        assert report.batch == (21 if after == "undone, commits lost" else 12)
        assert any("a file for each number" in warning for warning in report.warnings)
    assert 7 in read_logs(open_directory(str(checkpoint))).offsets
    assert {problem.code for problem in doctor(str(checkpoint)).problems} == {"planned-batch"}


def test_a_batch_that_never_came_to_the_sink_leaves_a_gap_in_its_log(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    shutil.rmtree(checkpoint / "commits")
    (checkpoint / "offsets/7").write_bytes((checkpoint / "offsets/6").read_bytes())
    report = restore(backup, checkpoint, last_batch=6)
    (warning,) = (warning for warning in report.warnings if "a file for each number" in warning)
    assert report.batch == 7 and "names batch 7, and the sink may have none of that number" in warning


def test_a_killed_rollback_of_a_restore_from_nothing_leaves_nothing_either(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """Spark does not begin a query where a folder of state is left."""
    checkpoint, backup = pair
    shutil.rmtree(checkpoint)
    restore(backup, checkpoint, last_batch=6)
    killed("ttlsnap.transaction.rollback:remove_if_nothing", f"rollback({str(checkpoint)!r}, stopped=True)")
    assert (checkpoint / "state").is_dir()
    assert recover(str(checkpoint)).outcome == "nothing"
    assert [path.name for path in checkpoint.iterdir()] == ["_ttlsnap"]
    assert recover(str(checkpoint)).outcome == "nothing"


@pytest.mark.parametrize("lost", ["commits", "offsets commits", "state", "offsets commits state sources"])
def test_a_checkpoint_that_lost_files_is_restored_and_no_number_comes_back(
    pair: tuple[Path, Path], tmp_path: Path, lost: str
) -> None:
    checkpoint, backup = pair
    for folder in lost.split():
        (checkpoint / folder).rename(tmp_path / f"lost-{folder}")
    before = tree(checkpoint)
    if len(lost.split()) == 4:  # nothing has a number
        with pytest.raises(UsageError, match="nothing is left of a checkpoint, add last_batch N, where N is"):
            restore(backup, checkpoint)
        assert tree(checkpoint) == before
        (checkpoint / "other.txt").touch()
        with pytest.raises(UsageError, match="is not the checkpoint of a stateful query"):
            restore(backup, checkpoint, last_batch=6)
        (checkpoint / "other.txt").unlink()
        with pytest.raises(
            UsageError, match=r"last_batch 1: the checkpoint or the copy has batch \d, and numbers do not go back"
        ):
            restore(backup, checkpoint, last_batch=1)
        assert restore(backup, checkpoint, last_batch=6).batch == 6
    elif "commits" in lost:
        with pytest.raises(UsageError, match=r"has lost its log of commits.* Add last_batch N"):
            restore(backup, checkpoint)
        assert tree(checkpoint) == before
        assert restore(backup, checkpoint, last_batch=5).batch == 6
    else:
        assert restore(backup, checkpoint).batch == 6
    assert diff(str(backup), str(checkpoint)).differs is False
    is_empty = len(lost.split()) == 4
    assert rollback(str(checkpoint), stopped=True).nothing_left == is_empty
    if is_empty:  # Spark refuses a folder of state if the query begins from nothing
        assert sorted(path.name for path in checkpoint.iterdir()) == [".metadata.crc", "_ttlsnap", "metadata"]
    assert {path: data for path, data in tree(checkpoint).items() if data != "a folder"} == {
        path: data for path, data in before.items() if data != "a folder"
    }


def test_the_error_after_an_interrupted_restore_names_recover(pair: tuple[Path, Path]) -> None:
    """All logs are in the backup of the run when it is killed."""
    checkpoint, backup = pair
    code = f"copy({str(backup)!r}, {str(checkpoint)!r}, replace=True, stopped=True)"
    killed("ttlsnap.publishing.moves:sync_names", code)
    assert not list((checkpoint / "commits").glob("[0-9]*"))
    for command in (doctor, inspect):
        with pytest.raises(FencedError, match=f"ttlsnap recover {checkpoint}"):
            command(str(checkpoint))
    assert recover(str(checkpoint)).outcome == "finished"
    assert [found.code for found in doctor(str(checkpoint)).problems] == ["planned-batch"]


def test_a_checkpoint_without_an_id_is_restored_only_from_its_own_copy(pair: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, backup = pair
    other, foreign = sample("window-append-snappy-4.0", tmp_path), tmp_path / "foreign"
    copy(str(other), str(foreign))
    query_id = (checkpoint / "metadata").read_text()
    clone, moved_clone = tmp_path / "clone", tmp_path / "moved clone"
    for place, original in ((clone, checkpoint), (moved_clone, other)):
        copy(str(original), str(place), new_id=True)
    moved = checkpoint.rename(tmp_path / "moved")
    elsewhere = tmp_path / "elsewhere"
    for name in ("metadata", ".metadata.crc"):
        (moved / name).unlink(missing_ok=True)
    before = tree(moved)
    with pytest.raises(RefusedError, match="has lost the id of its query"):
        restore(foreign, moved)
    assert tree(moved) == before
    shutil.copytree(backup, elsewhere)
    (elsewhere / MANIFEST).unlink()
    assert restore(elsewhere, moved).replaced, "both have the offsets of the same batches"
    for path in (moved / "offsets").iterdir():
        path.unlink()
    moved.rename(checkpoint)
    (checkpoint / "metadata").unlink()
    assert restore(clone, checkpoint).replaced, "a clone gives its original the id back that it had"
    assert json.loads((checkpoint / "metadata").read_text()) == json.loads(query_id)
    (checkpoint / "metadata").unlink()
    assert restore(backup, checkpoint).replaced, "the manifest names this checkpoint"
    (other / "metadata").unlink()
    with pytest.raises(RefusedError, match="has lost the id of its query"):
        restore(moved_clone, other.rename(tmp_path / "moved original"))


def test_a_query_that_began_from_nothing_after_a_loss_is_moved_away(pair: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, backup = pair
    checkpoint.rename(tmp_path / "lost")
    sample(VISITS, tmp_path).rename(checkpoint)
    with pytest.raises(RefusedError, match=r"has begun from nothing\. Then stop the query, move"):
        restore(backup, checkpoint, last_batch=9)
    checkpoint.rename(tmp_path / "begun again")
    assert restore(backup, checkpoint, last_batch=9).batch == 9


def test_what_cannot_be_restored_is_refused_and_nothing_changes(pair: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint, backup = pair
    other = sample(VISITS, tmp_path)
    before = tree(checkpoint)
    clone = tmp_path / "clone"
    copy(str(other), str(clone), new_id=True)
    for foreign in (other, clone):
        with pytest.raises(RefusedError, match="is of another query"):
            restore(foreign, checkpoint)
    with pytest.raises(RefusedError, match="is of another query"):
        restore(backup, clone)
    (checkpoint / "offsets/6").touch()
    with pytest.raises(BusyError, match="stopped=True"):
        copy(str(backup), str(checkpoint), replace=True)
    with pytest.raises(UsageError, match="new_id"):
        restore(backup, checkpoint, new_id=True)
    state = backup / "state/0/0/5.delta"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    with pytest.raises(CorruptionError, match="has another content than the manifest says"):
        restore(backup, checkpoint)
    assert tree(checkpoint) == before


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("metadata", b"", "move it out of the checkpoint"),
        ("_ttlsnap/copy.json", b"{", "move it out of the checkpoint"),
        ("offsets/999999999999999999", b"v1\n{}", "so high that no batch can follow"),
    ],
)
def test_a_damaged_file_that_stops_a_restore_can_be_moved_away(
    pair: tuple[Path, Path], path: str, data: bytes, words: str
) -> None:
    checkpoint, backup = pair
    (checkpoint / path).parent.mkdir(exist_ok=True)
    (checkpoint / path).write_bytes(data)
    before = tree(checkpoint)
    with pytest.raises(CorruptionError, match=words):
        restore(backup, checkpoint)
    assert tree(checkpoint) == before
    (checkpoint / path).unlink()
    assert restore(backup, checkpoint).batch == 6
    assert diff(str(backup), str(checkpoint)).differs is False


def test_a_file_that_the_manifest_does_not_list_can_be_moved_out_of_the_copy(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    (backup / "notes").touch()
    with pytest.raises(CorruptionError, match=r"is not in the manifest.* Move it out of the copy"):
        restore(backup, checkpoint)


def test_a_rollback_is_refused_once_spark_has_begun_the_planned_batch(pair: tuple[Path, Path]) -> None:
    checkpoint, backup = pair
    restore(backup, checkpoint)
    (checkpoint / "state/0/0/8.delta").write_bytes((backup / "state/0/0/5.delta").read_bytes())
    before = tree(checkpoint)
    with pytest.raises(RefusedError, match=r"batch 7 was begun after the restore .* with the restored state"):
        rollback(str(checkpoint), stopped=True)
    assert tree(checkpoint) == before


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    pair: tuple[Path, Path], ttlsnap: Ttlsnap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTLSNAP_STOPPED")
    checkpoint, backup = pair
    (checkpoint / "offsets/6").touch()
    before = bytes_of(checkpoint)
    foreseen = ttlsnap("copy", backup, checkpoint, "--replace", "--dry-run", "--exit-code")
    assert (foreseen.code, "a run would be refused now" in " ".join(foreseen.err.split())) == (4, True)
    assert "Would replace the state of" in foreseen.out
    for consent, code in (((), 4), (("--yes",), 0)):
        words = ("--replace", "--dry-run", "--stopped", "--exit-code", *consent)
        assert ttlsnap("copy", backup, checkpoint, *words).code == code
    assert bytes_of(checkpoint) == before
    asked = ttlsnap("copy", backup, checkpoint, "--replace", "--stopped")
    assert (asked.code, "nobody can be asked" in " ".join(asked.err.split())) == (4, True)
    assert without_own(bytes_of(checkpoint)) == before
    done = ttlsnap("copy", backup, checkpoint, "--replace", "--stopped", "--yes")
    assert (done.code, "Replaced the state of" in done.out) == (0, True)
    listed = ttlsnap("history", checkpoint)
    assert "restore" in listed.out


def test_the_columns_of_a_join_are_nullable_in_the_planned_batch_of_a_restore(inputs: Judge, tmp_path: Path) -> None:
    checkpoint, backup = (
        inputs.write(Query("join_on_columns"), BATCHES, layout="both", version="3.5").path,
        tmp_path / "b",
    )
    copy(str(checkpoint), str(backup), batch=read_logs(open_directory(str(checkpoint))).commits[-2])
    offsets = sorted((path for path in (checkpoint / "offsets").glob("[0-9]*")), key=lambda path: int(path.name))
    before = tree(checkpoint)
    assert nullable(checkpoint) == [False, True, False, True]
    for is_begun in (False, True):
        begun = offsets[-1].with_name(str(int(offsets[-1].name) + 1))
        if is_begun:
            begun.write_bytes(offsets[-1].read_bytes())
            before = tree(checkpoint)
        restore(backup, checkpoint)
        assert nullable(checkpoint) == [True] * 4
        assert diff(str(backup), str(checkpoint)).differs is False
        rollback(str(checkpoint), stopped=True)
        assert tree(checkpoint) == before
