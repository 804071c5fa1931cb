"""The files that one version of one partition is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ttlsnap.errors import CorruptionError
from ttlsnap.quoting import quotes_nothing

Extensions = tuple[str, str]
"""The extensions of a store's snapshots and of its deltas."""


@dataclass(frozen=True)
class StateFile:
    """A file of a version, as it was when the run was planned."""

    path: str
    version: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Lineage:
    """A snapshot and the deltas after it, oldest first, up to ``version``.

    ``shared`` has the files that the snapshot refers to; other snapshots may refer to them, too. ``newer`` has files of
    later versions, left by a batch that was planned and never committed. ``new_snapshot`` is the path for a snapshot of
    ``version``.

    ``entries`` is the number of entries, if the files record it. ``counted`` says that the snapshot records the number
    of its own entries, or that there is none that could. ``only_for`` is the version of Spark that alone can
    read such files, if there is only one. ``families`` are the column families that the snapshot names; none if its
    keys carry no ids.
    """

    version: int
    snapshot: StateFile | None
    deltas: tuple[StateFile, ...]
    newer: tuple[StateFile, ...]
    new_snapshot: str
    shared: tuple[StateFile, ...] = ()
    entries: int | None = None
    counted: bool = True
    only_for: str | None = None
    families: frozenset[str] = frozenset()

    @property
    def files(self) -> tuple[StateFile, ...]:
        return (*((self.snapshot,) if self.snapshot else ()), *self.shared, *self.deltas)

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return sum(file.size for file in self.files)


def base_of(folder: str, version: int, snapshots: Collection[int], deltas: Collection[int], names: Extensions) -> int:
    """Return the version of the newest snapshot not after ``version``, or 0 if there is none.

    Raises CorruptionError if a delta after it is missing. ``names`` are the extensions of the files.
    """
    snapshot, delta = names
    base_version = max((number for number in snapshots if number <= version), default=0)
    # Missing versions are counted, not listed: the version comes from a file's name and may be absurd.
    missing_count = version - base_version - sum(base_version < number <= version for number in deltas)
    if missing_count:
        first_missing = next(number for number in range(base_version + 1, version + 1) if number not in deltas)
        start = f"after {base_version}.{snapshot}" if base_version else f"from 1 on, as there is no {snapshot}"
        message = (
            f"{folder}/{first_missing}.{delta} is missing: version {version} needs every {delta} {start} "
            f"({missing_count} missing)"
        )
        if 1 < missing_count == version - base_version:  # probably there was a snapshot, as after a run of ttlsnap
            message = (
                f"{folder}/{version}.{snapshot} is missing: without it, version {version} needs every {delta} {start}, "
                "and none of them is there"
            )
        raise CorruptionError(quotes_nothing(message))
    return base_version
