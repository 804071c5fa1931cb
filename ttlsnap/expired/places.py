"""Where a command may deliver dropped entries to, and take them back from.

A checkpoint records who gets what its runs drop. Whoever can write to the checkpoint can change that record, so it does
not count by itself: a command goes to a place only if its user, or its policy, names that place too, or a person agrees
on a terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Literal

from ttlsnap.errors import RefusedError
from ttlsnap.expired.receivers import TABLE, ExpiredCallback, Receiver, receiver, receiver_named

Confirm = Callable[[str], bool]
"""Asked a question; True only if a person agrees."""

_QUESTIONS = {
    "deliver": "Run {run} has dropped entries, and the checkpoint says that they are for {name}. Deliver them there?",
    "take back": "Run {run} is rolled back, and the checkpoint says that its entries are in {name}. Remove them there?",
}
Purpose = Literal["deliver", "take back"]


class PlaceNotNamedError(RefusedError):
    """A checkpoint names a place that its user does not."""


class Places:
    """The place that a command names, if any, and those that a person confirms."""

    def __init__(self, named: Receiver | None = None, confirm: Confirm | None = None) -> None:
        self._named, self._confirm = named, confirm
        self._answers: dict[tuple[str, Purpose], bool] = {}

    @classmethod
    def of(cls, expired_to: str | ExpiredCallback | None, confirm: Confirm | None = None) -> Places:
        """Return the places of a command that was given ``expired_to``."""
        return cls(None if expired_to is None else receiver(expired_to), confirm)

    def find(self, name: str, run: str, purpose: Purpose) -> Receiver | None:
        """Return the receiver that a checkpoint calls ``name``, if the command may go there; else None."""
        if self._named is not None and _bare(self._named.name) == _bare(name):
            return self._named
        if self._confirm is None or (found := receiver_named(name)) is None:
            return None
        key = name, purpose
        if key not in self._answers:
            self._answers[key] = self._confirm(_QUESTIONS[purpose].format(run=run, name=shown(name)))
        return found if self._answers[key] else None


def _bare(name: str) -> str:
    """Return a name without the mark of a Delta table: a folder may have become one."""
    return name.removeprefix(TABLE)


def shown(name: str) -> str:
    """Return a name as a shell takes it, without characters that a terminal obeys."""
    return shlex.quote(name) if name.isprintable() else repr(name)
