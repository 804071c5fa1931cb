"""The severity of a verdict: whether the check fails, and the level that build servers show.

Also findings in words, in which names are printable (``ttlsnap.printable``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum

from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.entries.place import Place
from ttlsnap.printable import printable

MILDEST = Verdict.RECONFIGURATION
"""The mildest verdict on which a check fails by default: every verdict except ``as_is``."""

IGNORE_HINT = "if it is harmless, add this to .ttlsnap-ignore.toml, with a reason"
"""What precedes the entry of a finding."""


class Level(StrEnum):
    """The levels of SARIF."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


def level(verdict: Verdict) -> Level:
    """Return an error for incompatible, a warning if the user has something to do, and a note otherwise."""
    if verdict is Verdict.INCOMPATIBLE:
        return Level.ERROR
    return Level.NOTE if verdict is Verdict.AS_IS else Level.WARNING


def fails(verdict: Verdict, fail_on: Verdict) -> bool:
    """Return whether a verdict makes the check fail. ``unknown`` always does: nobody has said that it is harmless."""
    return verdict is Verdict.UNKNOWN or verdict.rank >= max(fail_on.rank, MILDEST.rank)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -finding.verdict.rank)


def counts(report: CheckReport) -> str:
    """Return the numbers of findings, such as ``1 incompatible, 2 after_migration, 1 ignored, 1 not compared``."""
    verdicts = [finding.verdict for finding in report.findings]
    texts = [f"{verdicts.count(verdict)} {verdict}" for verdict in reversed(Verdict) if verdict in verdicts]
    texts = texts or ["no findings"]
    texts += [f"{len(report.ignored)} ignored"] if report.ignored else []
    # The verdict as_is means less if something was not compared.
    texts += [f"{len(report.unseen)} not compared"] if report.unseen else []
    return ", ".join(texts)


def summary(report: CheckReport, fail_on: Verdict) -> str:
    """Return one line: the verdict, the number of findings of each kind, and the contracts."""
    is_lenient = report.verdict is not Verdict.AS_IS and not fails(report.verdict, fail_on)
    passes_text = f"; passes: only {fail_on} or worse fails" if is_lenient else ""
    return (
        f"verdict: {report.verdict} ({counts(report)}), {report.old} -> {report.new}, {report.direction}{passes_text}"
    )


def next_commands(report: CheckReport) -> list[tuple[str, str]]:
    """Return the commands that make the state fit, each with its label."""
    labelled = (("next", report.next), ("next, to go back", report.next_back))
    return [(label, command) for label, command in labelled if command is not None]


def describe_new(report: CheckReport) -> str:
    """Return one line that says that a contract is new, so that nothing was compared."""
    return f"{report.new} is new: {' '.join(report.unseen)}"


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, each printable."""
    return [printable(line.removesuffix("\r")) for line in text.split("\n")]


def describe_place(place: Place) -> str:
    """Return a place in words: ``operator 0 (stateStoreSave), store default, state default, value.count``."""
    parts = []
    if place.operator is not None:
        name = f" ({place.operator_name})" if place.operator_name else ""
        parts.append(f"operator {place.operator}{name}")
    parts += [f"store {place.store}"] if place.store is not None else []
    parts += [f"state {place.state}"] if place.state is not None else []
    parts += [place.field] if place.field is not None else []
    return printable(", ".join(parts) or "the query")


def can_be_ignored(finding: Finding) -> bool:
    """Return whether the user may know that a finding is harmless, so that its help says to ignore it."""
    return "ignore this finding" in finding.fix


def ignore_entry(finding: Finding) -> str:
    """Return the entry of an ignore file for this finding, and for no other change."""
    values = {"code": finding.code, "where": str(finding.place), "digest": finding.digest, "reason": ""}
    # A JSON string is one of TOML, except for this character.
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f") for key, value in values.items()
    ]
    return "\n".join(["[[ignore]]", *lines])


def spark_does(finding: Finding) -> str:
    """Return what Spark does."""
    return "silent: it starts without a message" if finding.spark == "silent" else printable(finding.spark)
