"""The limit for what a compressed file expands to, because a few kilobytes can expand to gigabytes.

A file may expand to ``EXPANSION`` times its size, and a small file to a fixed size, which each reader states. The
variable ``TTLSNAP_EXPANSION`` raises the factor, for a file that is right.
"""

from __future__ import annotations

import os

from ttlsnap.errors import UnsupportedError, UsageError

EXPANSION = 1000
SETTING = "TTLSNAP_EXPANSION"
ADVICE = f"If the file is right, raise that factor with the variable {SETTING}"


def expansion() -> int:
    """Return how many times its size a file may expand to. Raise UsageError for a factor that is not a number."""
    text = os.environ.get(SETTING, "").strip()
    if text and not (text.isascii() and text.isdigit() and 0 < len(text) < 10):
        raise UsageError(f"{SETTING}={text[:40]!r} is not a factor; try {SETTING}={10 * EXPANSION}")
    return max(int(text or 0), EXPANSION)


def limit(size: int, least: int) -> int:
    """Return the most bytes that a file of ``size`` bytes may expand to; ``least`` if it is small."""
    return max(least, expansion() * size)


class Room:
    """A count of the bytes that files of ``size`` bytes expand to. ``where`` names them, and ``what`` is counted."""

    def __init__(self, size: int, least: int, where: str, unit: str) -> None:
        self._size, self._least, self._where, self._unit = size, least, where, unit
        self._size_left = limit(size, least)

    def take(self, size: int) -> None:
        """Count ``size`` bytes. Raise UnsupportedError if they are too many."""
        self._size_left -= size
        if self._size_left < 0:
            raise UnsupportedError(
                f"{self._where}: its {self._size:,} bytes expand to more than {limit(self._size, self._least):,} bytes "
                f"of {self._unit}. ttlsnap reads at most {self._least >> 20:,} MiB, or {expansion():,} times the size "
                f"of a file. {ADVICE}"
            )
