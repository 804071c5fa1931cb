"""How much a verdict weighs: what makes a check fail, and the three levels that build servers know."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ttlsnap.check.findings import CheckReport, Finding, Verdict

MILDEST = Verdict.RECONFIGURATION
"""What a check fails on unless it is told otherwise: all that is not as it is."""


class Level(StrEnum):
    """The words are those of SARIF."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


def level(verdict: Verdict) -> Level:
    """An error where there is no way, a warning where there is something to do or to find out first."""
    if verdict is Verdict.INCOMPATIBLE:
        return Level.ERROR
    return Level.NOTE if verdict is Verdict.AS_IS else Level.WARNING


def fails(verdict: Verdict, fail_on: Verdict) -> bool:
    """Whether it makes the check fail. ``unknown`` always does: nobody has said that it is harmless."""
    return verdict is Verdict.UNKNOWN or verdict.rank >= max(fail_on.rank, MILDEST.rank)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -finding.verdict.rank)


def counts(report: CheckReport) -> str:
    """``1 incompatible, 2 after_migration, 1 ignored, 1 not compared``."""
    verdicts = [finding.verdict for finding in report.findings]
    found = [f"{verdicts.count(verdict)} {verdict}" for verdict in reversed(Verdict) if verdict in verdicts]
    found = found or ["no findings"]
    found += [f"{len(report.ignored)} ignored"] if report.ignored else []
    # The best of verdicts says less where not all was looked at.
    found += [f"{len(report.unseen)} not compared"] if report.unseen else []
    return ", ".join(found)


def summary(report: CheckReport, fail_on: Verdict) -> str:
    """One line with the verdict, for which contracts, and how many findings there are of each kind."""
    lenient = report.verdict is not Verdict.AS_IS and not fails(report.verdict, fail_on)
    passes = f"; passes: only {fail_on} or worse fails" if lenient else ""
    return f"verdict: {report.verdict} ({counts(report)}), {report.old} -> {report.new}, {report.direction}{passes}"
