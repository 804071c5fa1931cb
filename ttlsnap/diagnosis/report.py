"""The result of ``doctor``, as data and as the JSON on which scripts rely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ttlsnap.diagnosis.problems import Problem

Restorable = Literal["yes", "no", "cleaned up", "unknown"]
"""Whether a version can be restored. A version that was ``cleaned up`` has no files left, and needs none."""


@dataclass(frozen=True)
class VersionReport:
    """A retained version: the state after ``batch``. ``problems`` say why it cannot be restored."""

    version: int
    batch: int
    restorable: Restorable
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "batch": self.batch,
            "restorable": {"yes": True, "no": False}.get(self.restorable),
            "state": self.restorable,
            "problems": list(self.problems),
        }


@dataclass(frozen=True)
class DoctorReport:
    """The result of ``doctor``. ``batch`` is the last committed batch, ``entries`` the number in the newest version.

    ``fixed`` are the codes that the run ``run`` repaired; the other fields are from after the repair.
    """

    target: str
    query_id: str | None
    batch: int
    versions: tuple[VersionReport, ...]
    problems: tuple[Problem, ...]
    entries: int = 0
    fixed: tuple[str, ...] = ()
    run: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code: 0 no problem, 1 a problem, 3 something that could not be examined."""
        found = {problem.severity for problem in self.problems}
        return 1 if found & {"error", "warning"} else 3 if "unknown" in found else 0

    def to_json(self) -> dict[str, Any]:
        """Return the document of ``doctor --format json``."""
        return {
            "target": self.target,
            "query_id": self.query_id,
            "batch": self.batch,
            "entries": self.entries,
            "versions": [version.to_json() for version in self.versions],
            "problems": [problem.to_json() for problem in self.problems],
            "fixed": list(self.fixed),
            "run": self.run,
        }
