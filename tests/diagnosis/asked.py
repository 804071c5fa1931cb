"""The command ``doctor`` as a user types it, run in this process."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttlsnap.cli.app import run


@dataclass(frozen=True)
class Answer:
    """The result of a command: exit code, JSON document, and stderr."""

    code: int
    document: dict[str, Any]
    error: str

    @property
    def codes(self) -> list[str]:
        return [problem["code"] for problem in self.document["problems"]]

    def problem(self, code: str) -> dict[str, Any]:
        """Return the only problem with this code."""
        (found,) = (problem for problem in self.document["problems"] if problem["code"] == code)
        return dict(found)

    @property
    def restorable(self) -> dict[int, bool | None]:
        """Return for each version whether it can be restored."""
        return {version["version"]: version["restorable"] for version in self.document["versions"]}


def doctor(target: Path, *options: str) -> Answer:
    """Run ``ttlsnap doctor`` in this process."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = run(["doctor", str(target), "--format", "json", "--parallelism", "1", *options])
    assert "Traceback" not in error.getvalue()
    return Answer(code, json.loads(out.getvalue() or "{}"), error.getvalue())


def errors(checkpoint: Path) -> set[str]:
    """Return the codes of the errors that ``doctor`` finds."""
    return {found["code"] for found in doctor(checkpoint).document["problems"] if found["severity"] == "error"}
