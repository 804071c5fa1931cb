"""Signals that end the process: SIGTERM works like Ctrl-C, and neither interrupts a critical step.

Python runs signal handlers in the main thread, between two instructions. So the exception of a handler may arrive
anywhere. Some steps must finish once they have begun: publishing, undoing, removing staged files. They run within
``defer_signals``, which delivers a signal only after the step. ``catch_sigterm`` makes SIGTERM raise ``Terminated``.
This is a ``KeyboardInterrupt``, so all code that cleans up after Ctrl-C also cleans up after SIGTERM.

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
    """The exception that SIGTERM raises."""


@dataclass
class Received:
    """The first signal that the process received; None if it has received none."""

    signum: int | None = None

    def note(self, signum: int, frame: FrameType | None) -> None:
        """Remember a signal. This is a signal handler that does nothing else."""
        self.signum = self.signum or signum
        if signum == signal.SIGTERM and _command is not None:
            _command.signum = signum

    def take(self) -> int | None:
        """Return the signal and forget it, so that it is not delivered."""
        signum, self.signum = self.signum, None
        return signum


_command: Received | None = None
"""The SIGTERM that the running command has received, independent of the handler that got it."""


@contextmanager
def catch_sigterm(*, last: bool = False) -> Iterator[Received]:
    """Raise ``Terminated`` on SIGTERM within the block. Yield the received signal, also while it is deferred.

    If the parent process ignores SIGTERM, so does this one. ``last`` says that the process ends after the block. Then
    a second SIGTERM after the block is ignored, so that the exit code does not change.
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
    """Raise ``Terminated`` if SIGTERM was received but its exception was lost, for example in a destructor."""
    if _command is not None and _command.signum is not None:
        raise Terminated


@contextmanager
def defer_signals() -> Iterator[Received]:
    """Delay SIGINT and SIGTERM that arrive within the block until it has ended. Also usable as a decorator.

    If the block raises, its exception has priority: then a signal is delivered only if it ends the process. ``take`` of
    the yielded object prevents the delivery. Outside the main thread this does nothing.
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
    """Restore the handlers of signals. Each restored handler may raise at once; the others are restored anyway."""
    if handlers:
        try:
            signal.signal(*handlers[0])
        finally:
            _restore(handlers[1:])


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
