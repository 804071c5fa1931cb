"""``ttlsnap maintain``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.maintenance_log import Log, LogFormat
from ttlsnap.cli.options import EngineName, Format, FormatOption, JarsOption, MasterOption
from ttlsnap.cli.output import MISSING, console, number, place, print_json, size, table, write_whole
from ttlsnap.errors import UsageError
from ttlsnap.interrupts import deferred

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.maintenance.runs import TargetResult

EXAMPLES = """[bold]Examples[/bold]

ttlsnap maintain policy.toml --plan      what would be done to each target; nothing is written

ttlsnap maintain policy.toml             do it

ttlsnap maintain policy.toml --plan-out plan.json, and when that has been reviewed

ttlsnap maintain policy.toml --apply plan.json     do that and nothing else

A policy, with paths from its own folder on:

    \\[\\[target]]
    path = "checkpoints/*"
    \\[\\[target.rule]]
    ttl = "7d"
    timestamp = "value.last_seen"

All that it may have: docs/maintenance.md, and for editors ttlsnap/maintenance/policy.schema.json.
"""


def register(app: typer.Typer) -> None:
    app.command("maintain", epilog=EXAMPLES)(maintain)


def maintain(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="The policy file (TOML).", show_default=False)],
    plan: Annotated[
        bool, typer.Option("--plan", "--dry-run", help="Say what would be done; write nothing anywhere.")
    ] = False,
    plan_out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--plan-out", metavar="FILE", help="--plan, and write it to a file, to be reviewed and applied."),
    ] = None,
    apply: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--apply", metavar="FILE", help="Carry out that plan of POLICY, and nothing else."),
    ] = None,
    engine: Annotated[
        Optional[EngineName],  # noqa: UP045
        typer.Option("--engine", help="Spark (default), or workers on this machine without a JVM."),
    ] = None,
    master: MasterOption = None,
    parallelism: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--parallelism",
            metavar="N",
            min=1,
            help="Partitions at a time, of all targets. Default: the cores.",
        ),
    ] = None,
    jars: JarsOption = None,
    metrics: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--metrics", metavar="FILE", help="Write what it came to for Prometheus."),
    ] = None,
    log_format: Annotated[
        Optional[LogFormat],  # noqa: UP045
        typer.Option("--log-format", help="Lines on stderr as targets end. Default: text, on a terminal only."),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Carry out a policy: compact every checkpoint and Delta table that it names, each by its rules.

    One target that fails does not stop the others; the exit code is that of the worst. What is done where a query
    runs, a run was cut off, or a checkpoint is damaged or unknown, the policy says.
    """
    from ttlsnap.maintenance.metrics import metrics as measured
    from ttlsnap.maintenance.plans import read_plan, write_plan
    from ttlsnap.maintenance.policy import read_policy
    from ttlsnap.maintenance.runs import have_tables, targets_of, worst
    from ttlsnap.maintenance.runs import maintain as run
    from ttlsnap.maintenance.workers import Workers

    if apply is not None and (plan or plan_out is not None):
        raise UsageError("--apply carries a plan out; it goes without --plan and --plan-out")
    plan = plan or plan_out is not None
    if plan and metrics is not None:
        raise UsageError("--metrics says what was done; it goes without --plan and --plan-out")
    for file in filter(None, (metrics, plan_out)):
        if not file.absolute().parent.is_dir():
            raise UsageError(f"{file}: there is no folder {file.parent} for it")
    reviewed = read_plan(apply) if apply is not None else None
    # There a transformer of one's own may lie; what is installed comes first.
    sys.path.append(str(Path(policy).absolute().parent))
    found = read_policy(policy, wall_us=reviewed.wall_us if reviewed else None)
    if reviewed is not None:
        reviewed.require(found)
    name = engine.value if engine else found.run.get("engine", "spark")
    master = master or found.run.get("master")
    if name == "local" and master is not None:
        raise UsageError("a master goes with the engine spark")
    targets = targets_of(found)
    known: list[TargetResult] = []
    if reviewed is not None:
        known = [*reviewed.missing(targets), *reviewed.failed]
        targets = [target for target in targets if target.path in reviewed.targets]
    tables = have_tables(targets)
    started, log = time.monotonic(), Log(log_format, plan)
    # A signal stops the targets, and what became of each is told in any case.
    with deferred() as received:
        with Workers(
            name,
            master=master,
            parallelism=parallelism or found.run.get("parallelism"),
            tables=tables,
            jars=jars or found.run.get("jars"),
        ) as workers:
            results = run(
                targets,
                workers,
                dry_run=plan,
                confirm=reviewed.confirm if reviewed else None,
                listener=log,
                known=known,
                received=received,
            )
        log.done(worst(results), time.monotonic() - started)
        if output_format is Format.JSON:
            print_json({"policy": policy, "targets": [result.to_json() for result in results]})
        else:
            _show(console(), results, plan)
        if plan_out is not None:
            write_whole(plan_out, write_plan(found, results))
        if metrics is not None:
            write_whole(metrics, measured(results, time.time()).encode())
        signum = received.take()
    raise typer.Exit(worst(results) if signum is None else 128 + signum)


def _show(out: Console, results: list[TargetResult], plan: bool) -> None:
    numbers = ("entries", "dropped", "rewritten", "before", "after", "time")
    rows = table("target", "status", *numbers, right=numbers)
    for result in results:
        report = result.report
        counts = report.to_json()["totals"] if report else {}
        rows.add_row(
            place(result.target),
            "to do" if result.status == "planned" else result.status,
            *(number(counts.get(name)) for name in ("entries", "dropped", "rewritten")),
            *(size(counts.get(name)) if report else MISSING for name in ("bytes_before", "bytes_after")),
            f"{result.seconds:.1f} s",
        )
    out.print(rows)
    for result in results:
        if result.recovered:
            out.print(f"{place(result.target)}: run {result.recovered} had been cut off: recovered first")
        for warning in result.report.warnings if result.report else ():
            out.print(f"{place(result.target)}: {warning}")
        if result.error:
            out.print(f"{place(result.target)} ({result.policy}): {result.error}")
    if plan:
        out.print("A plan: nothing was written. Without --plan this is what will be done.")
