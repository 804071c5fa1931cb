"""Fixtures: run a command line, and hold what it did against the promises for bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ttlsnap.cli.app import run

from ..samples import bytes_of


class Outcome(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    def is_clear(self) -> bool:
        """A documented exit code, and for an error a message that is one."""
        if self.code == 0:
            return True
        told = self.err.strip() and "Traceback" not in self.err and "This is unexpected" not in self.err
        return self.code in (2, 3, 4, 5) and bool(told)


Ttlsnap = Callable[..., Outcome]
Refuses = Callable[..., str]


@pytest.fixture
def ttlsnap(capsys: pytest.CaptureFixture[str]) -> Ttlsnap:
    """Run one command line in this process; whatever comes of it is clear."""

    def invoke(*arguments: Any, label: str = "") -> Outcome:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        outcome = Outcome(code, captured.out, captured.err)
        assert outcome.is_clear(), f"{label}: {outcome}"
        return outcome

    return invoke


@pytest.fixture
def refuses(ttlsnap: Ttlsnap) -> Refuses:
    """Run one command line that has to fail with ``code`` and leave every byte; the message."""

    def invoke(code: int | tuple[int, ...], checkpoint: Path, *arguments: Any, label: str = "") -> str:
        before = bytes_of(checkpoint)
        outcome = ttlsnap(*arguments, label=label)
        codes = (code,) if isinstance(code, int) else code
        assert outcome.code in codes, f"{label}: {outcome}"
        assert outcome.out == "", f"{label}: {outcome}"
        assert bytes_of(checkpoint) == before, label
        return outcome.err

    return invoke
