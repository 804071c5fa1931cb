"""``ttlsnap migrate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.cli.dropping import DroppedOptions, OperatorOptions, OrderedOptions
from ttlsnap.cli.exit_codes import ExitCodeOption, end_as_run, require_dry_run
from ttlsnap.cli.groups import given, separate, values_of
from ttlsnap.cli.migrate_table import migrate_table
from ttlsnap.cli.migration_report import show_report, show_stores
from ttlsnap.cli.new_query import NewQueryOptions
from ttlsnap.cli.options import (
    PUBLISH,
    RUN,
    EngineOptions,
    Format,
    FormatOption,
    JarsOption,
    PublishingOptions,
    StateOptions,
)
from ttlsnap.cli.output import ask_person, console, number, print_json, print_warning, write_whole
from ttlsnap.cli.planned_options import record_options, restore_options
from ttlsnap.cli.progress import ReadingProgress, unclosed_words, warn_of_excess
from ttlsnap.cli.published import describe_changes
from ttlsnap.cli.tables import refuse
from ttlsnap.errors import FencedError, RefusedError, UnsupportedError, UsageError
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.migration.report import MigrationReport
    from ttlsnap.migration.reviewed import ReviewedMigration
    from ttlsnap.new_query.query import NewQuery
    from ttlsnap.transform.converters import ConvertsValues
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

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
  ttlsnap migrate --apply plan.json --stopped

  # several changes at once, in a new checkpoint
  ttlsnap migrate ck --partitions 400 --provider rocksdb --output new

  # undo it
  ttlsnap rollback ck --stopped
"""


@dataclass(frozen=True)
class StoreOptions:
    """Another number of partitions, another state store."""

    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            help="The new number of partitions. Default: as it is.",
            show_default=False,
        ),
    ] = None
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider", metavar="NAME", help="The new state store provider: hdfs or rocksdb. Default: as it is."
        ),
    ] = None


@dataclass(frozen=True)
class MigrationDroppedOptions(DroppedOptions):
    """What is dropped in the same pass. The first of the settings are those of the state store."""

    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Another setting: codec (lz4, lzf, snappy, zstd), row-checksums (true, false), checkpoint-format "
            "(1, 2), changelog (true, false), aggregation-format (2), join-format (2, 3, 4), float-keys (normalized) "
            "or interval-keys (4.2, 4.3). Can be repeated. After a --transformer, it is an option of that transformer.",
        ),
    ] = None
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="The current time, as for compact: checkpoint, wall, or a time in ISO 8601. Default: checkpoint, but "
            "wall for a TTL that changes with --to.",
            show_default=False,
        ),
    ] = None

    @property
    def has_rules(self) -> bool:
        """Whether there is a rule for entries. Without one, a migration drops nothing."""
        return self.has_ttl or bool(self.transformer)

    def make_rules(self) -> tuple[list[StateSnapshotTransformerFactory], list[ConvertsValues]]:
        """Return the factories of the rules, and the transformers that give values for a new query."""
        from ttlsnap.transform.converters import ConvertsValues
        from ttlsnap.transformers.registry import load_transformer

        self.require_ttl_for_time(self.names())
        factories: list[StateSnapshotTransformerFactory] = [self.make_ttl()] if self.has_ttl else []
        converters: list[ConvertsValues] = []
        _, *settings = self.group_settings()
        for transformer in map(load_transformer, self.names(), settings):
            if isinstance(transformer, ConvertsValues):
                converters.append(transformer)
            else:
                factories.append(transformer)
        return factories, converters


@dataclass(frozen=True)
class MigrationEngineOptions(EngineOptions):
    """The engine that builds the partitions, and the place of its work."""

    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="A local folder with room for the whole state, uncompressed. Default: in the checkpoint, or in the "
            "new one; in a dry run, and for a remote checkpoint, TMPDIR.",
            rich_help_panel=RUN,
        ),
    ] = None

    def only_for_checkpoints(self) -> list[str]:
        return [*super().only_for_checkpoints(), *given(self, "scratch")]


