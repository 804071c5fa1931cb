"""``StateTtlConfig``: how long state lives, in Flink's terms.

What each setting means for an offline scan:

* ``ttl`` and ``time_characteristic`` decide which entries have expired.
* ``update_type`` says which accesses renew an entry's timestamp, ``visibility`` whether a query may still see
  what has expired. Both are about a running query: they do not influence a scan (nor do they in Flink), and are
  here so that one configuration can describe a state in full.
* ``cleanup`` names the strategies; a full scan is ``full_snapshot``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from ttlsnap.clock import TimeCharacteristic
from ttlsnap.errors import UsageError

_UNITS = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_SHORT = re.compile(r"([0-9]{1,19})\s*(ms|s|m|h|d|w)")
_N = "([0-9]{1,19})"
_ISO = re.compile(rf"P(?:{_N}W)?(?:{_N}D)?(?:T(?:{_N}H)?(?:{_N}M)?(?:{_N}(?:\.([0-9]{{1,6}}))?S)?)?", re.IGNORECASE)
_MAX_MICROS = (1 << 63) - 1


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
        if not 0 <= self.ttl_us <= _MAX_MICROS:
            raise UsageError(f"a ttl of {self.ttl_us} microseconds is out of range: 0 to {_MAX_MICROS}")

    @classmethod
    def of(cls, ttl: timedelta) -> StateTtlConfig:
        """The configuration with all defaults and this ttl, which must be positive."""
        if ttl <= timedelta(0):
            raise UsageError(f"a ttl must be positive, not {ttl}")
        return cls(ttl // timedelta(microseconds=1))


def parse_duration(text: str) -> int:
    """Microseconds of ``90s``, ``36h``, ``7d``, ``1d12h`` or ISO 8601 ``P7D``, ``PT1H30M``.

    Raises UsageError for anything else, and for zero, negative and absurd durations.
    """
    total = _parse(text.strip())
    if total is None:
        raise UsageError(f"{text!r} is no duration; write 90s, 36h, 7d, 1d12h or ISO 8601 such as P7D")
    if total <= 0:
        raise UsageError(f"a ttl must be positive, not {text!r}")
    if total > _MAX_MICROS:
        raise UsageError(f"a ttl of {text!r} is more than the 292,000 years that a timestamp can hold")
    return total


def _parse(text: str) -> int | None:
    iso = _ISO.fullmatch(text)
    if iso and text.upper() not in ("P", "PT") and not text.upper().endswith("T"):
        parts = [int(part or 0) for part in iso.groups()[:5]]
        sizes = (_UNITS["w"], _UNITS["d"], _UNITS["h"], _UNITS["m"], _UNITS["s"])
        return sum(n * size for n, size in zip(parts, sizes, strict=True)) + int((iso[6] or "0").ljust(6, "0"))
    pieces = _SHORT.findall(text)
    if not pieces or _SHORT.sub("", text).strip():
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in pieces)
