"""The delivery of dropped entries to a receiver, with the errors and messages of a failure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ttlsnap.archives.places import AllowedPlaces, PlaceNotNamedError
from ttlsnap.archives.receivers import Receiver
from ttlsnap.archives.writing import SUFFIX, folder_of
from ttlsnap.errors import TtlsnapError
from ttlsnap.storage.directory import Directory


def deliver(files: Directory, run: str, receiver: Receiver) -> None:
    """Give a published run's dropped entries to ``receiver``. A repetition does only what is left."""
    folder = folder_of(run)
    receiver.take(files, [f"{folder}/{info.name}" for info in files.list(folder, (SUFFIX,))], run)
    files.remove_tree(folder)


def has_waiting(files: Directory, run: str) -> bool:
    """Return whether entries of a run are not delivered yet."""
    return bool(files.list(folder_of(run), (SUFFIX,)))


def describe_left_behind(name: str) -> str:
    """Return the message that a run's dropped entries stay in ``name``."""
    return (
        "the run was made on the original of this copy, or before this checkpoint was moved. So the entries that it "
        f"dropped stay in {name}, and are restored here as well"
    )


def require_receiver(name: str, run: str, places: AllowedPlaces) -> None:
    """Raise RefusedError if a receiver could not give the entries of ``run`` back, before anything is undone.

    A receiver that ``places`` do not allow is not opened.
    """
    receiver = places.find(name, run, "take back")
    if receiver is not None:
        receiver.check(make=False)
        receiver.require()


@contextlib.contextmanager
def explain_failed_take_back(run: str) -> Iterator[None]:
    """Explain in errors within the block that the rollback itself is done, and must not be repeated."""
    try:
        yield
    except PlaceNotNamedError:
        raise
    except TtlsnapError as error:
        raise type(error)(
            error.text + f"\nRun {run} is rolled back, but the entries that it dropped could not be removed from the "
            "archive. The next run will try again"
        ) from error
