"""The interface of listeners, which follow a compaction and confirm its result before it is published."""

from __future__ import annotations

from typing import Protocol

from ttlsnap.compaction.plan import Plan
from ttlsnap.compaction.report import CompactionReport


class Listener(Protocol):
    """A listener to the progress of a run. Every method may do nothing.

    A listener may also have ``asks``; see ``asks_a_person``.
    """

    def planned(self, plan: Plan) -> None: ...
    def progress(self, entries: int, dropped: int) -> None: ...
    def partition_done(self) -> None: ...
    def confirm(self, report: CompactionReport) -> bool:
        """Return whether to publish; it is called just before. False ends the run with nothing changed."""
        ...


def asks_a_person(listener: object) -> bool:
    """Return whether ``confirm`` of a listener asks a person: it has ``asks``, which is true.

    That person then decides, and not the limit on what may be dropped (``max_drop``).
    """
    return bool(getattr(listener, "asks", False))


class SilentListener:
    """A listener that prints nothing and agrees."""

    def planned(self, plan: Plan) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass

    def confirm(self, report: CompactionReport) -> bool:
        return True
