"""The files that one version of one partition is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateFile:
    """A file a version is made of, as it was when the run was planned."""

    path: str
    version: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Lineage:
    """A snapshot, and what the batches after it changed (``deltas``, oldest first), up to ``version``.

    ``shared`` are files that the snapshot refers to, as others may. ``newer`` are files of later versions: what a batch
    left that was begun and never committed. ``new_snapshot`` is where a snapshot of ``version`` belongs.
    ``entries`` is how many there are, where the files say so.
    """

    version: int
    snapshot: StateFile | None
    deltas: tuple[StateFile, ...]
    newer: tuple[StateFile, ...]
    new_snapshot: str
    shared: tuple[StateFile, ...] = ()
    entries: int | None = None

    @property
    def files(self) -> tuple[StateFile, ...]:
        return (*((self.snapshot,) if self.snapshot else ()), *self.shared, *self.deltas)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)
