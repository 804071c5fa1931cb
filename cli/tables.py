"""The commands on Delta tables, and their results for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ttlsnap.amounts import quantity
from ttlsnap.cli.options import Format
from ttlsnap.cli.output import WarningPrinter, ask_person, console, name_target, number, place, print_json, size, table
from ttlsnap.cli.progress import warn_of_excess
from ttlsnap.errors import UsageError
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.delta.inspecting import TableInspection
    from ttlsnap.delta.report import TableReport
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory


def refuse(target: str, options: Sequence[str], kind: str) -> None:
    """Raise UsageError if there are ``options`` that do not apply to ``target``."""
    for option in options:
        raise UsageError(f"{option} is for {kind}, but {target} is not one")


def compact_table(
    target: str,
    factories: Sequence[StateSnapshotTransformerFactory],
    options: Mapping[str, Any],
    *,
    ask: bool,
    several: bool,
    output_format: Format,
) -> TableReport:
    """Compact one table, with ``options`` of the library, and print the report. Return it."""
    from ttlsnap.delta.run import compact_table

    name = target if several else None
    warnings = WarningPrinter(name)

    def confirm(report: TableReport) -> bool:
        if output_format is Format.TEXT:
            _show_counts(console(), report)
        warnings.print(report.warnings)
        warn_of_excess([report.drop] if report.drop else [], options["max_drop"], name)
        question = "Delete and rewrite these rows" if report.counts.rewritten else "Delete these rows"
        question += f" from {target}" if several else ""
        return ask_person(f"{question}, and remove old files?" if report.erasing else f"{question}?")

    report = compact_table(target, factories, **options, confirm=confirm if ask else None, asks=ask)
    warnings.print(report.warnings)
    if output_format is Format.TEXT:
        _show(console(), report, name)
    return report


def _show_counts(out: Console, report: TableReport) -> None:
    from ttlsnap.clock import iso

    out.print(f"{place(report.target)}, now {iso(report.now_us)} ({report.now_source})")
    numbers = ("entries", "kept", "dropped", "rewritten", "before", "after")
    text_table = table("key", "timestamp", *numbers, right=numbers)
    counts = report.counts
    text_table.add_row(
        ", ".join(report.key),
        report.timestamp or "-",
        *(number(count) for count in (counts.entries, counts.kept, counts.dropped, counts.rewritten)),
        size(counts.bytes_before),
        size(counts.bytes_after),
    )
    out.print(text_table)


def _show(out: Console, report: TableReport, target: str | None) -> None:
    from ttlsnap.archives.receivers import describe_place
    from ttlsnap.pages.words import DRY_RUN, after_dry_run

    _show_counts(out, report)
    files_text = quantity(report.files, "file")
    if report.engine is None:
        files_text += f", {number(report.opened)} of them opened"
    lines = [f"{files_text}, {report.seconds:.1f} s"]
    if report.overtaken:
        lines.append(
            f"{quantity(report.overtaken, 'row was', 'rows were')} changed by another writer during the run, and "
            "left alone."
        )
    if report.dry_run:
        lines.append(f"{DRY_RUN} {after_dry_run(report.to_json())}")
    elif not report.versions:
        lines.append("Nothing was changed.")
    else:
        versions = " to ".join(dict.fromkeys(f"{version}" for version in (report.versions[0], report.versions[-1])))
        undo = f"ttlsnap rollback {shell_word(report.target)}"
        lines.append(f"Done as run {report.run}, version {versions}. Undo: {undo}")
        if report.expired_to is not None and report.counts.dropped and not report.warnings:
            lines.append(f"The dropped rows are archived {describe_place(report.expired_to, report.run)}")
    removal_time = report.physically_gone_by
    if report.erased is not None and report.erased.left is None:
        lines.append("Old files were removed. The table has files elsewhere, which ttlsnap cannot check.")
    elif report.erased is not None and report.erased.left:
        removal_text = (
            f"after {removal_time:%Y-%m-%d %H:%M} UTC" if removal_time else "after the table's retention time"
        )
        lines.append(
            f"{quantity(report.erased.left, 'old file is', 'old files are')} left; VACUUM can remove the last of "
            f"them {removal_text}."
        )
    elif report.erased is not None:
        lines.append("No dropped row is left on disk. The log still has the minimum and maximum of its columns.")
    elif report.versions and removal_time:
        lines.append(f"VACUUM can remove the old files after {removal_time:%Y-%m-%d %H:%M} UTC.")
    elif report.versions:
        lines.append(
            "The rows are marked as deleted. They stay in the files until these are rewritten, by --erase or by "
            "REORG TABLE ... APPLY (PURGE)."
        )
    lines[0] = name_target(lines[0], target)
    out.print(*lines, sep="\n")


def inspect_table(
    target: str, *, entries: int, age: bool, timestamp: str | None, now: str, output_format: Format
) -> TableInspection:
    """Print the facts of a table. Return them."""
    from ttlsnap.delta.inspecting import inspect_table

    inspection = inspect_table(target, entries=entries, age=age, timestamp=timestamp, now=now)
    if output_format is Format.JSON:
        print_json(inspection.to_json())
    else:
        _show_inspection(console(), inspection)
    return inspection


def _show_inspection(out: Console, inspection: TableInspection) -> None:
    from ttlsnap.cli.inspect_report import show_fields, show_sample
    from ttlsnap.delta.inspecting import describe_last_write

    metadata, protocol = inspection.table.metadata, inspection.table.protocol
    features = sorted({*protocol.reader_features, *protocol.writer_features})
    key = ", ".join(metadata.key) or "unknown (name it with compact --key)"
    if metadata.partition_columns:
        key += f", partitioned by {', '.join(metadata.partition_columns)}"
    written_text = f"last written {describe_last_write(inspection)}, {quantity(inspection.runs, 'run')} of ttlsnap"
    lines = [
        inspection.target,
        f"  Delta table, version {inspection.table.version}, {written_text}",
        f"  key {key}",
        f"  protocol {protocol.reader}, {protocol.writer}" + (f": {', '.join(features)}" if features else ""),
    ]
    out.print(*lines, sep="\n")
    numbers = ("files", "rows", "marked as deleted", "size")
    rows = table(*numbers, right=numbers)
    rows.add_row(
        number(len(inspection.live)),
        number(inspection.rows.entries),
        number(inspection.marked),
        size(inspection.rows.bytes),
    )
    out.print(rows)
    show_fields(out, inspection.rows)
    for sample in inspection.samples or ():
        show_sample(out, " ", sample)
