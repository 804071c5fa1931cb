"""What can go wrong, as one small tree; the command line maps each kind to an exit code.

    TtlsnapError
    ├── UsageError               2  the caller asked for something that cannot be meant
    │   └── NotACheckpointError  2  the target is no checkpoint, or nothing was committed to it yet
    ├── UnsupportedError         3  unknown or unsupported: format, version, codec, operator, type
    ├── RefusedError             4  refused for safety: rows would be lost, the state is not what was planned for
    │   ├── BusyError            4  the query runs, the checkpoint moved on, another ttlsnap is at work
    │   └── FencedError          4  a run was cut off while it published: recover
    ├── CorruptionError          5  damage: bytes that contradict their format, files that are missing
    │   └── CountError           5  fewer or more entries than their files promise
    ├── StorageError             5  the file system refused: permission, no space, I/O
    ├── StoppedError           143  SIGTERM (or 130: Ctrl-C) came before the target was published
    └── TransformerError         5  a user's transformer raised, or returned what it may not

A message says what, where and what to do. What it quotes may be half a megabyte long: of a message that is longer than
``MAX_MESSAGE`` characters the middle is left out.
"""

from __future__ import annotations

MAX_MESSAGE = 3000
_BEGINNING = 2000


class TtlsnapError(Exception):
    """Root of every error ttlsnap raises on purpose. ``advice`` is what helps against every error of its kind."""

    exit_code = 5
    advice = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class UsageError(TtlsnapError):
    """The request cannot be carried out as it was worded (exit code 2)."""

    exit_code = 2


class UnsupportedError(TtlsnapError):
    """Something unknown or not supported, refused by name (exit code 3)."""

    exit_code = 3


class RefusedError(TtlsnapError):
    """Refused for the safety of the state (exit code 4)."""

    exit_code = 4


class BusyError(RefusedError):
    """Somebody else is at work on the target: another time may do (exit code 4)."""


class FencedError(RefusedError):
    """An earlier run was cut off and has to be recovered first (exit code 4)."""


class CorruptionError(TtlsnapError):
    """The bytes on disk contradict their format, or a needed file is missing (exit code 5)."""

    exit_code = 5
    advice = "ttlsnap does not guess around damage. Restore what is named above from a backup."


class CountError(CorruptionError):
    """A store holds another number of entries than it says (exit code 5)."""


class NotACheckpointError(UsageError):
    """The target is not a streaming checkpoint, or holds no committed batch (exit code 2)."""


class StorageError(TtlsnapError):
    """The file system refused an operation: permission, space, I/O (exit code 5)."""

    exit_code = 5


class StoppedError(TtlsnapError):
    """A signal came before anything was published (exit code 128 and the signal's number)."""

    def __init__(self, message: str, signum: int = 15) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


class TransformerError(TtlsnapError):
    """A transformer raised, or returned what it may not (exit code 5)."""

    exit_code = 5


def shortened(message: str) -> str:
    """Return the message, or its beginning and its end if it is too long."""
    if len(message) <= MAX_MESSAGE:
        return message
    end = len(message) - MAX_MESSAGE + _BEGINNING
    return f"{message[:_BEGINNING]} [... {end - _BEGINNING:,} characters ...] {message[end:]}"
