"""``ttlsnap check``."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.output import is_special, print_marked, print_warning, write_whole
from ttlsnap.cli.pages import HTML, ShowKeysOption, check_pages, require_outside, require_place, write_pages
from ttlsnap.cli.renames import parse_rename

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttlsnap.check.findings import CheckReport, Verdict
    from ttlsnap.check.ignores import Ignore

EXAMPLES = """
Examples:
  # compare the committed contract with that of the changed query
  ttlsnap check state.json new.json

  # compare the production checkpoint with the changed query
  ttlsnap check ck new.json

  # a column was renamed
  ttlsnap check state.json new.json --renamed cnt=visits

  # pass if a setting or a migration makes it work
  ttlsnap check state.json new.json --fail-on incompatible

  # accept one finding in one place
  ttlsnap check state.json new.json --ignore value-added:0.default

  # write reports for CI
  ttlsnap check ck new.json --format github --report junit=check.xml

Exit codes:
  0  compatible as it is, or as far as --fail-on asks
  1  findings
  2  wrong usage
  3  undecided: the contracts do not record enough
  5  damage or a storage error

docs/checks.md explains each finding, and docs/check.md the use in CI.
"""


class Direction(StrEnum):
    """The direction of a check: which query has to read the other's state."""

    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


class CheckFormat(StrEnum):
    """The names of ``ttlsnap.check.reports.REPORTS``."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


class FailOn(StrEnum):
    """The verdicts from which a check fails; ``unknown`` is not among them, because it always fails."""

    RECONFIGURATION = "reconfiguration"
    AFTER_MIGRATION = "after_migration"
    INCOMPATIBLE = "incompatible"


_Renamed = Annotated[
    list[str] | None,
    typer.Option(
        "--renamed",
        "--rename",
        metavar="OLD=NEW",
        help="A column that has another name, or a key or aggregate that has another expression and the same values. "
        "Can be repeated.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("check", cls=Command, epilog=EXAMPLES)(check)


def check(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The existing state: a checkpoint, a Delta table, or a contract file.")
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The new query: a contract file, a checkpoint, or a Delta table.")
    ],
    direction: Annotated[
        Direction,
        typer.Option(
            "--direction",
            help="backward: can NEW restore from the state of OLD? forward: can OLD restore from the state of NEW, as "
            "after a rollback of the deployment? full: both.",
        ),
    ] = Direction.BACKWARD,
    renamed: _Renamed = None,
    output_format: Annotated[
        CheckFormat, typer.Option("--format", metavar="FORMAT", help="text, json, junit, sarif or github.")
    ] = CheckFormat.TEXT,
    reports: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            metavar="FORMAT=FILE",
            help="Also write the result to a file: in another format, or as a page for a browser (html). Can be "
            "repeated.",
        ),
    ] = None,
    show_keys: ShowKeysOption = False,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on",
            metavar="VERDICT",
            help="Fail from this verdict on: reconfiguration, after_migration or incompatible. Milder findings pass. "
            "Unknown ones always fail.",
        ),
    ] = FailOn.RECONFIGURATION,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail if something could not be compared (exit code 3).")
    ] = False,
    ignored: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="CODE[:WHERE]",
            help="Accept a finding, everywhere or in one place: value-added:0.default. Can be repeated.",
        ),
    ] = None,
    ignore_file: Annotated[
        Path | None,
        typer.Option(
            "--ignore-file",
            metavar="FILE",
            help="A file of accepted findings, with reasons and dates. Default: .ttlsnap-ignore.toml, if it exists.",
        ),
    ] = None,
) -> None:
    """Check whether the new version of a query can restore from the state of the old one.

    OLD and NEW are checkpoints, Delta tables, or contracts that `ttlsnap contract` wrote. check needs no JVM. Each
    finding says where it is, what Spark does about it, and what to do. check also lists what it could not compare: a
    checkpoint, for example, does not record windows, aggregates and functions. With --strict, this fails.
    """
    from ttlsnap.check import check as compare
    from ttlsnap.check.findings import Verdict
    from ttlsnap.check.ignores import apply
    from ttlsnap.check.state import examine_state
    from ttlsnap.check.targets import load_contract
    from ttlsnap.new_query.findings import find_command, find_repairs

    requested_reports = [_report(text) for text in reports or ()]
    _distinct([path for _, path in requested_reports])
    files = [(CheckFormat(form), path) for form, path in requested_reports if form != HTML]
    pages = check_pages([path for form, path in requested_reports if form == HTML], show_keys, (old, new))
    ignores = _ignores(ignored or (), ignore_file)
    contracts = load_contract(old), load_contract(new)
    names, state = _renames(renamed or ()), examine_state(old)
    compared = compare(
        *contracts, direction=direction.value, renamed=names, names=(old, new), state=state, find_repairs=find_repairs
    )
    report = apply(compared, ignores)
    report = replace(report, next=find_command(report, names))
    threshold = Verdict(fail_on.value)
    _print(report, output_format, threshold)
    _write(report, files, threshold)
    write_pages(pages, "check", report.to_json())
    if CheckFormat.GITHUB in (output_format, *(form for form, _ in files)):
        _job_summary(report, threshold)
    code = exit_code(report, threshold)
    if not code and strict and report.unseen:
        print_marked(
            "Error:", "bold red", f"--strict: {len(report.unseen)} things could not be compared (see the report)"
        )
        code = 3
    if code:
        raise typer.Exit(code)


def exit_code(report: CheckReport, fail_on: Verdict) -> int:
    """Return 0 if the check passes, 3 if the worst failing finding is unknown, and otherwise 1."""
    from ttlsnap.check.findings import Verdict, worst
    from ttlsnap.check.report_levels import fails

    failing_verdicts = [finding.verdict for finding in report.findings if fails(finding.verdict, fail_on)]
    if not failing_verdicts:
        return 0
    return 3 if worst(failing_verdicts) is Verdict.UNKNOWN else 1


def _report(text: str) -> tuple[str, Path]:
    from ttlsnap.errors import UsageError

    form, separator, name = text.partition("=")
    formats = (*CheckFormat, HTML)
    if not separator or form not in formats:
        raise UsageError(f"--report is FORMAT=FILE, with one of {', '.join(formats)} for FORMAT, not {text!r}")
    path = Path(name)
    require_place(path, f"--report {text}")
    if form != HTML:  # pages have more to check
        require_outside(path, f"--report {text}")
    return form, path


def _distinct(files: Sequence[Path]) -> None:
    from ttlsnap.errors import UsageError

    paths = [path.resolve() for path in files]
    for path in paths:
        if paths.count(path) > 1 and not is_special(path):
            raise UsageError(f"several reports have the same file, {path}; give each its own")


def _ignores(options: Sequence[str], path: Path | None) -> list[Ignore]:
    from ttlsnap.check.ignores import DEFAULT_FILE, parse_ignore, read_ignores

    if path is None and Path(DEFAULT_FILE).is_file():
        path = Path(DEFAULT_FILE)
    ignores = [parse_ignore(text) for text in options]
    return ignores + (read_ignores(path) if path is not None else [])


def _renames(options: Sequence[str]) -> dict[str, str]:
    from ttlsnap.errors import UsageError

    names: dict[str, str] = {}
    for text in options:
        old, new = parse_rename("--renamed", text)
        if names.setdefault(old, new) != new:
            raise UsageError(f"--renamed: {old} is renamed to both {names[old]} and {new}")
    return names


def _print(report: CheckReport, form: CheckFormat, fail_on: Verdict) -> None:
    """Print to stdout. If its reader is gone, as with | head, reports and exit code stay the same."""
    try:
        _show(report, form, fail_on)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(report: CheckReport, form: CheckFormat, fail_on: Verdict) -> None:
    from ttlsnap.check.reports import REPORTS

    if form is CheckFormat.TEXT and sys.stdout.isatty():
        from rich.text import Text

        from ttlsnap.check.report_text import lines
        from ttlsnap.cli.output import console

        out = console()
        for line in lines(report, fail_on):
            out.print(Text.assemble(*line))
        return
    sys.stdout.write(REPORTS[form.value](report, fail_on))


def _write(report: CheckReport, files: Sequence[tuple[CheckFormat, Path]], fail_on: Verdict) -> None:
    """Write the reports. All are rendered before the first is written, and each is written completely or not at all."""
    from ttlsnap.check.reports import REPORTS

    rendered = [(path, REPORTS[form.value](report, fail_on)) for form, path in files]
    for path, text in rendered:
        write_whole(path, text.encode(errors="backslashreplace"))


def _job_summary(report: CheckReport, fail_on: Verdict) -> None:
    """Add to the summary of GitHub's job, if there is one. An error of writing must not hide the verdict."""
    from ttlsnap.check.report_github import MAX_SUMMARY, job_summary

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        path = Path(name)
        remaining_bytes = MAX_SUMMARY - (path.stat().st_size if path.exists() else 0)
        with path.open("ab") as file:
            file.write(job_summary(report, fail_on, remaining_bytes).encode(errors="backslashreplace"))
    except OSError as error:
        print_warning(f"cannot write the job summary {name}: {error.strerror}")
