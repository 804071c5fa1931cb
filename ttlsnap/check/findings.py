"""What a check finds: verdicts, findings, and the report they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What becomes of the old state under the new query, from the best to the worst."""

    AS_IS = "as_is"
    """It goes on with it."""

    RECONFIGURATION = "reconfiguration"
    """It goes on with it once a setting is as it was, or another is made."""

    AFTER_MIGRATION = "after_migration"
    """It goes on once the state has been rewritten."""

    UNKNOWN = "unknown"
    """What there is to look at does not decide it."""

    INCOMPATIBLE = "incompatible"
    """Spark refuses it, or goes on with wrong results."""

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; ``as_is`` where there is none."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict.AS_IS)


@dataclass(frozen=True)
class Place:
    """Where in a contract: as far down as is known."""

    operator: int | None = None
    store: str | None = None
    state: str | None = None
    field: str | None = None
    operator_name: str | None = None

    def __str__(self) -> str:
        """``0.default.visits.value.count``; ``query`` for what is of no operator."""
        names = [None if self.operator is None else str(self.operator), self.store, self.state, self.field]
        return ".".join(name for name in names if name is not None) or "query"

    def at(self, **parts: Any) -> Place:
        """A place within this one."""
        return replace(self, **parts)


@dataclass(frozen=True)
class Finding:
    """One difference, and what it means. ``code`` is that of a rule (``ttlsnap.check.rules``).

    ``old`` and ``new`` are what is there, as text, None for what is not. ``spark`` is what Spark itself does: an error
    class, or the word ``silent`` where it starts and says nothing. ``fix`` is what to do, empty where nothing is.
    """

    code: str
    verdict: Verdict
    place: Place
    old: str | None
    new: str | None
    message: str
    spark: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        place = self.place
        return {
            "code": self.code,
            "verdict": self.verdict.value,
            "operator": place.operator,
            "store": place.store,
            "state": place.state,
            "field": place.field,
            "old": self.old,
            "new": self.new,
            "message": self.message,
            "spark": self.spark,
            "fix": self.fix,
        }

    def __str__(self) -> str:
        return f"{self.code} at {self.place}: {self.message}"


@dataclass(frozen=True)
class Ignored:
    """A finding that was told to be ignored, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """What a check found, worst first.

    ``unseen`` says, a line each, what could not be compared. ``ignored`` does not count for the verdict; ``unused`` are
    the ignores that fitted nothing.
    """

    old: str
    new: str
    direction: str
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    unused: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings."""
        return worst(finding.verdict for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The document of ``check --format json``."""
        return {
            "verdict": self.verdict.value,
            "old": self.old,
            "new": self.new,
            "direction": self.direction,
            "findings": [finding.to_json() for finding in self.findings],
            "unseen": list(self.unseen),
            "ignored": [{**one.finding.to_json(), "reason": one.reason} for one in self.ignored],
            "unused_ignores": list(self.unused),
        }
