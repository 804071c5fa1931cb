"""``ttlsnap compact``: parse the options, compact each target, and show the results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ttlsnap.cli.compact_report import show_report
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import (
    PUBLISH,
    RUN,
    EngineName,
    Format,
    FormatOption,
    JarsOption,
    MasterOption,
    NoPlannedBatchOption,
    NowOption,
    OperatorOption,
    OutputOption,
    ParallelismOption,
    SchemaOption,
    StateOption,
    StoppedOption,
    StoreOption,
)
from ttlsnap.cli.output import console, print_error, print_json, print_warning
from ttlsnap.cli.places import look_in_current_folder, parse_archive
from ttlsnap.cli.progress import TerminalListener
from ttlsnap.cli.tables import compact_table, refuse
from ttlsnap.errors import TtlsnapError, UsageError

if TYPE_CHECKING:
    from ttlsnap.compaction.engine import Engine
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.run import Erase
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

EXAMPLES = """
Examples:
  # show what would be dropped
  ttlsnap compact ck --ttl 7d --timestamp value.max --dry-run

  # drop it
  ttlsnap compact ck --ttl 7d --timestamp value.max

  # drop what Spark itself considers expired
  ttlsnap compact ck

  # write a new checkpoint, and leave the old one as it is
  ttlsnap compact ck --ttl 7d --timestamp value.max --output new

  # apply your own rule
  ttlsnap compact ck --transformer mymodule:keep_vip

  # a Delta state table; the stream that writes it may keep running
  ttlsnap compact tables/users --key user_id --timestamp seen --ttl 30d

  # undo the last run
  ttlsnap rollback ck
"""

_DROP = "What is dropped"
_OPERATORS = "RocksDB, joins, timers"
_TABLES = "Delta tables"


class RewriteName(StrEnum):
    """The ways to write a RocksDB partition."""

    AUTO = "auto"
    FULL = "full"
    TOMBSTONES = "tombstones"


class TimerPolicyName(StrEnum):
    """The policies for the timers of a key."""

    KEEP = "keep"
    FOLLOW = "follow"


class TimeName(StrEnum):
    """The clocks that a timestamp can be compared with."""

    EVENT = "event"
    PROCESSING = "processing"


class _OrderedOptions(Command):
    """A command that binds each ``--set`` to the ``--transformer`` before it; click's lists would lose that order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        transformers, ordered, is_set = 0, [], False
        for arg in args:
            name, equals, value = arg.partition("=")
            transformers += name == "--transformer"
            if is_set:
                arg = f"{transformers}:{arg}"
            elif name == "--set" and equals:
                arg = f"--set={transformers}:{value}"
            is_set = arg == "--set" and not is_set
            ordered.append(arg)
        return super().parse_args(ctx, ordered)


def register(app: typer.Typer) -> None:
    app.command("compact", cls=_OrderedOptions, epilog=EXAMPLES)(compact)


