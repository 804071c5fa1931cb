"""The delivery of dropped entries to the archives of runs, once, after a run is published.

A rollback first records which run it undoes, so that the delivered entries are removed even if it is interrupted.
"""

from __future__ import annotations

from ttlsnap.archives.delivery import (
    deliver,
    describe_left_behind,
    explain_failed_take_back,
    has_waiting,
    require_receiver,
)
from ttlsnap.archives.places import AllowedPlaces, Confirm, PlaceNotNamedError
from ttlsnap.archives.receivers import ExpiredCallback, find_receiver, refuse_within
from ttlsnap.archives.writing import folder_of
from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, TtlsnapError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.journal import STAGED, folders_of, journal_path, read_report, report_path
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory

_TAKE_BACK = "rolled-back-by"


_MAX_NAME = 256


def deliver_all(runs: Runs, places: AllowedPlaces) -> list[str]:
    """Deliver the entries that published runs, and those that made a copy, have not delivered yet. Return the failures.

    Entries of undone runs are deleted, and those of rolled back runs are removed from the archive. Entries of an
    interrupted run stay, and so do those for a place that ``places`` do not allow.
    """
    failures: list[str] = []
    root = runs.files.root
    for run in [run for run in runs.ids if layout.is_run(run)]:
        try:
            if has_lost_journal(runs, run):
                failures.append(
                    f"{root}/{journal_path(run)} is missing, so ttlsnap does not know whether run {run} was published. "
                    f"If it was, the entries that it dropped are only in {root}/{folder_of(run)}: copy them to the "
                    "archive. Then remove that folder"
                )
            else:
                _deliver_one(runs, run, places)
        except PlaceNotNamedError as error:
            failures.append(error.text)
        except TtlsnapError as error:
            failures.append(
                f"the entries that run {run} dropped are still in {root}/{folder_of(run)}. The next run will "
                "archive them; to discard them, remove that folder: " + error.text
            )
    return failures


def _deliver_one(runs: Runs, run: str, places: AllowedPlaces) -> None:
    files = runs.files
    if runs.known.stat(folder_of(run)) is None or _is_rolled_back(runs, run, places):
        return
    journal, target = runs.find(run), find_archive(files, run)
    if journal is not None and journal.status == "undone":
        files.remove_tree(folder_of(run))
    elif target is not None and (
        journal.status == "done" if journal is not None else runs.report_of_copy(run) is not None
    ):
        place = places.find(target, run, "deliver") if has_waiting(files, run) else None
        if place is not None:
            deliver(files, run, place)
        elif has_waiting(files, run):
            raise PlaceNotNamedError(
                f"the entries that run {run} dropped are still in {files.root}/{folder_of(run)}. The checkpoint names "
                f"{shell_word(target)} as their archive, which this command does not name. To deliver them: ttlsnap "
                f"recover {shell_word(files.root)} --expired-to {shell_word(target)}. To discard them, remove that "
                "folder"
            )
        else:
            files.remove_tree(folder_of(run))


def has_lost_journal(runs: Runs, run: str) -> bool:
    """Return whether a run without a journal may have been published: its staged files are gone, and entries wait.

    A run writes its journal after it has staged all files and written its report.
    """
    if runs.find(run) is not None or runs.report_of_copy(run) is not None:
        return False
    if runs.known.stat(report_path(run)) is None or not has_waiting(runs.known, run):
        return False
    return not any(runs.files.list_tree(folder) for folder in folders_of(runs.known, run, STAGED))


def record_take_back(files: Directory, run: str, rollback_run: str, places: AllowedPlaces) -> None:
    """Record that the rollback ``rollback_run`` is about to undo ``run``.

    Raise RefusedError if the dropped entries could not be removed from a place that is allowed.
    """
    if find_archive(files, run) is None:
        return
    target = place_to_take_back_from(files, run)
    if target is not None:
        require_receiver(target, run, places)
    files.mkdirs(folder_of(run))
    files.replace(f"{folder_of(run)}/{_TAKE_BACK}", rollback_run.encode())


