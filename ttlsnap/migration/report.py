"""The report of a migration, for people and machines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Self

from ttlsnap.compaction.report import CompactionReport, Counts
from ttlsnap.documents import Document, json_property
from ttlsnap.transaction.report import RunReport


@dataclass(frozen=True)
class NewPartition:
    """A new partition: its entries, and its bytes on disk."""

    partition: int
    entries: int
    bytes: int


@dataclass(frozen=True)
class StoreReport(Document):
    """A migrated store: its old number of partitions and their bytes on disk, and its new partitions."""

    operator: int
    operator_name: str | None
    store: str
    partitions_before: int
    bytes_before: int
    partitions: tuple[NewPartition, ...]

    @property
    @json_property()
    def entries(self) -> int:
        """The number of entries afterwards."""
        return sum(partition.entries for partition in self.partitions)

    @property
    @json_property()
    def bytes_after(self) -> int:
        """The bytes of the new partitions on disk."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    @json_property(convert=lambda skew: None if skew is None else round(skew, 3))
    def skew(self) -> float | None:
        """The entries of the largest new partition, as a multiple of the median; None if the median is 0."""
        counts = [partition.entries for partition in self.partitions]
        median_count = median(counts)
        return max(counts) / median_count if median_count else None


@dataclass(frozen=True, kw_only=True)
class MigrationReport(RunReport):
    """The result of ``migrate``. ``single`` are the operators that stay in one partition.

    ``settings`` are those that change in the checkpoint, and ``session_settings`` those that the query must set itself.
    ``fingerprint`` is the digest of the batch and of the files that the run read. ``compaction`` is the report of the
    transformers that ran in the same pass, and ``expired_to`` the archive of the entries that they dropped. ``plan``
    has the steps by which schemas change. ``expired`` counts the entries that were dropped by state, because a TTL was
    switched or changed and they have expired, ``merged`` those that had the same key as another one, and ``unused``
    those that were dropped because no state variable of the query uses them.
    """

    engine: str
    engine_reason: str | None
    fingerprint: str
    partitions: int
    provider_before: str
    provider: str
    settings: dict[str, str]
    session_settings: dict[str, str]
    stores: tuple[StoreReport, ...]
    single: tuple[int, ...]
    expired_to: str | None = None
    compaction: CompactionReport | None = None
    plan: tuple[dict[str, Any], ...] = ()
    expired: dict[str, int] = field(default_factory=dict)
    merged: dict[str, int] = field(default_factory=dict)
    unused: dict[str, int] = field(default_factory=dict)
    kind: str = field(default="migrate", init=False)

    @property
    def entries(self) -> int:
        """The number of entries in all migrated stores, as they are afterwards."""
        return sum(store.entries for store in self.stores)

    @property
    @json_property()
    def totals(self) -> Counts:
        """The counts of all migrated stores: the entries afterwards are the ``kept`` ones."""
        if not self.stores:
            return Counts(None, None, 0, 0, None, None)
        dropped = self.compaction.totals.dropped if self.compaction is not None else 0
        dropped += sum(sum(counts.values()) for counts in (self.expired, self.merged, self.unused))
        rewritten = self.compaction.totals.rewritten if self.compaction is not None else 0
        bytes_before, bytes_after = (
            sum(getattr(store, name) for store in self.stores) for name in ("bytes_before", "bytes_after")
        )
        return Counts(self.entries + dropped, self.entries, dropped, rewritten, bytes_before, bytes_after)

    @property
    @json_property()
    def rules(self) -> tuple[str, ...]:
        """The rule of each transformer, in words."""
        return self.compaction.rules if self.compaction is not None else ()

    @property
    def changed(self) -> bool:
        """Whether something was, or in a dry run would be, changed."""
        return bool(self.stores or self.plan)

    def unpublished(self) -> Self:
        compaction = self.compaction.unpublished() if self.compaction is not None else None
        return replace(super().unpublished(), compaction=compaction)
