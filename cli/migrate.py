"""``ttlsnap migrate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.dropping import DroppedOptions, OperatorOptions, OrderedOptions
from ttlsnap.cli.exit_codes import ExitCodeOption, end_as_run, require_dry_run
from ttlsnap.cli.groups import given, separate, values_of
from ttlsnap.cli.migrate_table import migrate_table
from ttlsnap.cli.migration_report import before_publishing, show_report, show_stores
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
from ttlsnap.cli.output import WarningPrinter, ask_person, console, number, print_json, write_whole
from ttlsnap.cli.planned_options import make_absolute, record_options, require_known, restore_options
from ttlsnap.cli.progress import ReadingProgress, unclosed_words, warn_of_excess
from ttlsnap.cli.published import describe_changes
from ttlsnap.cli.tables import refuse
from ttlsnap.cli.written_files import files_of_functions, require_files
from ttlsnap.errors import FencedError, RefusedError, UnsupportedError, UsageError
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.migration.changes import Changes
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


_RECORDED = ("no_planned_batch", "output")
"""The options of publishing that a plan has. It never has --stopped and --yes, which are said when it is applied."""


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
    from ttlsnap.delta import is_table
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
    command = _Command(new_query, store, dropped, operators, states, publishing)
    command.run(target, plan, reviewed or plan.read(), engine, output_format)


@dataclass(frozen=True)
class _Command:
    """The options of a migration of a checkpoint, which a plan has, too."""

    new_query: NewQueryOptions
    store: StoreOptions
    dropped: MigrationDroppedOptions
    operators: OperatorOptions
    states: StateOptions
    publishing: PublishingOptions

    def record(self) -> dict[str, object]:
        """Return the options for a plan."""
        published = PublishingOptions(**{name: getattr(self.publishing, name) for name in _RECORDED})
        return record_options([self.new_query, self.store, self.dropped, self.operators, self.states, published])

    def restored(self, reviewed: ReviewedMigration) -> _Command:
        """Return the same command with the options of a plan. Raise UsageError if the plan has none."""
        recorded = reviewed.command
        if recorded is None:
            raise UsageError(
                "--apply needs the options of this plan, which does not contain them. Repeat that command, with "
                "--apply for --plan-out"
            )
        groups = (self.new_query, self.store, self.dropped, self.operators, self.states)
        require_known(recorded, [*(field.name for group in groups for field in fields(group)), *_RECORDED])
        return _Command(
            restore_options(self.new_query, recorded),
            restore_options(self.store, recorded),
            restore_options(self.dropped, recorded),
            restore_options(self.operators, recorded),
            restore_options(self.states, recorded),
            restore_options(self.publishing, recorded),
        )

    def run(
        self,
        target: str,
        plan: PlanOptions,
        reviewed: ReviewedMigration | None,
        engine: MigrationEngineOptions,
        output_format: Format,
    ) -> None:
        """Migrate the checkpoint, and print the report."""
        from ttlsnap.contract.functions import digest_of_rules
        from ttlsnap.migration.run import migrate as run
        from ttlsnap.storage.open import open_directory

        if plan.plan_out is not None:
            inputs = [name for name in (self.new_query.to, self.new_query.old) if name is not None]
            inputs += files_of_functions([self.dropped.expired_to, *(self.dropped.transformer or ())])
            require_files([("--plan-out", plan.plan_out)], inputs, [target], self.publishing.output)
        if reviewed is not None:
            reviewed.require_target(open_directory(target).root)
        is_restored = reviewed is not None and not self.record()
        command = self.restored(reviewed) if reviewed is not None and is_restored else self
        factories, converters = command.dropped.make_rules()
        options = command.options(plan, engine)
        rules = digest_of_rules([*factories, *converters, *_archive_function(options)])
        if reviewed is not None:
            reviewed.require_rules(rules)
            reviewed.require_options(command.kept_options())
        asks = reviewed is None and command.publishing.asks(dry_run=options.dry_run)
        may_drop = command.publishing.yes or asks or reviewed is not None
        changes = command.changes(converters, dry_run=options.dry_run, may_drop=may_drop)
        text, chosen_engine = output_format is Format.TEXT, engine.make()
        listener = _Listener(text, reviewed, ask=asks, stopped=options.stopped, max_drop=options.max_drop)
        with _explain_second_time(reviewed), listener:
            report = run(target, changes, factories, options, chosen_engine, listener)
        listener.warnings.print(report.warnings)
        publish_command = command.write_plan(plan.plan_out, report, rules) if report.changed else None
        if text:
            to, planned = command.new_query.to, plan.plan_out is not None
            show_report(console(), report, tables=not listener.shown, to=to, planned=planned)
            if publish_command is not None:
                console().print(f"The plan is in {plan.plan_out}. To publish it: {publish_command}")
            if factories and not report.stores:
                console().print("To drop entries without a migration: ttlsnap compact, with the same options")
        else:
            print_json(report.to_json())
        if plan.exit_code:
            end_as_run(report.warnings)

    def options(self, plan: PlanOptions, engine: MigrationEngineOptions) -> CompactOptions:
        """Return the options of the library. Raise UsageError for one that has no effect."""
        from ttlsnap.compaction.options import CompactOptions

        _require_rules(self.dropped, self.operators, self.states, is_for_new_query=self.new_query.to is not None)
        return CompactOptions(
            now="checkpoint" if self.dropped.now is None else self.dropped.now,
            dry_run=plan.changes_nothing,
            scratch=engine.scratch,
            **self.states.arguments(),
            **self.publishing.arguments(),
            **self.operators.arguments(),
            **self.dropped.arguments(),
        )

    def changes(self, converters: Sequence[ConvertsValues], *, dry_run: bool, may_drop: bool) -> Changes:
        """Return what the migration changes."""
        from ttlsnap.migration.changes import Changes

        settings, *_ = self.dropped.group_settings()
        return Changes(
            partitions=self.store.partitions,
            provider=self.store.provider,
            settings=settings,
            new_query=_load_query(self.new_query, converters, self.dropped.now, dry_run=dry_run, may_drop=may_drop),
            drops=self.new_query.drop or () if self.new_query.to is None else (),
            may_drop=may_drop,
        )

    def kept_options(self) -> dict[str, object]:
        """Return the options that are not in the report, and must be the same when a plan is applied."""
        with_paths = {**values_of(self.publishing, "output"), **values_of(self.dropped, "expired_to")}
        return {
            **values_of(self.publishing, "no_planned_batch"),
            **{option: None if value is None else make_absolute(value) for option, value in with_paths.items()},
            **values_of(self.states, "operator", "store", "state"),
        }

    def write_plan(self, path: Path | None, report: MigrationReport, rules: str) -> str | None:
        """Write the plan to a file, if there is one. Return the command that applies it."""
        from ttlsnap.migration.reviewed import write_plan

        if path is None:
            return None
        _, *settings_of_transformers = self.dropped.group_settings()
        has_secrets = any(settings_of_transformers)  # the options of a transformer may be some
        recorded = None if has_secrets else self.record()
        write_whole(path, write_plan(report, rules, self.kept_options(), recorded), [report.target])
        command = "the same command, with" if has_secrets else "ttlsnap migrate"
        return f"{command} --apply {shell_word(str(path))}"


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

    def __init__(
        self, text: bool, reviewed: ReviewedMigration | None, *, ask: bool, stopped: bool, max_drop: float | None
    ) -> None:
        super().__init__("moving")
        self._stopped = stopped
        self._text, self._reviewed, self.asks, self._max_drop = text, reviewed, ask, max_drop
        self.shown = False
        self.warnings = WarningPrinter()

    def __enter__(self) -> _Listener:
        return self

    def confirm(self, report: MigrationReport) -> bool:
        self.stop()
        if self._reviewed is not None:
            self._reviewed.confirm(report)
        if not self.asks:
            return True
        if self._text:
            show_stores(console(always=True), before_publishing(report))
            self.shown = True
        self.warnings.print(report.warnings)
        question = f"Change {report.target}: {describe_changes(report.plan, report.settings, report.session_settings)}"
        unclosed = ""
        if report.compaction is not None:
            warn_of_excess(report.compaction.drops, self._max_drop, None)
            totals = report.compaction.totals
            question += f", and drop {number(totals.dropped)} of {quantity(totals.entries, 'entry', 'entries')}"
            unclosed = unclosed_words(report.compaction)
        if report.output is not None:
            return ask_person(f"{question} in the new checkpoint {report.output}?{unclosed}")
        return ask_person(f"{question}?{unclosed}", stopped=self._stopped)
