"""Interrupted runs whose journal, fence or files have changed since."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.errors import CorruptionError, RefusedError, TtlsnapError
from ttlsnap.publishing.history import history
from ttlsnap.publishing.recover import recover
from ttlsnap.transaction.pruning import prune
from ttlsnap.transaction.rollback import rollback

from ..judge.spark import Checkpoint
from ..samples import without_locks
from .commands import Commands
from .faults import KILL, Point, Step, Workshop
from .library import compact_with
from .stories import compact
from .trees import Tree, copy, is_fenced, tree


@pytest.fixture(scope="module")
def compaction(commands: Commands, rich: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Step:
    return Workshop(commands, tmp_path_factory.mktemp("whole")).step("compact", rich.path, compact)


@pytest.fixture(scope="module")
def half(commands: Commands, compaction: Step, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint whose compaction was killed: all old files are in the backup, one new file is in place."""
    (last,) = (c for c in compaction.calls if c.name == "rename" and c.path.endswith("staged/state/0/1/3.snapshot"))
    workshop = Workshop(commands, tmp_path_factory.mktemp("half"))
    return workshop.cut(compaction, Point(last, KILL))[0]


@pytest.fixture
def cut_off(half: Path, tmp_path: Path) -> Path:
    """Return a copy of the checkpoint ``half``."""
    return copy(half, tmp_path / "checkpoint")


def journal_of(checkpoint: Path) -> Path:
    (journal,) = checkpoint.glob("_ttlsnap/runs/*/journal.json")
    return journal


def everything(checkpoint: Path) -> Tree:
    """Return the tree of all files, including ttlsnap's own.

    The lock of the killed run is omitted, because the next run removes it.
    """
    own = {f"_ttlsnap/{path}": content for path, content in tree(checkpoint / "_ttlsnap").items()}
    return without_locks(tree(checkpoint) | own)


def outcome(checkpoint: Path, *, undo: bool = False) -> str:
    return recover(str(checkpoint), prefer_undo=undo).outcome


Document = dict[str, Any]


def with_move(source: str, target: str) -> Callable[[Document], object]:
    """Return a function that adds a move at the end of a journal. RUN is replaced with the run's name."""
    return lambda d: d["moves"].append(
        {"source": source.replace("RUN", d["run"]), "target": target.replace("RUN", d["run"])}
    )


DAMAGE: dict[str, Callable[[Document], object]] = {
    "a source above": with_move("../x", "_ttlsnap/runs/RUN/backup/../x"),
    "a source above, through state": with_move("state/../../x", "_ttlsnap/runs/RUN/backup/state/../../x"),
    "a target above": with_move("_ttlsnap/runs/RUN/staged/../../../../x", "../x"),
    "an absolute source": with_move("/etc/passwd", "_ttlsnap/runs/RUN/backup//etc/passwd"),
    "an absolute target": with_move("_ttlsnap/runs/RUN/staged/x", "/tmp/x"),
    "an offset": with_move("offsets/3", "_ttlsnap/runs/RUN/backup/offsets/3"),
    "the fence": with_move("offsets/4", "_ttlsnap/runs/RUN/backup/offsets/4"),
    "a commit": with_move("commits/2", "_ttlsnap/runs/RUN/backup/commits/2"),
    "the metadata": with_move("metadata", "_ttlsnap/runs/RUN/backup/metadata"),
    "a commit as target": with_move("_ttlsnap/runs/RUN/staged/commits/9", "commits/9"),
    "one state file to another": with_move("state/0/0/1.delta", "state/0/1/9.delta"),
    "a state file to another name": with_move("state/0/0/1.delta", "_ttlsnap/runs/RUN/backup/state/0/0/2.delta"),
    "another run's folder": with_move("state/0/0/1.delta", "_ttlsnap/runs/other/backup/state/0/0/1.delta"),
    "its own journal": with_move("_ttlsnap/runs/RUN/journal.json", "state/0/0/9.delta"),
    "an empty part": with_move("state//1.delta", "_ttlsnap/runs/RUN/backup/state//1.delta"),
    "the folder state": with_move("state/.", "_ttlsnap/runs/RUN/backup/state/."),
    "a fence elsewhere": lambda d: d.update(fence="commits/2"),
    "a fence above": lambda d: d.update(fence="offsets/../commits/2"),
    "a fence without a number": lambda d: d.update(fence="offsets/metadata"),
    "a fence that is none": lambda d: d.update(fence=4),
    "another run's name": lambda d: d.update(run="another"),
    "a kind unheard of": lambda d: d.update(kind="repartition"),
    "a status unheard of": lambda d: d.update(status="half"),
    "a batch that is none": lambda d: d.update(batch="2"),
    "a number that is none": lambda d: d.update(number=None),
    "a compaction that undoes": lambda d: d.update(undoes="another"),
    "no moves": lambda d: d.pop("moves"),
    "moves that are none": lambda d: d.update(moves=[1, 2]),
    "a move with more": lambda d: d["moves"][0].update(more=1),
    "a move of a number": lambda d: d["moves"][0].update(source=7),
    "a preserved file that is none": lambda d: d.update(preserved=[7]),
    "facts that are none": lambda d: d.update(published=[7]),
    "a field unheard of": lambda d: d.update(more=1),
}


