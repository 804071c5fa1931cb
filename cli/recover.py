"""``ttlsnap recover``."""

from __future__ import annotations

from typing import Annotated

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Checkpoint, Format, FormatOption
from ttlsnap.cli.output import place, print_json, print_warnings, say
from ttlsnap.cli.places import ArchiveOption, confirm_on_terminal, parse_archive


def register(app: typer.Typer) -> None:
    app.command("recover", cls=Command)(recover)


def recover(
    target: Checkpoint,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the run, even if it could be finished.")] = False,
    expired_to: ArchiveOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Finish or undo a run that was interrupted while it published.

    Such a run leaves a fence in the checkpoint: Spark refuses to start, and its error contains this command. If no file
    was moved yet, or a file is missing, ttlsnap undoes the run. Otherwise it finishes the run.
    """
    from ttlsnap.publishing.recover import recover as run

    report = run(target, prefer_undo=undo, expired_to=parse_archive(expired_to), confirm=confirm_on_terminal())
    if output_format is Format.JSON:
        print_json(report.to_json())
        return
    match report.outcome:
        case "nothing":
            nothing = "" if report.settled else " There is nothing to recover."
            say(f"{place(report.target)}: no run was interrupted.{nothing}")
        case "finished":
            say(f"{place(report.target)}: finished run {report.run}. Next: restart the query.")
        case "undone":
            say(f"{place(report.target)}: undid run {report.run}; the old state is restored. Next: restart the query.")
    for run_name in report.settled:
        entries = f"the dropped entries of run {run_name}"
        done = f"removed {entries} from the archive" if run_name in report.taken_back else f"archived {entries}"
        say(f"{place(report.target)}: {done}.")
    print_warnings(report.warnings)
