"""The result of ``doctor``, as data and as the JSON on which scripts rely."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ttlsnap.diagnosis.problems import Problem
from ttlsnap.documents import Document, Result, in_json, json_property

Restorable = Literal["yes", "no", "cleaned up", "unknown"]
"""Whether a version can be restored. A version that was ``cleaned up`` has no files left, and needs none."""


@dataclass(frozen=True)
class VersionReport(Document):
    """A retained version: the state after ``batch``. ``problems`` say why it cannot be restored."""

    JSON_ORDER = "version batch restorable state"

    version: int
    batch: int
    restorable: Restorable = field(metadata=in_json(convert={"yes": True, "no": False}.get))
    problems: tuple[str, ...] = ()

    @property
    @json_property()
    def state(self) -> Restorable:
        """The same as ``restorable``, which is true, false or null in JSON."""
        return self.restorable


@dataclass(frozen=True)
class DoctorReport(Result):
    """The result of ``doctor``. ``batch`` is the last committed batch, ``entries`` the number in the newest version.

    ``fixed`` are the codes that the run ``run`` repaired, and ``warnings`` those of this run. The other fields are from
    after the repair.

    ``copy_of`` is the checkpoint from which this one was copied, and ``is_compared`` says whether its files were
    compared with its manifest: they are until a query or a run works on it.
    """

    JSON_ORDER = "target query_id batch entries"

    target: str
    query_id: str | None
    batch: int
    versions: tuple[VersionReport, ...]
    problems: tuple[Problem, ...]
    entries: int = 0
    fixed: tuple[str, ...] = ()
    run: str | None = None
    warnings: tuple[str, ...] = ()
    copy_of: str | None = None
    is_compared: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code: 0 no problem, 1 a problem, 3 something that could not be examined."""
        severities = {problem.severity for problem in self.problems}
        return 1 if severities & {"error", "warning"} else 3 if "unknown" in severities else 0
