"""``ttlsnap recover``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ttlsnap.cli.options import Format, FormatOption, Target
from ttlsnap.cli.output import print_json
from ttlsnap.cli.places import ArchiveOption, confirm_on_terminal, place_given


def register(app: typer.Typer) -> None:
    app.command("recover")(recover)


def recover(
    target: Target,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the run rather than finish it.")] = False,
    expired_to: ArchiveOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Finish or undo a run that was cut off while it published.

    Such a checkpoint is fenced: Spark refuses to start on it and quotes this command. The run is finished when all its
    files are there, and undone otherwise.
    """
    from ttlsnap.recovery import recover as run

    report = run(target, prefer_undo=undo, expired_to=place_given(expired_to), confirm=confirm_on_terminal())
    if output_format is Format.JSON:
        print_json(asdict(report))
        return
    match report.outcome:
        case "nothing":
            typer.echo(f"{report.target}: no run was cut off; there is nothing to recover.")
        case "finished":
            typer.echo(f"{report.target}: run {report.run} is finished. Next: restart the query.")
        case "undone":
            typer.echo(f"{report.target}: run {report.run} is undone; the old state is back. Next: restart the query.")
    for warning in report.warnings:
        typer.echo(f"Warning: {warning}", err=True)