def take_back(files: Directory, run: str, places: AllowedPlaces) -> None:
    """Remove the entries of a rolled back run from its archive.

    Raise PlaceNotNamedError if ``places`` do not allow that; the record of ``record_take_back`` then stays.
    """
    target = place_to_take_back_from(files, run)
    if target is not None:
        place = places.find(target, run, "take back")
        if place is None:
            raise PlaceNotNamedError(
                f"the entries that run {run} dropped are restored. They also stay in {shell_word(target)}, which this "
                f"command does not name. To remove them there: ttlsnap recover {shell_word(files.root)} --expired-to "
                f"{shell_word(target)}"
            )
        place.take_back(run)
    files.remove_tree(folder_of(run))


def take_back_if_allowed(files: Directory, run: str, places: AllowedPlaces) -> list[str]:
    """Remove the entries of a rolled back run from its archive. Return what stays there, in words."""
    archive = find_archive(files, run)
    messages = [describe_left_behind(archive)] if archive is not None and not was_made_here(files, run) else []
    try:
        with explain_failed_take_back(run):
            take_back(files, run, places)
    except PlaceNotNamedError as error:
        messages.append(error.text)
    return messages


def place_to_take_back_from(files: Directory, run: str) -> str | None:
    """Return the archive of a run's dropped entries; None if there are none, or a function received them."""
    target = find_archive(files, run)
    if target is None or find_receiver(target) is None or not was_made_here(files, run) or not has_dropped(files, run):
        return None
    return target


def was_made_here(files: Directory, run: str) -> bool:
    """Return whether the run was made here; in a copy of a checkpoint, its archive belongs to the original."""
    return (read_report(files, run) or {}).get("target") == files.root


def has_dropped(files: Directory, run: str) -> bool:
    """Return whether a run has dropped anything, according to its report."""
    totals = (read_report(files, run) or {}).get("totals")
    return not isinstance(totals, dict) or totals.get("dropped") != 0


def is_unsettled(runs: Runs, run: str) -> bool:
    """Return whether entries of a run wait for their delivery, or for their removal from the archive."""
    journal = runs.find(run)
    if journal is not None and journal.status == "undone":
        return False  # they are in the state
    rollback_run = _read_note(runs, run)
    rollback_journal = runs.find(rollback_run) if rollback_run is not None else None
    return has_waiting(runs.files, run) or (rollback_journal is not None and rollback_journal.status != "undone")


def _read_note(runs: Runs, run: str) -> str | None:
    """Return the rollback of a run that has begun to undo it, by the note of ``record_take_back``; None without one."""
    note = f"{folder_of(run)}/{_TAKE_BACK}"
    if runs.known.stat(folder_of(run)) is None or runs.files.stat(note) is None:
        return None
    return runs.files.read(note, _MAX_NAME).decode(errors="replace")


def find_archive(files: Directory, run: str) -> str | None:
    """Return the archive of a run according to its report; None if it has none."""
    expired_to = (read_report(files, run) or {}).get("expired_to")
    if expired_to is not None and not isinstance(expired_to, str):
        raise CorruptionError(f"the report of run {run} has the expired_to {expired_to!r}, which is not a path")
    return expired_to


def _is_rolled_back(runs: Runs, run: str, places: AllowedPlaces) -> bool:
    """Return whether a rollback of the run was published."""
    rollback_run = _read_note(runs, run)
    if rollback_run is None:
        return False
    journal = runs.find(rollback_run)
    if journal is not None and journal.status == "open":
        return True  # the rollback is interrupted: its outcome is open
    if journal is not None and journal.status == "done":
        take_back(runs.files, run, places)
        return True
    runs.files.remove(f"{folder_of(run)}/{_TAKE_BACK}")
    return False


def allowed_places(target: str, expired_to: str | ExpiredCallback | None, confirm: Confirm | None) -> AllowedPlaces:
    if expired_to is not None:
        refuse_within(expired_to, target)
    return AllowedPlaces.of(expired_to, confirm)