def refused_by_all(checkpoint: Path, commands: Commands) -> None:
    """Assert that all commands refuse the journal, and that nothing changes."""
    before = everything(checkpoint)
    for act in (recover, rollback, prune):
        with pytest.raises(CorruptionError, match=r"journal\.json.*Nothing was changed"):
            act(str(checkpoint))
        assert everything(checkpoint) == before
    told = commands.run("recover", str(checkpoint))
    assert (told.code, told.err.startswith("Error: "), "This is unexpected" in told.err) == (5, True, False)
    assert commands.run(*compact(checkpoint)).code in (4, 5)
    assert everything(checkpoint) == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_journal_that_no_run_would_write_is_refused(cut_off: Path, commands: Commands, damage: str) -> None:
    journal = journal_of(cut_off)
    document = json.loads(journal.read_text())
    DAMAGE[damage](document)
    journal.write_text(json.dumps(document))
    refused_by_all(cut_off, commands)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"[]", b"null", b"7", b'"x"', b"[[1, 2]]", b"[" * 100_000])
def test_a_file_that_is_not_a_journal_is_refused(cut_off: Path, commands: Commands, content: bytes) -> None:
    journal_of(cut_off).write_bytes(content)
    refused_by_all(cut_off, commands)


def test_a_journal_truncated_anywhere_is_refused(cut_off: Path) -> None:
    journal = journal_of(cut_off)
    whole = journal.read_bytes()
    for length in range(0, len(whole), len(whole) // 40):
        journal.write_bytes(whole[:length])
        before = everything(cut_off)
        with pytest.raises(CorruptionError):
            recover(str(cut_off))
        assert everything(cut_off) == before
    journal.write_bytes(whole)
    assert outcome(cut_off) == "finished"


def test_the_error_asks_for_a_journal_folder_that_was_moved_away(
    cut_off: Path, tmp_path: Path, compaction: Step
) -> None:
    shutil.move(cut_off / "_ttlsnap", tmp_path / "elsewhere")
    before = tree(cut_off)
    for act in (recover, rollback):
        with pytest.raises(RefusedError, match=r"fenced|was interrupted"):
            act(str(cut_off))
        assert tree(cut_off) == before
    with pytest.raises(RefusedError, match=r"the journal .* is missing .* move it back"):
        recover(str(cut_off))
    with pytest.raises(RefusedError, match="ttlsnap recover"):
        compact_with(cut_off)
    assert tree(cut_off) == before
    shutil.rmtree(cut_off / "_ttlsnap", ignore_errors=True)
    shutil.move(tmp_path / "elsewhere", cut_off / "_ttlsnap")
    assert outcome(cut_off) == "finished"
    assert tree(cut_off) == compaction.new


@pytest.mark.parametrize("undo", [False, True])
def test_recover_works_after_a_fence_was_removed_by_hand(cut_off: Path, compaction: Step, undo: bool) -> None:
    (cut_off / "offsets/4").unlink()
    with pytest.raises(TtlsnapError, match="ttlsnap recover"):
        compact_with(cut_off)
    assert outcome(cut_off, undo=undo) == ("undone" if undo else "finished")
    assert tree(cut_off) == (compaction.old if undo else compaction.new)


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("newer", [("offsets/4",), ("commits/3", "offsets/4", "offsets/5")])
def test_recover_refuses_if_the_query_continued_without_the_fence(
    cut_off: Path, newer: tuple[str, ...], undo: bool
) -> None:
    for name in newer:
        (cut_off / name).unlink(missing_ok=True)
        (cut_off / name).write_text("v1\n{}\n{}")
    before = everything(cut_off)
    with pytest.raises(RefusedError, match=r"somebody removed the fence .* and the query has started batch"):
        outcome(cut_off, undo=undo)
    assert everything(cut_off) == before


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("length", [0, 1, 13, 40])
def test_a_torn_fence_is_still_a_fence(cut_off: Path, compaction: Step, length: int, undo: bool) -> None:
    fence = cut_off / "offsets/4"
    fence.write_bytes(fence.read_bytes()[:length])
    assert outcome(cut_off, undo=undo) == ("undone" if undo else "finished")
    assert tree(cut_off) == (compaction.old if undo else compaction.new)


def test_fences_work_without_hard_links(checkpoint: Path, compaction: Step, commands: Commands, tmp_path: Path) -> None:
    no_links = ("link:error=EPERM", "linkat:error=EPERM")
    workshop = Workshop(commands, tmp_path)
    step = workshop.step("compact without links", checkpoint, compact, given=no_links)
    assert (step.old, step.end) == (compaction.old, compaction.new)
    fence = [call for call in step.calls if call.path == "offsets/4"]
    assert [call.name for call in fence] == ["openat", "chmod", "write", "fsync", "unlink"]
    for call in fence:
        path, _ = workshop.cut(step, Point(call, KILL))
        assert outcome(path) in ("finished", "undone")
        assert tree(path) in (step.old, step.end)


def test_the_fence_of_another_run_is_unchanged(cut_off: Path) -> None:
    fence = cut_off / "offsets/4"
    run = journal_of(cut_off).parent.name
    fence.write_text(fence.read_text().replace(run, "20200101T000000Z-000000"))
    before = everything(cut_off)
    with pytest.raises(RefusedError):
        outcome(cut_off)
    assert everything(cut_off) == before


def test_a_run_whose_new_files_are_lost_is_undone(cut_off: Path, compaction: Step) -> None:
    for path in (*cut_off.glob("_ttlsnap/runs/*/staged/state/0/*/*"), cut_off / "state/0/0/3.snapshot"):
        path.unlink()
    assert outcome(cut_off) == "undone"
    assert tree(cut_off) == compaction.old


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (("backup/state/0/0/3.snapshot",), "cannot tell whether .* The fence stays"),
        (("backup/state/0/0/3.snapshot.crc",), "can neither finish nor undo .* The fence stays"),
        (("backup/state/0/1/3.snapshot", "staged/state/0/1/3.snapshot"), "can neither finish nor undo"),
    ],
)
def test_a_run_whose_old_files_are_lost_stays_fenced(
    cut_off: Path, compaction: Step, lost: tuple[str, ...], words: str, undo: bool
) -> None:
    paths = [next(cut_off.glob(f"_ttlsnap/runs/*/{name}")) for name in lost]
    kept = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    before = everything(cut_off)
    with pytest.raises(CorruptionError, match=words):
        outcome(cut_off, undo=undo)
    assert everything(cut_off) == before
    assert is_fenced(cut_off)
    for path, content in zip(paths, kept, strict=True):
        path.write_bytes(content)
    assert outcome(cut_off, undo=undo) == ("undone" if undo else "finished")
    assert tree(cut_off) == (compaction.old if undo else compaction.new)


