"""What a user changes in the log of a file source. ``ttlsnap.positions.log_rules`` does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ttlsnap.errors import UsageError


@dataclass(frozen=True)
class Forget:
    """The source reads files again whose whole paths match one of the ``patterns``.

    ``*`` and ``?`` match no slash, as in a shell, and ``**`` is any number of folders.
    """

    patterns: Sequence[str]

    def __post_init__(self) -> None:
        require_patterns(self.patterns)


@dataclass(frozen=True)
class Record:
    """The source never reads the files that exist now and whose whole paths match one of the ``patterns``.

    For patterns, see ``Forget``.
    """

    patterns: Sequence[str]

    def __post_init__(self) -> None:
        require_patterns(self.patterns)


@dataclass(frozen=True)
class Move:
    """The files of the folder ``old`` are in the folder ``new`` now, and count as read there.

    Both are whole paths, or URIs.
    """

    old: str
    new: str


@dataclass(frozen=True)
class Trim:
    """The log no longer has files that are older by ``older_than`` than the newest, and that Spark does not need.

    ``max_file_age`` is the option ``maxFileAge`` of the source. Spark reads no file again that is older. Both are a
    ``timedelta``, or a text such as ``"30d"``.
    """

    older_than: timedelta | str
    max_file_age: timedelta | str


LogEdit = Forget | Record | Move | Trim
"""A change of what the log of a file source has recorded."""


def require_patterns(patterns: Sequence[str]) -> None:
    """Raise UsageError unless these are patterns."""
    if not patterns:
        raise UsageError("patterns has none. Give at least one")
    if isinstance(patterns, str):
        raise UsageError(f"patterns is the text {patterns!r}; pass a list: [{patterns!r}]")
