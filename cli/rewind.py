"""``ttlsnap rewind``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.copy import CopyProgress, show_report, with_question
from ttlsnap.cli.exit_codes import ExitCodeOption, require_dry_run
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import RUN, Checkpoint, ConsentOptions, Format, FormatOption, WorkFolderOption, pairs
from ttlsnap.cli.output import MISSING, console, place, print_json, say, size, table, tell
from ttlsnap.cli.published import describe_published
from ttlsnap.errors import UsageError
from ttlsnap.printable import printable, shell_word

if TYPE_CHECKING:
    from ttlsnap.copies.report import CopyReport

EXAMPLES = """
Examples:
  # the batches that are still retained
  ttlsnap rewind ck

  # what going back would do
  ttlsnap rewind ck --batch 40 --dry-run

  # the state and the positions as they were after batch 40
  ttlsnap rewind ck --batch 40 --stopped

  # a copy as of batch 40, and leave the checkpoint as it is
  ttlsnap copy ck new --batch 40
"""


def register(app: typer.Typer) -> None:
    app.command("rewind", cls=Command, epilog=EXAMPLES)(separate(rewind))


def rewind(
    target: Checkpoint,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            min=0,
            help="The batch to go back to, whose state must still be retained. Without this, list the batches that are "
            "possible, and when they began.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="SOURCE=PATH",
            help="The Delta table that this source reads: refuse a batch if the table has lost what came after it. Can "
            "be repeated.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what a run would do, and change nothing.")] = False,
    exit_code: ExitCodeOption = False,
    *,
    consent: ConsentOptions,
    scratch: WorkFolderOption = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            metavar="N",
            min=1,
            help="How many partitions to build at the same time. Default: as many as are useful.",
            rich_help_panel=RUN,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Go back to an earlier batch: its state together with its positions in the sources.

    Stop the query first. When it starts again, it reads once more what came after that batch, and nothing is counted
    twice or lost in the state. Sinks get these rows again. Batch numbers do not go back. [bold]ttlsnap rollback[/bold]
    undoes it.
    """
    from ttlsnap.positions.rewinding import rewind as run

    if batch is None:
        if dry_run or exit_code or tables or consent.yes or consent.no_planned_batch:
            raise UsageError("to go back, give --batch N. Without options, ttlsnap rewind lists the possible batches")
        _list(target, output_format)
        return
    require_dry_run(wanted=exit_code, dry_run=dry_run)
    question = f"Set {target} back to batch {batch}?"
    with _Progress(
        "preparing", question, consents=consent.yes, asks=consent.asks(dry_run=dry_run), stopped=consent.stopped
    ) as progress:
        report = run(
            target,
            batch,
            tables=pairs("--table", tables, "0=/data/visits"),
            dry_run=dry_run,
            scratch=scratch,
            parallelism=parallelism,
            listener=progress,
            **consent.arguments(),
        )
    if dry_run and output_format is Format.TEXT:
        progress.look_at_sources(report)
    show_report(
        with_question(report, consent),
        partial(_lines, lines_by_source=progress.lines_by_source),
        output_format,
        exit_code=exit_code,
        printer=progress.warnings,
    )


_FINAL = "No earlier batch can be restored after this run, unless you undo it before the query starts."


class _Progress(CopyProgress):
    """The progress of a run, which also says what each source reads again, as long as its log shows that."""

    lines_by_source: Sequence[str] = ()

    def look_at_sources(self, report: CopyReport) -> None:
        from ttlsnap.positions.show import explain_rewind

        meanings = explain_rewind(report.target, report.source_batch)
        self.lines_by_source = [f"  source {name}: {line}" for name, lines in meanings.items() for line in lines]

    def confirm(self, report: CopyReport) -> bool:
        self.look_at_sources(report)
        return super().confirm(report)

    def ask(self, report: CopyReport) -> bool:
        for line in (*self.lines_by_source, _FINAL):
            tell(printable(line))
        self.lines_by_source = ()
        return super().ask(report)


def _list(target: str, output_format: Format) -> None:
    """Print the batches to which a checkpoint can go back."""
    from ttlsnap.positions.rewinding import find_restorable

    batches, change = find_restorable(target)
    if output_format is Format.JSON:
        print_json({"target": target, "batches": [batch.to_json() for batch in batches]})
        return
    if not batches:
        say(
            f"{place(target)} does not retain the state of an earlier batch. If its last run was a rewind, undo "
            f"it to bring others back: ttlsnap rollback {shell_word(target)} --stopped"
        )
        return
    say(f"{place(target)} can go back to the state after:")
    rows = table("batch", "began", "read input", right=("batch",))
    for batch in batches:
        began = (batch.began_at or MISSING).replace("T", " ")
        has_input = {True: "yes", False: "no", None: "unknown"}[batch.has_input]
        if batch.restored_batch is not None:
            has_input = f"state and positions of batch {batch.restored_batch}"
        rows.add_row(str(batch.batch), began, has_input)
    console().print(rows)
    if change is not None:
        is_before = any(batch.batch < change.batch for batch in batches)
        which = f"Only batches before {change.batch} have" if is_before else "None of these batches has"
        say(
            f"Run {change.run} ({change.kind}) changed the state after batch {change.batch}. {which} the state from "
            "before it."
        )
    say(f"Nothing was changed. To go back: ttlsnap rewind {shell_word(target)} --batch N --stopped")


def _lines(report: CopyReport, lines_by_source: Sequence[str]) -> list[str]:
    what = f"{place(report.target)} back to batch {report.source_batch}"
    amount = f"{quantity(report.files, 'file')} of the checkpoint, {size(report.bytes)}"
    reads_again = f"the query reads again what came after batch {report.source_batch}"
    numbers = f"Its batches go on with number {report.batch + 1}. {_FINAL}"
    if report.dry_run:
        return [f"Would set {what}: {amount}", f"Then {reads_again}. {numbers}", *lines_by_source]
    if not report.complete:
        return ["Nothing was changed."]
    return [
        f"Set {what}: {amount}",
        f"When it starts, {reads_again}. {numbers}",
        *lines_by_source,
        *describe_published(report),
    ]
