"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from ttlsnap.clock import MAX_INT64, MICROS
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
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*(%)?")
_SIZE = re.compile(r"([0-9]{1,15})(?:([kKmMgGtT])(i?))?[bB]?")


def parse_duration(text: str) -> int:
    """Microseconds of ``90s``, ``36h``, ``7d``, ``1d12h`` or ISO 8601 ``P7D``, ``PT1H30M``.

    Raises UsageError for anything else, and for zero, negative and absurd durations.
    """
    total = _parse(text.strip())
    if total is None:
        raise UsageError(f"{text!r} is no duration; write 90s, 36h, 7d, 1d12h or ISO 8601 such as P7D")
    if total <= 0:
        raise UsageError(f"a ttl must be positive, not {text!r}")
    if total > MAX_INT64:
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


def parse_retention(text: str) -> int:
    """Milliseconds of a duration that may be none at all; raises UsageError."""
    return 0 if re.fullmatch(r"0(ms|s|m|h|d|w)?", text.strip()) else parse_duration(text) // MICROS


def parse_share(text: str) -> float:
    """Return the share, from 0.0 to 1.0, of ``30%`` or ``0.3``.

    Raises UsageError for anything else, also for a bare ``1``, which may mean 1 % as well as everything.
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a share; write 30% or 0.3")
    if match[1] == "1" and not match[2]:
        raise UsageError(f"{text!r} may mean 1% or everything; write 1% or 100%")
    share = Decimal(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise UsageError(f"{text!r} is more than everything; a share is at most 100%")
    return float(share)


def parse_size(text: str) -> int:
    """Bytes: ``1048576``, ``512MiB``, ``2GB``; raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{text!r} is no size: write bytes, or 512MiB, or 2GB")
    power = " kmgt".index((match[2] or " ").lower())
    unit: int = (1024 if match[3] else 1000) ** power
    return int(match[1]) * unit
