"""``ttlsnap maintain``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ttlsnap.cli.exit_codes import ExitCodeOption, require_dry_run
from ttlsnap.cli.groups import separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.maintenance_log import Log, LogFormat
from ttlsnap.cli.options import EngineName, Format, FormatOption, JarsOption, MasterOption
from ttlsnap.cli.output import MISSING, console, number, place, print_json, size, table, write_whole
from ttlsnap.cli.pages import PageOptions, write_pages
from ttlsnap.cli.places import look_beside
from ttlsnap.cli.written_files import files_of_functions
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.interrupts import defer_signals
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.maintenance.plans import ReviewedPlan
    from ttlsnap.maintenance.runs import TargetResult

EXAMPLES = """
Examples:
  # show what would be done, and change nothing
  ttlsnap maintain policy.toml --plan

  # do it
  ttlsnap maintain policy.toml

  # a page with every target
  ttlsnap maintain policy.toml --report html=night.html

  # write the plan to a file for review
  ttlsnap maintain policy.toml --plan-out plan.json

  # do what the reviewed plan says
  ttlsnap maintain policy.toml --apply plan.json

A policy:
  [[target]]
  path = "checkpoints/*"    # relative to the folder of the policy
  [[target.rule]]
  ttl = "7d"
  timestamp = "value.last_seen"

The page "maintenance" of the documentation explains all keys. Editors can
check a policy with the JSON schema maintenance/policy.schema.json of the
package.
"""


_STYLES = {"failed": "red", "refused": "yellow", "undecided": "yellow", "stopped": "yellow"}


@dataclass(frozen=True)
class PlanOptions:
    """A run that somebody looks at before it changes anything."""

    plan: Annotated[
        bool,
        typer.Option(
            "--plan", "--dry-run", help="Show what would be done, and change nothing. --dry-run means the same."
        ),
    ] = False
    plan_out: Annotated[
        Path | None,
        typer.Option("--plan-out", metavar="FILE", help="Like --plan, and write the plan to a file for --apply."),
    ] = None
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply", metavar="FILE", help="Carry out a plan that --plan-out wrote for this policy, and nothing else."
        ),
    ] = None
    exit_code: ExitCodeOption = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the run is only planned."""
        return self.plan or self.plan_out is not None

    def read(self) -> ReviewedPlan | None:
        """Return the plan that somebody has reviewed, if there is one."""
        from ttlsnap.maintenance.plans import read_plan

        return read_plan(self.apply) if self.apply is not None else None


