"""``ttlsnap migrate`` of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttlsnap.cli.exit_codes import end_as_run
from ttlsnap.cli.new_query import NewQueryOptions
from ttlsnap.cli.options import Format, PublishingOptions
from ttlsnap.cli.output import MISSING, WarningPrinter, ask_person, console, place, print_json, table
from ttlsnap.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.delta.altering import TableMigrationReport


def migrate_table(
    target: str,
    query: NewQueryOptions,
    publishing: PublishingOptions,
    *,
    dry_run: bool,
    exit_code: bool,
    jars: str | None,
    master: str | None,
    output_format: Format,
) -> None:
    """Give the table ``target`` the columns of the contract or table that ``query`` names, and report."""
    from ttlsnap.check.targets import load_contract
    from ttlsnap.contract.table import TableContract, contract_of_table
    from ttlsnap.delta.altering import alter_table
    from ttlsnap.delta.log import open_table, read_table
    from ttlsnap.migration.unused import foresee_question
    from ttlsnap.new_query.tables import plan_table

    if query.to is None:
        raise UsageError(f"{target} is a Delta table; name the new stream's table or contract with --to")
    answers, asks = query.answers(), publishing.asks(dry_run=dry_run)
    new = load_contract(query.to)
    if not isinstance(new, TableContract):
        raise UsageError(f"--to {query.to} is the contract of a query, and {target} is a Delta table")
    version = read_table(open_table(target)).version
    plan, notes = plan_table(target, contract_of_table(target), new, answers, query.ignores())
    dropped = [step for step in plan if step.change == "drop"]
    if dropped and not (publishing.yes or asks):
        lines = "".join(f"\n  {step}" for step in dropped)
        if not dry_run:
            raise RefusedError(f"{target}: this can drop values:{lines}\nTo agree, add --yes")
        notes.append(foresee_question(lines))
    is_shown = False
    warnings = WarningPrinter()

    def confirm(report: TableMigrationReport) -> bool:
        nonlocal is_shown
        if not asks:
            return True
        if output_format is Format.TEXT:
            _show_plan(console(always=True), report)
            is_shown = True
        warnings.print(report.warnings)
        return ask_person(f"Run these statements on {report.target}?")

    report = alter_table(
        target, plan, version, dry_run=dry_run, jars=jars, master=master, confirm=confirm, warnings=notes
    )
    warnings.print(report.warnings)
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(console(), report, query.to, is_shown=is_shown)
    if exit_code:
        end_as_run(report.warnings)


def _show(out: Console, report: TableMigrationReport, to: str, *, is_shown: bool) -> None:
    if not report.plan:
        out.print(f"{report.target}: nothing has to change for {to}, as far as was compared. Nothing was changed.")
        return
    if not is_shown:
        _show_plan(out, report)
    if report.dry_run:
        from ttlsnap.pages.words import DRY_RUN, after_dry_run

        out.print(f"{DRY_RUN} {after_dry_run(report.to_json(), does='runs these statements')}")
    elif not report.published:
        out.print("Nothing was changed.")
    else:
        out.print(f"Published as run {report.run}: version {report.version_after} of the table.")


def _show_plan(out: Console, report: TableMigrationReport) -> None:
    steps = table("change", "column", "old", "new")
    for step in report.plan:
        steps.add_row(*(MISSING if text is None else text for text in (step.change, step.column, step.old, step.new)))
    out.print(f"{place(report.target)}, version {report.version}")
    out.print(steps)
    for statement in report.statements:
        out.print(statement, soft_wrap=True)
