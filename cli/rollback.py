"""``ttlsnap rollback``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ttlsnap.cli.options import Format, FormatOption, JarsOption, StoppedOption, Target
from ttlsnap.cli.output import print_json
from ttlsnap.cli.places import ArchiveOption, confirm_on_terminal, place_given


def register(app: typer.Typer) -> None:
    app.command("rollback")(rollback)


def rollback(
    target: Target,
    stopped: StoppedOption = False,
    expired_to: ArchiveOption = None,
    jars: JarsOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Put back what the last run replaced, byte for byte, while no newer batch is committed.

    Of a Delta table: restore the version before it, while nobody has written since.
    """
    from ttlsnap.delta import is_table
    from ttlsnap.filesystem import open_directory
    from ttlsnap.recovery import rollback as run

    if is_table(open_directory(target)):
        _of_table(target, expired_to, jars, output_format)
        return

    report = run(target, stopped=stopped, expired_to=place_given(expired_to), confirm=confirm_on_terminal())
    if output_format is Format.JSON:
        print_json(asdict(report))
        return
    back = f", and the {report.restored} that it had replaced are back" if report.restored else ""
    typer.echo(
        f"{report.target}: run {report.undone} is rolled back, as run {report.run}: its new files are set aside{back}."
    )
    for warning in report.warnings:
        typer.echo(f"Warning: {warning}", err=True)
    typer.echo("Next: restart the query; its state is what it was before that run.")


def _of_table(target: str, expired_to: str | None, jars: str | None, output_format: Format) -> None:
    from ttlsnap.delta.history import rollback_table

    warnings: list[str] = []
    undone, version = rollback_table(
        target, jars=jars, expired_to=place_given(expired_to), confirm=confirm_on_terminal(), warnings=warnings
    )
    if output_format is Format.JSON:
        print_json({"target": target, "undone": undone.run, "version": version, "warnings": warnings})
        return
    for warning in warnings:
        typer.echo(f"Warning: {warning}", err=True)
    typer.echo(f"{target}: run {undone.run} is undone: version {version} is what version {undone.versions[0] - 1} was.")