def compact(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="A checkpoint, as a local path or a URI (file, s3, gs, abfss, hdfs), or a Delta table, as a local "
            "path. There can be several.",
            show_default=False,
        ),
    ],
    ttl: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--ttl",
            metavar="DURATION",
            help="How long an entry lives: 90s, 36h, 7d, P7D. It expires when timestamp + ttl <= now.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    timestamp: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The field with the time of an entry, as inspect shows it: value.last_seen, key.window.end, or "
            "value.seen:ms (a number needs its unit: s, ms, us, ns). Default: what Spark stores for the operator. Each "
            "side of a join can have its own: left:value.at and right:value.then.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    old_ttl: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--old-ttl",
            metavar="DURATION",
            help="The TTL that the query had. Spark stores only when an entry expires; this shows when it was written, "
            "and --ttl counts from then.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    now: NowOption = "checkpoint",
    time: Annotated[
        Optional[TimeName],  # noqa: UP045
        typer.Option(
            "--time", help="The clock of the timestamp. Default: that of the operator.", rich_help_panel=_DROP
        ),
    ] = None,
    transformer: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--transformer",
            metavar="NAME",
            help="Apply a transformer, by name or as module:attribute (this runs its code). Repeat the option to apply "
            "several, in order.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="K=V",
            help="An option of the --transformer before it. Can be repeated.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    max_drop: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--max-drop",
            metavar="SHARE",
            help="Refuse to drop more than this share of a state's entries (30% or 0.3) when nobody can be asked: "
            "without a terminal, or with --yes. Default: refuse only to drop all of them; 100% allows that.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    expired_to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--expired-to",
            metavar="PLACE",
            help="Archive dropped entries: FOLDER writes Parquet, delta:PATH appends to a Delta table, and "
            "MODULE:FUNCTION is called with each key and value.",
            rich_help_panel=_DROP,
        ),
    ] = None,
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    schema: SchemaOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Scan and report, but change nothing.", rich_help_panel=PUBLISH),
    ] = False,
    output: OutputOption = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before publishing. See --max-drop and --retention.",
            rich_help_panel=PUBLISH,
        ),
    ] = False,
    stopped: StoppedOption = False,
    no_planned_batch: NoPlannedBatchOption = False,
    engine: Annotated[
        EngineName,
        typer.Option(
            "--engine",
            help="spark: run on Spark. local: run in this process, without a JVM. auto: use Spark if "
            "--master is given, under spark-submit, or if the state is larger than 16 GiB.",
            rich_help_panel=RUN,
        ),
    ] = EngineName.AUTO,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    rewrite: Annotated[
        RewriteName,
        typer.Option(
            "--rewrite",
            help="RocksDB: full writes the whole partition. tombstones writes only the changes, and keeps the existing "
            "files. auto decides by how much changes.",
            rich_help_panel=_OPERATORS,
        ),
    ] = RewriteName.AUTO,
    scratch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="RocksDB: a local folder for temporary files. Default: beside the new files; in a dry run, TMPDIR.",
            rich_help_panel=_OPERATORS,
        ),
    ] = None,
    drop_unmatched: Annotated[
        bool,
        typer.Option(
            "--drop-unmatched",
            help="Joins: also drop rows that have not matched yet. An outer join then never emits them.",
            rich_help_panel=_OPERATORS,
        ),
    ] = False,
    timers: Annotated[
        TimerPolicyName,
        typer.Option(
            "--timers",
            help="transformWithState: keep leaves all timers. follow drops the timers of a key when all of its state "
            "is dropped.",
            rich_help_panel=_OPERATORS,
        ),
    ] = TimerPolicyName.KEEP,
    key: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--key",
            metavar="COLUMN",
            help="A column of the table's key. Can be repeated. Needed only once: the table remembers its key.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    jars: JarsOption = None,
    max_files: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--max-files",
            metavar="N",
            min=1,
            help="The most files that one commit changes. The oldest files come first.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    max_bytes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--max-bytes",
            metavar="SIZE",
            help="The most bytes of files that one commit changes: 512MiB or 2GB.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    erase: Annotated[
        bool,
        typer.Option(
            "--erase",
            help="Also erase the dropped rows from storage: purge deletion vectors, and VACUUM old files.",
            rich_help_panel=_TABLES,
        ),
    ] = False,
    retention: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--retention",
            metavar="DURATION",
            help="With --erase: how long to keep old files. If this is shorter than the table's own retention, it "
            "needs --yes, and no rollback is possible.",
            rich_help_panel=_TABLES,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Drop the expired entries from the state of checkpoints or Delta tables, and publish the result.

    Stop the query first. ttlsnap scans the whole state and replaces its files. It keeps the old files until the next
    run, and [bold]ttlsnap rollback[/bold] restores them. At the end it plans a batch without data, with which the query
    restarts. If ttlsnap does not understand something in the checkpoint, it refuses and changes nothing.
    """
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.run import Erase
    from ttlsnap.operators.registry import Selection
    from ttlsnap.schema.ddl import parse_schemas
    from ttlsnap.schema.units import parse_retention, parse_share, parse_size

    if output is not None and len(targets) > 1:
        raise UsageError("--output works with one checkpoint at a time")
    if retention is not None and not erase:
        raise UsageError("--retention needs --erase")
    if any(":" in name for name in transformer or []):
        look_in_current_folder()
    retention_ms = None if retention is None else parse_retention(retention)
    options = CompactOptions(
        now=now,
        selection=Selection(operator, store, state),
        schemas=parse_schemas(schema),
        dry_run=dry_run,
        output=output,
        rewrite=rewrite.value,
        scratch=scratch,
        drop_unmatched=drop_unmatched,
        timers=timers.value,
        stopped=stopped,
        planned_batch=not no_planned_batch,
        max_drop=None if max_drop is None else parse_share(max_drop),
        expired_to=parse_archive(expired_to),
    )
    job = _Job(
        factories=_factories(ttl, tuple(timestamp or ()), time, old_ttl, transformer or [], settings or []),
        options=options,
        engine=engine,
        master=master,
        parallelism=parallelism,
        key=tuple(key or ()),
        jars=jars,
        limits=Limits(max_files, None if max_bytes is None else parse_size(max_bytes)),
        erasing=Erase(retention_ms, yes) if erase else None,
        ask=not yes and not dry_run and sys.stdin.isatty(),
        output_format=output_format,
        several=len(targets) > 1,
    )
    for_checkpoints = {
        "--operator": operator is not None,
        "--store": store,
        "--state": state,
        "--output": output,
        "--schema": schema,
        "--engine local": engine is EngineName.LOCAL,
        "--parallelism": parallelism,
        "--rewrite": rewrite is not RewriteName.AUTO,
        "--scratch": scratch,
        "--drop-unmatched": drop_unmatched,
        "--no-planned-batch": no_planned_batch,
        "--timers": timers is not TimerPolicyName.KEEP,
    }
    for_tables = {"--key": key, "--jars": jars, "--max-files": max_files, "--max-bytes": max_bytes, "--erase": erase}
    job.run(targets, for_checkpoints, for_tables)


@dataclass
class _Job:
    """The request of a command line, for each of its targets."""

    factories: Sequence[StateSnapshotTransformerFactory]
    options: CompactOptions
    engine: EngineName
    master: str | None
    parallelism: int | None
    key: tuple[str, ...]
    jars: str | None
    limits: Limits
    erasing: Erase | None
    ask: bool
    output_format: Format
    several: bool
    documents: list[dict[str, Any]] = field(default_factory=list)

    def run(self, targets: Sequence[str], for_checkpoints: dict[str, Any], for_tables: dict[str, Any]) -> None:
        """Compact all targets. The failure of one of several does not stop the others."""
        from ttlsnap.delta import is_table
        from ttlsnap.storage.open import open_directory

        tables = {target for target in targets if is_table(open_directory(target))}
        for target in targets:
            refuse(target, *((for_checkpoints, "checkpoints") if target in tables else (for_tables, "Delta tables")))
        code = 0
        for target in targets:
            try:
                (self._compact_table if target in tables else self._compact_checkpoint)(target)
            except TtlsnapError as error:
                if not self.several:
                    raise
                print_error(error, target)
                self.documents.append({"target": target, "error": str(error), "exit_code": error.exit_code})
                code = max(code, error.exit_code)
        if self.output_format is Format.JSON:
            print_json(self.documents if self.several else self.documents[0])
        if code:
            raise typer.Exit(code)

    def _compact_checkpoint(self, target: str) -> None:
        from ttlsnap.compaction.run import compact as run

        text, name = self.output_format is Format.TEXT, target if self.several else None
        engine = _engine(self.engine, self.master, self.parallelism)
        with TerminalListener(text, ask=self.ask, max_drop=self.options.max_drop, target=name) as listener:
            report = run(target, self.factories, self.options, engine, listener)
        for warning in report.warnings:
            print_warning(warning, name)
        self.documents.append(report.to_json())
        if text:
            show_report(console(), report, tables=not listener.shown, target=name)

    def _compact_table(self, target: str) -> None:
        report = compact_table(
            target,
            self.factories,
            key=self.key,
            now=self.options.now,
            dry_run=self.options.dry_run,
            limits=self.limits,
            erasing=self.erasing,
            expired_to=self.options.expired_to,
            jars=self.jars,
            master=self.master,
            max_drop=self.options.max_drop,
            ask=self.ask,
            several=self.several,
            output_format=self.output_format,
        )
        self.documents.append(report.to_json())


def _factories(
    ttl: str | None,
    timestamps: tuple[str, ...],
    time: TimeName | None,
    old_ttl: str | None,
    names: Sequence[str],
    settings: Sequence[str],
) -> list[StateSnapshotTransformerFactory]:
    from ttlsnap.clock import TimeCharacteristic
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration
    from ttlsnap.transformers.registry import load_factory

    options: list[dict[str, str]] = [{} for _ in names]
    for setting in settings:
        place, _, pair = setting.partition(":")
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {pair!r}: write --set option=value")
        if place == "0":
            raise UsageError(
                f"--set {pair!r} comes before any --transformer; put it after the transformer that it configures"
            )
        options[int(place) - 1][key] = value
    factories: list[StateSnapshotTransformerFactory] = []
    if ttl is not None or timestamps or old_ttl is not None or not names:
        config = StateTtlConfig(parse_duration(ttl)) if ttl is not None else None
        clock = TimeCharacteristic(time.value) if time is not None else None
        factories.append(
            TtlTransformerFactory(config, timestamps or None, clock, parse_duration(old_ttl) if old_ttl else 0)
        )
    return factories + [load_factory(name, option) for name, option in zip(names, options, strict=True)]


def _engine(name: EngineName, master: str | None, parallelism: int | None) -> Engine:
    if name is EngineName.LOCAL and master is not None:
        raise UsageError("--master needs --engine spark or auto")
    if name is EngineName.LOCAL:
        from ttlsnap.engines.local import LocalEngine

        return LocalEngine(parallelism)
    if name is EngineName.SPARK:
        from ttlsnap.engines.spark import SparkEngine

        return SparkEngine(master=master, parallelism=parallelism)
    from ttlsnap.engines.automatic import AutoEngine

    return AutoEngine.of(master, parallelism)
