"""``ttlsnap migrate``."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import (
    PUBLISH,
    RUN,
    Checkpoint,
    Format,
    FormatOption,
    NoPlannedBatchOption,
    OutputOption,
    ParallelismOption,
    SchemaOption,
    StoppedOption,
)
from ttlsnap.cli.output import MISSING, console, number, print_json, print_warning, size, table
from ttlsnap.cli.progress import ReadingProgress
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.migration.report import MigrationReport, StoreReport

_PREFIX = "spark.sql."
EXAMPLES = """
Examples:
  # build the new partitions, and show how large and how even they are
  ttlsnap migrate ck --partitions 400 --dry-run

  # migrate
  ttlsnap migrate ck --partitions 400 --stopped

  # from the HDFS-backed state store to RocksDB
  ttlsnap migrate ck --provider rocksdb --stopped

  # undo it
  ttlsnap rollback ck --stopped
"""


def register(app: typer.Typer) -> None:
    app.command("migrate", cls=Command, epilog=EXAMPLES)(migrate)


def migrate(
    target: Checkpoint,
    partitions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--partitions", metavar="N", min=1, help="The new number of partitions.", show_default=False),
    ] = None,
    provider: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--provider", metavar="NAME", help="The new state store provider: hdfs or rocksdb."),
    ] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another setting of the state store: codec, row-checksums, checkpoint-format or changelog. Repeat the "
            "option for several.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Build the new partitions and report, but change nothing.", rich_help_panel=PUBLISH
        ),
    ] = False,
    output: OutputOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before publishing.", rich_help_panel=PUBLISH)
    ] = False,
    schema: SchemaOption = None,
    stopped: StoppedOption = False,
    no_planned_batch: NoPlannedBatchOption = False,
    parallelism: ParallelismOption = None,
    scratch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="A local folder with room for the whole state, uncompressed. Default: in the checkpoint; in a dry "
            "run, and for a checkpoint elsewhere, TMPDIR.",
            rich_help_panel=RUN,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Change the number of partitions of a checkpoint's state, or its state store. The query then continues.

    Spark takes both from a query's first batch, and ignores later settings. Stop the query first. ttlsnap puts each
    entry into the partition where Spark will look for it, as the state store keeps it, and changes the recorded
    settings. It sets older versions of the state aside, and [bold]ttlsnap rollback[/bold] restores everything.
    """
    from ttlsnap.migration.run import migrate as run
    from ttlsnap.schema.ddl import parse_schemas

    text = output_format is Format.TEXT
    with _Listener(text, ask=not yes and not dry_run and sys.stdin.isatty()) as listener:
        report = run(
            target,
            partitions=partitions,
            provider=provider,
            settings=_parse_settings(settings or []),
            schemas=parse_schemas(schema),
            dry_run=dry_run,
            output=output,
            scratch=scratch,
            parallelism=parallelism,
            stopped=stopped,
            planned_batch=not no_planned_batch,
            listener=listener,
        )
    for warning in report.warnings:
        print_warning(warning)
    if text:
        _show(console(), report, tables=not listener.shown)
    else:
        print_json(report.to_json())


def _parse_settings(given: list[str]) -> dict[str, str]:
    """Return the value of each setting."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write NAME=VALUE, for example --set codec=zstd")
        if name in found:
            raise UsageError(f"--set {name} is given twice")
        found[name] = value
    return found


class _Listener(ReadingProgress):
    """The progress of the work, and the question before publishing."""

    def __init__(self, text: bool, *, ask: bool) -> None:
        super().__init__("moving")
        self._text, self._ask = text, ask
        self.shown = False

    def __enter__(self) -> _Listener:
        return self

    def confirm(self, report: MigrationReport) -> bool:
        self.stop()
        if not self._ask:
            return True
        if self._text:
            _show_stores(console(always=True), report)
            self.shown = True
        what = f"Change {report.target}: {_describe(report)}"
        if report.output is not None:
            return typer.confirm(f"{what} in the new checkpoint {report.output}?", err=True)
        return typer.confirm(f"{what}? Stop the query first.", err=True)


def _describe(report: MigrationReport) -> str:
    """Return what changes, in a few words."""
    parts = [f"{name.removeprefix(_PREFIX)} = {value}" for name, value in report.settings.items()]
    parts += [f"{name.removeprefix(_PREFIX)} = {value} (in the session)" for name, value in _session(report)]
    return ", ".join(parts)


def _session(report: MigrationReport) -> list[tuple[str, str]]:
    return sorted(report.session_settings.items())


def _show(out: Console, report: MigrationReport, *, tables: bool) -> None:
    if not report.stores:
        out.print(f"{report.target} is already as it should be. Nothing was changed.")
        return
    if tables:
        _show_stores(out, report)
    if report.dry_run:
        out.print("Dry run: nothing was changed. Without --dry-run, ttlsnap publishes this.")
    elif not report.published:
        out.print("Nothing was changed.")
    elif report.output is not None:
        out.print(f"A new checkpoint is at {report.output}; {report.target} is unchanged.")
        out.print(f'Next: start the query with the checkpoint location "{report.output}"{_with_settings(report)}.')
    else:
        out.print(f"Published as run {report.run}. The replaced files are in {report.backup}")
        undo = f"ttlsnap rollback {shlex.quote(report.target)} --stopped"
        out.print(f"Next: restart the query{_with_settings(report)}. To undo the migration before that: {undo}")


def _with_settings(report: MigrationReport) -> str:
    """Return the settings that the query's session must have, because Spark does not record them."""
    found = ", ".join(f"{name}={value}" for name, value in _session(report))
    return f" with {found} in its session" if found else ""


def _show_stores(out: Console, report: MigrationReport) -> None:
    out.print(f"{report.target}, batch {report.batch}")
    if report.settings or report.session_settings:
        out.print(f"settings: {_describe(report)}")
    columns = ("operator", "store", "partitions", "entries", "before", "after", "largest / median")
    made = table(*columns, right=columns[2:])
    for store in report.stores:
        made.add_row(
            f"{store.operator} {store.operator_name}" if store.operator_name else str(store.operator),
            store.store,
            _partitions(store),
            number(store.entries),
            size(store.bytes_before),
            size(store.bytes_after),
            _skew(store),
        )
    out.print(made)
    for operator in report.single:
        out.print(f"operator {operator} stays in a single partition")
    out.print(f"{report.seconds:.1f} s")


def _partitions(store: StoreReport) -> str:
    before, after = store.partitions_before, len(store.partitions)
    return number(after) if before == after else f"{number(before)} to {number(after)}"


def _skew(store: StoreReport) -> str:
    return MISSING if store.skew is None else f"{store.skew:.2f}"
