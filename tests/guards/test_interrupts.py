"""Signals that end the process are delivered when a critical step has ended."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from ttlsnap.errors import StorageError
from ttlsnap.interrupts import SIGNALS, Terminated, deferred, raise_received, terminable


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_delivered_when_the_block_has_ended(number: signal.Signals) -> None:
    steps = []
    with terminable(), pytest.raises(KeyboardInterrupt) as raised, deferred() as received:
        for step in range(3):
            signal.raise_signal(number)
            steps.append(step)
        assert received.signum == number
    assert steps == [0, 1, 2]
    assert raised.type is (Terminated if number == signal.SIGTERM else KeyboardInterrupt)


def test_a_block_within_a_block_delivers_when_the_outer_one_has_ended() -> None:
    steps = []
    with terminable(), pytest.raises(Terminated), deferred():
        with deferred():
            signal.raise_signal(signal.SIGTERM)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]


def test_a_decorated_function_is_finished() -> None:
    @deferred()
    def step(steps: list[str]) -> str:
        signal.raise_signal(signal.SIGINT)
        steps.append("finished")
        return "result"

    for _ in range(2):
        steps: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            step(steps)
        assert steps == ["finished"]


def test_the_error_of_the_block_goes_first() -> None:
    with terminable() as received:
        with pytest.raises(StorageError), deferred():
            signal.raise_signal(signal.SIGTERM)
            raise StorageError("the disk is full")
        assert received.signum == signal.SIGTERM


def test_a_signal_that_was_taken_is_not_delivered() -> None:
    with deferred() as received:
        signal.raise_signal(signal.SIGINT)
        assert received.take() == signal.SIGINT


def test_a_handler_of_somebody_else_is_called_once() -> None:
    told: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        told.append(number)

    old = signal.signal(signal.SIGTERM, handler)
    try:
        with deferred():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert told == []
        assert told == [signal.SIGTERM]
        raise_received()  # it is theirs, and they did not want to end
    finally:
        signal.signal(signal.SIGTERM, old)


def test_who_ignores_a_signal_goes_on_ignoring_it() -> None:
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with terminable() as received, deferred():
            signal.raise_signal(signal.SIGTERM)
        assert received.signum is None
    finally:
        signal.signal(signal.SIGTERM, old)


def test_an_exception_that_was_lost_is_raised_again() -> None:
    with terminable():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated):
            raise_received()
    raise_received()


def test_other_threads_have_nothing_to_defer() -> None:
    done = []

    def work() -> None:
        with terminable(), deferred():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize("fails", [False, True])
def test_a_process_that_wants_to_be_killed_is_killed_afterwards(fails: bool) -> None:
    code = f"""
import signal
from ttlsnap.interrupts import deferred
with deferred():
    signal.raise_signal(signal.SIGTERM)
    print("finished", flush=True)
    if {fails}:
        raise ValueError
print("never", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "finished\n")
