"""The results of a check: verdicts, findings and the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ttlsnap.documents import Document, Result, in_json, json_property
from ttlsnap.entries.place import Place


class Verdict(StrEnum):
    """Whether the new query can use the existing state, from the best answer to the worst."""

    AS_IS = "as_is"
    """The query continues with it."""

    RECONFIGURATION = "reconfiguration"
    """The query continues with it after a change of a setting."""

    AFTER_MIGRATION = "after_migration"
    """The query continues after the state has been rewritten."""

    UNKNOWN = "unknown"
    """The contracts do not decide it."""

    INCOMPATIBLE = "incompatible"
    """Spark refuses the state, or continues with wrong results."""

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict; ``as_is`` if there is none."""
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict.AS_IS)


@dataclass(frozen=True)
class Finding(Document):
    """One difference, and what it means. ``code`` is that of a rule (``ttlsnap.check.rules``).

    ``old`` and ``new`` are the two sides as text, None for a side that lacks it. ``spark`` is what Spark itself does:
    an error class, or text that begins with ``silent`` if it starts. ``fix`` is what to do, empty if nothing.
    ``migration`` is the step of a migration that repairs it, as JSON. ``back`` is about the way back to the old query.
    """

    code: str
    verdict: Verdict
    place: Place = field(metadata=in_json(inline=True))
    old: str | None
    new: str | None
    message: str
    spark: str
    fix: str = ""
    migration: dict[str, Any] | None = field(default=None, metadata=in_json(optional=True))
    back: bool = field(default=False, metadata=in_json(hidden=True))

    @property
    @json_property()
    def digest(self) -> str:
        """What distinguishes this change from others of the same rule at the same place."""
        change = json.dumps([self.code, str(self.place), self.old, self.new])
        return hashlib.sha256(change.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.code} at {self.place}: {self.message}"


@dataclass(frozen=True)
class FloatKeys:
    """Keys with floats that are not normalized: their number, and of how many the state has the other form, too."""

    keys: int = 0
    both: int = 0

    def __str__(self) -> str:
        if not self.both:
            return "One more row comes through for each of them"
        return (
            f"Of {self.both:,} of them, the state has the other form, too, which Spark finds. For each of the others, "
            "one more row comes through"
        )


@dataclass(frozen=True)
class StateFindings:
    """What the state of a checkpoint itself shows, and a line for each thing that was not examined.

    ``floats`` has the keys of deduplications that have floats, by operator.
    """

    findings: tuple[Finding, ...] = ()
    unseen: tuple[str, ...] = ()
    floats: Mapping[int, FloatKeys] = field(default_factory=dict)


@dataclass(frozen=True)
class Ignored(Document):
    """A finding that the user ignores, and the reason. ``advice`` is what to add so that it covers no other change."""

    finding: Finding = field(metadata=in_json(inline=True))
    reason: str
    advice: str | None = field(default=None, metadata=in_json(optional=True))

    def __str__(self) -> str:
        advice = f". {self.advice}" if self.advice is not None else ""
        return f"{self.finding} (reason: {self.reason}){advice}"


@dataclass(frozen=True)
class CheckReport(Result):
    """The findings of a check, worst first.

    ``unseen`` has a line for each thing that could not be compared. ``ignored`` does not count for the verdict.
    ``unused`` are the ignores that matched no finding. ``next`` is the command that makes the state fit the new query,
    if there is one, and ``next_back`` that for the way back. ``is_new`` says that there is no old contract to compare
    with; ``old`` is then the name that it would have.
    """

    JSON_ORDER = "verdict"

    old: str
    new: str
    direction: str
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    unused: tuple[str, ...] = field(default=(), metadata=in_json("unused_ignores"))
    next: str | None = None
    next_back: str | None = None
    is_new: bool = False

    @property
    @json_property()
    def verdict(self) -> Verdict:
        """The worst verdict of all findings."""
        return worst(finding.verdict for finding in self.findings)
