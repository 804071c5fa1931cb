"""Durations, shares and sizes as users write them."""

from __future__ import annotations

import re
from datetime import timedelta
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
_WORDS = {
    "ms": ("millisecond", "milliseconds", "millis"),
    "s": ("second", "seconds", "sec", "secs"),
    "m": ("minute", "minutes", "min", "mins"),
    "h": ("hour", "hours", "hr", "hrs"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_UNIT_OF = {unit: unit for unit in _UNITS} | {word: unit for unit, words in _WORDS.items() for word in words}
_PIECE = re.compile(r"([0-9]{1,19})\s*([A-Za-z]+)")
_N = "([0-9]{1,19})"
_ISO = re.compile(rf"P(?:{_N}W)?(?:{_N}D)?(?:T(?:{_N}H)?(?:{_N}M)?(?:{_N}(?:\.([0-9]{{1,6}}))?S)?)?", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*(%)?")
_GROWTH = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)\s*%\s*/\s*(.+)")
_SIZE = re.compile(r"([0-9]{1,15})(?:([kKmMgGtT])(i?))?[bB]?")


def parse_duration(text: str) -> int:
    """Return the microseconds of ``90s``, ``7d``, ``1d12h``, ``7 days``, or ISO 8601 ``P7D``, ``PT1H30M``.

    Raises UsageError for anything else, and for zero, negative and impossibly long durations.
    """
    total = parse_age(text)
    if total <= 0:
        raise UsageError(f"a ttl must be positive, not {text!r}")
    return total


def parse_age(text: str) -> int:
    """Return the microseconds of a duration that may be zero, in the same forms.

    Raises UsageError for anything else, and for impossibly long durations.
    """
    total = _parse(text.strip())
    if total is None:
        raise UsageError(
            f"{text!r} is not a duration; try 90s, 36h, 7d, 7 days, 1d12h or P7D. The units are ms, s, m (minutes), h, "
            "d and w; there are no months"
        )
    if total > MAX_INT64:
        raise UsageError(f"{text!r} is more than the 292,000 years that a timestamp can hold")
    return total


def format_duration(micros: int) -> str:
    """Return a duration as ``parse_duration`` takes it, in the largest unit that divides it: ``7d``, ``90s``."""
    for unit, size in (("d", _UNITS["d"]), ("h", _UNITS["h"]), ("m", _UNITS["m"]), ("s", _UNITS["s"])):
        if micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{micros // _UNITS['ms']}ms" if micros % _UNITS["ms"] == 0 else f"{micros}us"


def micros_of(what: str, duration: timedelta | str) -> int:
    """Return the microseconds of ``what``, a duration. Raise UsageError if it is not one."""
    if isinstance(duration, str):
        return parse_age(duration)
    if not isinstance(duration, timedelta):
        raise UsageError(f"{what} is a timedelta, or a text such as '7d', not {duration!r}")
    if duration < timedelta(0):
        raise UsageError(f"{what} must not be negative, and is {duration}")
    return duration // timedelta(microseconds=1)


def _parse(text: str) -> int | None:
    iso = _ISO.fullmatch(text)
    if iso and text.upper() not in ("P", "PT") and not text.upper().endswith("T"):
        amounts = [int(digits or 0) for digits in iso.groups()[:5]]
        sizes = (_UNITS["w"], _UNITS["d"], _UNITS["h"], _UNITS["m"], _UNITS["s"])
        return sum(amount * size for amount, size in zip(amounts, sizes, strict=True)) + int(
            (iso[6] or "0").ljust(6, "0")
        )
    numbers_and_units = [(int(number), _unit(unit_text)) for number, unit_text in _PIECE.findall(text)]
    if not numbers_and_units or _PIECE.sub("", text).strip() or any(unit is None for _, unit in numbers_and_units):
        return None
    return sum(number * _UNITS[unit] for number, unit in numbers_and_units if unit is not None)


def _unit(unit_text: str) -> str | None:
    """Return the unit that a word names, or None. Short words are case-sensitive, because an M could be a month."""
    return _UNIT_OF.get(unit_text if len(unit_text) < 3 else unit_text.lower())


def parse_retention(text: str) -> int:
    """Return the milliseconds of a duration that may be zero; raises UsageError for anything else."""
    return 0 if re.fullmatch(r"0(ms|s|m|h|d|w)?", text.strip()) else parse_duration(text) // MICROS


def parse_share(text: str) -> float:
    """Return the share, from 0.0 to 1.0, of ``30%`` or ``0.3``.

    Raises UsageError for anything else, also for a bare ``1``, which may mean 1 % or 100 %.
    """
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a share; write 30% or 0.3")
    if match[1] == "1" and not match[2]:
        raise UsageError(f"{text!r} is ambiguous; write 1% or 100%")
    share = Decimal(match[1]) / (100 if match[2] else 1)
    if share > 1:
        hint = "" if match[2] or share > 100 else f"; write {match[1]}%"
        raise UsageError(f"{text!r} is too large; a share is at most 100%, or 1.0{hint}")
    return float(share)


def parse_size(text: str) -> int:
    """Return the bytes of ``1048576``, ``512MiB`` or ``2GB``; raises UsageError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a size; write a number of bytes, or 512MiB, or 2GB")
    exponent = " kmgt".index((match[2] or " ").lower())
    unit: int = (1024 if match[3] else 1000) ** exponent
    return int(match[1]) * unit


def parse_growth(text: str) -> tuple[float, int]:
    """Return the share and the microseconds of a growth in a time: ``20%/d``, ``5%/12h``, ``150%/7d``.

    Raises UsageError for anything else.
    """
    match = _GROWTH.fullmatch(text.strip())
    if match is None or not Decimal(match[1]):
        raise UsageError(f"{text!r} is not a growth; write 20%/d for 20 % in a day, or 5%/12h")
    period = match[2].strip()
    return float(Decimal(match[1]) / 100), parse_duration(f"1{period}" if period in _UNIT_OF else period)
