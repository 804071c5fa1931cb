"""What the commands say of Delta tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ttlsnap.cli.options import Format
from ttlsnap.cli.output import console, named, number, print_json, print_warning, size, table
from ttlsnap.cli.progress import warn_of_excess
from ttlsnap.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.delta.inspecting import TableInspection
    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.report import TableReport
    from ttlsnap.delta.run import Erase
    from ttlsnap.expired.receivers import ExpiredCallback
    from ttlsnap.transform import StateSnapshotTransformerFactory


def refuse(target: str, options: Mapping[str, Any], meant: str) -> None:
    """Raises UsageError for one of ``options`` that was given, where ``target`` is none of the ``meant``."""
    for name, value in options.items():
        if value:
            raise UsageError(f"{name} is for {meant}, and {target} is none")


def compact_one(
    target: str,
    factories: Sequence[StateSnapshotTransformerFactory],
    *,
    key: Sequence[str],
    now: str,
    dry_run: bool,
    limits: Limits,
    erasing: Erase | None,
    expired_to: str | ExpiredCallback | None,
    jars: str | None,
    master: str | None,
    max_drop: float | None,
    ask: bool,
    several: bool,
    output_format: Format,
) -> TableReport:
    """Compact one table, and show what was done."""
    from ttlsnap.delta.run import compact_table

    name = target if several else None

    def confirm(report: TableReport) -> bool:
        if output_format is Format.TEXT:
            _show_counts(console(), report)
        warn_of_excess([report.drop] if report.drop else [], max_drop, name)
        what = "Delete and rewrite these rows" if report.counts.rewritten else "Delete these rows"
        what += f" from {target}" if several else ""
        return typer.confirm(f"{what}, and remove old files?" if report.erasing else f"{what}?", err=True)

    report = compact_table(
        target,
        factories,
        key=key,
        now=now,
        dry_run=dry_run,
        limits=limits,
        erasing=erasing,
        expired_to=expired_to,
        jars=jars,
        master=master,
        confirm=confirm if ask else None,
        max_drop=max_drop,
        asks=ask,
    )
    for warning in report.warnings:
        print_warning(warning, name)
    if output_format is Format.TEXT:
        _show(console(), report, name)
    return report


def _show_counts(out: Console, report: TableReport) -> None:
    from ttlsnap.clock import iso

    out.print(f"{report.target}, now {iso(report.now_us)} ({report.now_source})")
    numbers = ("entries", "kept", "dropped", "rewritten", "before", "after")
    counts = table("key", "timestamp", *numbers, right=numbers)
    c = report.counts
    counts.add_row(
        ", ".join(report.key),
        report.timestamp or "-",
        *(number(n) for n in (c.entries, c.kept, c.dropped, c.rewritten)),
        size(c.bytes_before),
        size(c.bytes_after),
    )
    out.print(counts)


def _show(out: Console, report: TableReport, target: str | None) -> None:
    from ttlsnap.expired.receivers import place_told

    _show_counts(out, report)
    read = f"{number(report.files)} files"
    if report.engine is None:
        read += f", {number(report.opened)} of them opened"
    lines = [f"{read}, {report.seconds:.1f} s"]
    if report.overtaken:
        lines.append(
            f"{number(report.overtaken)} rows were written by somebody else meanwhile, and are as they want them."
        )
    if report.dry_run:
        lines.append("A dry run: nothing was written. Without --dry-run this is what will be done.")
    elif not report.versions:
        lines.append("Nothing was changed.")
    else:
        versions = " to ".join(dict.fromkeys(f"{version}" for version in (report.versions[0], report.versions[-1])))
        lines.append(f"Done as run {report.run}, version {versions}. Undo: ttlsnap rollback {report.target}")
        if report.expired_to is not None and report.counts.dropped and not report.warnings:
            lines.append(f"What was dropped is {place_told(report.expired_to, report.run)}")
    gone = report.physically_gone_by
    if report.erased is not None and report.erased.left is None:
        lines.append("Old files were removed; the table has some elsewhere, so whether all are gone cannot be told.")
    elif report.erased is not None and report.erased.left:
        when = f"from {gone:%Y-%m-%d %H:%M} UTC on" if gone else "when the table's retention is over"
        lines.append(f"{number(report.erased.left)} old files are left; VACUUM may remove the last of them {when}.")
    elif report.erased is not None:
        lines.append("Nothing is left of what went, but the least and greatest values of columns that the log has.")
    elif report.versions and gone:
        lines.append(f"The old files may be removed from {gone:%Y-%m-%d %H:%M} UTC on, by VACUUM.")
    elif report.versions:
        lines.append(
            "Rows are marked as deleted, and stay in the files until these are written anew: --erase, or "
            "REORG TABLE ... APPLY (PURGE)."
        )
    lines[0] = named(lines[0], target)
    out.print("\n".join(lines))


def inspect_one(
    target: str, *, entries: int, age: bool, timestamp: str | None, now: str, output_format: Format
) -> None:
    """Show what a table is."""
    from ttlsnap.delta.inspecting import inspect_table

    found = inspect_table(target, entries=entries, age=age, timestamp=timestamp, now=now)
    if output_format is Format.JSON:
        print_json(found.to_json())
    else:
        _show_inspection(console(), found)


def _show_inspection(out: Console, found: TableInspection) -> None:
    from ttlsnap.cli.inspect import show_fields, show_sample
    from ttlsnap.delta.inspecting import written_at

    metadata, protocol = found.table.metadata, found.table.protocol
    features = sorted({*protocol.reader_features, *protocol.writer_features})
    key = ", ".join(metadata.key) or "not said yet (--key of compact)"
    if metadata.partition_columns:
        key += f", partitioned by {', '.join(metadata.partition_columns)}"
    written = f"last written {written_at(found)}, {number(found.runs)} runs of ttlsnap"
    lines = [
        found.target,
        f"  Delta table, version {found.table.version}, {written}",
        f"  key {key}",
        f"  protocol {protocol.reader}, {protocol.writer}" + (f": {', '.join(features)}" if features else ""),
    ]
    out.print("\n".join(lines))
    numbers = ("files", "rows", "marked as deleted", "size")
    rows = table(*numbers, right=numbers)
    rows.add_row(number(len(found.live)), number(found.rows.entries), number(found.marked), size(found.rows.bytes))
    out.print(rows)
    show_fields(out, found.rows)
    for sample in found.samples or ():
        show_sample(out, " ", sample)
