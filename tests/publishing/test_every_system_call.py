"""Runs that are killed, run out of space, or fail, at each system call that changes a checkpoint.

Some of the faults run, and rotate (see ``faults``). TTLSNAP_MATRIX=full omits nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ttlsnap import copy as copy_checkpoint
from ttlsnap import export
from ttlsnap.copies.manifest import MANIFEST, CopyFacts, Manifest, read_manifest
from ttlsnap.storage.open import open_directory

from ..judge.spark import Checkpoint
from ..matrix import FULL
from .faults import EIO, KILL, Faults, Point, Step, Workshop, errors, faults, kills, told_well
from .stories import compact, fill, forget_files, migrate, name_source, repair, restore_from, rewind, set_position
from .syscalls import Call
from .trees import copy, end_at_once, is_fenced, newest, tree

pytestmark = pytest.mark.slow

FAULTS = [kills, errors] if FULL else [faults]


@pytest.fixture(scope="module")
def compaction(workshop: Workshop, rich: Checkpoint) -> Step:
    """Return the first compaction of a checkpoint that has many files to move to the backup."""
    step = workshop.step("compact", rich.path, compact)
    assert step.old != step.new
    assert [call.path for call in renames(step)].count("state/0/1/.3.snapshot.crc.crc") == 1
    return step


@pytest.fixture(scope="module")
def published(workshop: Workshop, rich: Checkpoint) -> Path:
    """Return a compacted checkpoint."""
    return workshop.after(rich.path, compact)


def renames(step: Step) -> list[Call]:
    """Return the moves of a step's journal, including those that undo it."""
    return [call for call in step.calls if call.name == "rename" and not call.path.endswith(".tmp")]


