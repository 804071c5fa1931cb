"""``ttlsnap import``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.exit_codes import ExitCodeOption, end_as_run, require_dry_run
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import (
    PUBLISH,
    RUN,
    STATES,
    Checkpoint,
    EngineOptions,
    Format,
    FormatOption,
    PublishingOptions,
    StateOptions,
)
from ttlsnap.cli.output import WarningPrinter, ask_person, console, number, place, print_json, size, table
from ttlsnap.cli.progress import ReadingProgress
from ttlsnap.cli.published import describe_published
from ttlsnap.errors import Foreseen
from ttlsnap.pages.words import DRY_RUN, after_dry_run

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.imports.report import ImportReport

EXAMPLES = """
Examples:
  # fill a state with the rows of Parquet files
  ttlsnap import ck --from history --table 0.state

  # fill every state with what was exported from another checkpoint
  ttlsnap import ck --from exported

  # replace the entries of the keys in a Delta table
  ttlsnap import ck --from delta:fixed --state visits --mode merge

  # look what it would do
  ttlsnap import ck --from history --table 0.state --dry-run
"""


class ModeName(StrEnum):
    """What happens to the entries that a state has."""

    INSERT = "insert"
    MERGE = "merge"
    REPLACE = "replace"


@dataclass(frozen=True)
class ImportPublishingOptions(PublishingOptions):
    """What an import writes, and what it may do without a question."""

    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before publishing. Needed without a terminal if old entries are replaced.",
            rich_help_panel=PUBLISH,
        ),
    ] = False


def register(app: typer.Typer) -> None:
    app.command("import", cls=Command, epilog=EXAMPLES)(separate(import_))


def import_(
    target: Checkpoint,
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TABLE",
            help="A Parquet file, a folder of Parquet files, a Delta table, or a folder that ttlsnap export wrote.",
            show_default=False,
        ),
    ],
    mode: Annotated[
        ModeName,
        typer.Option(
            "--mode",
            help="insert: add entries, and refuse keys that a state already has. merge: replace the entries of those "
            "keys. replace: remove all entries of the state first.",
        ),
    ] = ModeName.INSERT,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Only this table, by the name that export gives it, as 0.left. Can be repeated.",
            rich_help_panel=STATES,
        ),
    ] = None,
    states: StateOptions,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Read the tables, build the partitions and report, but change nothing.",
            rich_help_panel=PUBLISH,
        ),
    ] = False,
    exit_code: ExitCodeOption = False,
    publishing: ImportPublishingOptions,
    engine: EngineOptions,
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="A local folder with room for the rows, uncompressed. Default: in the checkpoint, or in the new one; "
            "in a dry run, and for a remote checkpoint, TMPDIR.",
            rich_help_panel=RUN,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Fill the state of a checkpoint with the rows of a table. The query continues with them.

    The table has the columns of an export, and [bold]ttlsnap export[/bold] writes an empty one as a template. ttlsnap
    puts each key where Spark will look for it, and makes the indexes and counts that Spark keeps beside a state. Stop
    the query first. [bold]ttlsnap rollback[/bold] restores everything.
    """
    from ttlsnap.imports.run import import_state

    require_dry_run(wanted=exit_code, dry_run=dry_run)
    text, asks = output_format is Format.TEXT, publishing.asks(dry_run=dry_run)
    with _Listener(text, ask=asks, agrees=publishing.yes, stopped=publishing.stopped) as listener:
        report = import_state(
            target,
            source,
            tables=tables or (),
            mode=mode.value,
            dry_run=dry_run,
            scratch=scratch,
            engine=engine.make(),
            listener=listener,
            **states.arguments(),
            **publishing.arguments(),
        )
    listener.warnings.print(report.warnings)
    if not text:
        print_json(report.to_json())
    else:
        _show(console(), report, tables=not listener.shown, yes=publishing.yes)
    if exit_code:
        replaced = [Foreseen("keys would be replaced")] if report.replaced and not publishing.yes else []
        end_as_run([*report.warnings, *replaced])


def _show(out: Console, report: ImportReport, *, tables: bool, yes: bool) -> None:
    if tables:
        _show_tables(out, report)
    if report.dry_run:
        out.print(f"{DRY_RUN} {_after_dry_run(report, yes)}")
    elif not report.published:
        out.print("Nothing was changed." if report.rows else "There is nothing to import. Nothing was changed.")
    elif report.output is not None:
        out.print(f"A new checkpoint is at {report.output}; {report.target} is unchanged.")
    else:
        out.print(*describe_published(report), sep="\n")


def _after_dry_run(report: ImportReport, yes: bool) -> str:
    if not report.rows and report.mode != "replace":
        return "There is nothing to import."
    if report.replaced and not yes and not report.refused:
        return (
            f"Without --dry-run, ttlsnap asks before it replaces the entries of {quantity(report.replaced, 'key')}. If "
            "nobody can be asked, add --yes."
        )
    return after_dry_run(report.to_json())


class _Listener(ReadingProgress):
    """The progress of the work, and the question before publishing."""

    def __init__(self, text: bool, *, ask: bool, agrees: bool, stopped: bool) -> None:
        super().__init__("importing")
        self._text, self._asks, self._agrees, self._stopped = text, ask, agrees, stopped
        self.shown = False
        self.warnings = WarningPrinter()

    def __enter__(self) -> _Listener:
        return self

    def confirm(self, report: ImportReport) -> bool:
        from ttlsnap.errors import RefusedError

        self.stop()
        if self._asks:
            if self._text:
                _show_tables(console(always=True), report)
                self.shown = True
            self.warnings.print(report.warnings)
            return ask_person(_question(report), stopped=self._stopped or report.output is not None)
        if report.replaced and not self._agrees:
            raise RefusedError(
                f"the import would replace the entries of {quantity(report.replaced, 'key')} in {report.target}, and "
                "nobody can be asked. Nothing was changed. Look with --dry-run, and add --yes"
            )
        return True


def _question(report: ImportReport) -> str:
    question = f"Import {quantity(report.rows, 'row')} into {report.target}"
    if report.replaced:
        question += f", and replace the entries of {quantity(report.replaced, 'key')}"
    return f"{question}, in the new checkpoint {report.output}?" if report.output else f"{question}?"


def _show_tables(out: Console, report: ImportReport) -> None:
    has_expired = any(imported.expired for imported in report.tables)
    keys = "removed keys" if report.mode == "replace" else "replaced keys"
    columns = ["table", "state", "rows", keys, *(["expired"] if has_expired else [])]
    text_table = table(*columns, right=tuple(columns[2:]))
    for imported in report.tables:
        expired = [number(imported.expired)] if has_expired else []
        text_table.add_row(imported.name, imported.state, number(imported.rows), number(imported.replaced), *expired)
    out.print(f"{place(report.target)}, batch {report.batch}")
    out.print(text_table)
    if has_expired:
        out.print("Expired rows are left out: their time to live ended before the last batch.")
    before, after = size(report.bytes_before), size(report.bytes_after)
    out.print(f"State files: {before} before, {after} after; changed partitions are written whole.")
    reason = f" ({report.engine_reason})" if report.engine_reason else ""
    out.print(f"{report.engine} engine{reason}, {report.seconds:.1f} s")
    out.print("The query will continue to read at these positions. Rows from after them must not be in the table:")
    for source, position in enumerate(report.sources):
        position_text = position if isinstance(position, str) else json.dumps(position)
        out.print(f"  source {source}: {position_text}", soft_wrap=True, highlight=False)
