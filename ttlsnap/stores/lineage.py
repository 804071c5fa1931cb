"""The files that one version of one partition is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ttlsnap.errors import CorruptionError

Names = tuple[str, str]
"""What the names of a store's snapshots end in, and those of its deltas."""


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
    ``entries`` is how many there are, where the files say so. ``only_for`` is the version of Spark that alone can read
    such files, where there is just one.
    """

    version: int
    snapshot: StateFile | None
    deltas: tuple[StateFile, ...]
    newer: tuple[StateFile, ...]
    new_snapshot: str
    shared: tuple[StateFile, ...] = ()
    entries: int | None = None
    only_for: str | None = None

    @property
    def files(self) -> tuple[StateFile, ...]:
        return (*((self.snapshot,) if self.snapshot else ()), *self.shared, *self.deltas)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def base_of(folder: str, version: int, snapshots: Collection[int], deltas: Collection[int], names: Names) -> int:
    """The version of the newest snapshot not after ``version``, 0 for none, when every delta after it is there.

    Raises CorruptionError when one is missing. ``names`` are what the files' names end in.
    """
    snapshot, delta = names
    base = max((v for v in snapshots if v <= version), default=0)
    # Counted, not listed: the version is a number out of a file's name and may be absurd.
    missing = version - base - sum(base < v <= version for v in deltas)
    if missing:
        first = next(v for v in range(base + 1, version + 1) if v not in deltas)
        raise CorruptionError(
            f"{folder}/{first}.{delta} is missing: version {version} needs every {delta} "
            + (f"after {base}.{snapshot}" if base else f"from 1 on, as there is no {snapshot}")
            + f" ({missing} missing)"
        )
    return base
