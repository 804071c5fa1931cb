"""``ttlsnap inspect``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.dropping import ClockOption, RuleOptions
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.inspect_report import show_inspection
from ttlsnap.cli.options import Format, FormatOption, NowOption, ParallelismOption, StateOptions, Target
from ttlsnap.cli.output import console, print_json, table, write_whole
from ttlsnap.cli.pages import PageFile, PageOptions, write_pages
from ttlsnap.cli.sizes import show_sizes
from ttlsnap.errors import UsageError
from ttlsnap.printable import shell_word

EXAMPLES = """
Examples:
  # show operators, states, and the fields for --timestamp
  ttlsnap inspect ck

  # count the entries by age
  ttlsnap inspect ck --age --timestamp value.max

  # what uses the space, and what a rule would free
  ttlsnap inspect ck --sizes --ttl 30d --timestamp value.max

  # the same numbers as metrics for Prometheus
  ttlsnap inspect ck --sizes --metrics ck.prom

  # show 5 entries of each state
  ttlsnap inspect ck --show 5 --format json

  # a page to send to others
  ttlsnap inspect ck --age --timestamp value.max --report html=state.html

  # a Delta state table
  ttlsnap inspect tables/sessions --age --timestamp last_seen

  # list the checkpoints in a folder
  ttlsnap inspect checkpoints
"""


@dataclass(frozen=True)
class LookOptions:
    """What is shown of the state."""

    entries: Annotated[
        int, typer.Option("--show", "--entries", metavar="N", min=0, help="Show N entries of each state.")
    ] = 0
    age: Annotated[bool, typer.Option("--age", help="Count all entries, grouped by age.")] = False
    sizes: Annotated[
        bool,
        typer.Option(
            "--sizes",
            help="Show what uses the space: sizes by state and partition, the largest entries, ages, growth.",
        ),
    ] = False
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="With --sizes: show what compact would drop with this --ttl, --timestamp and --time.",
        ),
    ] = None
    timestamp: Annotated[
        list[str] | None,
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The field for --age, --sizes and --ttl. Default: the time that Spark stores for the operator. Can "
            "be repeated: each field is for the states that have it. Each side of a join can have its own: "
            "left:value.at and right:value.then.",
        ),
    ] = None
    time: ClockOption = None
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="SIZE",
            help="With --sizes: if the files are larger than this, read only some partitions of each store, as many as "
            "fit, but at least one. all: read everything. Default: 2GB.",
        ),
    ] = None
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="With --sizes: write the sizes as Prometheus metrics."),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            metavar="N",
            help="Show the state after this batch, which must still be retained. Default: the last committed batch.",
        ),
    ] = None
    now: NowOption = "checkpoint"

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library. Raise UsageError if one needs another."""
        from ttlsnap.clock import TimeCharacteristic
        from ttlsnap.reading.inspected import SAMPLE
        from ttlsnap.schema.units import parse_size

        if not self.sizes:
            for option in given(self, "ttl", "sample", "metrics"):
                raise UsageError(f"{option} needs --sizes")
        if self.age and self.sample and self.sample != "all":
            raise UsageError(
                "--age counts all entries; omit --sample. --sizes shows the ages of a sample without --age"
            )
        rule = RuleOptions(ttl=self.ttl, timestamp=self.timestamp, time=self.time)
        sample = SAMPLE if self.sample is None else parse_size(self.sample) if self.sample != "all" else None
        return {
            "batch": self.batch,
            "entries": self.entries,
            "age": self.age,
            "sizes": self.sizes,
            "timestamp": tuple(self.timestamp or ()) or None,
            "time": None if self.time is None else TimeCharacteristic(self.time.value),
            "rule": None if self.ttl is None else rule.make_ttl(),
            "sample": sample,
            "now": self.now,
        }


def register(app: typer.Typer) -> None:
    app.command("inspect", cls=Command, epilog=EXAMPLES)(separate(inspect))