@dataclass(frozen=True)
class WorkersOptions:
    """The workers for all targets. Each option has precedence over the key of that name in the policy's ``[run]``."""

    engine: Annotated[
        EngineName | None,
        typer.Option(
            "--engine",
            help="spark: run on Spark. local: run in this process, without a JVM. Default: that of the "
            "policy, or auto.",
        ),
    ] = None
    master: MasterOption = None
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            metavar="N",
            min=1,
            help="How many partitions of all targets to process at the same time. Default: the number of cores.",
        ),
    ] = None
    jars: JarsOption = None

    def arguments(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options as keyword arguments of ``Workers``, those of the policy's ``run`` included."""
        own_options = {field.name: getattr(self, field.name) for field in fields(self)}
        worker_options = {**run, **{name: value for name, value in own_options.items() if value}}
        if worker_options.get("engine") == EngineName.LOCAL and "master" in worker_options:
            raise UsageError("master needs the engine spark or auto")
        return worker_options


def register(app: typer.Typer) -> None:
    app.command("maintain", cls=Command, epilog=EXAMPLES)(separate(maintain))


def maintain(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="The policy file (TOML).", show_default=False)],
    *,
    plan: PlanOptions,
    workers: WorkersOptions,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Write the results as Prometheus metrics."),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            help="Log a line to stderr when a target ends. Default: text on a terminal, and elsewhere only failures.",
        ),
    ] = None,
    page: PageOptions,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Compact every checkpoint and Delta table that a policy names, each by its rules.

    A target that fails does not stop the others. The exit code is the highest of all targets. The policy says what to
    do if a query is running, if a run was interrupted, and if a checkpoint is damaged or unknown.
    """
    from ttlsnap.maintenance.metrics import run_metrics
    from ttlsnap.maintenance.plans import write_plan
    from ttlsnap.maintenance.policy import read_policy
    from ttlsnap.maintenance.runs import describe_failures, worst_exit_code
    from ttlsnap.maintenance.runs import maintain as run
    from ttlsnap.maintenance.targets import have_tables, targets_of
    from ttlsnap.maintenance.workers import Workers

    require_dry_run(wanted=plan.exit_code, dry_run=plan.changes_nothing, options="--plan or --plan-out")
    if plan.apply is not None and plan.changes_nothing:
        raise UsageError("--apply cannot be used with --plan or --plan-out")
    if plan.changes_nothing and metrics is not None:
        raise UsageError("--metrics reports what was done; it cannot be used with --plan or --plan-out")
    reviewed = plan.read()
    look_beside(policy)
    parsed_policy = read_policy(policy, wall_us=reviewed.wall_us if reviewed else None)
    if reviewed is not None:
        reviewed.require(parsed_policy)
    arguments = workers.arguments(parsed_policy.run)
    targets = targets_of(parsed_policy)
    pages = page.parse(
        [target.path for target in targets],
        others=[(option, file) for option, file in (("--metrics", metrics), ("--plan-out", plan.plan_out)) if file],
        inputs=[policy, *filter(None, [plan.apply]), *files_of_functions(parsed_policy.document, parsed_policy.folder)],
    )
    known_results: list[TargetResult] = []
    if reviewed is not None:
        known_results = [*reviewed.missing(targets), *reviewed.failed]
        targets = [target for target in targets if target.path in reviewed.targets]
    tables = have_tables(targets)
    started, log = time.monotonic(), Log(log_format, plan.changes_nothing)
    # A signal stops the targets, and the result of each is printed even then.
    with defer_signals() as received:
        with Workers(**arguments, tables=tables) as running_workers:
            results = run(
                targets,
                running_workers,
                dry_run=plan.changes_nothing,
                ages=bool(pages),
                confirm=reviewed.confirm if reviewed else None,
                listener=log,
                known=known_results,
                received=received,
            )
        log.done(worst_exit_code(results), time.monotonic() - started)
        # The hooks come first: an output that cannot be written ends the command.
        failures = describe_failures(policy, results)
        if parsed_policy.on_failure is not None and failures is not None and not plan.changes_nothing:
            for warning in parsed_policy.on_failure.send(failures):
                log.warn(warning)
        document = {"policy": policy, "targets": [result.to_json() for result in results]}
        if output_format is Format.JSON:
            print_json(document)
        else:
            _show(console(), results)
            _show_next(console(), policy, plan, results)
        if plan.plan_out is not None:
            write_whole(plan.plan_out, write_plan(parsed_policy, results), [result.target for result in results])
        write_pages(pages, "maintain", document)
        if metrics is not None:
            write_whole(metrics, run_metrics(results, time.time()).encode())
        signum = received.take()
    code = worst_exit_code(results)
    if plan.exit_code:
        code = max([code, *(result.exit_code_of_run for result in results)])
    raise typer.Exit(code if signum is None else 128 + signum)


def _show_next(out: Console, policy: str, plan: PlanOptions, results: list[TargetResult]) -> None:
    """Print what follows after a plan, or after a run that could not carry out all of one."""
    from ttlsnap.amounts import quantity
    from ttlsnap.pages.words import PLAN

    skipped = sum(result.status == "skipped" for result in results)
    if plan.apply is not None and not results:
        out.print("The plan has nothing to do: no target was opened.")
    if plan.apply is not None and skipped:
        out.print(
            f"The plan was not carried out on {quantity(skipped, 'target')}, which the policy skips. Repeat the "
            "command "
            'later. With on_busy = "fail", the exit code tells you.'
        )
    if plan.plan_out is not None:
        apply_command = f"ttlsnap maintain {shell_word(policy)} --apply {shell_word(str(plan.plan_out))}"
        if any(result.backup and result.backup.status == "planned" for result in results):
            out.print("--apply makes only the backups of targets that the plan changes.")
        if any(result.report and result.report.refused for result in results):
            out.print("A run would refuse some targets. Correct the policy, and make the plan again.")
        out.print(f"The plan is in {plan.plan_out}; no target was changed. To apply it: {apply_command}")
    elif plan.changes_nothing:
        out.print(f"{PLAN} {_after_plan(results)}")


def _after_plan(results: list[TargetResult]) -> str:
    from ttlsnap.pages.words import uses_written

    if any(result.error or (result.report and result.report.warnings) for result in results):
        return "Read the errors and warnings before you repeat it without --plan."
    if not any(result.report and result.report.changed for result in results):
        does = []
        if any(result.backup and result.backup.status == "planned" for result in results):
            does.append("makes the backups")
        if any(result.report and uses_written(result.report.to_json()) for result in results):
            does.append("records when entries were written")
        return f"Without --plan, ttlsnap {'only ' + ' and '.join(does) if does else 'would have nothing to change'}."
    return "Without --plan, ttlsnap does this."


def _describe_migration(result: TargetResult) -> Iterator[str]:
    """Yield lines about what a migration changes in a target, and what the query needs then."""
    report = result.report.to_json() if result.report else {}
    if report.get("kind") == "migrate" and report["stores"]:
        changed = ", ".join(f"{name} = {value}" for name, value in report["settings"].items())
        if changed:
            yield f"{'a run migrates it' if report['dry_run'] else 'migrated'}: {changed}"
        for name, value in report["session_settings"].items():
            yield f"the query's session must have {name}={value}"


def _describe_backups(result: TargetResult) -> Iterator[str]:
    """Yield lines about the backups of a target."""
    from ttlsnap.maintenance.runs import how_to_restore

    backup = result.backup
    if backup is None:
        return
    if backup.place is None:
        if backup.backups == 0:
            yield "there is no backup"
    elif backup.status == "done":
        amounts = f"{size(backup.bytes)}, sent: {size(backup.sent_bytes)}"
        yield f"backed up as of batch {backup.batch} to {backup.place} ({amounts})"
    elif backup.status == "planned":
        yield f"a run backs it up as of batch {backup.batch} to {backup.place} ({size(backup.bytes)})"
    else:
        reason = {"failed": "not backed up; ", "waiting": "no backup is due; "}.get(backup.status, "")
        yield f"{reason}the newest backup is of batch {backup.batch}, made {backup.made_at}: {backup.place}"
        if (command := how_to_restore(result)) is not None:
            yield f"if doctor cannot repair it, restore it, with the query stopped: {command}"
    for place_of_backup in backup.removed:
        yield f"{'a run removes' if backup.dry_run else 'removed'} the backup {place_of_backup}"
    yield from backup.warnings


def _describe_states(result: TargetResult) -> Iterator[str]:
    """Yield a line about each state that no rule changes, that Spark has not closed, or that has an unknown past."""
    from ttlsnap.compaction.report import CompactionReport
    from ttlsnap.pages.compact import describe_unclosed
    from ttlsnap.pages.words import describe_growth, describe_history, describe_left_alone
    from ttlsnap.pages.words import place as place_of_state

    if isinstance(result.report, CompactionReport):
        document = result.report.to_json()
        yield from describe_left_alone(document)
        yield from describe_growth(document)
    for state in result.report.states if isinstance(result.report, CompactionReport) else ():
        if state.unclosed:
            yield f"{state.state}: {describe_unclosed(state.to_json())}"
        if state.older:
            document = state.to_json()
            yield f"{place_of_state(document)}: {describe_history(document['written_before'])}"


def _show(out: Console, results: list[TargetResult]) -> None:
    from ttlsnap.pages.words import after_publishing, describe_published, for_policy, known_totals

    numbers = ("entries", "dropped", "rewritten", "before", "after", "time")
    rows = table("target", "status", *numbers, right=numbers, spare=("rewritten", "time", "before"))
    for result in results:
        report = result.report
        counts = known_totals(report.to_json()) if report else {}
        status = "refused" if result.status == "planned" and report and report.refused else result.status
        rows.add_row(
            place(result.target),
            Text(status, _STYLES.get(status, "")),
            *(number(counts.get(name)) for name in ("entries", "dropped", "rewritten")),
            *(size(counts.get(name)) if report else MISSING for name in ("bytes_before", "bytes_after")),
            f"{result.seconds:.1f} s",
        )
    out.print(rows)
    documents = [result.to_json() for result in results]
    for result, document in zip(results, documents, strict=True):
        if result.recovered:
            out.print(f"{place(result.target)}: recovered the interrupted run {result.recovered} first")
        for line in (*_describe_backups(result), *_describe_migration(result), *_describe_states(result)):
            out.print(f"{place(result.target)}: {line}")
        for warning in result.report.warnings if result.report else ():
            out.print(Text(f"{place(result.target)}: {for_policy(warning, result.target)}"))
        if result.error:
            error = for_policy(result.error.text, result.target)
            out.print(Text(f"{place(result.target)} ({result.policy}): {error}"))
            if isinstance(result.error, CorruptionError) and "ttlsnap doctor" not in error:
                out.print(f"{place(result.target)}: what can be repaired: ttlsnap doctor {shell_word(result.target)}")
        for line in describe_published(document):
            out.print(f"{place(result.target)}: {line}")
    if (following := after_publishing(documents)) is not None:
        out.print(following)
