"""Files that a query writes into the log of a source after a run has changed that log.

A query that was idle during a run writes the next file of the log when it finds input, and only then finds that its
next batch is taken, and stops. A ``.compact`` file takes the place of all files before it. If it was made of the log as
it was before the run, it hides the new log, and after an undo or a rollback the other way round. Nothing is lost
without these files: no offset names them, so Spark finds their input again.
"""

from __future__ import annotations

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.listing import is_temporary
from ttlsnap.checkpoint.source_logs import COMPACT, log_number
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import Journal
from ttlsnap.storage.directory import Directory, each


def find_late_logs(files: Directory, journal: Journal) -> list[str]:
    """Return the paths of files in logs that a run has changed, if they were not there before and are not the run's.

    The journals of older versions do not show which files were there.
    """
    if journal.kept_logs is None:
        return []
    ends = {end for move in journal.moves for end in (move.source, move.target)}
    folders = {folder for path in ends if (folder := path.rpartition("/")[0]).startswith(f"{layout.SOURCES}/")}
    known_paths = ends.union(journal.kept_logs)
    return [
        path
        for folder, infos in zip(folders, each(files, files.list, folders), strict=True)
        for path in (f"{folder}/{info.name}" for info in infos if not info.is_dir and _is_of_log(info.name))
        if path not in known_paths
    ]


def refuse_late_logs(files: Directory, journal: Journal) -> None:
    """Raise BusyError if a query has written a ``.compact`` file of a log since the run was planned."""
    if hiding_path := _find_hiding(files, journal):
        raise BusyError(f"{files.root}/{hiding_path} appeared during the run: the query is running. Stop it first")


def require_no_late_logs(files: Directory, journal: Journal) -> None:
    """Raise RefusedError if a query has written a ``.compact`` file of a log since the interrupted run was planned."""
    if hiding_path := _find_hiding(files, journal):
        raise RefusedError(
            f"{files.root}/{hiding_path} was written by the query during run {journal.run}, and may not fit the log. "
            "The fence stays. Stop the query, move that file to another folder (Spark finds its input again), and "
            f"run: ttlsnap recover {shell_word(files.root)}"
        )


def _find_hiding(files: Directory, journal: Journal) -> str | None:
    return next((path for path in find_late_logs(files, journal) if COMPACT in path), None)


def _is_of_log(name: str) -> bool:
    return is_temporary(name) or log_number(layout.strip_checksum(name)) is not None
