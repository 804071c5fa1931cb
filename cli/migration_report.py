"""The report of a migration for people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ttlsnap.amounts import quantity
from ttlsnap.cli.compact_report import show_counts
from ttlsnap.cli.output import MISSING, number, place, size, table
from ttlsnap.cli.published import describe_published, describe_settings

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.migration.report import MigrationReport, StoreReport


def show_report(out: Console, report: MigrationReport, *, tables: bool, to: str | None, planned: bool) -> None:
    """Print the report of a migration to the new query ``to``, if there is one. With ``planned``, it is a plan."""
    if not report.changed and to is not None:
        out.print(f"{report.target}: nothing has to change for {to}, as far as was compared. Nothing was changed.")
        return
    if not report.changed:
        out.print(f"{report.target} already has these settings. Nothing was changed.")
        return
    if tables:
        show_stores(out, report)
    if report.dry_run:
        from ttlsnap.pages.words import DRY_RUN, after_dry_run

        out.print(f"{DRY_RUN} {after_dry_run(report.to_json(), '--plan-out' if planned else '--dry-run')}")
    elif not report.published:
        out.print("Nothing was changed.")
    elif report.output is not None:
        out.print(f"A new checkpoint is at {report.output}; {report.target} is unchanged.")
        out.print(f'Next: start the query with the checkpoint location "{report.output}"{_with_settings(report)}.')
    else:
        out.print(*describe_published(report, archive=report.expired_to, settings=_with_settings(report)), sep="\n")


def _with_settings(report: MigrationReport) -> str:
    """Return the settings that the query's session must have, because Spark does not record them."""
    settings_text = ", ".join(f"{name}={value}" for name, value in sorted(report.session_settings.items()))
    return f". Set {settings_text} in its session" if settings_text else ""


def before_publishing(report: MigrationReport) -> MigrationReport:
    """Return the report as that of a dry run, which says what a run would do."""
    compaction = report.compaction and replace(report.compaction, dry_run=True)
    return replace(report, dry_run=True, compaction=compaction)


def show_stores(out: Console, report: MigrationReport) -> None:
    """Print what is dropped, what changes, and the new partitions."""
    if report.compaction is not None:
        show_counts(out, report.compaction)
    out.print(f"{place(report.target)}, batch {report.batch}")
    if report.settings or report.session_settings:
        out.print(f"settings: {describe_settings(report.settings, report.session_settings)}")
    if report.plan:
        stores = ("store",) if any(step["store"] != "default" for step in report.plan) else ()
        names = ("change", "operator", *stores, "state", "field", "old", "new")
        steps = table(*names, spare=("operator", "store"))
        for step in report.plan:
            steps.add_row(*(MISSING if step[name] is None else str(step[name]) for name in names))
        out.print(steps)

    def dropped(count: int) -> str:
        return "would be dropped" if report.dry_run else "was dropped" if count == 1 else "were dropped"

    for state, count in report.expired.items():
        out.print(f"{quantity(count, 'entry', 'entries')} of {state} had expired, {dropped(count)}")
    for state, count in report.unused.items():
        out.print(f"{quantity(count, 'entry', 'entries')} of {state}, which no state variable uses, {dropped(count)}")
    for state, count in report.merged.items():
        out.print(f"{state}: {number(count)} with the same key as another entry, merged with it")
    columns = ("operator", "store", "partitions", "entries", "size before", "size after", "largest / median")
    text_table = table(*columns, right=columns[2:], spare=("largest / median", "size before", "size after"))
    for store in report.stores:
        text_table.add_row(
            f"{store.operator} {store.operator_name}" if store.operator_name else str(store.operator),
            store.store,
            _partitions(store),
            number(store.entries),
            size(store.bytes_before),
            size(store.bytes_after),
            _skew(store),
        )
    out.print(text_table)
    for operator in report.single:
        out.print(f"operator {operator} stays in a single partition")
    if report.compaction is None:  # otherwise, its counts end with this
        reason = f" ({report.engine_reason})" if report.engine_reason else ""
        out.print(f"{report.engine} engine{reason}, {report.seconds:.1f} s")


def _partitions(store: StoreReport) -> str:
    before, after = store.partitions_before, len(store.partitions)
    return number(after) if before == after else f"{number(before)} to {number(after)}"


def _skew(store: StoreReport) -> str:
    return MISSING if store.skew is None else f"{store.skew:.2f}"
