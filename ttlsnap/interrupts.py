"""Signals that end the process: SIGTERM works like Ctrl-C, and neither cuts a critical step in two.

Python runs signal handlers in the main thread, between two instructions, and an exception that a handler raises may
come anywhere. Steps that must be finished once they are begun (publishing, undoing, removing what was staged) run
within ``deferred``: a signal that arrives there is delivered when they have ended. ``terminable`` makes SIGTERM raise
``Terminated``, a ``KeyboardInterrupt``, so that everything that cleans up after Ctrl-C does so after SIGTERM.

Docker, Kubernetes, systemd and Airflow send SIGTERM, and SIGKILL some time later. After SIGKILL only ``recover`` helps.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handlers = Sequence[tuple[signal.Signals, Any]]


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


@dataclass
class Received:
    """The first signal that was received; None as long as there was none."""

    signum: int | None = None

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Remember a signal; a handler that does nothing else."""
        self.signum = self.signum or signum
        if signum == signal.SIGTERM and _command is not None:
            _command.signum = signum

    def take(self) -> int | None:
        """Return the signal, and forget it: it is not delivered again."""
        signum, self.signum = self.signum, None
        return signum


_command: Received | None = None
"""What the command that runs has received of SIGTERM, whoever handled it."""


@contextmanager
def terminable(*, last: bool = False) -> Iterator[Received]:
    """Raise ``Terminated`` on SIGTERM within the block; gives what was received, also while it was deferred.

    A parent that wants SIGTERM to be ignored is obeyed. If the block is the ``last`` thing that the process does, a
    second SIGTERM that comes behind it is ignored, so that the exit code stays what it is.
    """
    global _command
    received = Received()
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) in (signal.SIG_IGN, None):
        yield received
        return

    def terminate(signum: int, frame: FrameType | None) -> None:
        received.signum = signum
        logging.disable(logging.ERROR)  # py4j would log the exception, with its traceback
        raise Terminated

    old, _command = [(signal.SIGTERM, signal.getsignal(signal.SIGTERM))], received
    try:
        signal.signal(signal.SIGTERM, terminate)
        yield received
    finally:
        _command = None
        logging.disable(logging.NOTSET)
        _restore([(signal.SIGTERM, signal.SIG_IGN)] if last and received.signum is not None else old)


def raise_received() -> None:
    """Raise ``Terminated`` if SIGTERM was received and its exception was lost, as in a destructor."""
    if _command is not None and _command.signum is not None:
        raise Terminated


@contextmanager
def deferred() -> Iterator[Received]:
    """Deliver SIGINT and SIGTERM that arrive within the block when it has ended; also a decorator.

    If the block raises, its exception goes first: a signal is then only delivered if it ends the process. ``take`` of
    what is given has a signal not delivered. In other threads than the main one there is nothing to do.
    """
    received = Received()
    if not _is_main_thread():
        yield received
        return
    old = [(number, signal.getsignal(number)) for number in SIGNALS]
    old = [(number, handler) for number, handler in old if handler not in (signal.SIG_IGN, None)]
    try:
        for number, _ in old:
            signal.signal(number, received.note)
        yield received
    except BaseException:
        _restore(old)
        if received.signum is not None and (received.signum, signal.SIG_DFL) in old:
            signal.raise_signal(received.signum)
        raise
    _restore(old)
    signum = received.take()
    if signum is not None:
        signal.raise_signal(signum)


def _restore(handlers: _Handlers) -> None:
    """Give signals back their handlers, each of which may raise at once."""
    if handlers:
        try:
            signal.signal(*handlers[0])
        finally:
            _restore(handlers[1:])


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
