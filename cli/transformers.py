"""``ttlsnap transformers``."""

from __future__ import annotations

from dataclasses import asdict

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Format, FormatOption
from ttlsnap.cli.output import console, print_json, table


def register(app: typer.Typer) -> None:
    app.command("transformers", cls=Command)(transformers)


def transformers(output_format: FormatOption = Format.TEXT) -> None:
    """List the installed transformers, with their options for --set."""
    from ttlsnap.transformers.registry import list_installed

    installed = list_installed()
    if output_format is Format.JSON:
        print_json([asdict(info) for info in installed])
        return
    rows = table("name", "what it does", "options", "from", spare=("from", "options"))
    for info in installed:
        rows.add_row(info.name, _plain(info.summary), _plain(info.options), info.location)
    console().print(rows)


def _plain(docstring: str) -> str:
    """Return a docstring without the marks of code."""
    return docstring.replace("``", "")
