"""``ttlsnap sources``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Checkpoint, Format, FormatOption
from ttlsnap.cli.output import console, place, print_json, size
from ttlsnap.positions.kinds import TITLES, describe

if TYPE_CHECKING:
    from ttlsnap.positions.report import SourcePosition, SourcesReport

EXAMPLES = """
Examples:
  # what each source has read
  ttlsnap sources ck

  # the next offset of partition 3 of a topic of Kafka
  ttlsnap sources ck --format json | jq '.sources[0].position.visits["3"]'
"""


def register(app: typer.Typer) -> None:
    app.command("sources", cls=Command, epilog=EXAMPLES)(sources)


def sources(target: Checkpoint, output_format: FormatOption = Format.TEXT) -> None:
    """Show the position of each source of a query: what it has read, and what a begun batch reads.

    sources changes nothing, needs no JVM, and the query may be running.
    """
    from ttlsnap.positions.show import sources as run

    report = run(target)
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(report)


def _show(report: SourcesReport) -> None:
    out = console()
    out.print(f"{place(report.target)}: {quantity(len(report.sources), 'source')}{_describe_batches(report)}")
    for source in report.sources:
        out.print(f"source {source.name}: {TITLES[source.kind]}")
        for line in _lines(source, report.next_batch):
            out.print(f"  {line}")


def _describe_batches(report: SourcesReport) -> str:
    after = ", no batch is committed" if report.batch is None else f", after batch {report.batch}"
    return after if report.next_batch is None else f"{after}; batch {report.next_batch} was begun, or is planned"


def _lines(source: SourcePosition, next_batch: int | None) -> Iterator[str]:
    yield from describe(source.position) or [_as_json(source.position)]
    if source.log is not None:
        recorded = "" if source.log.entries is None else f"{quantity(source.log.entries, 'file')} recorded, "
        yield f"{source.log.folder}: {recorded}{size(source.log.bytes)} in {quantity(source.log.files, 'log file')}"
    if next_batch is not None and source.next_position == source.position:
        yield f"batch {next_batch} reads nothing"
    elif next_batch is not None:
        for line in describe(source.next_position) or [_as_json(source.next_position)]:
            yield f"batch {next_batch} reads up to: {line}"


def _as_json(position: Any) -> str:
    return "no position yet" if position is None else json.dumps(position, ensure_ascii=False)
