"""``ttlsnap copy``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ttlsnap.cli.exit_codes import ExitCodeOption, end_as_run, require_dry_run
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import RUN, ConsentOptions, Format, FormatOption, WorkFolderOption
from ttlsnap.cli.output import WarningPrinter, ask_person, console, number, place, print_json, say, size, verbosity
from ttlsnap.cli.published import describe_published
from ttlsnap.errors import Foreseen, RefusedError, UsageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ttlsnap.copies.report import CopyReport
    from ttlsnap.positions.report import PositionsReport

REPLACE = "Restoring a checkpoint"
EXAMPLES = """
Examples:
  # a backup, also while the query runs
  ttlsnap copy ck s3://backups/visits/2026-11-28 --verify

  # the next backup: only what is new is sent
  ttlsnap copy ck s3://backups/11-29 --onto s3://backups/11-28

  # a clone that can run beside the original
  ttlsnap copy ck clone --new-id

  # restore a checkpoint from its backup: the query must be stopped
  ttlsnap copy s3://backups/visits/2026-11-28 ck --replace --stopped

  # nothing is left of the checkpoint, and its sink has batches up to 57
  ttlsnap copy s3://backups/11-28 ck --replace --last-batch 57 --stopped

  # what would be copied
  ttlsnap copy ck backup --dry-run
"""


@dataclass(frozen=True)
class ReplacingOptions(ConsentOptions):
    """The restore of a checkpoint from a copy."""

    PANEL = REPLACE

    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Restore the checkpoint DESTINATION from its copy SOURCE. Stop the query first. It then reads again "
            "what came after the batch, and its batch numbers go on. ttlsnap rollback undoes it. Not together with "
            "--new-id, --verify or --onto.",
            rich_help_panel=REPLACE,
        ),
    ] = False
    last_batch: Annotated[
        int | None,
        typer.Option(
            "--last-batch",
            metavar="N",
            min=0,
            help="The last batch of the query that its sink has. It is needed if the checkpoint is lost, or older than "
            "the copy: otherwise the sink would skip new batches with old numbers.",
            rich_help_panel=REPLACE,
        ),
    ] = None
    scratch: WorkFolderOption = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        names = ("replace", "last_batch", "scratch")
        return {**super().arguments(), **{name: getattr(self, name) for name in names}}


def register(app: typer.Typer) -> None:
    app.command("copy", cls=Command, epilog=EXAMPLES)(separate(copy))


def copy(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A checkpoint: a local path, or a URI (file, s3, gs, abfss, hdfs).",
            show_default=False,
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            help="A new place; with --replace, a checkpoint of the same query.",
            show_default=False,
        ),
    ],
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            min=0,
            help="The last batch of the copy; a query continues after it. It must still be retained. Default: the last "
            "committed batch.",
        ),
    ] = None,
    new_id: Annotated[
        bool,
        typer.Option("--new-id", help="Give the copy another query id, so that it can run beside the original."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything in the copy again, and compare it with the manifest.")
    ] = False,
    onto: Annotated[
        str | None,
        typer.Option(
            "--onto",
            metavar="LAST",
            help="An earlier copy of the same checkpoint. What it has already is not sent again: hard links on a local "
            "disk, copies within the store in S3 and others.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied, and copy nothing.")] = False,
    exit_code: ExitCodeOption = False,
    *,
    replacing: ReplacingOptions,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            metavar="N",
            min=1,
            help="How many files to send, and partitions to build, at the same time. Default: as many as are useful.",
            rich_help_panel=RUN,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Copy a checkpoint as of one batch: a backup, or a clone. The query may keep running.

    Nothing is written to SOURCE. A query that starts on the copy continues after that batch. If the command is
    interrupted, Spark refuses to start on the copy; repeat the command, and it goes on. With [bold]--replace[/bold], a
    checkpoint is restored from such a copy.
    """
    from ttlsnap.backups.run import copy as run

    require_dry_run(wanted=exit_code, dry_run=dry_run)
    # A variable can set --stopped for all commands.
    others = [option for option in given(replacing) if option != "--stopped"]
    if others and not replacing.replace:
        raise UsageError(f"{others[0]} needs --replace")
    options: dict[str, Any] = {"batch": batch, "new_id": new_id, "verify": verify, "onto": onto, "dry_run": dry_run}
    question = f"Replace the state of {target} by that of {source}?"
    asks = replacing.asks(dry_run=dry_run)
    with CopyProgress(
        "preparing" if replacing.replace else "copying",
        question,
        consents=replacing.yes,
        asks=asks,
        stopped=replacing.stopped,
    ) as progress:
        report = run(source, target, **options, **replacing.arguments(), parallelism=parallelism, listener=progress)
    if report.replaced:
        report = with_question(report, replacing)
        show_report(report, _describe_replaced, output_format, exit_code=exit_code, printer=progress.warnings)
    else:
        show_report(report, partial(_lines, onto=onto), output_format, exit_code=exit_code)


