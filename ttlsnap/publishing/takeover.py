"""The takeover of an interrupted run: no request of the process that began it can change anything any more.

A process may have ended, or may have lost its lock, while one of its requests was on its way. A name node or an
object store may still carry it out later. Every move of a run comes from a folder of the run, or leads to one. So
whoever takes the run over first gives these folders new names. Then a late move fails, because its source or the
folder of its target does not exist, or it writes to a name that nobody reads.
"""

from __future__ import annotations

from dataclasses import replace

from ttlsnap.checkpoint import layout
from ttlsnap.publishing.journal import BACKUP, STAGED, Journal, folders_of, relocate
from ttlsnap.publishing.recording import rewrite_journal
from ttlsnap.storage.directory import OWN, Directory, remove_scratch


def take_over(files: Directory, journal: Journal) -> Journal:
    """Give the folders of an interrupted run new names. Return the journal with these names.

    This can be interrupted, and repeated by another process.
    """
    for folder in (OWN, layout.run_directory(journal.run)):
        remove_scratch(files, folder)
    if not files.renames_in_one_step:
        # Journals have no scratch files there. A late write of the journal fails, because its content has changed.
        journal = rewrite_journal(files, replace(journal, takeovers=journal.takeovers + 1))
    names = _rename_folders(files, journal.run, (BACKUP, STAGED))
    if journal.undoes is not None:
        names |= _rename_folders(files, journal.undoes, (BACKUP,))
    return relocate(journal, names)


def is_half_taken_over(files: Directory, journal: Journal) -> bool:
    """Return whether a takeover was interrupted, so that the files of one folder may be in two.

    Then they cannot be judged before the takeover is repeated, which brings them together.
    """
    if files.renames_in_one_step:
        return False
    runs_with_kinds = [(journal.run, BACKUP), (journal.run, STAGED)]
    runs_with_kinds += [(journal.undoes, BACKUP)] if journal.undoes is not None else []
    return any(len(folders_of(files, run, kind)) > 1 for run, kind in runs_with_kinds)


def _rename_folders(files: Directory, run: str, kinds: tuple[str, ...]) -> dict[str, str]:
    """Return the new paths of a run's folders, by the paths in a new journal."""
    directory = layout.run_directory(run)
    folder_names = [info.name for info in files.list(directory) if info.is_dir]
    new_paths = {}
    for kind in kinds:
        names_by_number = {layout.folder_number(name, kind): name for name in folder_names}
        old_names = [name for number, name in sorted(names_by_number.items()) if number]
        new_name = f"{kind}-{max({1, *names_by_number}) + 1}"
        # If a rename is one step, the newest folder has all files. Otherwise an interrupted takeover may have left two
        # folders, and a file that both have is the same in both.
        for name in old_names[-1:] if files.renames_in_one_step else old_names:
            files.move_folder(f"{directory}/{name}", f"{directory}/{new_name}")
        new_paths[f"{directory}/{kind}"] = f"{directory}/{new_name}"
    return new_paths
