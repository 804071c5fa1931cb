"""``ttlsnap rollback``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ttlsnap.cli.options import Format, FormatOption, QuietPeriodOption, Target
from ttlsnap.cli.output import print_json


def register(app: typer.Typer) -> None:
    app.command("rollback")(rollback)


def rollback(target: Target, quiet_period: QuietPeriodOption = 5.0, output_format: FormatOption = Format.TEXT) -> None:
    """Put back what the last run replaced, byte for byte, while no newer batch is committed."""
    from ttlsnap.recovery import rollback as run

    report = run(target, quiet_period=quiet_period)
    if output_format is Format.JSON:
        print_json(asdict(report))
        return
    typer.echo(
        f"{report.target}: run {report.undone} is rolled back, as run {report.run}: its new files are set aside, and "
        f"{report.restored} old ones put back where they had been replaced."
    )
    typer.echo("Next: restart the query; its state is what it was before that run.")
