"""``StateTtlConfig``: the time-to-live of state, in Flink's terms.

In an offline scan, each setting has this meaning:

* ``ttl`` and ``time_characteristic`` decide which entries have expired.
* ``update_type`` says which accesses renew an entry's timestamp, and ``visibility`` whether a query may still see
  expired entries. Both concern a running query and have no effect on a scan, as in Flink. They exist so that one
  configuration can describe a state completely. But with ``UpdateType.DISABLED`` the state does not expire at all.
* ``cleanup`` names the strategies. A scan is always ``full_snapshot``, so other values are refused: a policy has
  incremental cleanup, and ``--rewrite`` says how RocksDB files are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from ttlsnap.clock import MAX_INT64, TimeCharacteristic
from ttlsnap.errors import UsageError
from ttlsnap.schema.units import micros_of, parse_duration


class UpdateType(StrEnum):
    """The accesses of a running query that renew an entry's timestamp."""

    DISABLED = "Disabled"
    """The TTL is off: nothing expires."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(StrEnum):
    """The visibility, for a running query, of expired entries that are not removed yet."""

    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"
    NEVER_RETURN_EXPIRED = "NeverReturnExpired"


@dataclass(frozen=True)
class CleanupStrategies:
    """The ways to remove expired entries: in a full scan, in bounded parts, or with RocksDB's compaction.

    ``incremental`` is the number of entries to examine in each step, None for off. ``rocksdb``: compaction removes
    them.
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

    ``ttl_us`` is in microseconds; 0 is allowed only for timestamps that are expiry times.
    ``time_characteristic`` None means the clock of the state's operator.

    The others are those of Flink's class of this name. ``update_type`` DISABLED turns the rule off, and the other types
    are the same here: the field with the time says what restarts the TTL. ``visibility`` changes nothing here: what a
    run drops is gone. ``cleanup`` must be a full scan, which a run always is. Raise UsageError for a negative TTL, and
    for another cleanup.
    """

    ttl_us: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    time_characteristic: TimeCharacteristic | None = None
    cleanup: CleanupStrategies = field(default_factory=CleanupStrategies)

    def __post_init__(self) -> None:
        if type(self.ttl_us) is not int:
            raise UsageError(f"ttl_us is {self.ttl_us!r}; it is in microseconds. For a text: StateTtlConfig.of('7d')")
        if not 0 <= self.ttl_us <= MAX_INT64:
            raise UsageError(f"a ttl of {self.ttl_us} microseconds is out of range: 0 to {MAX_INT64}")
        if not self.cleanup.full_snapshot:
            raise UsageError("cleanup: full_snapshot=False has no effect; a run always scans the whole snapshot")
        if self.cleanup.incremental is not None:
            raise UsageError(
                f"cleanup: incremental={self.cleanup.incremental} has no effect here; "
                'use strategy = "incremental" in a maintenance policy'
            )
        if self.cleanup.rocksdb:
            raise UsageError("cleanup: rocksdb=True has no effect here; use rewrite, or --rewrite on the command line")

    @classmethod
    def of(cls, ttl: timedelta | str) -> StateTtlConfig:
        """Return a configuration with this TTL, such as ``"7d"``, and all defaults. It must be positive."""
        if isinstance(ttl, timedelta) and ttl <= timedelta(0):
            raise UsageError(f"a ttl must be positive, not {ttl}")
        return cls(parse_duration(ttl) if isinstance(ttl, str) else micros_of("a ttl", ttl))
