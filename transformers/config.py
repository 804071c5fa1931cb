"""``StateTtlConfig``: how long state lives, in Flink's terms.

What each setting means for an offline scan:

* ``ttl`` and ``time_characteristic`` decide which entries have expired.
* ``update_type`` says which accesses renew an entry's timestamp, ``visibility`` whether a query may still see
  what has expired. Both are about a running query: they do not influence a scan (nor do they in Flink), and are
  here so that one configuration can describe a state in full.
* ``cleanup`` names the strategies; a full scan is ``full_snapshot``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from ttlsnap.clock import MAX_INT64, TimeCharacteristic
from ttlsnap.errors import UsageError


class UpdateType(StrEnum):
    """Which accesses of a running query renew an entry's timestamp."""

    DISABLED = "Disabled"
    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(StrEnum):
    """Whether a running query sees entries that have expired and are not cleaned up yet."""

    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"
    NEVER_RETURN_EXPIRED = "NeverReturnExpired"


@dataclass(frozen=True)
class CleanupStrategies:
    """How expired entries are removed: in a full scan, in bounded parts, or with RocksDB's compaction.

    ``incremental`` is the number of entries to look at in each step, None for off; ``rocksdb`` whether compaction
    removes them.
    """

    full_snapshot: bool = True
    incremental: int | None = None
    rocksdb: bool = False

    def __post_init__(self) -> None:
        if self.incremental is not None and self.incremental <= 0:
            raise UsageError(f"incremental cleanup of {self.incremental} entries: it must be at least 1")


@dataclass(frozen=True)
class StateTtlConfig:
    """The time-to-live of a state.

    ``ttl_us`` is in microseconds; 0 is allowed only for timestamps that are moments of expiry already.
    ``time_characteristic`` None means the clock of the state's operator. Raises UsageError for a negative ttl.
    """

    ttl_us: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    time_characteristic: TimeCharacteristic | None = None
    cleanup: CleanupStrategies = field(default_factory=CleanupStrategies)

    def __post_init__(self) -> None:
        if not 0 <= self.ttl_us <= MAX_INT64:
            raise UsageError(f"a ttl of {self.ttl_us} microseconds is out of range: 0 to {MAX_INT64}")

    @classmethod
    def of(cls, ttl: timedelta) -> StateTtlConfig:
        """The configuration with all defaults and this ttl, which must be positive."""
        if ttl <= timedelta(0):
            raise UsageError(f"a ttl must be positive, not {ttl}")
        return cls(ttl // timedelta(microseconds=1))
