"""Delivering what was dropped: behind the publishing, and once.

A rollback notes down first whom it undoes, so that what was delivered is taken back whenever it is cut off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError, TtlsnapError
from ttlsnap.expired.places import PlaceNotNamedError, Places, shown
from ttlsnap.expired.receivers import Receiver, receiver_named
from ttlsnap.expired.writing import SUFFIX, folder_of
from ttlsnap.filesystem import Directory
from ttlsnap.journal import read_journal, read_report

_TAKE_BACK = "rolled-back-by"
_MAX_NAME = 256


def deliver(files: Directory, run: str, receiver: Receiver) -> None:
    """Give a published run's dropped entries to ``receiver``; done again it does what was left."""
    folder = folder_of(run)
    receiver.take(files, [f"{folder}/{info.name}" for info in files.list(folder, (SUFFIX,))], run)
    files.remove_tree(folder)


def deliver_all(files: Directory, places: Places) -> list[str]:
    """Deliver what published runs, and those that made a copy, have not delivered yet; what could not be, in words.

    What is of runs that were undone is removed, and what is of one that was rolled back is taken back; of a run that
    was cut off nobody knows yet. What is for somebody that ``places`` do not allow stays where it is.
    """
    told = []
    for run in [info.name for info in files.list(layout.RUNS) if layout.is_run(info.name)]:
        try:
            _deliver_one(files, run, places)
        except PlaceNotNamedError as error:
            told.append(str(error))
        except TtlsnapError as error:
            told.append(
                f"what run {run} dropped is still in {files.root}/{folder_of(run)}, from where the next run will "
                f"deliver it; to give it up, remove that: {error}"
            )
    return told


def _deliver_one(files: Directory, run: str, places: Places) -> None:
    if files.stat(folder_of(run)) is None or _is_rolled_back(files, run, places):
        return
    journal, target = read_journal(files, run), archive_of(files, run)
    if journal is not None and journal.status == "undone":
        files.remove_tree(folder_of(run))
    elif target is not None and (journal is None or journal.status == "done"):
        found = places.find(target, run, "deliver") if waits(files, run) else None
        if found is not None:
            deliver(files, run, found)
        elif waits(files, run):
            raise PlaceNotNamedError(
                f"what run {run} dropped waits in {files.root}/{folder_of(run)}: the checkpoint says that it is for "
                f"{shown(target)}, which this command does not name. To deliver it: ttlsnap recover "
                f"{shown(files.root)} --expired-to {shown(target)}. To give it up, remove that folder"
            )
        else:
            files.remove_tree(folder_of(run))


def begin_to_take_back(files: Directory, run: str, by: str, places: Places) -> None:
    """Note down that the rollback ``by`` is about to undo ``run``.

    Raises RefusedError where what the run dropped could not be taken back from a place that is allowed.
    """
    if archive_of(files, run) is None:
        return
    target = place_to_take_back_from(files, run)
    if target is not None:
        require_receiver(target, run, places)
    files.mkdirs(folder_of(run))
    files.replace(f"{folder_of(run)}/{_TAKE_BACK}", by.encode())


def take_back(files: Directory, run: str, places: Places) -> None:
    """Take back what a run has delivered, which is rolled back.

    Raises PlaceNotNamedError where ``places`` do not allow that; the note of ``begin_to_take_back`` stays then.
    """
    target = place_to_take_back_from(files, run)
    if target is not None:
        found = places.find(target, run, "take back")
        if found is None:
            raise PlaceNotNamedError(
                f"what run {run} dropped is in the state again. It stays in {shown(target)} as well, which this "
                f"command does not name. To remove it there: ttlsnap recover {shown(files.root)} --expired-to "
                f"{shown(target)}"
            )
        found.take_back(run)
    files.remove_tree(folder_of(run))


def take_back_if_allowed(files: Directory, run: str, places: Places) -> list[str]:
    """Take back what a run has delivered, which is rolled back by now; what stays where it is, in words."""
    archive = archive_of(files, run)
    told = [left_in(archive)] if archive is not None and not is_of(files, run) else []
    try:
        with rolled_back(run):
            take_back(files, run, places)
    except PlaceNotNamedError as error:
        told.append(str(error))
    return told


def place_to_take_back_from(files: Directory, run: str) -> str | None:
    """Return where the entries are that a run has dropped; None if there are none, or a function has heard of them."""
    target = archive_of(files, run)
    if target is None or receiver_named(target) is None or not is_of(files, run) or not dropped_something(files, run):
        return None
    return target


def is_of(files: Directory, run: str) -> bool:
    """Whether the run was made here: in a copy of a checkpoint, what it dropped belongs to the one that was copied."""
    return (read_report(files, run) or {}).get("target") == files.root


def dropped_something(files: Directory, run: str) -> bool:
    """Whether a run has dropped anything, as its report says; an archive in an object store is there once it has."""
    totals = (read_report(files, run) or {}).get("totals")
    return not isinstance(totals, dict) or totals.get("dropped") != 0


def waits(files: Directory, run: str) -> bool:
    """Whether there is something of a run that is not delivered yet."""
    return bool(files.list(folder_of(run), (SUFFIX,)))


def is_unsettled(files: Directory, run: str) -> bool:
    """Return whether something of a run waits to be delivered, or to be taken back."""
    return waits(files, run) or files.stat(f"{folder_of(run)}/{_TAKE_BACK}") is not None


def left_in(name: str) -> str:
    """That what a run had dropped stays in ``name``, in words."""
    return (
        f"the run was made somewhere else, of which this is a copy, or where this has been before. So what it dropped "
        f"stays in {name}, and is here now as well"
    )


def require_receiver(name: str, run: str, places: Places) -> None:
    """Raise RefusedError where a receiver could not give back what ``run`` dropped, before anything is undone.

    One that ``places`` do not allow is not even looked at.
    """
    found = places.find(name, run, "take back")
    if found is not None:
        found.check(make=False)
        found.require()


@contextlib.contextmanager
def rolled_back(run: str) -> Iterator[None]:
    """Whatever is raised within, the rollback itself is done, and is not to be done again."""
    try:
        yield
    except PlaceNotNamedError:
        raise
    except TtlsnapError as error:
        raise type(error)(
            f"{error}\nRun {run} is rolled back, but what it had dropped could not be taken back from where it is "
            "kept; the next run will try again"
        ) from error


def archive_of(files: Directory, run: str) -> str | None:
    """Where a run's dropped entries go, as its report says; None where they go nowhere."""
    found = (read_report(files, run) or {}).get("expired_to")
    if found is not None and not isinstance(found, str):
        raise CorruptionError(f"the report of run {run} has the expired_to {found!r}, which is no path")
    return found


def _is_rolled_back(files: Directory, run: str, places: Places) -> bool:
    """Whether a rollback of the run was published; what it was to take back then is."""
    note = f"{folder_of(run)}/{_TAKE_BACK}"
    if files.stat(note) is None:
        return False
    by = files.read(note, _MAX_NAME).decode(errors="replace")
    journal = read_journal(files, by) if layout.is_run(by) else None
    if journal is not None and journal.status == "open":
        return True  # nobody knows yet
    if journal is not None and journal.status == "done":
        take_back(files, run, places)
        return True
    files.remove(note)
    return False
