"""The interface of moves: old partitions (sources) are split, and new ones (targets) are built from the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ttlsnap.compaction.engine import Done, Engine
from ttlsnap.compaction.task import Progress
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.rows import Rows

Entries = tuple[Rows, Rows]
"""Keys and values, as they are stored."""


class Source(Protocol):
    """An old partition, as plain data that can be sent to another process or machine."""

    @property
    def root(self) -> str: ...
    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        ...

    @property
    def state_store(self) -> StateStore: ...
    @property
    def targets(self) -> Sequence[int]:
        """The numbers of the targets that get its entries."""
        ...

    def split(self, folder: Path, progress: Progress) -> Any:
        """Sort the entries by their targets, into files in ``folder``. Return plain data for the caller."""
        ...

    def read(self, folder: Path, target: int) -> Iterator[Entries]:
        """Yield the entries of a target, from the files in ``folder``."""
        ...


class Target(Protocol):
    """A new partition, as plain data that can be sent to another process or machine."""

    def build(self, entries: Iterable[Entries], folder: Path, progress: Progress) -> Any:
        """Build it from its entries, which come in any order. ``folder`` is for the work. Return plain data."""
        ...


Moved = tuple[list[Any], list[Any]]
"""The results of the sources, and the results of the targets, in their order."""

Check = Callable[[list[Any]], None]
"""A function that gets what the sources returned, and raises an error if the move must stop."""


@dataclass(frozen=True)
class Move:
    """A move, and the local folder for the work, ``scratch``; by default the temporary folder."""

    sources: Sequence[Source]
    targets: Sequence[Target]
    check: Check
    scratch: str | None


class MovingEngine(Engine, Protocol):
    """An engine that also carries out moves."""

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """Split the sources, and build the targets from the parts.

        Call ``done`` after each source and target, and ``progress`` during the work. Raise the first error.
        """
        ...
