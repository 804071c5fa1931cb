"""``ttlsnap check``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.help import Command
from ttlsnap.cli.output import print_json, print_marked, print_warning, tell, write_whole
from ttlsnap.cli.pages import HTML, PageFile, ShowKeysOption, check_pages, write_pages
from ttlsnap.cli.renames import parse_rename
from ttlsnap.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttlsnap.check.findings import CheckReport, StateFindings, Verdict
    from ttlsnap.check.ignores import Ignore
    from ttlsnap.contract import Contract, TableContract

EXAMPLES = """
Examples:
  # compare the committed contract with that of the changed query
  ttlsnap check state.json new.json

  # compare the production checkpoint with the changed query
  ttlsnap check ck new.json

  # a column was renamed
  ttlsnap check state.json new.json --renamed cnt=visits

  # pass if your deployment changes the setting, or migrates the state
  ttlsnap check state.json new.json --fail-on incompatible

  # accept one finding in one place
  ttlsnap check state.json new.json --ignore value-added:0.default

  # compare changed contracts with those of the last commit
  ttlsnap check --base HEAD jobs/*.state.json

  # write reports for CI
  ttlsnap check ck new.json --format github --report junit=check.xml

Exit codes:
  0  compatible as it is, or as far as --fail-on asks
  1  findings
  2  wrong usage
  3  undecided: the contracts do not record enough
  5  damage or a storage error

The documentation explains each finding on the page "checks", and the use in
CI on the page "check".
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


_OF_NEW = (CheckFormat.JSON, CheckFormat.GITHUB)
"""The formats that say that a contract is new."""
_ONE_REPORT = (CheckFormat.JUNIT, CheckFormat.SARIF)
"""The formats of stdout whose document has one report."""

_Base = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="COMMIT",
        help="Compare each named contract file with the same file in this commit of git. auto: the commit with "
        "which pre-commit compares, by default HEAD.",
    ),
]
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


_Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORMAT=FILE",
        help="Also write the result to a file: in another format, or as a page for a browser (html, which needs the "
        "extra html). Can be repeated.",
    ),
]
_Ignored = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="CODE[:WHERE]",
        help="Accept a finding, everywhere or in one place: value-added:0.default. Can be repeated.",
    ),
]


def check(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="The existing state: a checkpoint, a Delta table, or a contract file.")
    ],
    new: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NEW", help="The new query: a contract file, a checkpoint, or a Delta table.", show_default=False
        ),
    ] = None,
    base: _Base = None,
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
    reports: _Reports = None,
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
    ignored: _Ignored = None,
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
    from ttlsnap.check.findings import Verdict
    from ttlsnap.check.ignores import COMMAND_LINE, find_default_file, gather_ignores
    from ttlsnap.errors import UsageError

    files = [old, *(new or ())]
    if base is None and len(files) != 2:
        raise UsageError(
            f"check needs OLD and NEW, and got {quantity(len(files), 'name')}. With --base, each name is a contract"
        )
    if len(files) > 1 and base is not None and (reports or output_format in _ONE_REPORT):
        raise UsageError("--report, junit and sarif are for one comparison; call check for each contract")
    requested_reports = [_report(text) for text in reports or ()]
    if ignore_file is None:
        ignore_file = find_default_file()
    pages = check_pages(
        [path for form, path in requested_reports if form == HTML],
        show_keys,
        files,
        others=[(f"--report {form}={path}", path) for form, path in requested_reports if form != HTML],
        inputs=[*files, *([] if ignore_file is None else [str(ignore_file)])],
    )
    output = _Output(
        output_format,
        [(CheckFormat(form), path) for form, path in requested_reports if form != HTML],
        pages,
        Verdict(fail_on.value),
        strict,
    )
    ignores, names = gather_ignores(ignored or (), ignore_file, COMMAND_LINE), _renames(renamed or ())
    in_array = base is not None and output_format is CheckFormat.JSON
    documents: list[dict[str, Any]] = []
    worst_code = 0
    for compared in _compare_with_base(base, files, direction) if base is not None else [_compare_two(*files)]:
        report = compared.report(direction, names, ignores) if isinstance(compared, _Compared) else compared
        documents.append(report.to_json())
        worst_code = max(worst_code, output.write(report, is_printed=not in_array))
    if in_array:
        print_json(documents)
    if worst_code:
        raise typer.Exit(worst_code)


@dataclass(frozen=True)
class _Output:
    """Where reports are written: on stdout in one format, in files and on pages. ``threshold`` fails."""

    form: CheckFormat
    files: Sequence[tuple[CheckFormat, Path]]
    pages: Sequence[PageFile]
    threshold: Verdict
    strict: bool

    def write(self, report: CheckReport, *, is_printed: bool) -> int:
        """Write a report everywhere, on stdout only if ``is_printed``. Return its exit code.

        A new contract has no findings, so only the formats that say that it is new have it.
        """
        if is_printed and (not report.is_new or self.form in _OF_NEW):
            _print(report, self.form, self.threshold)
        files = [(form, path) for form, path in self.files if not report.is_new or form in _OF_NEW]
        _write(report, files, self.threshold)
        if not report.is_new:
            write_pages(self.pages, "check", report.to_json())
        if CheckFormat.GITHUB in (self.form, *(form for form, _ in self.files)):
            _job_summary(report, self.threshold)
        code = exit_code(report, self.threshold)
        if not code and self.strict and report.unseen and not report.is_new:
            print_marked(
                "Error:",
                "bold red",
                f"--strict: {quantity(len(report.unseen), 'thing')} could not be compared (see the report)",
            )
            return 3
        return code


@dataclass(frozen=True)
class _Compared:
    """Two contracts to compare, with their names. ``old_command`` prints the old one if it is in a commit of git."""

    names: tuple[str, str]
    contracts: tuple[Contract | TableContract, Contract | TableContract]
    state: StateFindings
    old_command: str | None

    def report(self, direction: Direction, renamed: dict[str, str], ignores: Sequence[Ignore]) -> CheckReport:
        """Return the report of the comparison."""
        from ttlsnap.check import check as compare

        return compare(
            *self.contracts,
            direction=direction.value,
            renamed=renamed,
            names=self.names,
            state=self.state,
            ignores=ignores,
            old_command=self.old_command,
        )


def _compare_two(old: str, new: str) -> _Compared:
    from ttlsnap.check.findings import StateFindings
    from ttlsnap.check.targets import is_folder, load_contract

    contracts = load_contract(old), load_contract(new)
    state = StateFindings()
    if is_folder(old):  # two contracts in files are compared without the code that reads state
        from ttlsnap.check.state import examine_state

        state = examine_state(old)
    return _Compared((old, new), contracts, state, None)


def _compare_with_base(base: str, files: Sequence[str], direction: Direction) -> Iterator[_Compared | CheckReport]:
    """Yield each file with the one in the commit ``base``, or the report that it is new, which passes."""
    from ttlsnap.check.findings import CheckReport, StateFindings
    from ttlsnap.check.report_levels import describe_new
    from ttlsnap.check.revisions import find_base, find_old
    from ttlsnap.check.targets import load_contract

    revision = find_base(base)
    for file in files:
        new, old = load_contract(file), find_old(revision, file)
        if old.contract is None:
            reason = f"{old.origin} has no contract to compare it with"
            report = CheckReport(old.name, file, direction.value, (), (reason,), is_new=True)
            tell(printable(describe_new(report)))
            yield report
        else:
            yield _Compared((old.name, file), (old.contract, new), StateFindings(), old.command)


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
    return form, Path(name)


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
