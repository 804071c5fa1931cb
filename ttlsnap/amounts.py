"""Numbers, sizes and shares in words, for people."""

from __future__ import annotations

MISSING = "-"
UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
"""The units of durations, largest first, with their seconds."""


def share(part: int, whole: int | None) -> str:
    """Return ``77 %``, or ``<1 %`` and ``>99 %``. Return a dash if the whole is unknown or nothing.

    Only the whole is 100 %, and only nothing is 0 %.
    """
    if not whole:
        return MISSING
    if 0 < part < whole and not 1 <= 100 * part / whole <= 99:
        return "<1 %" if 2 * part < whole else ">99 %"
    return f"{100 * part / whole:.0f} %"


def number(value: int | None) -> str:
    """Return ``1,234,567``; a dash if it is unknown."""
    return MISSING if value is None else f"{value:,}"


def quantity(value: int | None, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 entry``, ``2,000 entries``. Without ``plural``, the plural ends with an s.

    The noun can have a verb: ``quantity(rows, "row was", "rows were")``.
    """
    return f"{number(value)} {singular if value == 1 else plural or singular + 's'}"


def such_files(count: int) -> str:
    """Return what follows the first of some files in a message, such as `` (3 such files)``; nothing for one file."""
    return "" if count == 1 else f" ({number(count)} such files)"


def size(value: int | None) -> str:
    """Return bytes for people: ``512 B``, ``3.4 MB``; a dash if unknown."""
    if value is None:
        return MISSING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def exact_size(value: int | None) -> str:
    """Return bytes for people, and up to 9,999 of them exactly: ``1,536 B``."""
    return f"{value:,} B" if value is not None and value < 10_000 else size(value)


def ratio(value: float | None) -> str:
    """Return a ratio such as largest / median: ``1.02``; a dash if it is unknown."""
    return MISSING if value is None else f"{value:.2f}"


def part_of(part: float) -> str:
    """Return a share from 0 to 1: ``12 %``, or with one digit if it is below 10 %."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.1g} %"


def estimate(words: str, *, exact: bool) -> str:
    """Return a number in words, with a mark if it is estimated."""
    return words if exact else f"~{words}"


def age(seconds: int | None) -> str:
    """Return an age in the largest unit that it has at least twice: ``36h``, ``29d``; a dash if unknown."""
    if seconds is None:
        return MISSING
    name, unit = next((pair for pair in UNITS if seconds >= 2 * pair[1]), UNITS[-1])
    return f"{seconds // unit:,}{name}"
