"""The interface of moves: sources are split, and new partitions (targets) are built from the parts.

A source is an old partition, or files of a table. Each of its entries goes to one target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ttlsnap.compaction.engine import Done, Engine
from ttlsnap.compaction.task import Progress
from ttlsnap.engines.spill import Entries, Spills
from ttlsnap.stores.protocols import StateStore
from ttlsnap.unsaferow.rows import Rows


class Part(NamedTuple):
    """Some entries for a target: those with this ``number``, in order, of the ``source`` with this number."""

    keys: Rows
    values: Rows
    source: int
    number: int


class Source(Protocol):
    """What is moved, as plain data that can be sent to another process or machine."""

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        ...

    @property
    def targets(self) -> Sequence[int]:
        """The numbers of the targets that get its entries."""
        ...

    def split(self, spills: Spills, progress: Progress) -> Any:
        """Sort the entries by their targets, into ``spills``. Return plain data for the caller."""
        ...

    def read(self, spills: Spills, target: int) -> Iterator[Entries]:
        """Yield the entries of a target, from ``spills``."""
        ...


class Target(Protocol):
    """A new partition, as plain data that can be sent to another process or machine."""

    @property
    def size(self) -> int:
        """The bytes on disk that it reads beside its parts."""
        ...

    def build(self, parts: Iterable[Part], folder: Path, progress: Progress) -> Any:
        """Build it from its parts, which come in any order. ``folder`` is for the work. Return plain data."""
        ...


Moved = tuple[list[Any], list[Any]]
"""The results of the sources, and the results of the targets, in their order."""

Check = Callable[[list[Any]], None]
"""A function that gets what the sources returned, and raises an error if the move must stop."""


@dataclass(frozen=True)
class Move:
    """A move in the checkpoint ``root``, to ``state_store``.

    ``scratch`` is the local folder for the work; by default the temporary folder. ``room`` is the number of bytes of
    entries that all sources together may keep in memory before they use scratch files, on this machine.
    """

    root: str
    state_store: StateStore
    sources: Sequence[Source]
    targets: Sequence[Target]
    check: Check
    scratch: str | None
    room: int = 0

    @property
    def size(self) -> int:
        """The bytes on disk that it reads."""
        return sum(source.size for source in self.sources) + sum(target.size for target in self.targets)


class MovingEngine(Engine, Protocol):
    """An engine that also carries out moves."""

    def move(self, move: Move, done: Done, progress: Progress) -> Moved:
        """Split the sources, and build the targets from the parts.

        Call ``done`` after each source and target, and ``progress`` during the work. Raise the first error.
        """
        ...
