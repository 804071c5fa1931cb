"""GitHub's annotations (workflow commands on stdout) and the summary of a job (Markdown).

The runner makes annotations of the first ten errors, warnings and notices of a step and only logs the others, and
cuts a message at 4,096 characters (actions/runner, ``ExecutionContext``); so the worst come first, and where there are
more than ten of a kind the tenth counts the rest. It drops a summary of more than 1 MiB altogether; ours ends before.
"""

from __future__ import annotations

from collections.abc import Iterator

from ttlsnap.amounts import quantity
from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.check.report_files import ContractFile, contract_file
from ttlsnap.check.report_levels import (
    IGNORE_HINT,
    MILDEST,
    Level,
    can_be_ignored,
    describe_new,
    describe_place,
    fails,
    ignore_entry,
    level,
    next_commands,
    spark_does,
    split_lines,
    summary,
    worst_first,
)
from ttlsnap.printable import printable

PER_LEVEL = 10
MAX_MESSAGE = 4096
MAX_SUMMARY = 1 << 20

_COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}
_MAX_CELL = 500


def render(report: CheckReport, fail_on: Verdict = MILDEST) -> str:
    """Return the annotations, worst first, and a last line for the log.

    What makes the check fail is an error, as far as GitHub shows so many: the rest has the levels of the verdicts.
    """
    file = contract_file(report)
    if report.is_new:
        return _remark("notice", describe_new(report), file) + "\n"
    annotations: dict[Level, list[str]] = {severity: [] for severity in Level}
    for finding in worst_first(report.findings):
        is_error = fails(finding.verdict, fail_on) and len(annotations[Level.ERROR]) < PER_LEVEL
        severity = Level.ERROR if is_error else level(finding.verdict)
        annotations[severity].append(_annotation(finding, severity, file))
    annotations[Level.WARNING] += [_remark("warning", f"unused ignore: {line}", file) for line in report.unused]
    next_lines = [_remark("notice", f"{label}: {command}", file) for label, command in next_commands(report)]
    annotations[Level.NOTE] = [*next_lines, *annotations[Level.NOTE]]
    annotations[Level.NOTE] += [_remark("notice", f"not compared: {line}", file) for line in report.unseen]
    lines = [
        line for severity, annotation_lines in annotations.items() for line in _limit(severity, annotation_lines, file)
    ]
    return "".join(f"{line}\n" for line in [*lines, _data(printable(summary(report, fail_on)))])


def _limit(severity: Level, lines: list[str], file: ContractFile | None) -> list[str]:
    if len(lines) <= PER_LEVEL:
        return lines
    omitted = len(lines) - (PER_LEVEL - 1)
    message = f"{omitted} more of this kind: the job's summary and the other reports have them all"
    return [*lines[: PER_LEVEL - 1], _remark(_COMMANDS[severity], message, file)]


def _annotation(finding: Finding, severity: Level, file: ContractFile | None) -> str:
    text = [f"{describe_place(finding.place)}: {printable(finding.message)}"]
    text += [f"old: {printable(finding.old)}"] if finding.old is not None else []
    text += [f"new: {printable(finding.new)}"] if finding.new is not None else []
    text += [f"Spark: {spark_does(finding)}"] if finding.spark else []
    text += [f"What to do: {printable(finding.fix)}"] if finding.fix else []
    if can_be_ignored(finding):
        text += [f"To ignore it: {IGNORE_HINT}", *split_lines(ignore_entry(finding))]
    line = file.line(finding.place) if file else 1
    title = f"{finding.verdict}[{printable(finding.code)}]"
    return _command(_COMMANDS[severity], "\n".join(text), title, file, line)


def _remark(name: str, message: str, file: ContractFile | None) -> str:
    """Return the lines that belong to no finding."""
    return _command(name, printable(message), "ttlsnap check", file)


def _command(name: str, message: str, title: str, file: ContractFile | None, line: int = 1) -> str:
    place = f"file={_property(file.path)},line={line}," if file is not None else ""
    short = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."
    return f"::{name} {place}title={_property(title)}::{_data(short)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: CheckReport, fail_on: Verdict = MILDEST, limit: int = MAX_SUMMARY) -> str:
    """Return the report in Markdown: at most ``limit`` bytes, worst first, and the number of omitted lines."""
    lines = list(_markdown(report, fail_on))
    parts: list[str] = []
    size = 0
    reserve = 100
    for number, line in enumerate(lines):
        size += len(line.encode(errors="replace")) + 1
        if size > limit - reserve:
            note = (
                f"\n{quantity(len(lines) - number, 'more line does', 'more lines do')} not fit into a job's summary.\n"
            )
            return "".join(parts) + note if limit > reserve else ""
        parts.append(f"{line}\n")
    return "".join(parts)


def _markdown(report: CheckReport, fail_on: Verdict) -> Iterator[str]:
    if report.is_new:
        yield "## ttlsnap check: new"
        yield ""
        yield _cell(describe_new(report))
        return
    yield f"## ttlsnap check: {report.verdict}"
    yield ""
    yield _cell(summary(report, fail_on))
    yield ""
    if report.findings:
        yield "| verdict | rule | where | what | Spark | what to do |"
        yield "| --- | --- | --- | --- | --- | --- |"
    for finding in worst_first(report.findings):
        change = [_cell(part) for part in (finding.old, finding.new) if part is not None]
        description = "<br>".join([_cell(finding.message), " → ".join(change)]) if change else _cell(finding.message)
        cells = [finding.verdict.value, _cell(finding.code), _cell(describe_place(finding.place)), description]
        cells += [_cell(spark_does(finding)), _cell(finding.fix)]
        yield f"| {' | '.join(cells)} |"
    for label, command in next_commands(report):
        # Markdown shows an indented block as it is, and GitHub offers to copy it.
        yield from ("", f"{label.capitalize()}:", "", f"    {printable(command)}")
    ignored = [str(entry) for entry in report.ignored]
    for title, lines in (("Not compared", report.unseen), ("Ignored", ignored), ("Unused ignores", report.unused)):
        if lines:
            yield ""
            yield f"### {title}"
            yield ""
        for line in lines:
            yield f"* {_cell(line)}"


def _cell(text: str) -> str:
    """Return text in one line, escaped so that Markdown shows it as it is."""
    short = text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}..."
    short = printable(short).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{character}" if character in "\\`*_{}[]|~#@" else character for character in short)
