"""The report for people, in the form of rustc: what, where, old and new, why it matters, what to do.

A line is a list of pieces, each with its style on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator

from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.check.report_levels import (
    IGNORE_HINT,
    MILDEST,
    Level,
    can_be_ignored,
    describe_place,
    ignore_entry,
    level,
    next_commands,
    spark_does,
    split_lines,
    summary,
    worst_first,
)
from ttlsnap.check.rules import RULES
from ttlsnap.printable import printable, printable_output

Line = list[tuple[str, str]]

_STYLES = {Level.ERROR: "bold red", Level.WARNING: "bold yellow", Level.NOTE: "bold green"}
_FRAME = "blue"


def render(report: CheckReport, fail_on: Verdict = MILDEST) -> str:
    """Return the whole report without styles."""
    return plain(lines(report, fail_on))


def plain(lines: Iterator[Line]) -> str:
    """Return the text of lines, without commands to a build server."""
    return printable_output("".join("".join(piece for piece, _ in line) + "\n" for line in lines))


def lines(report: CheckReport, fail_on: Verdict = MILDEST) -> Iterator[Line]:
    """Give the findings, worst first, then what was not compared or is ignored, and the verdict last."""
    explained_codes: set[str] = set()
    for finding in worst_first(report.findings):
        yield from finding_lines(finding, why=finding.code not in explained_codes)
        yield []
        explained_codes.add(finding.code)
    remarks = [("not compared", line) for line in report.unseen]
    remarks += [("ignored", str(ignored)) for ignored in report.ignored]
    remarks += [("unused ignore", line) for line in report.unused]
    for label, line in remarks:
        yield [(f"{label}: ", "bold"), (printable(line), "")]
    if remarks:
        yield []
    for label, command in next_commands(report):
        yield [(f"{label}: ", "bold"), (printable(command), "")]
        yield []
    is_repaired = any(finding.verdict is Verdict.AFTER_MIGRATION for finding in report.findings)
    if report.verdict is Verdict.UNKNOWN and is_repaired:
        yield [("Settle what is unknown before you migrate: until then, ttlsnap migrate refuses it, too.", "")]
        yield []
    yield [(printable(summary(report, fail_on)), _STYLES[level(report.verdict)])]


def finding_lines(finding: Finding, *, why: bool = True) -> Iterator[Line]:
    """Give the lines of one finding. ``why`` appears once for each rule."""
    yield [
        (f"{finding.verdict}[{printable(finding.code)}]", _STYLES[level(finding.verdict)]),
        (f": {printable(finding.message)}", "bold"),
    ]
    yield [("  --> ", _FRAME), (describe_place(finding.place), "")]
    sides = [(label, side) for label, side in (("old", finding.old), ("new", finding.new)) if side is not None]
    for label, side in sides:
        first_line, *more_lines = split_lines(side)
        yield [("   | ", _FRAME), (f"{label}: {first_line}", "")]
        for line in more_lines:
            yield [("   | ", _FRAME), (f"     {line}", "")]
    rule = RULES.get(finding.code)
    if finding.spark:
        yield from _note("spark", spark_does(finding))
    if why and rule is not None:
        yield from _note("why", rule.why)
    if finding.fix:
        yield from _note("help", finding.fix)
    if can_be_ignored(finding):
        yield from _note("ignore", f"{IGNORE_HINT}\n{ignore_entry(finding)}")


def _note(label: str, text: str) -> Iterator[Line]:
    first_line, *more_lines = split_lines(text)
    yield [("   = ", _FRAME), (f"{label}: ", "bold"), (first_line, "")]
    for line in more_lines:
        yield [(f"     {' ' * len(label)}  {line}", "")]
