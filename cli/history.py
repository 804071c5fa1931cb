"""``ttlsnap history``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ttlsnap.cli.options import Format, FormatOption, Target
from ttlsnap.cli.output import console, number, print_json, table


def register(app: typer.Typer) -> None:
    app.command("history")(history)


def history(
    target: Target,
    prune: Annotated[bool, typer.Option("--prune", help="Remove the backups; rollback is then not possible.")] = False,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Show the runs made on a checkpoint, oldest first."""
    from ttlsnap.checkpoint.logs import read_logs
    from ttlsnap.delta import is_table
    from ttlsnap.filesystem import open_directory
    from ttlsnap.journal import planned_batch
    from ttlsnap.recovery import prune as remove
    from ttlsnap.run_history import history as read

    if is_table(open_directory(target)):
        _of_table(target, prune, output_format)
        return
    pruned = remove(target) if prune else []
    entries = read(target)
    files = open_directory(target)
    waiting = planned_batch(files, read_logs(files))
    planned = waiting.fence_batch if waiting is not None else None
    if output_format is Format.JSON:
        runs: list[dict[str, Any]] = [entry.to_json() for entry in entries]
        print_json({"target": target, "runs": runs, "pruned": pruned})
        return
    if not entries:
        typer.echo(f"{target}: no runs.")
        return
    rows = table(
        "run",
        "kind",
        "status",
        "batch",
        "dropped",
        "rewritten",
        "backup",
        right=("batch", "dropped", "rewritten"),
    )
    for entry in entries:
        totals = (entry.report or {}).get("totals", {})
        rows.add_row(
            entry.run,
            entry.kind,
            entry.status,
            number(entry.batch),
            number(totals.get("dropped")),
            number(totals.get("rewritten")),
            "yes" if entry.backup else "no",
        )
    console().print(rows)
    if planned is not None:
        typer.echo(f"Batch {planned} is planned, without data: the query restarts with it.")
    for entry in entries:
        if entry.waiting:
            typer.echo(f"What run {entry.run} dropped is not delivered yet; the next run will try.")
    for run in pruned:
        typer.echo(f"The backup of run {run} is removed.")


def _of_table(target: str, prune: bool, output_format: Format) -> None:
    from ttlsnap.delta.history import table_history
    from ttlsnap.errors import UsageError

    if prune:
        raise UsageError(f"{target} is a Delta table: VACUUM removes its old files")
    runs = table_history(target)
    if output_format is Format.JSON:
        print_json({"target": target, "runs": [run.to_json() for run in runs], "pruned": []})
        return
    if not runs:
        typer.echo(f"{target}: no runs.")
        return
    rows = table("run", "kind", "version", "at", "dropped", right=("version", "dropped"))
    for run in runs:
        rows.add_row(run.run, run.kind, number(run.version), run.at or "-", number(run.dropped))
    console().print(rows)
