"""Fixtures that run a command line and check it against the promises for bad input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ttlsnap.cli.app import run

from ..samples import bytes_of
from . import wreck
from .confined import ROOM, Confinement


class Outcome(NamedTuple):
    """The result of a command: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    def is_clear(self) -> bool:
        """Return whether the exit code is documented and any error has a message."""
        if self.code == 0:
            return True
        told = self.err.strip() and "Traceback" not in self.err and "This is unexpected" not in self.err
        return self.code in (2, 3, 4, 5) and bool(told)


Ttlsnap = Callable[..., Outcome]
Refuses = Callable[..., str]
Overtaxes = Callable[..., str]


@pytest.fixture
def ttlsnap(capsys: pytest.CaptureFixture[str]) -> Ttlsnap:
    """Return a function that runs one command line in this process and requires a clear result."""

    def invoke(*arguments: Any, label: str = "") -> Outcome:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        outcome = Outcome(code, captured.out, captured.err)
        assert outcome.is_clear(), f"{label}: {outcome}"
        return outcome

    return invoke


@pytest.fixture
def refuses(ttlsnap: Ttlsnap) -> Refuses:
    """Return a function that runs a command line, which must fail with ``code`` and keep every byte.

    The function returns the message.
    """

    def invoke(code: int | tuple[int, ...], checkpoint: Path, *arguments: Any, label: str = "") -> str:
        before = bytes_of(checkpoint)
        outcome = ttlsnap(*arguments, label=label)
        codes = (code,) if isinstance(code, int) else code
        assert outcome.code in codes, f"{label}: {outcome}"
        assert outcome.out == "", f"{label}: {outcome}"
        assert bytes_of(checkpoint) == before, label
        return outcome.err

    return invoke


@pytest.fixture(scope="module")
def confinement() -> Iterator[Confinement]:
    """Yield a confined process."""
    confined = Confinement(room=ROOM)
    yield confined
    confined.close()


@pytest.fixture
def refuses_in_little_room(confinement: Confinement) -> Overtaxes:
    """Return a function that runs compact and inspect, which must refuse in little memory and keep every byte."""

    def invoke(target: Path, name: str, swells: bool = False) -> str:
        before = bytes_of(target) if sum(p.stat().st_size for p in target.rglob("*")) < 1 << 26 else None
        told = ""
        commands = (["compact", str(target), *wreck.compacting(name)], ["inspect", str(target), *wreck.scanning(name)])
        for command in commands:
            code, out, err, peak, _ = confinement.run(*command)
            assert Outcome(code, out, err).is_clear() and (code, out) == (5, ""), (command[0], code, out, err)
            assert swells or peak < 64 << 20, f"{command[0]}: {peak >> 20} MiB"
            assert str(target) in err or (swells and command[0] == "inspect" and "out of memory" in err)
            told += err
        assert before is None or bytes_of(target) == before
        return told

    return invoke