def inspect(
    target: Target,
    *,
    look: LookOptions,
    states: StateOptions,
    parallelism: ParallelismOption = None,
    page: PageOptions,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Show the state in a checkpoint or a Delta table: operators, stores, schemas, sizes, entries, age.

    It shows which fields can hold the time of an entry, and what --ttl 7d would drop by each. Of a state in an object
    store, or one of more than 16 MiB, only --age and --sizes do that: they read the whole state. inspect needs no JVM.
    For a folder that contains checkpoints, it lists them.
    """
    from ttlsnap.cli.progress import ReadingProgress
    from ttlsnap.delta import is_table
    from ttlsnap.reading.inspect import inspect as run
    from ttlsnap.storage.open import open_directory

    pages = page.parse([target], others=[("--metrics", look.metrics)] if look.metrics is not None else [])
    if is_table(open_directory(target)):
        from ttlsnap.cli.tables import inspect_table, refuse

        for_checkpoints = [*given(look, "batch", "sizes", "ttl", "sample", "time", "metrics"), *given(states)]
        refuse(target, [*for_checkpoints, *(["--parallelism"] if parallelism else [])], "checkpoints")
        if look.timestamp and len(look.timestamp) > 1:
            raise UsageError("a Delta table has one --timestamp")
        in_table = inspect_table(
            target,
            entries=look.entries,
            age=look.age,
            timestamp=look.timestamp[0] if look.timestamp else None,
            now=look.now,
            output_format=output_format,
        )
        write_pages(pages, "inspect", in_table.to_json())
        return
    if _list_checkpoints(target, look.metrics, output_format, pages):
        return
    arguments = {**look.arguments(), **states.arguments()}
    with ReadingProgress("measuring") as progress:
        inspection = run(target, parallelism=parallelism, listener=progress, **arguments)
    if output_format is Format.JSON:
        print_json(inspection.to_json())
    else:
        show_inspection(console(), inspection)
        if inspection.sizes is not None:
            show_sizes(console(), inspection.sizes)
    write_pages(pages, "inspect", inspection.to_json())
    if look.metrics is not None and inspection.sizes is not None:
        from ttlsnap.maintenance.metrics import size_metrics

        write_whole(look.metrics, size_metrics(inspection, inspection.sizes, time.time()).encode())


def _list_checkpoints(target: str, metrics: Path | None, output_format: Format, pages: Sequence[PageFile]) -> bool:
    """List the checkpoints in a folder that is not one itself; return whether there are any."""
    from ttlsnap.checkpoint import layout
    from ttlsnap.checkpoint.recognize import find_checkpoints
    from ttlsnap.pages.inspect import checkpoint_words
    from ttlsnap.storage.open import open_directory

    files = open_directory(target)
    if files.stat(layout.OFFSETS) is not None or files.stat(layout.STATE) is not None:
        return False
    names = find_checkpoints(files)
    if not names:
        return False
    if metrics is not None:
        raise UsageError(
            f"--metrics is for one checkpoint, and {target} contains {quantity(len(names), 'checkpoint')}; name one "
            "of them"
        )
    paths = [f"{files.root}/{name}" for name in names]
    summaries = [_summarize(path) for path in paths]
    document = {"target": target, "kind": "folder", "checkpoints": paths, "summaries": summaries}
    if output_format is Format.JSON:
        print_json(document)
        write_pages(pages, "inspect", document)
        return True
    rows = table("checkpoint", "last batch", "size", right=("last batch", "size"))
    for name, summary in zip(names, summaries, strict=True):
        rows.add_row(name, *checkpoint_words(summary))
    console().print(rows)
    message = f"{target} contains {quantity(len(names), 'checkpoint')}"
    console().print(f"{message}. Next: ttlsnap inspect {shell_word(target)}/NAME")
    write_pages(pages, "inspect", document)
    return True


def _summarize(target: str) -> dict[str, Any]:
    """Return the last batch of a checkpoint and the size of its state, or what is wrong with it."""
    from ttlsnap.errors import CorruptionError, NotACheckpointError, TtlsnapError
    from ttlsnap.reading.inspect import inspect as look

    empty_summary = {"path": target, "batch": None, "bytes": None, "problem": None}
    try:
        inspection = look(target, times=False)
    except NotACheckpointError:
        return {**empty_summary, "problem": "no batch"}
    except TtlsnapError as error:
        return {**empty_summary, "problem": "damaged" if isinstance(error, CorruptionError) else "unknown"}
    state_bytes = sum(state.bytes for state in inspection.states() if state.bytes is not None)
    return {**empty_summary, "batch": inspection.checkpoint.batch.id, "bytes": state_bytes}
