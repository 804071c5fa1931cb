"""``ttlsnap inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import (
    Format,
    FormatOption,
    NowOption,
    OperatorOption,
    SchemaOption,
    StateOption,
    StoreOption,
    Target,
    select,
)
from ttlsnap.cli.output import MISSING, console, number, print_json, size, table

if TYPE_CHECKING:
    pass
from ttlsnap.cli.inspection import show_inspection

EXAMPLES = """
Examples:
  # show operators, states, and the fields for --timestamp
  ttlsnap inspect ck

  # count the entries by age
  ttlsnap inspect ck --age --timestamp value.max

  # show 5 entries of each state
  ttlsnap inspect ck --entries 5 --format json

  # a Delta state table
  ttlsnap inspect tables/sessions --age --timestamp last_seen

  # list the checkpoints in a folder
  ttlsnap inspect checkpoints
"""


def register(app: typer.Typer) -> None:
    app.command("inspect", cls=Command, epilog=EXAMPLES)(inspect)


def inspect(
    target: Target,
    entries: Annotated[int, typer.Option("--entries", metavar="N", min=0, help="Show N entries of each state.")] = 0,
    age: Annotated[bool, typer.Option("--age", help="Count all entries, grouped by age.")] = False,
    timestamp: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The field for --age. Default: the time that Spark stores for the operator.",
        ),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--batch",
            metavar="N",
            help="Show the state after this batch, which must still be retained. Default: the last committed batch.",
        ),
    ] = None,
    now: NowOption = "checkpoint",
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    schema: SchemaOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Show the state in a checkpoint or a Delta table: operators, stores, schemas, sizes, entries, age.

    inspect needs no JVM. Without --entries and --age it opens no state file, so it answers at once. For a folder that
    contains checkpoints, it lists them.
    """
    from ttlsnap.delta import is_table
    from ttlsnap.storage.open import open_directory

    if is_table(open_directory(target)):
        from ttlsnap.cli.tables import inspect_table, refuse

        given = {"--batch": batch is not None, "--operator": operator, "--store": store, "--state": state}
        refuse(target, {**given, "--schema": schema}, "checkpoints")
        inspect_table(target, entries=entries, age=age, timestamp=timestamp, now=now, output_format=output_format)
        return
    if _list_checkpoints(target, output_format):
        return
    from ttlsnap.inspection.run import inspect as look
    from ttlsnap.schema.ddl import parse_schemas

    found = look(
        target,
        batch=batch,
        entries=entries,
        age=age,
        timestamp=timestamp,
        now=now,
        selection=select(operator, store, state),
        schemas=parse_schemas(schema),
    )
    if output_format is Format.JSON:
        print_json(found.to_json())
    else:
        show_inspection(console(), found)


def _list_checkpoints(target: str, output_format: Format) -> bool:
    """List the checkpoints in a folder that is not one itself; return whether there are any."""
    from ttlsnap.checkpoint import layout
    from ttlsnap.checkpoint.recognize import find_checkpoints
    from ttlsnap.storage.open import open_directory

    files = open_directory(target)
    if files.stat(layout.OFFSETS) is not None or files.stat(layout.STATE) is not None:
        return False
    found = find_checkpoints(files)
    if not found:
        return False
    if output_format is Format.JSON:
        print_json({"target": target, "kind": "folder", "checkpoints": [f"{files.root}/{name}" for name in found]})
        return True
    rows = table("checkpoint", "last batch", "size", right=("last batch", "size"))
    for name in found:
        rows.add_row(name, *_summary(f"{files.root}/{name}"))
    console().print(rows)
    console().print(f"{target} contains {number(len(found))} checkpoints. Next: ttlsnap inspect {target}/NAME")
    return True


def _summary(target: str) -> tuple[str, str]:
    """Return the last batch of a checkpoint and the size of its state, or what is wrong with it."""
    from ttlsnap.errors import CorruptionError, NotACheckpointError, TtlsnapError
    from ttlsnap.inspection.run import inspect as look

    try:
        found = look(target)
    except NotACheckpointError:
        return "no batch", MISSING
    except TtlsnapError as error:
        return "damaged" if isinstance(error, CorruptionError) else "unknown", MISSING
    sizes = [state.bytes for state in found.states() if state.bytes is not None]
    return number(found.checkpoint.batch.id), size(sum(sizes))
