"""``ttlsnap export``."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from ttlsnap.cli.dropping import ClockOption
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import (
    STATES,
    Checkpoint,
    Format,
    FormatOption,
    NowOption,
    ParallelismOption,
    StateOptions,
    TablesOption,
)
from ttlsnap.cli.output import console, number, print_json, print_warning, print_warnings, table

EXAMPLES = """
Examples:
  # every state, as a folder of Parquet files each
  ttlsnap export ck --to state

  # one state variable, as Delta tables
  ttlsnap export ck --to delta:tables --state visits

  # the oldest entries, as lines of JSON
  ttlsnap export ck --to - --where 'age > 30d'

  # some columns, as CSV
  ttlsnap export ck --to a.csv --columns key.user,value.count

  # the state after an older batch
  ttlsnap export ck --to state --batch 41
"""
STDOUT = "-"
_COMMA = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""One that is not in a quoted name."""


class FileFormat(StrEnum):
    """The formats of exported tables."""

    PARQUET = "parquet"
    NDJSON = "ndjson"
    CSV = "csv"


@dataclass(frozen=True)
class RowOptions:
    """Which tables, rows and columns are written."""

    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="A,B",
            help="Only these columns, as key.user, value.count, timestamp or age_seconds. Can be repeated.",
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="Only entries for which this holds, as 'key.user = u1', 'value.count >= 5', 'matched = false' or "
            "'age > 30d'. Can be repeated: then all must hold.",
        ),
    ] = None
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The time of an entry, for its age. Default: the time that Spark stores for the operator.",
        ),
    ] = None
    time: ClockOption = None
    now: NowOption = "checkpoint"
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="The state after this batch, which must still be retained. Default: the last committed batch.",
            rich_help_panel=STATES,
        ),
    ] = None
    tables: TablesOption = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        from ttlsnap.clock import TimeCharacteristic

        columns = [name.strip() for names in self.columns or () for name in _COMMA.split(names)]
        return {
            "columns": columns or None,
            "where": self.where or (),
            "timestamp": self.timestamp,
            "time": None if self.time is None else TimeCharacteristic(self.time.value),
            "now": self.now,
            "batch": self.batch,
            "tables": self.tables or (),
        }


def register(app: typer.Typer) -> None:
    app.command("export", cls=Command, epilog=EXAMPLES)(separate(export))


def export(
    target: Checkpoint,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="A new folder for Parquet files; delta: and a new folder for Delta tables; a new file that ends with "
            ".ndjson or .csv; or - for the standard output.",
            show_default=False,
        ),
    ],
    file_format: Annotated[
        FileFormat | None,
        typer.Option(
            "--file-format",
            help="The format of the entries. Default: parquet in a folder, ndjson on the standard output.",
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In CSV, write an apostrophe before each text that a spreadsheet may take for a formula.",
        ),
    ] = False,
    rows: RowOptions,
    states: StateOptions,
    parallelism: ParallelismOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Write the state of a checkpoint as tables that other tools can read.

    Each state is a table, and each row is an entry as your query has it: a group, an element of a list, a buffered row
    of a join, a timer. export needs no JVM, and changes nothing in the checkpoint.
    """
    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.reading.export import export as run

    is_stream = to == STDOUT
    with ReadingProgress("exporting", prints=is_stream) as progress:
        report = run(
            target,
            sys.stdout.buffer if is_stream else to,
            file_format=file_format.value if file_format is not None else None,
            parallelism=parallelism,
            listener=progress,
            escape_formulas=escape_formulas,
            **rows.arguments(),
            **states.arguments(),
        )
    print_warnings(report.warnings)
    for reason in report.left_out:
        print_warning(f"not exported: {reason}")
    if is_stream:
        return
    if output_format is Format.JSON:
        print_json(report.to_json())
        return
    text_table = table("table", "state", "rows", right=("rows",))
    for name, count in report.rows.items():
        text_table.add_row(name, report.states[name], number(count))
    console().print(text_table)
    console().print(f"Wrote the state after batch {report.batch} to {report.to}")
