"""Whether two names of time zones mean the same, as Spark and Java understand them."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

_UTC = ("UTC", "GMT", "UT", "Z")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def mean_same_zone(one: str, other: str) -> bool:
    """Return whether two zones have the same offset from UTC at every time. Return False for unknown names."""
    if one == other:
        return True
    rules = [_find_rules(name) for name in (one, other)]
    return None not in rules and rules[0] == rules[1]


def _find_rules(name: str) -> timedelta | bytes | None:
    """Return the offset of a zone if it never changes, otherwise its compiled rules; None for an unknown zone."""
    if name in _UTC:
        return timedelta()
    if match := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return -offset if match[1] == "-" else offset
    if "/" not in name and name not in ("Universal", "Zulu", "UCT", "Greenwich"):
        return None  # Java has meanings of its own for short names, such as EST
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, ImportError, KeyError):
        return None
    offset_always = zone.utcoffset(None)
    return offset_always if offset_always is not None else _read_rules(name)


def _read_rules(name: str) -> bytes:
    """Return the compiled rules of a known zone. They are the same file for all its names."""
    for folder in TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return files("tzdata").joinpath("zoneinfo", name).read_bytes()
