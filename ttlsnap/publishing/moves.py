"""The moves of a run's files: old ones to its backup, new ones to their places. Each can be repeated safely."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, RefusedError
from ttlsnap.printable import shell_word
from ttlsnap.publishing import journal as journals
from ttlsnap.publishing.journal import (
    FileFacts,
    FileMove,
    Journal,
    is_same,
)
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import find_existing, make_folders, remove_if_empty, stat_files, sync_names


def plan_backup(files: Directory, run: str, paths: Sequence[str]) -> list[FileMove]:
    """Return the moves of existing files, with every checksum file beside them, to the backup of ``run``.

    A checksum file moves before its file, because Spark fails on a stale one.
    """
    names = [name for path in paths for name in (*layout.all_checksums(path), path)]
    there = find_existing(files, names)
    return [FileMove(name, journals.backup_path(run, name)) for name in dict.fromkeys(names) if name in there]


def plan_checksum_backup(files: Directory, run: str, path: str) -> list[FileMove]:
    """Return the moves of checksum files that an earlier file of this name left: they would not match the new one."""
    there = find_existing(files, layout.all_checksums(path)) if files.stat(path) is None else set()
    return [FileMove(name, journals.backup_path(run, name)) for name in layout.all_checksums(path) if name in there]


def find_rewritten(files: Directory, journal: Journal) -> list[str]:
    """Return the paths of files that the run published, or is about to publish, and that have changed since."""
    done = find_done(files, journal.new)
    ends = {m.target: m.target if d else m.source for m, d in zip(journal.new, done, strict=True)}
    known = [replace(facts, path=ends.get(facts.path, facts.path)) for facts in journal.published]
    there = stat_files(files, [facts.path for facts in known])
    same = each(files, lambda facts: is_same(files, facts, there.get(facts.path)), known)
    return [facts.path for facts, is_as_it_was in zip(known, same, strict=True) if not is_as_it_was]


def find_altered(files: Directory, journal: Journal) -> list[str]:
    """Return the paths of old files that are neither in the backup nor in their places as they were before the run.

    Files that are missing are not in the list, and neither are those of older journals, which did not identify them.
    """
    ends = {move.source: move.target for move in journal.to_backup}
    known = [(facts, [ends[facts.path], facts.path]) for facts in journal.replaced if facts.path in ends]
    there = stat_files(files, [path for _, places in known for path in places])

    def altered(facts: FileFacts, places: list[str]) -> str | None:
        found = [path for path in places if path in there]
        if not found or any(is_same(files, replace(facts, path=path), there[path]) for path in found):
            return None
        return found[0]

    return [path for path in each(files, lambda one: altered(*one), known) if path is not None]


def find_done(files: Directory, moves: Sequence[FileMove]) -> list[bool]:
    """Return which moves are done."""
    there = find_existing(files, [end for move in moves for end in (move.source, move.target)])
    return [is_done(move, there) for move in moves]


def is_untouched(files: Directory, journal: Journal) -> bool:
    """Return whether all old files are in their places, so that the run has moved none: they are the first to move.

    A journal may arrive after ``recover`` has removed the run's folder, so nothing else shows that it changed nothing.
    """
    there = stat_files(files, [facts.path for facts in journal.replaced])
    same = each(files, lambda facts: is_same(files, facts, there.get(facts.path)), journal.replaced)
    return bool(same) and all(same)


def is_done(move: FileMove, there: Collection[str]) -> bool:
    """Return whether a move is done, by the paths that exist: no other move uses its path in the run's folder."""
    return move.target in there if move.target.startswith(f"{layout.RUNS}/") else move.source not in there


def complete_halves(files: Directory, journal: Journal) -> None:
    """Finish the moves that were interrupted between their two halves, if a move has two (see ``Directory.rename``)."""
    waiting = find_existing(files, [move.source for move in journal.new])
    come = {move.target for move in journal.new if move.source not in waiting}
    for moves in (journal.to_backup, journal.new):
        # If the new file has arrived, the file in its place is the new one, even if the backup has the same content. So
        # the old file's move is left alone. If the new file is still staged, the old file must leave its place first.
        halves = [move for move in moves if move.source not in come]
        each(files, lambda move: files.complete_rename(move.source, move.target), halves)


def apply(files: Directory, journal: Journal) -> None:
    """Carry out the remaining moves without overwriting anything.

    Raise RefusedError if a file has appeared at the target of a move.
    """

    def carry_out(move: FileMove) -> None:
        if is_done(move, there):
            return
        if move.target in there:
            raise RefusedError(
                f"{files.root}/{move.target} appeared during the run: the query is running. Stop it. If the checkpoint "
                f"is fenced then, move that file away and run: ttlsnap recover {shell_word(files.root)} --undo"
            )
        files.rename(move.source, move.target)

    for moves in (journal.to_backup, journal.new):
        there = find_existing(files, [end for move in moves for end in (move.source, move.target)])
        make_folders(files, [move.target for move in moves])
        each(files, carry_out, moves)
        # After a power cut, no new file may be in place without the old one in the backup.
        sync_names(files, [path for move in moves for path in (move.source, move.target)])


def refuse_unclear(files: Directory, journal: Journal) -> None:
    """Raise CorruptionError if a new file is in place, but the old one is not in the backup.

    ttlsnap moves old files before new ones, so another program must have changed the folder.
    """
    there = find_existing(files, [path for move in journal.moves for path in (move.source, move.target)])
    come = {move.target for move in journal.new if move.source not in there and move.target in there}
    unclear = next((move for move in journal.to_backup if move.source in come and move.target not in there), None)
    if unclear is not None:
        raise CorruptionError(
            f"{files.root}/{unclear.target} is missing, or the new file that was to replace it is missing. So ttlsnap "
            f"cannot tell whether {unclear.source} is the old or the new file. The fence stays. Restore the folder "
            f"{layout.run_directory(journal.run)} from a copy and run recover again"
        )


def find_new_folders(files: Directory, journal: Journal) -> list[str]:
    """Return the folders of state that the moves will make."""
    known = _folders_above(move.source for move in journal.to_backup)
    asked = sorted(_folders_above(move.target for move in journal.new) - known)
    there = find_existing(files, asked)
    return [folder for folder in asked if folder not in there]


def _folders_above(paths: Iterable[str]) -> set[str]:
    parts = [path.split("/") for path in paths if path.startswith((f"{layout.STATE}/", f"{layout.LEDGERS}/"))]
    return {"/".join(part[:end]) for part in parts for end in range(1, len(part))}


def remove_empty_folders(files: Directory, journal: Journal) -> None:
    """Remove the folders of state that are empty after a migration, or after its undoing or rollback.

    Spark's reader of state takes each folder with a number for a partition, and an empty folder of operator metadata
    for the newest version of it. Folders for tables may be empty.
    """
    if journal.kind not in ("migrate", "rollback"):
        return
    above = sorted(_folders_above(path for move in journal.moves for path in (move.source, move.target)))
    parts = ((folder, folder.split("/")) for folder in above)
    remove_if_empty(files, (folder for folder, names in parts if len(names) > 2 and names[-1] not in layout.SHARED))
