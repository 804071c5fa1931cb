"""``ttlsnap check``."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.output import is_special, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttlsnap.check.findings import CheckReport, Verdict
    from ttlsnap.check.ignores import Ignore

EXAMPLES = """[bold]Examples[/bold]

ttlsnap check state.json new.json                 the contract that is committed, and that of the changed query

ttlsnap check ck new.json                         production's checkpoint, and the changed query

ttlsnap check state.json new.json --renamed cnt=visits      a column has another name, and is the same

ttlsnap check state.json new.json --fail-on incompatible    a setting or a migration to be made is no failure

ttlsnap check state.json new.json --ignore value-added:0.default     known and accepted, here

ttlsnap check state.json new.json --format github --report junit=check.xml --report sarif=check.sarif

[bold]Exit codes[/bold]

0 it goes on as it is (or passes --fail-on); 1 findings; 2 wrong usage; 3 undecided: what there is to look at does not
tell; 5 damage or I/O. What each finding means, and what to do: docs/checks.md. In CI: docs/check.md.
"""


class Direction(StrEnum):
    """Who is to read whose state."""

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
    """The verdicts that a check may be told to begin to fail at; ``unknown`` is none, since it always fails."""

    RECONFIGURATION = "reconfiguration"
    AFTER_MIGRATION = "after_migration"
    INCOMPATIBLE = "incompatible"


def register(app: typer.Typer) -> None:
    app.command("check", epilog=EXAMPLES)(check)


def check(
    old: Annotated[str, typer.Argument(help="What the state is: a checkpoint, a table, or a contract's file.")],
    new: Annotated[str, typer.Argument(help="What the query will make of it: a contract's file, or one of those.")],
    direction: Annotated[
        Direction,
        typer.Option(
            "--direction",
            help="backward: NEW goes on from OLD's state; forward: OLD from NEW's, as a rollback would; full: both.",
        ),
    ] = Direction.BACKWARD,
    renamed: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--renamed", metavar="OLD=NEW", help="A column that is the same under another name; repeatable."),
    ] = None,
    output_format: Annotated[CheckFormat, typer.Option("--format", help="What stdout gets.")] = CheckFormat.TEXT,
    reports: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--report", metavar="FORMAT=FILE", help="The same in other formats, in files; repeatable."),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option("--fail-on", help="Findings milder than this are shown, and pass. What is unknown never passes."),
    ] = FailOn.RECONFIGURATION,
    strict: Annotated[
        bool, typer.Option("--strict", help="What could not be compared fails, too, as undecided (exit 3).")
    ] = False,
    ignored: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--ignore",
            metavar="CODE[:WHERE]",
            help="A finding that is accepted, everywhere or within a place, as in value-added:0.default; repeatable.",
        ),
    ] = None,
    ignore_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--ignore-file",
            metavar="FILE",
            help="Accepted findings with reasons and dates; left out: .ttlsnap-ignore.toml, if it is here.",
        ),
    ] = None,
) -> None:
    """Will the new version of a query go on from the state of the old one?

    OLD and NEW are checkpoints, Delta tables, or contracts that `ttlsnap contract` wrote. Needs no JVM. Each finding
    says where it is, what Spark does about it, and what to do. What could not be compared is said, and passes unless
    --strict is given: a checkpoint tells nothing of windows, aggregates and functions.
    """
    from ttlsnap.check import check as compare
    from ttlsnap.check.findings import Verdict
    from ttlsnap.check.ignores import apply
    from ttlsnap.check.targets import load_contract

    files = [_report(text) for text in reports or ()]
    _distinct(files)
    ignores = _ignores(ignored or (), ignore_file)
    contracts = load_contract(old), load_contract(new)
    compared = compare(*contracts, direction=direction.value, renamed=_renames(renamed or ()), names=(old, new))
    report = apply(compared, ignores)
    threshold = Verdict(fail_on.value)
    _print(report, output_format, threshold)
    _write(report, files, threshold)
    if CheckFormat.GITHUB in (output_format, *(form for form, _ in files)):
        _job_summary(report, threshold)
    code = exit_code(report, threshold)
    if not code and strict and report.unseen:
        typer.echo(f"Error: --strict, and {len(report.unseen)} not compared (see the report)", err=True)
        code = 3
    if code:
        raise typer.Exit(code)


def exit_code(report: CheckReport, fail_on: Verdict) -> int:
    """0 for what passes, 3 where the worst that does not is unknown, 1 for the rest."""
    from ttlsnap.check.findings import Verdict, worst
    from ttlsnap.check.reports.levels import fails

    failing = [finding.verdict for finding in report.findings if fails(finding.verdict, fail_on)]
    if not failing:
        return 0
    return 3 if worst(failing) is Verdict.UNKNOWN else 1


def _report(text: str) -> tuple[CheckFormat, Path]:
    from ttlsnap.errors import UsageError

    form, found, name = text.partition("=")
    if not found or form not in list(CheckFormat):
        raise UsageError(f"--report is FORMAT=FILE, with one of {', '.join(CheckFormat)} for FORMAT, not {text!r}")
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"--report {text}: a report goes to a file, and {path} is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"--report {text}: there is no folder {path.parent}; make it first")
    return CheckFormat(form), path


def _distinct(files: Sequence[tuple[CheckFormat, Path]]) -> None:
    from ttlsnap.errors import UsageError

    paths = [path.resolve() for _, path in files]
    for path in paths:
        if paths.count(path) > 1 and not is_special(path):
            raise UsageError(f"several reports are to be written to {path}: give each a file of its own")


def _ignores(options: Sequence[str], path: Path | None) -> list[Ignore]:
    from ttlsnap.check.ignores import DEFAULT_FILE, parse_ignore, read_ignores

    if path is None and Path(DEFAULT_FILE).is_file():
        path = Path(DEFAULT_FILE)
    given = [parse_ignore(text) for text in options]
    return given + (read_ignores(path) if path is not None else [])


def _renames(options: Sequence[str]) -> dict[str, str]:
    from ttlsnap.errors import UsageError

    names: dict[str, str] = {}
    for text in options:
        old, found, new = (part.strip() for part in text.partition("="))
        if not found or not old or not new:
            raise UsageError(f"--renamed is OLD=NEW, the two names of a column, not {text!r}")
        if names.setdefault(old, new) != new:
            raise UsageError(f"--renamed: {old} cannot have become both {names[old]} and {new}")
    return names


def _print(report: CheckReport, form: CheckFormat, fail_on: Verdict) -> None:
    """To stdout. Whoever read it may have gone, as with | head: the reports and the exit code are as they would be."""
    try:
        _show(report, form, fail_on)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(report: CheckReport, form: CheckFormat, fail_on: Verdict) -> None:
    from ttlsnap.check.reports import REPORTS

    if form is CheckFormat.TEXT and sys.stdout.isatty():
        from rich.text import Text

        from ttlsnap.check.reports.text import lines
        from ttlsnap.cli.output import console

        out = console()
        for line in lines(report, fail_on):
            out.print(Text.assemble(*line))
        return
    sys.stdout.write(REPORTS[form.value](report, fail_on))


def _write(report: CheckReport, files: Sequence[tuple[CheckFormat, Path]], fail_on: Verdict) -> None:
    """All of them are made before the first is written, and each is written whole or not at all."""
    from ttlsnap.check.reports import REPORTS

    made = [(path, REPORTS[form.value](report, fail_on)) for form, path in files]
    for path, text in made:
        write_whole(path, text.encode(errors="backslashreplace"))


def _job_summary(report: CheckReport, fail_on: Verdict) -> None:
    """Add to the summary of GitHub's job, if there is one. That it cannot be written must not hide the verdict."""
    from ttlsnap.check.reports.github import MAX_SUMMARY, job_summary

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    try:
        path = Path(name)
        room = MAX_SUMMARY - (path.stat().st_size if path.exists() else 0)
        with path.open("ab") as file:
            file.write(job_summary(report, fail_on, room).encode(errors="backslashreplace"))
    except OSError as error:
        typer.echo(f"Warning: the job's summary {name} cannot be written: {error.strerror}", err=True)
