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
    wanted_paths = [wanted_path for path in paths for wanted_path in (*layout.all_checksums(path), path)]
    present_paths = find_existing(files, wanted_paths)
    return [
        FileMove(wanted_path, journals.backup_path(run, wanted_path))
        for wanted_path in dict.fromkeys(wanted_paths)
        if wanted_path in present_paths
    ]


def plan_checksum_backup(files: Directory, run: str, path: str) -> list[FileMove]:
    """Return the moves of checksum files that an earlier file of this name left: they would not match the new one."""
    present_paths = find_existing(files, layout.all_checksums(path)) if files.stat(path) is None else set()
    return [
        FileMove(checksum_path, journals.backup_path(run, checksum_path))
        for checksum_path in layout.all_checksums(path)
        if checksum_path in present_paths
    ]


def find_rewritten(files: Directory, journal: Journal) -> list[str]:
    """Return the paths of files that the run published, or is about to publish, and that have changed since."""
    are_done = find_done(files, journal.new)
    current_paths = {
        move.target: move.target if move_is_done else move.source
        for move, move_is_done in zip(journal.new, are_done, strict=True)
    }
    current_facts = [replace(facts, path=current_paths.get(facts.path, facts.path)) for facts in journal.published]
    infos = stat_files(files, [facts.path for facts in current_facts])
    are_unchanged = each(files, lambda facts: is_same(files, facts, infos.get(facts.path)), current_facts)
    return [facts.path for facts, is_unchanged in zip(current_facts, are_unchanged, strict=True) if not is_unchanged]


def find_altered(files: Directory, journal: Journal) -> list[str]:
    """Return the paths of old files that are neither in the backup nor in their places as they were before the run.

    Files that are missing are not in the list, and neither are those of older journals, which did not identify them.
    """
    backup_paths = {move.source: move.target for move in journal.to_backup}
    facts_with_places = [
        (facts, [backup_paths[facts.path], facts.path]) for facts in journal.replaced if facts.path in backup_paths
    ]
    infos = stat_files(files, [path for _, places in facts_with_places for path in places])

    def find_altered_path(facts: FileFacts, places: list[str]) -> str | None:
        present_paths = [path for path in places if path in infos]
        if not present_paths or any(is_same(files, replace(facts, path=path), infos[path]) for path in present_paths):
            return None
        return present_paths[0]

    return [path for path in each(files, lambda pair: find_altered_path(*pair), facts_with_places) if path is not None]


def find_done(files: Directory, moves: Sequence[FileMove]) -> list[bool]:
    """Return which moves are done."""
    present_paths = find_existing(files, [end for move in moves for end in (move.source, move.target)])
    return [is_done(move, present_paths) for move in moves]


def is_untouched(files: Directory, journal: Journal) -> bool:
    """Return whether all old files are in their places, so that the run has moved none: they are the first to move.

    A journal may arrive after ``recover`` has removed the run's folder, so nothing else shows that it changed nothing.
    """
    infos = stat_files(files, [facts.path for facts in journal.replaced])
    are_unchanged = each(files, lambda facts: is_same(files, facts, infos.get(facts.path)), journal.replaced)
    return bool(are_unchanged) and all(are_unchanged)


def is_done(move: FileMove, present_paths: Collection[str]) -> bool:
    """Return whether a move is done, by the paths that exist: no other move uses its path in the run's folder."""
    return (
        move.target in present_paths if move.target.startswith(f"{layout.RUNS}/") else move.source not in present_paths
    )


def complete_halves(files: Directory, journal: Journal) -> None:
    """Finish the moves that were interrupted between their two halves, if a move has two (see ``Directory.rename``)."""
    staged_paths = find_existing(files, [move.source for move in journal.new])
    arrived_paths = {move.target for move in journal.new if move.source not in staged_paths}
    for moves in (journal.to_backup, journal.new):
        # If the new file has arrived, the file in its place is the new one, even if the backup has the same content. So
        # the old file's move is left alone. If the new file is still staged, the old file must leave its place first.
        moves_to_complete = [move for move in moves if move.source not in arrived_paths]
        each(files, lambda move: files.complete_rename(move.source, move.target), moves_to_complete)


