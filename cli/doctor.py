"""``ttlsnap doctor``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ttlsnap.amounts import quantity
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Checkpoint, Format, FormatOption, StoppedOption
from ttlsnap.cli.output import ask_person, console, place, print_json, table, tell
from ttlsnap.cli.pages import PageOptions, write_pages
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.diagnosis import DoctorReport, GoingBack, Problem

EXAMPLES = """
Examples:
  # show what is damaged, which versions can be restored, and what to do
  ttlsnap doctor ck

  # a page to send to others
  ttlsnap doctor ck --report html=doctor.html

  # repair this problem; ttlsnap rollback undoes the repair
  ttlsnap doctor ck --fix moved-schema-paths

Exit codes:
  0  no problem
  1  a problem, such as damage
  2  wrong usage, or not a checkpoint
  3  an unknown format or version, and nothing worse
  4  --fix was refused
  5  a storage error prevented doctor from reading
"""

_STYLES = {"error": "bold red", "warning": "yellow", "unknown": "yellow"}


def register(app: typer.Typer) -> None:
    app.command("doctor", cls=Command, epilog=EXAMPLES)(separate(doctor))


def doctor(
    target: Checkpoint,
    *,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME",
            help="Repair a problem by its name in the report, such as moved-schema-paths, and keep a backup. Can be "
            "repeated.",
        ),
    ] = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            metavar="N",
            min=1,
            help="How many partitions are read at the same time. Default: as many as there are cores.",
        ),
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option("--scratch", metavar="DIR", help="RocksDB: a local folder for temporary files. Default: TMPDIR."),
    ] = None,
    stopped: StoppedOption = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Do not ask before --fix gives up committed batches. Required without a terminal."),
    ] = False,
    page: PageOptions,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Read everything in a checkpoint, and report what is damaged, which versions can be restored, and what to do.

    doctor needs no JVM. Without --fix it changes nothing.
    """
    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.diagnosis import doctor as look

    pages = page.parse([target])
    with ReadingProgress() as progress:
        report = look(
            target,
            fix=fix or (),
            parallelism=parallelism,
            scratch=scratch,
            stopped=stopped,
            confirm=_agree if yes else partial(_ask, progress) if sys.stdin.isatty() else None,
            listener=progress,
        )
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(console(), report)
    write_pages(pages, "doctor", report.to_json())
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _agree(_: GoingBack) -> bool:
    return True


def _ask(progress: ReadingProgress, going_back: GoingBack) -> bool:
    progress.stop()
    tell(f"{going_back}. The sink has already received them.")
    if ask_person("Give them up?"):
        return True
    tell("Nothing was changed.")
    return False


def _show(out: Console, report: DoctorReport) -> None:
    from ttlsnap.pages.doctor import counted_in, span, version_runs

    out.print(place(report.target))
    versions = report.to_json()["versions"]
    entries = f"{quantity(report.entries, 'entry', 'entries')} {counted_in(versions)}"
    out.print(f"  query {report.query_id or 'unknown'}, batch {report.batch} committed, {entries}")
    if report.copy_of is not None:
        compared = "was compared" if report.is_compared else "was used since, so it cannot be compared"
        out.print(f"  a copy of {place(report.copy_of)}, which {compared} with its manifest")
    if report.fixed:
        out.print(f"  repaired by run {report.run}: {', '.join(report.fixed)}")
        undo = f"ttlsnap rollback {shell_word(report.target)} --stopped"
        out.print(f"  To undo this before a newer batch is committed: {undo}")
        for warning in report.warnings:
            out.print(f"  {warning}")
    out.print()
    rows = table("versions", "batches", "restorable", right=("versions", "batches"))
    for run in version_runs(versions):
        rows.add_row(
            span([version["version"] for version in run]), span([version["batch"] for version in run]), run[0]["state"]
        )
    out.print(rows)
    for severity in ("error", "warning", "unknown", "note"):
        # Problems with the same advice are shown together, because damage is often in many files.
        alike: dict[tuple[str, str], list[Problem]] = {}
        for problem in report.problems:
            if problem.severity == severity:
                alike.setdefault((problem.code, problem.fix), []).append(problem)
        for problems in alike.values():
            _show_problems(out, problems)
    if any(problem.severity == "error" for problem in report.problems):
        command = f"ttlsnap copy BACKUP {shell_word(report.target)} --replace --stopped"
        advice = f"To restore the whole checkpoint from a backup: {command}"
        if report.is_compared:
            advice = "This is a copy that no query has used yet. Do not repair it: use another copy if there is one"
        out.print(Text(f"\n{advice}"))
    if not any(problem.severity != "note" for problem in report.problems):
        out.print()
        out.print("Nothing is wrong.")


def _show_problems(out: Console, problems: Sequence[Problem]) -> None:
    """Print problems of the same kind that have the same advice."""
    first = problems[0]
    times = f" ({len(problems)} times)" if len(problems) > 1 else ""
    out.print(Text.assemble("\n", (f"{first.severity}:", _STYLES.get(first.severity, "")), f" {first.code}{times}"))
    for problem in problems:
        out.print(Text(f"  {problem.message}"))
    out.print(Text(f"  {first.fix}"))
