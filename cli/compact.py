"""``ttlsnap compact``: parse the options, compact each target, and show the results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ttlsnap.cli.compact_report import show_report
from ttlsnap.cli.dropping import (
    OPERATORS,
    DropUnmatchedOption,
    EngineOption,
    ExpiredToOption,
    MaxDropOption,
    OldTtlOption,
    OrderedOptions,
    SetOption,
    TimeOption,
    TimerPolicyName,
    TimersOption,
    TimestampOption,
    TransformerOption,
    TtlOption,
    make_engine,
    make_factories,
    settings_of_transformers,
)
from ttlsnap.cli.options import (
    PUBLISH,
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
    ReportOption,
    SchemaOption,
    ShowKeysOption,
    StateOption,
    StoppedOption,
    StoreOption,
    select,
)
from ttlsnap.cli.output import console, print_error, print_json, print_warning
from ttlsnap.cli.pages import PageFile, parse_pages, write_pages
from ttlsnap.cli.places import look_in_current_folder, parse_archive
from ttlsnap.cli.progress import TerminalListener
from ttlsnap.cli.tables import compact_table, refuse
from ttlsnap.errors import TtlsnapError, UsageError

if TYPE_CHECKING:
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.run import Erase
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

EXAMPLES = """
Examples:
  # show what would be dropped
  ttlsnap compact ck --ttl 7d --timestamp value.max --dry-run --show 5

  # the same as a page, for those who decide
  ttlsnap compact ck --ttl 7d --timestamp value.max --dry-run \\
    --report html=plan.html

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
  ttlsnap rollback ck --stopped
"""

_TABLES = "Delta tables"


class RewriteName(StrEnum):
    """The ways to write a RocksDB partition."""

    AUTO = "auto"
    FULL = "full"
    TOMBSTONES = "tombstones"


def register(app: typer.Typer) -> None:
    app.command("compact", cls=OrderedOptions, epilog=EXAMPLES)(compact)


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
    ttl: TtlOption = None,
    timestamp: TimestampOption = None,
    old_ttl: OldTtlOption = None,
    now: NowOption = "checkpoint",
    time: TimeOption = None,
    transformer: TransformerOption = None,
    settings: SetOption = None,
    max_drop: MaxDropOption = None,
    expired_to: ExpiredToOption = None,
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    schema: SchemaOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Scan and report, but change nothing.", rich_help_panel=PUBLISH),
    ] = False,
    show: Annotated[
        int,
        typer.Option(
            "--show",
            metavar="N",
            min=0,
            help="List the first N entries that are dropped or rewritten, with the time and the rule that decided.",
            rich_help_panel=PUBLISH,
        ),
    ] = 0,
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
    engine: EngineOption = EngineName.AUTO,
    master: MasterOption = None,
    parallelism: ParallelismOption = None,
    rewrite: Annotated[
        RewriteName,
        typer.Option(
            "--rewrite",
            help="RocksDB: full writes the whole partition. tombstones writes only the changes, and keeps the existing "
            "files. auto decides by how much changes.",
            rich_help_panel=OPERATORS,
        ),
    ] = RewriteName.AUTO,
    scratch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="RocksDB: a local folder for temporary files. Default: beside the new files; in a dry run, TMPDIR.",
            rich_help_panel=OPERATORS,
        ),
    ] = None,
    drop_unmatched: DropUnmatchedOption = False,
    timers: TimersOption = TimerPolicyName.KEEP,
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
    report: ReportOption = None,
    show_keys: ShowKeysOption = False,
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
        selection=select(operator, store, state),
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
        show=show,
    )
    options_of = settings_of_transformers(settings, transformer or [])
    job = _Job(
        factories=make_factories(ttl, tuple(timestamp or ()), time, old_ttl, transformer or [], options_of),
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
        pages=parse_pages(report, show_keys, targets, output),
    )
    for_checkpoints = {
        "--operator": operator,
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
        "--show": show,
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
    pages: Sequence[PageFile]
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
                kind = type(error).__name__
                self.documents.append(
                    {"target": target, "error": error.text, "error_type": kind, "exit_code": error.exit_code}
                )
                code = max(code, error.exit_code)
        document = self.documents if self.several else self.documents[0]
        if self.output_format is Format.JSON:
            print_json(document)
        write_pages(self.pages, "compact", document)
        if code:
            raise typer.Exit(code)

    def _compact_checkpoint(self, target: str) -> None:
        from ttlsnap.compaction.run import compact as run

        text, name = self.output_format is Format.TEXT, target if self.several else None
        engine = make_engine(self.engine, self.master, self.parallelism)
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
