"""``ttlsnap migrate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ttlsnap.cli.compact_report import show_counts
from ttlsnap.cli.dropping import (
    DropUnmatchedOption,
    EngineOption,
    ExpiredToOption,
    MaxDropOption,
    OldTtlOption,
    OrderedOptions,
    TimeOption,
    TimerPolicyName,
    TimersOption,
    TimestampOption,
    TransformerOption,
    TtlOption,
    group_settings,
    make_engine,
    make_factories,
)
from ttlsnap.cli.migrate_table import migrate_table
from ttlsnap.cli.migration_words import describe_changes, describe_settings
from ttlsnap.cli.new_query import load_new_query, make_answers
from ttlsnap.cli.options import (
    PUBLISH,
    RUN,
    Checkpoint,
    EngineName,
    Format,
    FormatOption,
    JarsOption,
    MasterOption,
    NoPlannedBatchOption,
    OperatorOption,
    OutputOption,
    ParallelismOption,
    SchemaOption,
    StateOption,
    StoppedOption,
    StoreOption,
    select,
)
from ttlsnap.cli.output import (
    MISSING,
    ask_person,
    console,
    number,
    place,
    print_json,
    print_warning,
    size,
    table,
    write_whole,
)
from ttlsnap.cli.places import look_in_current_folder, parse_archive
from ttlsnap.cli.progress import ReadingProgress, unclosed_words, warn_of_excess
from ttlsnap.cli.published import describe_published
from ttlsnap.cli.tables import refuse
from ttlsnap.errors import FencedError, RefusedError, UnsupportedError, UsageError
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.migration.report import MigrationReport, StoreReport
    from ttlsnap.migration.reviewed import ReviewedMigration
    from ttlsnap.transform.converters import ConvertsValues
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

NEW_QUERY = "The schemas of a new query"
MomentOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--now",
        metavar="TIME",
        help="The current time, as for compact: checkpoint, wall, or a time in ISO 8601. Default: checkpoint, but wall "
        "for a TTL that changes with --to.",
        show_default=False,
    ),
]
EXAMPLES = """
Examples:
  # build the new partitions, and show how large and how even they are
  ttlsnap migrate ck --partitions 400 --dry-run

  # migrate
  ttlsnap migrate ck --partitions 400 --stopped

  # from the HDFS-backed state store to RocksDB
  ttlsnap migrate ck --provider rocksdb --stopped

  # drop what has expired in the same pass
  ttlsnap migrate ck --partitions 400 --ttl 7d --timestamp value.at --stopped

  # the schemas of a changed query; check prints this command
  ttlsnap migrate ck --from old.json --to new.json --stopped

  # write the plan to a file for review, and then do exactly that
  ttlsnap migrate ck --to new.json --plan-out plan.json
  ttlsnap migrate ck --to new.json --apply plan.json --stopped

  # several changes at once, in a new checkpoint
  ttlsnap migrate ck --provider rocksdb --output new --stopped

  # undo it
  ttlsnap rollback ck --stopped
