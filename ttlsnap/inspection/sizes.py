"""The result of ``inspect --sizes`` as data, and as JSON.

Sizes are those of the stored keys and values, without compression. The sizes of files are given apart from them. See
``ttlsnap.inspection.measuring`` for samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from ttlsnap.inspection.ages import Ages
from ttlsnap.inspection.distribution import Distribution
from ttlsnap.inspection.growth import Growth
from ttlsnap.inspection.partition_sizes import Freed, KeyWithRows, LargeEntry, StatePart


@dataclass(frozen=True)
class StoreSizes:
    """The files of a store, by partition: their bytes, and whether the partition was read."""

    operator: int
    store: str
    files: tuple[tuple[int, int, bool], ...]

    @property
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(size for _, size, _ in self.files)

    @property
    def read_bytes(self) -> int:
        """The bytes of the files of the partitions that were read."""
        return sum(size for _, size, is_read in self.files if is_read)

    @property
    def is_complete(self) -> bool:
        """Whether every partition was read."""
        return all(is_read for *_, is_read in self.files)

    @property
    def skew(self) -> float | None:
        """The files of the largest partition, divided by the median."""
        return skew(size for _, size, _ in self.files)

    def partitions(self, states: Iterable[StateSizes]) -> list[PartitionSizes]:
        """Return the sizes of each partition, over those of these states that are in the store."""
        read: dict[int, list[StatePart]] = {}
        for state in states:
            if (state.operator, state.store) == (self.operator, self.store):
                for part in state.parts:
                    read.setdefault(part.partition, []).append(part)
        return [
            PartitionSizes(
                partition,
                file_bytes,
                is_read,
                sum(part.entries for part in read.get(partition, ())) if is_read else None,
                sum(part.bytes for part in read.get(partition, ())) if is_read else None,
            )
            for partition, file_bytes, is_read in self.files
        ]

    def to_json(self, states: Iterable[StateSizes]) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "store": self.store,
            "file_bytes": self.file_bytes,
            "read_bytes": self.read_bytes,
            "skew": self.skew,
            "partitions": [vars(partition) for partition in self.partitions(states)],
        }


@dataclass(frozen=True)
class PartitionSizes:
    """A partition of a store: the bytes of its files, and if it was ``read`` its entries, their keys and values."""

    partition: int
    file_bytes: int
    read: bool
    entries: int | None
    bytes: int | None


@dataclass(frozen=True)
class RuleOutcome:
    """What the rule would drop of a state. ``left_alone`` says why it drops nothing from it, as in ``compact``.

    ``followers`` are the states whose entries follow those of this one. What the rule would drop of them is unknown.
    """

    freed: Freed
    left_alone: str | None = None
    followers: tuple[str, ...] = ()

    def to_json(self, scale: float) -> dict[str, Any]:
        """Return it as JSON. ``scale`` is the factor from what was read to all."""
        return {
            "entries": self.freed.entries,
            "bytes": self.freed.bytes,
            "estimated_entries": round(self.freed.entries * scale),
            "estimated_bytes": round(self.freed.bytes * scale),
            "left_alone": self.left_alone,
            "followers": list(self.followers),
        }


@dataclass(frozen=True)
class StateSizes:
    """The sizes of one state, from the ``parts`` of it that were read.

    ``entries`` is the exact number of entries, None if it is unknown. ``scale`` is the factor from what was read to
    all, 1 if everything was read. ``no_ages`` says why there are none. ``rule`` is None without a rule.
    """

    operator: int
    store: str
    state: str
    kind: str
    role: str
    entries: int | None
    is_complete: bool
    scale: float
    parts: tuple[StatePart, ...]
    keys: Distribution
    values: Distribution
    largest: tuple[LargeEntry, ...]
    with_rows: tuple[KeyWithRows, ...] | None
    ages: Ages | None
    no_ages: str | None
    rule: RuleOutcome | None

    def __str__(self) -> str:
        return f"{self.operator}.{self.store}.{self.state}"

    @property
    def entries_read(self) -> int:
        """The number of entries that were read."""
        return sum(part.entries for part in self.parts)

    @property
    def key_bytes(self) -> int:
        """The bytes of the keys that were read."""
        return sum(part.key_bytes for part in self.parts)

    @property
    def value_bytes(self) -> int:
        """The bytes of the values that were read."""
        return sum(part.value_bytes for part in self.parts)

    @property
    def bytes_read(self) -> int:
        """The bytes of keys and values that were read."""
        return self.key_bytes + self.value_bytes

    @property
    def estimated_bytes(self) -> int:
        """The bytes of all keys and values; exact if everything was read."""
        return round(self.bytes_read * self.scale)

    @property
    def estimated_entries(self) -> int:
        """The number of all entries; exact if it is known."""
        return self.entries if self.entries is not None else round(self.entries_read * self.scale)

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "store": self.store,
            "state": self.state,
            "type": self.kind,
            "role": self.role,
            "entries": self.entries,
            "entries_read": self.entries_read,
            "estimated_entries": self.estimated_entries,
            "bytes": self.bytes_read if self.is_complete else None,
            "bytes_read": self.bytes_read,
            "estimated_bytes": self.estimated_bytes,
            "key_bytes": self.key_bytes,
            "value_bytes": self.value_bytes,
            "estimated_key_bytes": round(self.key_bytes * self.scale),
            "estimated_value_bytes": round(self.value_bytes * self.scale),
            "complete": self.is_complete,
            "skew": skew(part.entries for part in self.parts) if self.is_complete else None,
            "skew_bytes": skew(part.bytes for part in self.parts) if self.is_complete else None,
            "partitions": [
                {
                    "partition": part.partition,
                    "entries": part.entries,
                    "bytes": part.bytes,
                    "key_bytes": part.key_bytes,
                    "value_bytes": part.value_bytes,
                }
                for part in self.parts
            ],
            "key_sizes": self.keys.to_json(),
            "value_sizes": self.values.to_json(),
            "largest": [entry.to_json() for entry in self.largest],
            "most_rows": None if self.with_rows is None else [key.to_json() for key in self.with_rows],
            "ages": self.ages.to_sizes_json() if self.ages is not None else None,
            "no_ages": self.no_ages,
            "would_free": self.rule.to_json(self.scale) if self.rule is not None else None,
        }


@dataclass(frozen=True)
class Sizes:
    """The result of ``inspect --sizes``. ``limit`` is the limit of the sample in bytes, ``rule`` the rule in words."""

    limit: int | None
    stores: tuple[StoreSizes, ...]
    states: tuple[StateSizes, ...]
    growth: Growth
    rule: str | None
    seconds: float

    @property
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(store.file_bytes for store in self.stores)

    @property
    def share(self) -> float:
        """The share of the bytes of files that was read."""
        return sum(store.read_bytes for store in self.stores) / self.file_bytes if self.file_bytes else 1.0

    @property
    def is_complete(self) -> bool:
        """Whether every partition was read."""
        return all(store.is_complete for store in self.stores)

    def to_json(self) -> dict[str, Any]:
        """Return what is beneath ``sizes``; see ``docs/json.md``."""
        return {
            "complete": self.is_complete,
            "sample_limit": self.limit,
            "share_read": round(self.share, 6),
            "file_bytes": self.file_bytes,
            "rule": self.rule,
            "stores": [store.to_json(self.states) for store in self.stores],
            "states": [state.to_json() for state in self.states],
            "growth": self.growth.to_json(),
            "seconds": round(self.seconds, 3),
        }


def skew(sizes: Iterable[int]) -> float | None:
    """Return the largest of the sizes, divided by their median; None if the median is 0."""
    found = list(sizes)
    middle = median(found) if found else 0
    return round(max(found) / middle, 2) if middle else None