def half_way(workshop: Workshop, step: Step) -> Path:
    """Return a checkpoint on which the step was killed with half of its files moved."""
    moves = renames(step)
    path, _ = workshop.cut(step, Point(moves[len(moves) // 2], KILL))
    assert is_fenced(path)
    assert tree(path) not in (step.old, step.new)
    return path


def test_a_killed_compaction_leaves_the_old_or_the_new_state(workshop: Workshop, compaction: Step) -> None:
    workshop.check(compaction, kills(compaction.calls), most=16)


def test_a_failed_compaction_leaves_the_old_or_the_new_state(workshop: Workshop, compaction: Step) -> None:
    workshop.check(compaction, errors(compaction.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_removal_of_old_backups_leaves_the_old_or_the_new_state(
    workshop: Workshop, rich: Checkpoint, fault: Faults
) -> None:
    start = workshop.after(rich.path, lambda path: compact(path, ttl="3h"))
    step = workshop.step("compact again", start, compact)
    closed = max(n for n, call in enumerate(step.calls) if call.name == "rename")
    then = step.calls[closed:]
    assert "unlinkat" in {call.name for call in then if "/backup/state/0/0" in call.path}
    workshop.check(step, fault(step.calls if FULL else then))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_rollback_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, published: Path, fault: Faults
) -> None:
    step = workshop.step("rollback", published, lambda path: ["rollback", str(path)])
    assert (step.old, step.new) == (compaction.new, compaction.old)
    workshop.check(step, fault(step.calls))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("options", [(), ("--undo",)])
def test_an_interrupted_recovery_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, options: tuple[str, ...], fault: Faults
) -> None:
    start = half_way(workshop, compaction)
    step = workshop.step("recover", start, lambda path: ["recover", str(path), *options], old=compaction.old)
    assert step.new == (compaction.old if options else compaction.new)
    workshop.check(replace(step, new=compaction.new), fault(step.calls))


def test_a_killed_recovery_of_a_rollback_leaves_the_old_or_the_new_state(
    workshop: Workshop, compaction: Step, published: Path
) -> None:
    back = workshop.step("rollback", published, lambda path: ["rollback", str(path)])
    start = half_way(workshop, back)
    step = workshop.step("recover a rollback", start, lambda path: ["recover", str(path)], old=compaction.new)
    assert step.new == compaction.old
    workshop.check(step, kills(step.calls))


def test_a_killed_undo_after_an_error_leaves_the_old_or_the_new_state(workshop: Workshop, compaction: Step) -> None:
    # The disk fails once all files are moved, and the process is killed while it moves them back.
    last = renames(compaction)[-1]
    broken = next(call for call in compaction.calls[compaction.calls.index(last) :] if call.name == "fsync")
    given = (f"fsync:{EIO}:when={broken.number}",)
    step = workshop.step("undo", compaction.start, compact, given=given)
    assert step.new == step.old
    assert len(renames(step)) == 2 * len(renames(compaction))
    undoing = step.calls[step.calls.index(broken) + 1 :]
    points = [point for point in kills(undoing) if point.call.name != "fsync"]
    workshop.check(replace(step, new=compaction.new), points)


def test_a_permanent_disk_error_is_reported_and_recover_works_afterwards(workshop: Workshop, compaction: Step) -> None:
    def judge(step: Step, point: Point) -> None:
        path = workshop.copy(step.start)
        fault = f"{point.call.name}:{point.fault}:when={point.call.number}+"
        ended = workshop.commands.trace(step.argv(path), path, fault).ended
        told_well(ended, step.argv(path)[0], point, needs_recover=is_fenced(path), is_done=tree(path) == step.end)
        assert is_fenced(path) or tree(path) in (step.old, step.new)
        assert workshop.commands.run("recover", str(path)).code == 0
        assert tree(path) in (step.old, step.new)
        assert not is_fenced(path)

    points = [Point(call, EIO) for call in compaction.calls if call.name in ("rename", "fsync", "unlink", "link")]
    workshop.check(compaction, points, judge)


def test_a_killed_prune_leaves_a_usable_backup_or_none(workshop: Workshop, compaction: Step, published: Path) -> None:
    step = workshop.step("prune", published, lambda path: ["history", str(path), "--prune", "--yes"])
    assert step.new == step.old

    def judge(step: Step, point: Point) -> None:
        path, _ = workshop.cut(step, point)
        assert tree(path) == step.old
        back = workshop.commands.run("rollback", str(path))
        if back.code:
            assert "was removed, so the run cannot be rolled back" in back.err
        assert tree(path) == (step.old if back.code else compaction.old)

    workshop.check(step, kills(step.calls), judge)


def compact_to_copy(folder: Path) -> list[str]:
    return compact(folder / "source", "--output", str(folder / "copies" / "new"))


def migrate_to_copy(folder: Path) -> list[str]:
    return migrate(folder / "source", ("--partitions", "3", "--output", str(folder / "copies" / "new")))


@pytest.mark.parametrize("argv", [compact_to_copy, migrate_to_copy] if FULL else [compact_to_copy])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_copy_is_complete_or_missing(
    workshop: Workshop, rich: Checkpoint, tmp_path: Path, fault: Faults, argv: Callable[[Path], list[str]]
) -> None:
    # One folder contains both checkpoints: the source, which must not change, and the copy.

    (tmp_path / "copies").mkdir()
    source = copy(rich.path, tmp_path / "source")
    step = workshop.step("copy", tmp_path, argv)
    # The complete copy is renamed into place, and then its name is synced.
    assert not any(call.path.startswith("source") for call in step.calls)
    assert step.calls[-2].name == "rename"

    def copied(folder: Path) -> dict[str, str]:
        return tree(folder / "copies" / "new")

    def judge(step: Step, point: Point) -> None:
        folder, traced = workshop.cut(step, point)
        assert tree(folder / "source") == tree(source)
        assert not (folder / "source" / "_ttlsnap").exists()
        whole = (folder / "copies" / "new").exists()
        assert not whole or copied(folder) == copied(reference)
        if point.fault != KILL:
            told_well(traced.ended, "copy", point, needs_recover=False, is_done=whole)
            assert not list((folder / "copies").glob("*.ttlsnap"))
        ended = workshop.commands.run(*argv(folder))
        assert ended.code == (2 if whole else 0), ended.err
        assert copied(folder) == copied(reference)

    reference = workshop.after(tmp_path, argv)
    assert copied(reference) != tree(source)
    workshop.check(step, fault(step.calls), judge)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_import_leaves_the_old_or_the_new_state(
    workshop: Workshop, rich: Checkpoint, tmp_path: Path, fault: Faults
) -> None:
    export(str(rich.path), str(tmp_path / "state"))
    step = workshop.step("import", rich.path, lambda path: fill(path, tmp_path / "state"))
    assert step.old != step.new
    workshop.check(step, fault(step.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_repair_leaves_the_old_or_the_new_state(
    workshop: Workshop, rich: Checkpoint, fault: Faults
) -> None:
    torn = workshop.copy(rich.path)
    (torn / f"offsets/{newest(torn / 'commits') + 1}").write_bytes(b"")
    step = workshop.step("repair", torn, repair)
    assert step.old != step.new
    workshop.check(step, fault(step.calls))


@pytest.fixture(scope="module")
def migration(workshop: Workshop, rich: Checkpoint) -> Step:
    """Return a migration to more partitions."""
    step = workshop.step("migrate", rich.path, migrate)
    assert step.old != step.new
    return step


@pytest.mark.parametrize("fault", [kills, errors])
def test_an_interrupted_migration_leaves_the_old_or_the_new_state(
    workshop: Workshop, migration: Step, fault: Faults
) -> None:
    workshop.check(migration, fault(migration.calls))


def test_a_killed_rollback_of_a_migration_leaves_the_old_or_the_new_state(
    workshop: Workshop, rich: Checkpoint, migration: Step
) -> None:
    migrated = workshop.after(rich.path, migrate)
    step = workshop.step("rollback", migrated, lambda path: ["rollback", str(path)])
    assert (step.old, step.new) == (migration.new, migration.old)
    workshop.check(step, kills(step.calls))


@pytest.mark.parametrize("options", [(), ("--undo",)])
def test_a_killed_recovery_of_a_migration_leaves_the_old_or_the_new_state(
    workshop: Workshop, migration: Step, options: tuple[str, ...]
) -> None:
    start = half_way(workshop, migration)
    step = workshop.step("recover", start, lambda path: ["recover", str(path), *options], old=migration.old)
    assert step.new == (migration.old if options else migration.new)
    workshop.check(replace(step, new=migration.new), kills(step.calls))


@pytest.fixture(scope="module")
def backup(rich: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy as of an older batch than the last one."""
    place = tmp_path_factory.mktemp("backup") / "backup"
    copy_checkpoint(str(rich.path), str(place), batch=newest(rich.path / "commits") - 1)
    return place


@pytest.fixture(scope="module")
def restore(workshop: Workshop, rich: Checkpoint, backup: Path) -> Step:
    """Return a restore in place from that copy."""
    step = workshop.step("restore", rich.path, lambda path: restore_from(backup, path))
    assert step.old != step.new
    return step


@pytest.fixture(scope="module")
def rewound(workshop: Workshop, rich: Checkpoint) -> Step:
    """Return a rewind by one batch."""
    batch = newest(rich.path / "commits") - 1
    step = workshop.step("rewind", rich.path, lambda path: rewind(path, batch))
    assert step.old != step.new
    return step


@pytest.fixture(scope="module")
def repositioned(workshop: Workshop, begun: Path) -> Step:
    """Return a run that sets the position of the only source back, and replaces a batch that was begun."""
    step = workshop.step("sources", begun, lambda path: set_position(path, '{"logOffset":0}'))
    assert step.old != step.new
    return step


@pytest.fixture(scope="module")
def begun(rich: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint with a batch that was begun, and has written nothing."""
    return end_at_once(copy(rich.path, tmp_path_factory.mktemp("begun") / "checkpoint"))


@pytest.fixture(scope="module")
def forgotten(workshop: Workshop, begun: Path) -> Step:
    """Return a run after which the only source has read nothing."""
    step = workshop.step("forgotten files", begun, forget_files)
    assert step.old != step.new
    return step


@pytest.fixture(scope="module")
def named(workshop: Workshop, begun: Path) -> Step:
    """Return a run after which the only source has a name, also in the batch that was begun."""
    step = workshop.step("named source", begun, name_source)
    assert step.old != step.new
    return step


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_change_of_names_leaves_the_old_or_the_new_ones(
    workshop: Workshop, named: Step, fault: Faults
) -> None:
    workshop.check(named, fault(named.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_change_of_what_was_read_leaves_the_old_or_the_new_log(
    workshop: Workshop, forgotten: Step, fault: Faults
) -> None:
    workshop.check(forgotten, fault(forgotten.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_change_of_a_position_leaves_the_old_or_the_new_one(
    workshop: Workshop, repositioned: Step, fault: Faults
) -> None:
    workshop.check(repositioned, fault(repositioned.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_rewind_leaves_the_old_or_the_new_state(
    workshop: Workshop, rewound: Step, fault: Faults
) -> None:
    workshop.check(rewound, fault(rewound.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_restore_leaves_the_old_or_the_new_state(
    workshop: Workshop, restore: Step, fault: Faults
) -> None:
    workshop.check(restore, fault(restore.calls))


def test_a_killed_rollback_of_a_restore_leaves_the_old_or_the_new_state(workshop: Workshop, restore: Step) -> None:
    restored = workshop.after(restore.start, restore.argv)
    step = workshop.step("rollback", restored, lambda path: ["rollback", str(path)])
    assert (step.old, step.new) == (restore.new, restore.old)
    workshop.check(step, kills(step.calls))


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_backup_keeps_spark_out_and_goes_on(
    workshop: Workshop, rich: Checkpoint, tmp_path: Path, fault: Faults
) -> None:
    source = copy(rich.path, tmp_path / "source")

    def argv(folder: Path) -> list[str]:
        return ["copy", str(folder / "source"), str(folder / "copies" / "new"), "--verify", "--parallelism", "1"]

    (tmp_path / "copies").mkdir()
    step = workshop.step("backup", tmp_path, argv)
    assert not any(call.path.startswith("source") for call in step.calls)
    reference = tree(workshop.after(tmp_path, argv) / "copies" / "new")

    def judge(step: Step, point: Point) -> None:
        folder, traced = workshop.cut(step, point)
        place = folder / "copies" / "new"
        assert tree(folder / "source") == tree(source)
        whole = (place / "_ttlsnap/copy.json").exists() and not is_fenced(place)
        if point.fault != KILL:
            done = traced.ended.code == 0 and tree(place) == reference
            told_well(traced.ended, "copy", point, needs_recover=False, is_done=done)
        # Without offsets, Spark would begin with batch 0. It has nothing else to begin with then.
        if not whole and (place / "commits").exists():
            assert is_fenced(place)
        ended = workshop.commands.run(*argv(folder))
        assert ended.code == (4 if whole else 0), ended.err
        assert tree(place) == reference

    workshop.check(step, fault(step.calls), judge)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_interrupted_removal_of_an_old_backup_goes_on(
    workshop: Workshop, rich: Checkpoint, backup: Path, tmp_path: Path, fault: Faults
) -> None:
    source = copy(rich.path, tmp_path / "source")
    copy(backup, tmp_path / "backups" / "old")
    (tmp_path / "policy.toml").write_text('[[target]]\npath = "source"\nbackup = {to = "backups/{batch}", keep = 1}\n')

    def argv(folder: Path) -> list[str]:
        old = open_directory(str(folder / "backups" / "old"))
        if (manifest := read_manifest(old)) is not None:  # the folder of both has another place each time
            facts = CopyFacts.from_json({**manifest.facts.to_json(), "source": str(folder / "source")})
            (folder / "backups" / "old" / MANIFEST).write_bytes(Manifest(facts, manifest.files).to_bytes())
        return ["maintain", str(folder / "policy.toml"), "--engine", "local", "--parallelism", "1"]

    step = workshop.step("policy backup", tmp_path, argv)
    new = str(newest(rich.path / "commits"))
    calls = [call for call in step.calls if call.path.startswith("backups/old")]
    assert "unlinkat" in {call.name for call in calls}

    def judge(step: Step, point: Point) -> None:
        folder, _ = workshop.cut(step, point)
        assert tree(folder / "source") == tree(source)
        old = folder / "backups" / "old"
        if list(old.glob("offsets/*")) and not (old / "_ttlsnap/copy.json").exists():
            assert is_fenced(old)
        for _ in range(2):  # after a fault, a backup may have been left for the next run
            ended = workshop.commands.run(*argv(folder))
            assert ended.code == 0, ended.err
        left = {
            path.relative_to(folder / "backups").parts[0] for path in (folder / "backups").rglob("*") if path.is_file()
        }
        assert left == {new}  # a kill can leave empty folders
        assert not is_fenced(folder / "backups" / new)

    workshop.check(step, fault(calls), judge)
