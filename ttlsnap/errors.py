"""The errors of ttlsnap, as a small tree; the command line maps each kind to an exit code.

    TtlsnapError
    ├── UsageError               2  the request has a mistake
    │   ├── NotACheckpointError  2  the target is not a checkpoint, or no batch is committed yet
    │   └── NothingToMigrateError 2  a migration cannot change what it was asked to change
    ├── TransformerError         2  the user's transformer raised an error, or returned an invalid result
    ├── UnsupportedError         3  unknown or unsupported: format, version, codec, operator, type
    ├── RefusedError             4  refused for safety: rows would be lost, the state differs from the plan
    │   ├── BusyError            4  the query or another ttlsnap is running, or the checkpoint has a newer batch
    │   ├── FencedError          4  a run was interrupted while it published: recover
    │   └── FutureWatermarkError 4  the watermark is so far ahead that it is not a current time
    ├── CorruptionError          5  damage: bytes that contradict their format, missing files
    │   ├── ChecksumError        5  a file and the checksum file that Spark wrote for it do not match
    │   └── CountError           5  a store has fewer or more entries than its files say
    ├── StorageError             5  the file system refused an operation: permission, no space, I/O
    │   └── LockLostError        5  another process may hold the lock now
    └── StoppedError           143  SIGTERM (or 130: Ctrl-C) arrived before the target was published

A message says what happened, where, and what to do. It may quote half a megabyte, so ttlsnap leaves out the middle of a
message that is longer than ``MAX_MESSAGE`` characters.

A message that quotes a key or a value of an entry is a ``Quoting`` (``ttlsnap.quoting``), so that a page can leave them
out. The messages of most classes may also have the text of another library, which may quote anything. So a page shows
``summary`` in place of a message of these classes that does not say what it quotes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ttlsnap.naming import for_python
from ttlsnap.quoting import Quoting

USERS_ERRORS = (Exception, SystemExit)
"""What code of the user's can raise. ``sys.exit()`` in it must not end the command as if it had succeeded."""

MAX_MESSAGE = 3000
_BEGINNING = 2000


class TtlsnapError(Exception):
    """The root of every error that ttlsnap raises on purpose. ``advice`` is advice for every error of the class.

    ``summary`` is what a page shows of a message that may quote entries. It is None for a class whose messages quote
    no entries except in a ``Quoting``.
    """

    exit_code = 5
    advice = ""
    summary: str | None = "The run failed."
    names_parameters = False

    def __init__(self, message: str = "") -> None:
        super().__init__(shorten(message))

    def __str__(self) -> str:
        """Return the message. One that a function of the Python API raises names parameters, and no options."""
        return for_python(self.message) if self.names_parameters else str(self.message)

    @property
    def message(self) -> str:
        """The message. It is a ``Quoting`` if it says what it quotes."""
        return self.args[0] if self.args else ""

    @property
    def text(self) -> Quoting:
        """The message, and the same without the keys and values of entries that it may quote."""
        if isinstance(self.message, Quoting):
            return self.message
        return Quoting(self.message, self.message if self.summary is None else self.summary)

    def add(self, words: str) -> None:
        """Add a line to the message."""
        self.args = (shorten(self.text + f"\n{words}"),)


class UsageError(TtlsnapError):
    """A mistake in the request (exit code 2)."""

    exit_code = 2
    summary: str | None = "The request has a mistake."


class UnsupportedError(TtlsnapError):
    """Something unknown or unsupported, which the message names (exit code 3)."""

    exit_code = 3
    summary = "ttlsnap does not know a format, a version or a feature of this target."


class RefusedError(TtlsnapError):
    """A refusal for the safety of the state (exit code 4)."""

    exit_code = 4
    summary = None


class BusyError(RefusedError):
    """A query or another ttlsnap is working on the target; a later try may succeed (exit code 4)."""


class FencedError(RefusedError):
    """An interrupted run that must be recovered first (exit code 4)."""


class FutureWatermarkError(RefusedError):
    """A watermark that is too far ahead of its batch to be compared with times of entries (exit code 4)."""


UNLESS_AGREED = "Unless somebody agrees on a terminal, a run refuses this."
"""A part of the warning of a dry run. ``maintain`` leaves out the condition, because it asks nobody."""