@dataclass(frozen=True)
class PlanOptions:
    """A migration that somebody looks at before it is published."""

    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Build the new partitions and report, but change nothing.", rich_help_panel=PUBLISH
        ),
    ] = False
    plan_out: Annotated[
        Path | None,
        typer.Option(
            "--plan-out",
            metavar="FILE",
            help="Like --dry-run, and write the plan to a file for --apply.",
            rich_help_panel=PUBLISH,
        ),
    ] = None
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply",
            metavar="FILE",
            help="Publish the migration in this plan, which --plan-out wrote, and nothing else. It has the options.",
            rich_help_panel=PUBLISH,
        ),
    ] = None

    exit_code: ExitCodeOption = False

    @property
    def changes_nothing(self) -> bool:
        """Whether the migration is only planned."""
        return self.dry_run or self.plan_out is not None

    def read(self) -> ReviewedMigration | None:
        """Return the plan that somebody has reviewed, if there is one."""
        from ttlsnap.migration.reviewed import read_plan

        require_dry_run(wanted=self.exit_code, dry_run=self.changes_nothing, options="--dry-run or --plan-out")
        if self.apply is not None and self.changes_nothing:
            raise UsageError("--apply cannot be used with --dry-run or --plan-out")
        if self.plan_out is not None and not self.plan_out.absolute().parent.is_dir():
            raise UsageError(f"{self.plan_out}: there is no folder {self.plan_out.parent} for it")
        return None if self.apply is None else read_plan(self.apply)


def register(app: typer.Typer) -> None:
    app.command("migrate", cls=OrderedOptions, epilog=EXAMPLES)(separate(migrate))


def migrate(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="A checkpoint: a local path, or a URI (file, s3, gs, abfss, hdfs). With --apply it can be omitted.",
            show_default=False,
        ),
    ] = None,
    *,
    new_query: NewQueryOptions,
    store: StoreOptions,
    dropped: MigrationDroppedOptions,
    operators: OperatorOptions,
    states: StateOptions,
    plan: PlanOptions,
    publishing: PublishingOptions,
    engine: MigrationEngineOptions,
    jars: JarsOption = None,
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
    from ttlsnap.migration.changes import Changes
    from ttlsnap.migration.reviewed import write_plan
    from ttlsnap.migration.run import migrate as run
    from ttlsnap.storage.open import open_directory

    reviewed = plan.read() if target is None else None
    target = target if reviewed is None else reviewed.target
    if target is None:
        raise UsageError("name the checkpoint to migrate, or a plan with --apply")
    if is_table(open_directory(target)):
        for_checkpoints = [
            *given(new_query, "old"),
            *given(store),
            *given(dropped),
            *given(operators),
            *given(states),
            *given(plan, "plan_out", "apply"),
            *given(publishing, "output", "no_planned_batch"),
            *engine.only_for_checkpoints(),
        ]
        refuse(target, for_checkpoints, "checkpoints")
        spark = {"jars": jars, "master": engine.master}
        require_dry_run(wanted=plan.exit_code, dry_run=plan.dry_run)
        migrate_table(
            target,
            new_query,
            publishing,
            dry_run=plan.dry_run,
            exit_code=plan.exit_code,
            **spark,
            output_format=output_format,
        )
        return
    refuse(target, ["--jars"] if jars else [], "Delta tables")
    reviewed = reviewed or plan.read()
    published = PublishingOptions(output=publishing.output, no_planned_batch=publishing.no_planned_batch)
    command = record_options([new_query, store, dropped, operators, states, published])
    is_restored = reviewed is not None and not command
    if reviewed is not None:
        reviewed.require_target(open_directory(target).root)
    if reviewed is not None and is_restored:
        if reviewed.command is None:
            raise UsageError(
                "--apply needs the options of this plan, which does not contain them. Repeat that command, with "
                "--apply for --plan-out"
            )
        new_query, store, dropped, operators, states, publishing = (
            restore_options(new_query, reviewed.command),
            restore_options(store, reviewed.command),
            restore_options(dropped, reviewed.command),
            restore_options(operators, reviewed.command),
            restore_options(states, reviewed.command),
            restore_options(publishing, reviewed.command),
        )
    settings, *settings_of_transformers = dropped.group_settings()
    factories, converters = dropped.make_rules()
    _require_rules(dropped, operators, states, is_for_new_query=new_query.to is not None)
    options = CompactOptions(
        now="checkpoint" if dropped.now is None else dropped.now,
        dry_run=plan.changes_nothing,
        scratch=engine.scratch,
        **states.arguments(),
        **publishing.arguments(),
        **operators.arguments(),
        **dropped.arguments(),
    )
    rules = digest_of_rules([*factories, *converters, *_archive_function(options)])
    kept_options = {
        **values_of(publishing, "no_planned_batch", "output"),
        **values_of(dropped, "expired_to"),
        **values_of(states, "operator", "store", "state"),
    }
    if reviewed is not None:
        reviewed.require_rules(rules)
        if not is_restored:
            reviewed.require_options(kept_options)
    asks = reviewed is None and publishing.asks(dry_run=options.dry_run)
    may_drop = publishing.yes or asks or reviewed is not None
    changes = Changes(
        partitions=store.partitions,
        provider=store.provider,
        settings=settings,
        new_query=_load_query(new_query, converters, dropped.now, dry_run=options.dry_run, may_drop=may_drop),
        drops=new_query.drop or () if new_query.to is None else (),
        may_drop=may_drop,
    )
    text, chosen_engine = output_format is Format.TEXT, engine.make()
    listener = _Listener(text, reviewed, ask=asks, max_drop=options.max_drop)
    with _explain_second_time(reviewed), listener:
        report = run(target, changes, factories, options, chosen_engine, listener)
    for warning in report.warnings:
        print_warning(warning)
    plan_out = plan.plan_out if report.changed else None
    if plan_out is not None:
        # The options of a transformer may be secrets.
        recorded = None if any(settings_of_transformers) else command
        write_whole(plan_out, write_plan(report, rules, kept_options, recorded), [target])
    if not text:
        print_json(report.to_json())
    else:
        show_report(console(), report, tables=not listener.shown, to=new_query.to, planned=plan.plan_out is not None)
    if text and plan_out is not None:
        publish_command = f"ttlsnap migrate --apply {shell_word(str(plan_out))}"
        if any(settings_of_transformers):
            publish_command = f"the same command, with --apply {shell_word(str(plan_out))}"
        console().print(f"The plan is in {plan_out}. To publish it: {publish_command}")
    if text and factories and not report.stores:
        console().print("To drop entries without a migration: ttlsnap compact, with the same options")
    if plan.exit_code:
        end_as_run(report.warnings)