def apply(files: Directory, journal: Journal) -> None:
    """Carry out the remaining moves without overwriting anything.

    Raise RefusedError if a file has appeared at the target of a move.
    """

    def carry_out(move: FileMove) -> None:
        if is_done(move, present_paths):
            return
        if move.target in present_paths:
            raise RefusedError(
                f"{files.root}/{move.target} appeared during the run: the query is running. Stop it. If the checkpoint "
                f"is fenced then, move that file away and run: ttlsnap recover {shell_word(files.root)} --undo"
            )
        files.rename(move.source, move.target)

    for moves in (journal.to_backup, journal.new):
        present_paths = find_existing(files, [end for move in moves for end in (move.source, move.target)])
        make_folders(files, [move.target for move in moves])
        each(files, carry_out, moves)
        # After a power cut, no new file may be in place without the old one in the backup.
        sync_names(files, [path for move in moves for path in (move.source, move.target)])


def refuse_unclear(files: Directory, journal: Journal) -> None:
    """Raise CorruptionError if a new file is in place, but the old one is not in the backup.

    ttlsnap moves old files before new ones, so another program must have changed the folder.
    """
    present_paths = find_existing(files, [path for move in journal.moves for path in (move.source, move.target)])
    arrived_paths = {
        move.target for move in journal.new if move.source not in present_paths and move.target in present_paths
    }
    unclear_move = next(
        (move for move in journal.to_backup if move.source in arrived_paths and move.target not in present_paths), None
    )
    if unclear_move is not None:
        raise CorruptionError(
            f"{files.root}/{unclear_move.target} is missing, or the new file that was to replace it is missing. So "
            f"ttlsnap cannot tell whether {unclear_move.source} is the old or the new file. The fence stays. Restore "
            f"the folder {layout.run_directory(journal.run)} from a copy and run recover again"
        )


def find_new_folders(files: Directory, journal: Journal) -> list[str]:
    """Return the folders of state and of sources that the moves will make."""
    known_folders = _folders_above(move.source for move in journal.to_backup)
    wanted_folders = sorted(_folders_above(move.target for move in journal.new) - known_folders)
    present_folders = find_existing(files, wanted_folders)
    return [folder for folder in wanted_folders if folder not in present_folders]


def _folders_above(paths: Iterable[str]) -> set[str]:
    tops = tuple(f"{top}/" for top in (layout.STATE, layout.LEDGERS, layout.SOURCES))
    split_paths = [path.split("/") for path in paths if path.startswith(tops)]
    return {"/".join(names[:end]) for names in split_paths for end in range(1, len(names))}


def remove_if_nothing(files: Directory, undone: Journal) -> bool:
    """Remove the empty folders that are left if a restore is undone, and nothing of a checkpoint was there before.

    Spark refuses to begin a query if there is a folder of state, even an empty one. Return whether nothing is left.
    """
    if undone.kind != "restore" or any(files.list_tree(folder, most=1) for folder in layout.CONTENT):
        return False
    remove_if_empty(files, layout.CONTENT)
    return True


def remove_empty_folders(files: Directory, journal: Journal) -> None:
    """Remove the folders of state and of sources that are empty after such a run, or after its undoing or rollback.

    Spark's reader of state takes each folder with a number for a partition, and an empty folder of operator metadata
    for the newest version of it. Folders for tables may be empty.
    """
    if not journal.replaces_logs and journal.kind != "rollback":
        return
    folders = sorted(_folders_above(path for move in journal.moves for path in (move.source, move.target)))
    split_folders = ((folder, folder.split("/")) for folder in folders)
    remove_if_empty(
        files,
        (
            folder
            for folder, names in split_folders
            if (len(names) > 2 or (len(names) == 2 and names[0] == layout.SOURCES)) and names[-1] not in layout.SHARED
        ),
    )
