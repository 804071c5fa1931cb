"""The command as a user types it, run in this process."""

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
    """What came of a command: exit code, the document, and what was said on stderr."""

    code: int
    document: dict[str, Any]
    error: str

    @property
    def codes(self) -> list[str]:
        return [problem["code"] for problem in self.document["problems"]]

    def problem(self, code: str) -> dict[str, Any]:
        """The one problem of this code."""
        (found,) = (problem for problem in self.document["problems"] if problem["code"] == code)
        return dict(found)

    @property
    def restorable(self) -> dict[int, bool | None]:
        """By version."""
        return {version["version"]: version["restorable"] for version in self.document["versions"]}


def doctor(target: Path, *options: str) -> Answer:
    """``ttlsnap doctor``, in one process."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = run(["doctor", str(target), "--format", "json", "--parallelism", "1", *options])
    assert "Traceback" not in error.getvalue()
    return Answer(code, json.loads(out.getvalue() or "{}"), error.getvalue())
