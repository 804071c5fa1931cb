"""Signals that end the process: SIGTERM and Ctrl-C work alike, and neither interrupts a critical step.

Python runs signal handlers in the main thread, between two instructions. So the exception of a handler may arrive
anywhere. Some steps must finish once they have begun: publishing, undoing, removing staged files. They run within
``defer_signals``, which delivers a signal only after the step. ``catch_signals`` makes SIGTERM raise ``Terminated``.
This is a ``KeyboardInterrupt``, so all code that cleans up after Ctrl-C also cleans up after SIGTERM.

The exit code of a process that a signal stopped is always 128 + its number, from the first line of the program:

* ``__main__`` installs handlers before the slow imports. Until a command begins, a signal ends the process at once.
* While a command runs, a signal raises. Once the outcome is known, it only ends the waiting for other threads.
* Python gives signals their default actions back when it ends, and then they kill the process. So ``prepare_exit`` lets
  Python ignore them before that. If a signal has stopped the command, it leaves without that end: native threads of
  libraries may still be at work, and could abort the process.

Docker, Kubernetes, systemd and Airflow send SIGTERM, and SIGKILL some time later. After SIGKILL only ``recover`` helps.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal

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
        if _command is not None:
            _command.signum = _command.signum or signum

    def take(self) -> int | None:
        """Return the signal and forget it, so that it is not delivered."""
        signum, self.signum = self.signum, None
        return signum


@dataclass
class Stop(Received):
    """The signal that stops a command. It raises an exception only while ``is_armed``.

    ``published`` has the runs that the command has published, with their targets, and ``open`` those that it has begun
    to publish. A copy has no name of a run.
    """

    is_armed: bool = True
    published: dict[str, str] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)

    def raise_for(self, signum: int, frame: FrameType | None = None) -> None:
        """Raise the exception of a signal. This is a signal handler."""
        is_first, self.signum = self.signum is None, self.signum or signum
        if not self.is_armed:
            return
        if is_first and os.isatty(2):
            # The code of a user may be at work for a while. Python's stream may be in the middle of a write.
            with suppress(OSError):
                os.write(2, b"\nStopping. Please wait until the work in hand has ended.\n")
        if (logging := sys.modules.get("logging")) is not None:
            logging.disable(logging.ERROR)  # py4j would log the exception, with its traceback
        sys.unraisablehook = _drop_interrupts  # Python would print an exception that a destructor loses, as well
        raise Terminated if self.signum == signal.SIGTERM else KeyboardInterrupt


_command: Stop | None = None
"""The signal that the running command has received, independent of the handler that got it."""


_exit_code: int | None = None
"""The exit code of the process, once it is known."""


@contextmanager
def catch_signals(*, last: bool = False) -> Iterator[Stop]:
    """Raise ``Terminated`` on SIGTERM and KeyboardInterrupt on SIGINT within the block. Yield the received signal.

    The signal is known while it is deferred, too. If the parent process ignores a signal, so does this one. ``last``
    says that the process ends after the block. Then no signal after the block changes the exit code.
    """
    global _command
    stop = Stop()
    if not _is_main_thread():
        yield stop
        return
    old, old_hook = _caught(), sys.unraisablehook
    _command = stop
    try:
        for number, _ in old:
            signal.signal(number, stop.raise_for)
        yield stop
    finally:
        _command = None
        if (logging := sys.modules.get("logging")) is not None:
            logging.disable(logging.NOTSET)
        sys.unraisablehook = old_hook
        _restore([(number, _leave) for number, _ in old] if last else old)


def _drop_interrupts(lost: Any) -> None:
    """Print an exception that Python could not raise, unless it is that of a signal: ``raise_received`` raises it."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def raise_received() -> None:
    """Raise the exception of a received signal again if it was lost, for example in a destructor."""
    if _command is not None and _command.signum is not None:
        raise Terminated if _command.signum == signal.SIGTERM else KeyboardInterrupt


def note_run(target: str, run: str, status: Literal["open", "done", "undone"]) -> None:
    """Remember for the message after a signal that a run begins to publish, is published, or is undone."""
    if _command is None:
        return
    _command.open.pop(run, None)
    if status == "open":
        _command.open[run] = target
    elif status == "done":
        _command.published[run] = target


def prepare_exit() -> None:
    """Let the process end with the code of ``set_exit_code`` whatever signals arrive.

    Call it early: functions that other libraries register with ``atexit`` run before that end.
    """
    atexit.register(_end)


def set_exit_code(code: int) -> None:
    """Set the exit code. From now on, a signal ends the process with it, without waiting for anything."""
    global _exit_code
    _exit_code = code


def _leave(signum: int, frame: FrameType | None) -> None:
    """End the process if its exit code is known. This is a signal handler."""
    if _exit_code is not None:
        os._exit(_exit_code)


def _end() -> None:
    if _exit_code is None:
        return
    for number, _ in _caught():
        signal.signal(number, signal.SIG_IGN)
    if _exit_code in [128 + number for number in SIGNALS]:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_exit_code)


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
    old = _caught()
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


def _caught() -> _Handlers:
    """Return the handlers of the signals that the process does not ignore."""
    found = [(number, signal.getsignal(number)) for number in SIGNALS]
    return [(number, handler) for number, handler in found if handler not in (signal.SIG_IGN, None)]


def _restore(handlers: _Handlers) -> None:
    """Restore the handlers of signals. Each restored handler may raise at once; the others are restored anyway."""
    if handlers:
        try:
            signal.signal(*handlers[0])
        finally:
            _restore(handlers[1:])


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