def with_question(report: CopyReport, consent: ConsentOptions) -> CopyReport:
    """Return the report of a dry run with a warning that a run would ask; any other report is returned unchanged."""
    if not report.dry_run or consent.yes:
        return report
    question = Foreseen("a run asks before it replaces the state. If nobody can be asked, add --yes")
    return replace(report, warnings=(*report.warnings, question))


AnyReport = TypeVar("AnyReport", "CopyReport", "PositionsReport")


def show_report(
    report: AnyReport,
    describe: Callable[[AnyReport], Iterable[str]],
    output_format: Format,
    *,
    exit_code: bool,
    printer: WarningPrinter | None = None,
) -> None:
    """Print a report: as one document, or its warnings and the lines that ``describe`` returns.

    ``printer`` is the one that has printed the warnings before a question.
    """
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        (printer or WarningPrinter()).print(report.warnings)
        for line in describe(report):
            say(line)
    if exit_code:
        end_as_run(report.warnings)


def _describe_replaced(report: CopyReport) -> list[str]:
    what = f"{place(report.target)} by that after batch {report.source_batch} of {place(report.source)}"
    numbers = f"It gets the number {report.batch}, and the next batch is {report.batch + 1}."
    amount = f"{number(report.files)} files, {size(report.bytes)}"
    if report.dry_run:
        return [f"Would replace the state of {what}: {amount}. {numbers}"]
    if not report.complete:
        return ["Nothing was changed."]
    reads_again = f"{numbers} The query reads again what came after batch {report.source_batch}."
    return [f"Replaced the state of {what}: {amount}.", reads_again, *describe_published(report)]


def _lines(report: CopyReport, onto: str | None) -> list[str]:
    amount = f"{number(report.files)} files, {size(report.bytes)}"
    what = f"{place(report.source)} as of batch {report.batch}"
    lines = [f"Would copy {what}: {amount}" if report.dry_run else f"Copied {what} to {place(report.target)}: {amount}"]
    if report.begun_batch is not None:
        lines.append(f"Batch {report.begun_batch} was begun and not committed. The copy does not have it. A sink may.")
    if report.shared:
        lines.append(f"Shared with the earlier copy: {number(report.shared)} files, {size(report.shared_bytes)}")
    elif onto is not None and report.complete:
        lines.append("No file could be shared with the earlier copy. After a restore or a move, all files are new.")
    if report.kept:
        lines.append(f"An earlier call has sent {number(report.kept)} of the files already.")
    if report.dry_run:
        return lines
    if report.verified:
        lines.append("Everything in the copy was read again, and is as the manifest says.")
    if not report.new_id:
        of_the_original = "The copy has the query id of the original, so start only one of the two."
        return [*lines, f"{of_the_original} For a clone that runs beside it, use --new-id."]
    return [
        *lines,
        f"The copy has the query id {report.query_id}, and can run beside the original, with an output of its own.",
        "If its query writes files to a new folder OUT, first create these files in OUT/_spark_metadata, each with the "
        f"one line v1: {', '.join(_sink_files(report.batch))}",
    ]


def _sink_files(batch: int) -> list[str]:
    """Return the files that a file sink needs to compact its log, if the log begins after ``batch``.

    Spark compacts the log in each tenth batch. It then reads the last compacted file, and those after it.
    """
    compacted = (batch + 1) // 10 * 10 - 1
    return [*([f"{compacted}.compact"] if compacted >= 0 else []), *map(str, range(compacted + 1, batch + 1))]


class CopyProgress:
    """The progress of a copy, on stderr and only on a terminal, and the question before a checkpoint is replaced.

    ``title`` says what is done. ``warnings`` prints before the question what a person should know.
    """

    def __init__(self, title: str, question: str, *, consents: bool, asks: bool, stopped: bool) -> None:
        self._title, self._question = title, question
        self._consents, self._asks, self._stopped = consents, asks, stopped
        self.warnings = WarningPrinter()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty() and not verbosity.quiet:
            columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(*columns, console=console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def chosen(self, batch: int, files: int, size: int) -> None:
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=size)

    def arrived(self, files: int, size: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, size)

    def confirm(self, report: CopyReport) -> bool:
        if self._consents:
            return True
        if not self._asks:
            raise RefusedError(
                f"this replaces the state of {report.target} by that of {report.source}, as of batch "
                f"{report.source_batch}, and nobody can be asked. Nothing was changed. To agree, add --yes"
            )
        self.__exit__()
        self.warnings.print(report.warnings)
        return self.ask(report)

    def ask(self, report: CopyReport) -> bool:
        """Ask the question, and return whether a person agrees."""
        consequence = f"The query then reads again what came after batch {report.source_batch}."
        return ask_person(f"{self._question} {consequence}", stopped=self._stopped)