def _require_rules(
    dropped: MigrationDroppedOptions, operators: OperatorOptions, states: StateOptions, *, is_for_new_query: bool
) -> None:
    """Raise UsageError for an option of what is dropped if there is no rule."""
    if dropped.has_rules:
        return
    needs = [*given(dropped, "time", "max_drop", "expired_to"), *given(operators)]
    if not is_for_new_query:
        needs += given(dropped, "now")
    for option in (*needs, *given(states, "operator", "store", "state")):
        raise UsageError(f"{option} needs --ttl or --transformer: without them, a migration drops nothing")


def _archive_function(options: CompactOptions) -> list[object]:
    """Return the function that receives dropped entries, if one does."""
    from ttlsnap.archives.receivers import ExpiredCallback

    return [options.expired_to.function] if isinstance(options.expired_to, ExpiredCallback) else []


def _load_query(
    options: NewQueryOptions, converters: Sequence[ConvertsValues], now: str | None, *, dry_run: bool, may_drop: bool
) -> NewQuery | None:
    """Return the new query; None without one. Raise UsageError for a transformer that needs one."""
    from ttlsnap.transform.adapters import describe_rule

    new_query = options.load(may_drop=may_drop)
    if new_query is not None:
        return replace(new_query, converters=converters, now=now, dry_run=dry_run)
    if converters:
        raise UsageError(f"{describe_rule(converters[0])} gives values for a new query, and needs --to")
    return None


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
        message = f"{reviewed.target}: this plan was already published, as run {run}. There is nothing to do"
        raise type(error)(message) from error


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
            show_stores(console(always=True), report)
            self.shown = True
        question = f"Change {report.target}: {describe_changes(report.plan, report.settings, report.session_settings)}"
        unclosed = ""
        if report.compaction is not None:
            warn_of_excess(report.compaction.drops, self._max_drop, None)
            totals = report.compaction.totals
            question += f", and drop {number(totals.dropped)} of {number(totals.entries)} entries"
            unclosed = unclosed_words(report.compaction)
        if report.output is not None:
            return ask_person(f"{question} in the new checkpoint {report.output}?{unclosed}")
        return ask_person(f"{question}?{unclosed} Stop the query first.")