"""


def register(app: typer.Typer) -> None:
    app.command("migrate", cls=OrderedOptions, epilog=EXAMPLES)(migrate)


def migrate(
    target: Checkpoint,
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--to",
            metavar="NEW",
            help="The new query: its contract, or a checkpoint of it. The state gets its schemas.",
            show_default=False,
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    old: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--from",
            metavar="OLD",
            help="The contract of the old query. It says what no file of the checkpoint does, such as which "
            "aggregate a column belongs to.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    rename: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            help="A column that has another name. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    swap: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--swap",
            metavar="FIELD,FIELD",
            help="Two fields of one type that changed places. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    drop: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--drop",
            metavar="FIELD",
            help="An old field that is removed, and is not the new field of the same type. Also, without --to: a state "
            "variable that the query no longer has, as inspect shows it. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    fill: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--fill",
            metavar="FIELD=LITERAL",
            help="The value that existing entries get for a new field. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    birth: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--birth",
            metavar="FIELD|now",
            help="The time from which a new TTL counts for existing values: a field of them, or now. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    narrow: Annotated[
        bool,
        typer.Option(
            "--narrow",
            help="Allow types that do not have every old value. A value that does not fit is an error.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = False,
    ignored: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--ignore",
            metavar="CODE[:WHERE]",
            help="Accept a finding of ttlsnap check. Can be repeated.",
            rich_help_panel=NEW_QUERY,
        ),
    ] = None,
    partitions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            help="The new number of partitions. Default: as it is.",
            show_default=False,
        ),
    ] = None,
    provider: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--provider", metavar="NAME", help="The new state store provider: hdfs or rocksdb. Default: as it is."
        ),
    ] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another setting: codec (lz4, lzf, snappy, zstd), row-checksums (true, false), checkpoint-format "
            "(1, 2), changelog (true, false), aggregation-format (2), join-format (2, 3, 4), float-keys (normalized) "
            "or interval-keys (4.2, 4.3). Can be repeated. After a --transformer, it is an option of that transformer.",
        ),
    ] = None,
    ttl: TtlOption = None,
    timestamp: TimestampOption = None,
    old_ttl: OldTtlOption = None,
    now: MomentOption = None,
    time: TimeOption = None,
    transformer: TransformerOption = None,
    max_drop: MaxDropOption = None,
    expired_to: ExpiredToOption = None,
    drop_unmatched: DropUnmatchedOption = False,
    timers: TimersOption = TimerPolicyName.KEEP,
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Build the new partitions and report, but change nothing.", rich_help_panel=PUBLISH
        ),
    ] = False,
    plan_out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--plan-out",
            metavar="FILE",
            help="Like --dry-run, and write the plan to a file for --apply.",
            rich_help_panel=PUBLISH,
        ),
    ] = None,
    apply: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--apply",
            metavar="FILE",
            help="Publish only if the migration is the one in this plan, which the same command wrote with --plan-out.",
            rich_help_panel=PUBLISH,
        ),
    ] = None,
    output: OutputOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before publishing.", rich_help_panel=PUBLISH)
    ] = False,
    schema: SchemaOption = None,
    stopped: StoppedOption = False,
    no_planned_batch: NoPlannedBatchOption = False,
    engine: EngineOption = EngineName.AUTO,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    jars: JarsOption = None,
    scratch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="A local folder with room for the whole state, uncompressed. Default: in the checkpoint, or in the "
            "new one; in a dry run, and for a remote checkpoint, TMPDIR.",
            rich_help_panel=RUN,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Change the number of partitions of a checkpoint's state, its state store, or its schemas. The query continues.

    Spark fixes the first two in a query's first batch, and ignores later settings. It refuses a query whose schemas
    differ; [bold]--to[/bold] rewrites the state for that query. Stop the query first. ttlsnap writes each entry in the
    format of the new state store, and puts it into the partition where Spark will look for it. Then it
    changes the recorded settings. It moves older versions of the state to a backup, and
    [bold]ttlsnap rollback[/bold] restores everything. With [bold]--ttl[/bold] or [bold]--transformer[/bold] it also
    drops entries, as [bold]ttlsnap compact[/bold] does, and reads the state only once.
    """
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.contract.functions import digest_of_rules
    from ttlsnap.delta import is_table
    from ttlsnap.expired.receivers import ExpiredCallback
    from ttlsnap.migration.changes import Changes
    from ttlsnap.migration.reviewed import read_plan, write_plan
    from ttlsnap.migration.run import migrate as run
    from ttlsnap.schema.ddl import parse_schemas
    from ttlsnap.schema.units import parse_share
    from ttlsnap.storage.open import open_directory
    from ttlsnap.transform.protocols import describe_rule

    if is_table(open_directory(target)):
        for_checkpoints = {
            "--from": old,
            "--partitions": partitions,
            "--provider": provider,
            "--set": settings,
            "--ttl": ttl,
            "--timestamp": timestamp,
            "--old-ttl": old_ttl,
            "--transformer": transformer,
            "--expired-to": expired_to,
            "--plan-out": plan_out,
            "--apply": apply,
            "--output": output,
            "--schema": schema,
            "--scratch": scratch,
            "--parallelism": parallelism,
            "--no-planned-batch": no_planned_batch,
        }
        refuse(target, for_checkpoints, "checkpoints")
        if to is None:
            raise UsageError(f"{target} is a Delta table; name the new stream's table or contract with --to")
        migrate_table(
            target,
            to,
            make_answers(rename, swap, drop, fill, birth, narrow=narrow),
            ignored or (),
            dry_run=dry_run,
            yes=yes,
            asks=not yes and not dry_run and sys.stdin.isatty(),
            jars=jars,
            master=master,
            output_format=output_format,
        )
        return
    refuse(target, {"--jars": jars}, "Delta tables")
    names, timestamps = transformer or [], tuple(timestamp or ())
    store_settings, *options_of = group_settings(settings or [], len(names))
    if any(":" in name for name in names):
        look_in_current_folder()
    factories: list[StateSnapshotTransformerFactory] = []
    converters: list[ConvertsValues] = []
    if ttl is not None or timestamps or old_ttl is not None or names:
        factories = make_factories(ttl, timestamps, time, old_ttl, names, options_of, converters)
    elif needs := _first_given(
        {
            "--time": time,
            "--max-drop": max_drop,
            "--expired-to": expired_to,
            "--drop-unmatched": drop_unmatched,
            "--timers": timers is not TimerPolicyName.KEEP,
            "--operator": operator,
            "--store": store,
            "--state": state,
        }
    ):
        raise UsageError(f"{needs} needs --ttl or --transformer: without them, a migration drops nothing")
    if apply is not None and (dry_run or plan_out is not None):
        raise UsageError("--apply cannot be used with --dry-run or --plan-out")
    if plan_out is not None and not plan_out.absolute().parent.is_dir():
        raise UsageError(f"{plan_out}: there is no folder {plan_out.parent} for it")
    reviewed = None
    if apply is not None:
        reviewed = read_plan(apply)
        reviewed.require_target(open_directory(target).root)
        if to is None and partitions is None and provider is None and not store_settings and not drop:
            raise UsageError("--apply needs the options of the plan. Repeat that command, with --apply for --plan-out")
    archive = parse_archive(expired_to)
    rules: list[object] = [*factories, *converters]
    rules += [archive.function] if isinstance(archive, ExpiredCallback) else []
    kept = {
        "--no-planned-batch": no_planned_batch,
        "--output": output,
        "--expired-to": expired_to,
        "--operator": operator,
        "--store": store,
        "--state": state,
    }
    if reviewed is not None:
        reviewed.require_rules(digest_of_rules(rules))
        reviewed.require_options(kept)
    dry_run = dry_run or plan_out is not None
    asks = not yes and not dry_run and reviewed is None and sys.stdin.isatty()
    options = CompactOptions(
        now=now or "checkpoint",
        selection=select(operator, store, state),
        schemas=parse_schemas(schema),
        dry_run=dry_run,
        output=output,
        scratch=scratch,
        drop_unmatched=drop_unmatched,
        timers=timers.value,
        stopped=stopped,
        planned_batch=not no_planned_batch,
        max_drop=None if max_drop is None else parse_share(max_drop),
        expired_to=archive,
    )
    new_query, may_drop = None, yes or asks or reviewed is not None
    if to is not None:
        answers = make_answers(rename, swap, drop, fill, birth, narrow=narrow)
        new_query = load_new_query(to, old, answers, ignored or (), may_drop=may_drop)
        new_query = replace(new_query, converters=converters, now=now, dry_run=dry_run)
    elif needs := _first_given(
        {
            "--from": old,
            "--rename": rename,
            "--swap": swap,
            "--fill": fill,
            "--birth": birth,
            "--narrow": narrow,
            "--ignore": ignored,
        }
    ):
        raise UsageError(f"{needs} needs --to, which names the new query")
    if converters and to is None:
        raise UsageError(f"{describe_rule(converters[0])} gives values for a new query, and needs --to")
    unused = drop or () if to is None else ()
    changes = Changes(partitions, provider, store_settings, new_query, unused, may_drop)
    text = output_format is Format.TEXT
    chosen = make_engine(engine, master, parallelism)
    with (
        _explain_second_time(reviewed),
        _Listener(text, reviewed, ask=asks, max_drop=options.max_drop) as listener,
    ):
        report = run(target, changes, factories, options, chosen, listener)
    for warning in report.warnings:
        print_warning(warning)
    has_plan = plan_out is not None and report.changed
    if plan_out is not None and has_plan:
        write_whole(plan_out, write_plan(report, digest_of_rules(rules), kept), [target])
    if text:
        _show(console(), report, tables=not listener.shown, to=to, planned=plan_out is not None)
        if has_plan:
            publish_it = f"the same command, with --apply {shell_word(str(plan_out))}"
            console().print(f"The plan is in {plan_out}. To publish it: {publish_it}")
        if factories and not report.stores:
            console().print("To drop entries without a migration: ttlsnap compact, with the same options")
    else:
        print_json(report.to_json())


