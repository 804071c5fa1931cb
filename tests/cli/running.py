"""Command lines that run in this process, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ttlsnap.cli.app import run


class Outcome(NamedTuple):
    """The result of a command: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Ttlsnap = Callable[..., Outcome]
"""A function that runs one command line."""


def runner(capsys: pytest.CaptureFixture[str], *first: str) -> Ttlsnap:
    """Return a function that runs one command line, which starts with the words ``first``."""

    def invoke(*arguments: object) -> Outcome:
        code = run([*first, *map(str, arguments)])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return invoke