class Foreseen(str):
    """A warning of a dry run: the error of this ``kind`` that a run would raise, if nobody agrees on a terminal."""

    kind: type[RefusedError]

    def __new__(cls, text: str, kind: type[RefusedError] = RefusedError) -> Foreseen:
        made = super().__new__(cls, text)
        made.kind = kind
        return made

    def __reduce__(self) -> tuple[type[Foreseen], tuple[str, type[RefusedError]]]:
        return Foreseen, (str(self), self.kind)

    @staticmethod
    def first_in(warnings: Iterable[str]) -> type[RefusedError] | None:
        """Return the kind of the error that a run would raise first; None if it would raise none."""
        return next((warning.kind for warning in warnings if isinstance(warning, Foreseen)), None)


class CorruptionError(TtlsnapError):
    """Bytes that contradict their format, or a missing file (exit code 5)."""

    exit_code = 5
    summary = "The target is damaged."
    advice = (
        "ttlsnap does not guess what damaged files contain. Restore the files named above from a copy, or "
        "the checkpoint from a backup: ttlsnap copy BACKUP CHECKPOINT --replace --stopped. ttlsnap doctor shows "
        "whether a checkpoint can be repaired without one."
    )


class AlteredCopyError(CorruptionError):
    """A copy of a checkpoint that is damaged, or not what its manifest says (exit code 5)."""

    advice = "ttlsnap doctor COPY lists what is wrong with a copy."


class ChecksumError(CorruptionError):
    """A file ``path`` that does not match ``checksum``, the checksum file that Spark wrote for it (exit code 5)."""

    summary = "A file and its checksum do not match."

    def __init__(self, message: str = "", path: str = "", checksum: str = "") -> None:
        super().__init__(message)
        self.path, self.checksum = path, checksum


class CountError(CorruptionError):
    """A store whose number of entries is not the one that its files record (exit code 5)."""

    summary = "A store has another number of entries than its files say."


class NotACheckpointError(UsageError):
    """A target that is not a streaming checkpoint, or has no committed batch (exit code 2)."""

    summary = None


class NothingToMigrateError(UsageError):
    """A migration that cannot change what it was asked to change in this checkpoint (exit code 2)."""

    summary = "The migration cannot change what it was asked to change."


class StorageError(TtlsnapError):
    """An operation that the file system refused: permission, space, I/O (exit code 5)."""

    exit_code = 5
    summary = "The storage refused an operation."


class LockLostError(StorageError):
    """Another process may hold the lock of this one, and may have changed what this one met."""


class StoppedError(TtlsnapError):
    """A signal that arrived before anything was published (exit code 128 plus the signal's number)."""

    summary = "A signal stopped the run before it published."

    def __init__(self, message: str, signum: int = 15) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


class TransformerError(TtlsnapError):
    """An error that a transformer raised, or an invalid result of a transformer (exit code 2)."""

    exit_code = 2
    summary = "A transformer or a function of yours raised an error."


@contextmanager
def explain_errors(words: str, kind: type[TtlsnapError] = TtlsnapError) -> Iterator[None]:
    """Add a line to the message of an error of the block that is of this ``kind``."""
    try:
        yield
    except kind as error:
        error.add(words)
        raise


@contextmanager
def tidy_after_error(tidy: Callable[[], object]) -> Iterator[None]:
    """Call ``tidy`` if the block fails. The error of the block is raised, even if ``tidy`` fails, too.

    If the lock is lost, that is the reason, and the other error may only follow from what another process did.
    """
    try:
        yield
    except BaseException:
        try:
            tidy()
        except LockLostError:
            raise
        except Exception:
            pass
        raise


def require_damage(error: BaseException, where: str) -> None:
    """Raise StorageError for an error of the file system, such as a full disk, that came while something was read.

    Damaged files make zipfile and Arrow raise an OSError, too, but without a number, or for an impossible place.
    """
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        raise StorageError(f"{where}: {error.strerror or error}") from error


def shorten(message: str) -> str:
    """Return the message, or its beginning and end if it is longer than ``MAX_MESSAGE`` characters."""
    if len(message) <= MAX_MESSAGE:
        return message
    if isinstance(message, Quoting):
        return Quoting(shorten(str(message)), shorten(message.without_keys))
    end = len(message) - MAX_MESSAGE + _BEGINNING
    return f"{message[:_BEGINNING]} [... {end - _BEGINNING:,} characters ...] {message[end:]}"