@contextmanager
def _explain_second_time(reviewed: ReviewedMigration | None) -> Iterator[None]:
    """Replace an error by the better explanation that the plan is already published, if it is."""
    try:
        yield
    except FencedError:
        raise
    except (UsageError, UnsupportedError, RefusedError) as error:
        run = None if reviewed is None else reviewed.find_run()
        if run is None or reviewed is None:
            raise
        told = f"{reviewed.target}: this plan was already published, as run {run}. There is nothing to do"
        raise type(error)(told) from error


def _first_given(options: Mapping[str, object]) -> str | None:
    """Return the first option that has a value; None if none has."""
    return next((option for option, value in options.items() if value), None)


class _Listener(ReadingProgress):
    """The progress of the work, and the question before publishing."""

    def __init__(self, text: bool, reviewed: ReviewedMigration | None, *, ask: bool, max_drop: float | None) -> None:
        super().__init__("moving")
        self._text, self._reviewed, self.asks, self._max_drop = text, reviewed, ask, max_drop
        self.shown = False

    def __enter__(self) -> _Listener:
        return self

    def confirm(self, report: MigrationReport) -> bool:
        self.stop()
        if self._reviewed is not None:
            self._reviewed.confirm(report)
        if not self.asks:
            return True
        if self._text:
            _show_stores(console(always=True), report)
            self.shown = True
        what = f"Change {report.target}: {describe_changes(report.plan, report.settings, report.session_settings)}"
        unclosed = ""
        if report.compaction is not None:
            warn_of_excess(report.compaction.drops, self._max_drop, None)
            totals = report.compaction.totals
            what += f", and drop {number(totals.dropped)} of {number(totals.entries)} entries"
            unclosed = unclosed_words(report.compaction)
        if report.output is not None:
            return ask_person(f"{what} in the new checkpoint {report.output}?{unclosed}")
        return ask_person(f"{what}?{unclosed} Stop the query first.")