def test_a_file_in_the_way_of_recover_is_not_overwritten(cut_off: Path, compaction: Step) -> None:
    foreign = cut_off / "state/0/1/3.snapshot"
    moved = next(cut_off.glob("_ttlsnap/runs/*/backup/state/0/1/")) / "3.snapshot"
    assert moved.exists() and not foreign.exists()
    foreign.write_bytes(b"by somebody")
    with pytest.raises(RefusedError, match=r"recover .* --undo"):
        outcome(cut_off)
    assert foreign.read_bytes() == b"by somebody"
    assert is_fenced(cut_off)
    with pytest.raises(RefusedError, match="was recreated while the fence was in place"):
        outcome(cut_off, undo=True)
    assert foreign.read_bytes() == b"by somebody"
    assert is_fenced(cut_off)
    foreign.unlink()
    assert outcome(cut_off, undo=True) == "undone"
    assert tree(cut_off) == compaction.old


@pytest.mark.parametrize("place", ["_ttlsnap", "_ttlsnap/runs"])
def test_links_that_lead_outside_are_refused(checkpoint: Path, tmp_path: Path, commands: Commands, place: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (checkpoint / place).parent.mkdir(exist_ok=True)
    (checkpoint / place).symlink_to(outside)
    old = tree(checkpoint)
    for argv in (compact(checkpoint), ["rollback", str(checkpoint)], ["recover", str(checkpoint)]):
        refused = commands.run(*argv)
        assert refused.code == 4, refused
        assert "leads outside" in refused.err
    assert tree(checkpoint) == old
    assert not list(outside.iterdir())


@pytest.mark.parametrize("undo", [False, True])
def test_a_complete_run_with_an_open_journal_is_closed_after_the_query_continued(checkpoint: Path, undo: bool) -> None:
    compact_with(checkpoint)
    journal = journal_of(checkpoint)
    document = json.loads(journal.read_text())
    journal.write_text(json.dumps({**document, "status": "open"}))
    for name in ("offsets/4", "commits/3"):
        (checkpoint / name).write_bytes((checkpoint / "commits/2").read_bytes())
    for partition in (0, 1):  # Spark no longer needs them
        (checkpoint / f"state/0/{partition}/3.snapshot").unlink()
    assert outcome(checkpoint, undo=undo) == "finished"
    assert outcome(checkpoint) == "nothing"


@pytest.mark.parametrize("known", [True, False])
def test_undo_refuses_a_backup_that_is_not_the_old_file(cut_off: Path, known: bool) -> None:
    journal = journal_of(cut_off)
    backup = journal.parent / "backup/state/0/0/3.snapshot"
    backup.write_bytes(bytes(byte ^ 1 for byte in backup.read_bytes()))
    if not known:  # an older journal
        document = json.loads(journal.read_text())
        assert document.pop("replaced")
        journal.write_text(json.dumps(document))
        assert outcome(cut_off, undo=True) == "undone"
        return
    before = everything(cut_off)
    with pytest.raises(CorruptionError, match=rf"{backup} is not the file that was there before run .*The fence stays"):
        outcome(cut_off, undo=True)
    assert everything(cut_off) == before
    assert outcome(cut_off) == "finished"


@pytest.mark.parametrize("undo", [False, True])
def test_recover_removes_a_fence_that_arrived_after_its_run_ended(cut_off: Path, undo: bool) -> None:
    fence = cut_off / "offsets/4"
    late = fence.read_text()
    outcome(cut_off, undo=undo)
    left = tree(cut_off)
    fence.unlink(missing_ok=True)
    fence.write_text(late)
    assert is_fenced(cut_off)
    assert outcome(cut_off) == "undone"
    assert tree(cut_off) == left


def test_a_second_recovery_knows_the_folders_of_the_first_one(cut_off: Path) -> None:
    folder = journal_of(cut_off).parent
    for kind in ("backup", "staged"):
        (folder / kind).rename(folder / f"{kind}-2")
    assert outcome(cut_off) == "finished"
    assert {path.name for path in folder.iterdir() if path.name.startswith("backup")} == {"backup-3"}
    rollback(str(cut_off), stopped=True)
    assert history(str(cut_off))[0].status == "rolled back"
