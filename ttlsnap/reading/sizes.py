"""The result of ``inspect --sizes`` as data, and as JSON.

Sizes are those of the stored keys and values, without compression. The sizes of files are given apart from them. See
``ttlsnap.reading.measuring`` for samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from ttlsnap.documents import MILLISECONDS, Document, in_json, json_property, to_json
from ttlsnap.reading.ages import Ages
from ttlsnap.reading.distribution import Distribution
from ttlsnap.reading.growth import Growth
from ttlsnap.reading.partition_sizes import Freed, KeyWithRows, LargeEntry, StatePart


@dataclass(frozen=True)
class PartitionSizes:
    """A partition of a store: the bytes of its files, and if it was ``read`` its entries, their keys and values."""

    partition: int
    file_bytes: int
    read: bool
    entries: int | None
    bytes: int | None

    @classmethod
    def of(cls, partition: int, file_bytes: int, states: Sequence[StatePart] | None) -> PartitionSizes:
        """Return the sizes of a partition from those of its ``states``; None if it was not read."""
        if states is None:
            return cls(partition, file_bytes, False, None, None)
        sums = (sum(state.entries for state in states), sum(state.bytes for state in states))
        return cls(partition, file_bytes, True, *sums)


@dataclass(frozen=True)
class StoreSizes(Document):
    """The sizes of a store, by partition."""

    JSON_ORDER = "operator store file_bytes read_bytes skew"

    operator: int
    store: str
    partitions: tuple[PartitionSizes, ...]

    @property
    @json_property()
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(partition.file_bytes for partition in self.partitions)

    @property
    @json_property()
    def read_bytes(self) -> int:
        """The bytes of the files of the partitions that were read."""
        return sum(partition.file_bytes for partition in self.partitions if partition.read)

    @property
    def is_complete(self) -> bool:
        """Whether every partition was read."""
        return all(partition.read for partition in self.partitions)

    @property
    @json_property()
    def skew(self) -> float | None:
        """The files of the largest partition, divided by the median."""
        return skew(partition.file_bytes for partition in self.partitions)


@dataclass(frozen=True)
class RuleOutcome(Document):
    """What the rule would drop of a state. ``left_alone`` says why it drops nothing from it, as in ``compact``.

    ``scale`` is the factor from what was read to all. ``followers`` are the states whose entries follow those of this
    one. What the rule would drop of them is unknown.
    """

    JSON_ORDER = "freed estimated_entries estimated_bytes"

    freed: Freed = field(metadata=in_json(inline=True))
    scale: float = field(metadata=in_json(hidden=True))
    left_alone: str | None = None
    followers: tuple[str, ...] = ()

    @property
    @json_property()
    def estimated_entries(self) -> int:
        """The number of all entries that it would drop."""
        return round(self.freed.entries * self.scale)

    @property
    @json_property()
    def estimated_bytes(self) -> int:
        """The bytes of all keys and values that it would drop."""
        return round(self.freed.bytes * self.scale)


@dataclass(frozen=True)
class StateSizes(Document):
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
        """Return the sizes that were read, and estimates from them; the object has them by partition."""
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
                {name: getattr(part, name) for name in ("partition", "entries", "bytes", "key_bytes", "value_bytes")}
                for part in self.parts
            ],
            "key_sizes": self.keys.to_json(),
            "value_sizes": self.values.to_json(),
            "largest": to_json(self.largest),
            "most_rows": to_json(self.with_rows),
            "ages": self.ages.to_sizes_json() if self.ages is not None else None,
            "no_ages": self.no_ages,
            "would_free": to_json(self.rule),
        }


@dataclass(frozen=True)
class Sizes(Document):
    """The result of ``inspect --sizes``. ``limit`` is the limit of the sample in bytes, ``rule`` the rule in words."""

    JSON_ORDER = "is_complete limit share file_bytes rule"

    limit: int | None = field(metadata=in_json("sample_limit"))
    stores: tuple[StoreSizes, ...]
    states: tuple[StateSizes, ...]
    growth: Growth
    rule: str | None
    seconds: float = field(metadata=MILLISECONDS)

    @property
    @json_property()
    def file_bytes(self) -> int:
        """The bytes of all files."""
        return sum(store.file_bytes for store in self.stores)

    @property
    @json_property("share_read", convert=partial(round, ndigits=6))
    def share(self) -> float:
        """The share of the bytes of files that was read."""
        return sum(store.read_bytes for store in self.stores) / self.file_bytes if self.file_bytes else 1.0

    @property
    @json_property("complete")
    def is_complete(self) -> bool:
        """Whether every partition was read."""
        return all(store.is_complete for store in self.stores)


def skew(sizes: Iterable[int]) -> float | None:
    """Return the largest of the sizes, divided by their median; None if the median is 0."""
    known_sizes = list(sizes)
    middle = median(known_sizes) if known_sizes else 0
    return round(max(known_sizes) / middle, 2) if middle else None