def _session(report: MigrationReport) -> list[tuple[str, str]]:
    return sorted(report.session_settings.items())


def _show(out: Console, report: MigrationReport, *, tables: bool, to: str | None, planned: bool) -> None:
    if not report.changed and to is not None:
        out.print(f"{report.target}: nothing has to change for {to}, as far as was compared. Nothing was changed.")
        return
    if not report.changed:
        out.print(f"{report.target} already has these settings. Nothing was changed.")
        return
    if tables:
        _show_stores(out, report)
    if report.dry_run:
        from ttlsnap.pages.words import DRY_RUN, after_dry_run

        out.print(f"{DRY_RUN} {after_dry_run(report.to_json(), '--plan-out' if planned else '--dry-run')}")
    elif not report.published:
        out.print("Nothing was changed.")
    elif report.output is not None:
        out.print(f"A new checkpoint is at {report.output}; {report.target} is unchanged.")
        out.print(f'Next: start the query with the checkpoint location "{report.output}"{_with_settings(report)}.')
    else:
        out.print(*describe_published(report, settings=_with_settings(report)), sep="\n")


def _with_settings(report: MigrationReport) -> str:
    """Return the settings that the query's session must have, because Spark does not record them."""
    found = ", ".join(f"{name}={value}" for name, value in _session(report))
    return f". Set {found} in its session" if found else ""


def _show_stores(out: Console, report: MigrationReport) -> None:
    if report.compaction is not None:
        show_counts(out, report.compaction)
    out.print(f"{place(report.target)}, batch {report.batch}")
    if report.settings or report.session_settings:
        out.print(f"settings: {describe_settings(report.settings, report.session_settings)}")
    if report.plan:
        stores = ("store",) if any(step["store"] != "default" for step in report.plan) else ()
        names = ("change", "operator", *stores, "state", "field", "old", "new")
        steps = table(*names)
        for step in report.plan:
            steps.add_row(*(MISSING if step[name] is None else str(step[name]) for name in names))
        out.print(steps)
    dropped = ", would be dropped" if report.dry_run else ", were dropped"
    for state, count in report.expired.items():
        out.print(f"{number(count)} entries of {state} had expired{dropped}")
    for state, count in report.unused.items():
        out.print(f"{number(count)} entries of {state}, which no state variable uses{dropped}")
    for state, count in report.merged.items():
        out.print(f"{state}: {number(count)} with the same key as another entry, merged with it")
    columns = ("operator", "store", "partitions", "entries", "size before", "size after", "largest / median")
    made = table(*columns, right=columns[2:])
    for store in report.stores:
        made.add_row(
            f"{store.operator} {store.operator_name}" if store.operator_name else str(store.operator),
            store.store,
            _partitions(store),
            number(store.entries),
            size(store.bytes_before),
            size(store.bytes_after),
            _skew(store),
        )
    out.print(made)
    for operator in report.single:
        out.print(f"operator {operator} stays in a single partition")
    if report.compaction is None:  # otherwise, its counts end with this
        why = f" ({report.engine_reason})" if report.engine_reason else ""
        out.print(f"{report.engine} engine{why}, {report.seconds:.1f} s")


def _partitions(store: StoreReport) -> str:
    before, after = store.partitions_before, len(store.partitions)
    return number(after) if before == after else f"{number(before)} to {number(after)}"


def _skew(store: StoreReport) -> str:
    return MISSING if store.skew is None else f"{store.skew:.2f}"
