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
from ttlsnap.interrupts import SIGNALS, Terminated, catch_signals, defer_signals, raise_received


@pytest.fixture(autouse=True)
def handlers_stay() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_delivered_when_the_block_has_ended(number: signal.Signals) -> None:
    steps = []
    with catch_signals(), pytest.raises(KeyboardInterrupt) as raised, defer_signals() as received:
        for step in range(3):
            signal.raise_signal(number)
            steps.append(step)
        assert received.signum == number
    assert steps == [0, 1, 2]
    assert raised.type is (Terminated if number == signal.SIGTERM else KeyboardInterrupt)


def test_nested_blocks_deliver_when_the_outer_block_has_ended() -> None:
    steps = []
    with catch_signals(), pytest.raises(Terminated), defer_signals():
        with defer_signals():
            signal.raise_signal(signal.SIGTERM)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]


def test_a_decorated_function_finishes_before_the_signal() -> None:
    @defer_signals()
    def step(steps: list[str]) -> str:
        signal.raise_signal(signal.SIGINT)
        steps.append("finished")
        return "result"

    for _ in range(2):
        steps: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            step(steps)
        assert steps == ["finished"]


def test_an_error_in_the_block_takes_precedence_over_the_signal() -> None:
    with catch_signals() as received:
        with pytest.raises(StorageError), defer_signals():
            signal.raise_signal(signal.SIGTERM)
            raise StorageError("the disk is full")
        assert received.signum == signal.SIGTERM


def test_a_signal_that_was_taken_is_not_delivered() -> None:
    with defer_signals() as received:
        signal.raise_signal(signal.SIGINT)
        assert received.take() == signal.SIGINT


def test_a_foreign_handler_is_called_once() -> None:
    told: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        told.append(number)

    old = signal.signal(signal.SIGTERM, handler)
    try:
        with defer_signals():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert told == []
        assert told == [signal.SIGTERM]
        raise_received()  # raises nothing: the foreign handler did not end the process
    finally:
        signal.signal(signal.SIGTERM, old)


def test_an_ignored_signal_stays_ignored() -> None:
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with catch_signals() as received, defer_signals():
            signal.raise_signal(signal.SIGTERM)
        assert received.signum is None
    finally:
        signal.signal(signal.SIGTERM, old)


def test_an_exception_that_a_destructor_loses_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    class Closes:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    class Breaks:
        def __del__(self) -> None:
            raise ValueError("not of a signal")

    with catch_signals() as stop:
        Closes()
        assert stop.signum == signal.SIGINT
        Breaks()
    printed = capsys.readouterr().err
    assert "ValueError: not of a signal" in printed
    assert "KeyboardInterrupt" not in printed


def test_a_suppressed_exception_is_raised_again() -> None:
    with catch_signals():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated):
            raise_received()
    raise_received()


def test_both_guards_do_nothing_in_other_threads() -> None:
    done = []

    def work() -> None:
        with catch_signals(), defer_signals():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


@pytest.mark.parametrize("fails", [False, True])
def test_the_default_action_kills_the_process_after_the_block(fails: bool) -> None:
    code = f"""
import signal
from ttlsnap.interrupts import defer_signals
with defer_signals():
    signal.raise_signal(signal.SIGTERM)
    print("finished", flush=True)
    if {fails}:
        raise ValueError
print("never", flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "finished\n")
