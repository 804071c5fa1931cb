"""``ttlsnap diff``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Format, FormatOption, ParallelismOption, StateOptions, TablesOption
from ttlsnap.cli.output import console, number, place, print_json, print_warning, print_warnings, table
from ttlsnap.errors import UnsupportedError

if TYPE_CHECKING:
    from ttlsnap.reading.diff import DiffReport

EXAMPLES = """
Examples:
  # what the last batch changed
  ttlsnap diff ck

  # what has changed since batch 41, in one table
  ttlsnap diff ck --old-batch 41 --table 0.state

  # two checkpoints
  ttlsnap diff ck copy

  # only whether they differ, for scripts: exit code 0, 1, or 3 if unknown
  ttlsnap diff ck copy --show 0 --quiet
"""


def register(app: typer.Typer) -> None:
    app.command("diff", cls=Command, epilog=EXAMPLES)(separate(diff))


def diff(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A checkpoint: a local path, or a URI.", show_default=False)
    ],
    new: Annotated[
        str | None,
        typer.Argument(metavar="[NEW]", help="Another checkpoint. Default: the same one.", show_default=False),
    ] = None,
    *,
    old_batch: Annotated[
        int | None,
        typer.Option(
            "--old-batch",
            metavar="N",
            help="The batch of OLD, which must still be retained. Default: the last one; with one "
            "checkpoint, the batch before --new-batch.",
        ),
    ] = None,
    new_batch: Annotated[
        int | None,
        typer.Option("--new-batch", metavar="N", help="The batch of NEW. Default: the last one."),
    ] = None,
    examples: Annotated[
        int,
        typer.Option(
            "--show", "--examples", metavar="N", min=0, help="Show the first N differences of each state in full."
        ),
    ] = 10,
    tables: TablesOption = None,
    states: StateOptions,
    parallelism: ParallelismOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Compare two batches of a checkpoint, or two checkpoints: entries that were added, removed and changed.

    diff needs no JVM. It ends with exit code 1 if there is a difference, and with 3 if it found none, but could not
    compare every state.
    """
    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.reading.diff import diff as run

    with ReadingProgress("comparing") as progress:
        report = run(
            old,
            new,
            old_batch=old_batch,
            new_batch=new_batch,
            tables=tables or (),
            examples=examples,
            parallelism=parallelism,
            listener=progress,
            **states.arguments(),
        )
    print_warnings(report.warnings)
    for reason in report.left_out:
        print_warning(f"not compared: {reason}")
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(report)
    if report.differs:
        raise typer.Exit(1)
    if report.differs is None:
        raise typer.Exit(UnsupportedError.exit_code)


def _show(report: DiffReport) -> None:
    out = console()
    out.print(f"old: batch {report.old_batch} of {place(report.old)}")
    out.print(f"new: batch {report.new_batch} of {place(report.new)}")
    rows = table(
        *("state", "entries before", "after", "added", "removed", "changed"),
        right=("entries before", "after", "added", "removed", "changed"),
    )
    for state in report.states:
        counts = (state.entries_old, state.entries_new, state.added, state.removed, state.changed)
        rows.add_row(state.name, *map(number, counts))
    out.print(rows)
    for state in report.states:
        if state.not_compared is not None:
            out.print(f"{state.name}: not compared: {state.not_compared}")
        elif state.only_in is not None:
            out.print(f"{state.name}: only {state.only_in} has this state")
        for field in state.fields_not_compared:
            out.print(f"{state.name}: {field} was not compared, because only one side records it")
        for example in state.examples:
            fields = f": {', '.join(example['fields'])}" if example["fields"] else ""
            out.print(f"{state.name}: {example['change']} {_text(example['key'])}{fields}")
            for side in ("old", "new"):
                if example[side] is not None:
                    out.print(
                        f"  {side}: {_text({key: value for key, value in example[side].items() if key != 'key'})}"
                    )
        if 0 < len(state.examples) < state.differences:
            omitted = quantity(state.differences - len(state.examples), "more difference")
            out.print(f"{state.name}: {omitted}; --show N shows N of them")
    for names, reason in (
        (report.excluded, "the options exclude them"),
        (report.derived, "Spark derives them from other entries"),
    ):
        if names:
            out.print(f"Not compared, because {reason}: {'; '.join(names)}")
    if report.differs is None:
        out.print("No difference was found, but not every state was compared.")
    elif not report.differs:
        out.print(f"There is no difference{' in what was compared' if report.excluded else ''}.")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
