"""The places to which a command may deliver dropped entries, and from which it may remove them.

A checkpoint records the archives of its runs. Everybody who can write to the checkpoint can change that record, so it
is not enough. A command uses a place only if its user or policy names the place, too, or a person agrees on a terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ttlsnap.archives.receivers import TABLE, ExpiredCallback, Receiver, find_receiver, open_receiver
from ttlsnap.errors import RefusedError
from ttlsnap.printable import shell_word

Confirm = Callable[[str], bool]
"""A function that asks a question, and returns True only if a person agrees."""

_QUESTIONS = {
    "deliver": "Run {run} dropped entries, and the checkpoint names {name} as their archive. Archive them there?",
    "take back": "Run {run} is rolled back, and the checkpoint names {name} as its archive. Remove its entries there?",
}
Purpose = Literal["deliver", "take back"]


class PlaceNotNamedError(RefusedError):
    """A place that a checkpoint names, but its user does not."""


class AllowedPlaces:
    """The place that a command names, if any, and those that a person confirms."""

    def __init__(self, named: Receiver | None = None, confirm: Confirm | None = None) -> None:
        self._named_receiver, self._confirm = named, confirm
        self._answers: dict[tuple[str, Purpose], bool] = {}

    @classmethod
    def of(cls, expired_to: str | ExpiredCallback | None, confirm: Confirm | None = None) -> AllowedPlaces:
        """Return the places of a command with the option ``expired_to``."""
        return cls(None if expired_to is None else open_receiver(expired_to), confirm)

    def find(self, name: str, run: str, purpose: Purpose) -> Receiver | None:
        """Return the receiver that a checkpoint calls ``name``, if the command may go there; else None."""
        if self._named_receiver is not None and _bare(self._named_receiver.name) == _bare(name):
            return self._named_receiver
        if self._confirm is None or (receiver := find_receiver(name)) is None:
            return None
        key = name, purpose
        if key not in self._answers:
            self._answers[key] = self._confirm(_QUESTIONS[purpose].format(run=run, name=shell_word(name)))
        return receiver if self._answers[key] else None


def _bare(name: str) -> str:
    """Return a name without the prefix of a Delta table: a folder may have become one."""
    return name.removeprefix(TABLE)
