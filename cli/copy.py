"""``ttlsnap copy``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Checkpoint, Format, FormatOption
from ttlsnap.cli.output import console, number, place, print_json, print_warning, say, size, verbosity

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ttlsnap.copies.report import CopyReport

EXAMPLES = """
Examples:
  # a backup, also while the query runs
  ttlsnap copy ck s3://backups/visits/2026-11-28 --verify

  # a clone that can run beside the original
  ttlsnap copy ck clone --new-id

  # what would be copied
  ttlsnap copy ck backup --dry-run
"""


def register(app: typer.Typer) -> None:
    app.command("copy", cls=Command, epilog=EXAMPLES)(copy)


def copy(
    source: Checkpoint,
    target: Annotated[
        str,
        typer.Argument(
            metavar="COPY", help="A new place: a local path, or a URI (file, s3, gs, abfss, hdfs).", show_default=False
        ),
    ],
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            min=0,
            help="The batch that the copy continues from, which must still be retained. Default: the last committed "
            "batch.",
        ),
    ] = None,
    new_id: Annotated[
        bool,
        typer.Option("--new-id", help="Give the copy another query id, so that it can run beside the original."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything in the copy again, and compare it with the manifest.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied, and copy nothing.")] = False,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Copy a checkpoint as of one batch: a backup, or a clone. The query may keep running.

    Nothing is written to the checkpoint. A query that starts on the copy continues after that batch. If the command is
    interrupted, Spark refuses to start on the copy; repeat the command, and it goes on.
    """
    from ttlsnap.copies.run import copy as run

    with _Progress() as progress:
        report = run(source, target, batch=batch, new_id=new_id, verify=verify, dry_run=dry_run, listener=progress)
    if output_format is Format.JSON:
        print_json(report.to_json())
        return
    for warning in report.warnings:
        print_warning(warning)
    for line in _lines(report):
        say(line)


def _lines(report: CopyReport) -> list[str]:
    amount = f"{number(report.files)} files, {size(report.bytes)}"
    if report.dry_run:
        return [f"Would copy {place(report.source)} as of batch {report.batch}: {amount}"]
    lines = [f"Copied {place(report.source)} as of batch {report.batch} to {place(report.target)}: {amount}"]
    if report.kept:
        lines.append(f"An earlier call had sent {number(report.kept)} of the files already.")
    if report.verified:
        lines.append("Everything in the copy was read again, and is as the manifest says.")
    lines.append(
        f"The copy has the query id {report.query_id}, and can run beside the original."
        if report.new_id
        else "The copy has the query id of the original: it is a backup. For a clone that runs beside it, use --new-id."
    )
    return lines


class _Progress:
    """The progress of a copy: on stderr, and only on a terminal."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if sys.stderr.isatty() and not verbosity.quiet:
            columns = (TextColumn("copying"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(*columns, console=console(stderr=True), transient=True)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def chosen(self, batch: int, files: int, size: int) -> None:
        if self._progress is not None:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._progress.start()
            self._task = self._progress.add_task("copying", total=size)

    def arrived(self, files: int, size: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, size)
