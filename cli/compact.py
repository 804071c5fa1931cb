"""``ttlsnap compact``: parse the options, compact each target, and show the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.cli.compact_report import show_report
from ttlsnap.cli.dropping import OPERATORS, DroppedOptions, OperatorOptions, OrderedOptions
from ttlsnap.cli.exit_codes import ExitCodeOption, code_of_run, require_dry_run
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.options import (
    PUBLISH,
    TABLES,
    EngineOptions,
    Format,
    FormatOption,
    JarsOption,
    NowOption,
    PublishingOptions,
    StateOptions,
)
from ttlsnap.cli.output import console, print_error, print_json
from ttlsnap.cli.pages import PageFile, PageOptions, write_pages
from ttlsnap.cli.progress import TerminalListener
from ttlsnap.cli.tables import compact_table, refuse
from ttlsnap.errors import TtlsnapError, UsageError

if TYPE_CHECKING:
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.transform.protocols import StateSnapshotTransformerFactory

EXAMPLES = """
Examples:
  # show what would be dropped
  ttlsnap compact ck --ttl 7d --timestamp value.max --dry-run --show 5

  # the same as a page, for those who decide (needs ttlsnap[html])
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


class RewriteName(StrEnum):
    """The ways to write a RocksDB partition."""

    AUTO = "auto"
    FULL = "full"
    TOMBSTONES = "tombstones"


@dataclass(frozen=True)
class TrialOptions:
    """What a run shows before it changes anything."""

    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Scan and report, but change nothing.", rich_help_panel=PUBLISH),
    ] = False
    show: Annotated[
        int,
        typer.Option(
            "--show",
            metavar="N",
            min=0,
            help="List the first N entries that are dropped or rewritten, with the time and the rule that decided.",
            rich_help_panel=PUBLISH,
        ),
    ] = 0
    exit_code: ExitCodeOption = False


@dataclass(frozen=True)
class CompactPublishingOptions(PublishingOptions):
    """What a compaction writes, and what it may do without a question."""

    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask before publishing. See --max-drop and --retention.",
            rich_help_panel=PUBLISH,
        ),
    ] = False


@dataclass(frozen=True)
class PartitionOptions:
    """How a partition of RocksDB is written."""

    rewrite: Annotated[
        RewriteName,
        typer.Option(
            "--rewrite",
            help="RocksDB: full writes the whole partition. tombstones writes only the changes, and keeps the existing "
            "files. auto decides by how much changes.",
            rich_help_panel=OPERATORS,
        ),
    ] = RewriteName.AUTO
    scratch: Annotated[
        str | None,
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="RocksDB: a local folder for temporary files. Default: beside the new files; in a dry run, TMPDIR.",
            rich_help_panel=OPERATORS,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        return {"rewrite": self.rewrite.value, "scratch": self.scratch}


@dataclass(frozen=True)
class TableOptions:
    """The options of Delta tables."""

    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="COLUMN",
            help="A column of the table's key. Can be repeated. Needed only once: the table remembers its key.",
            rich_help_panel=TABLES,
        ),
    ] = None
    jars: JarsOption = None
    max_files: Annotated[
        int | None,
        typer.Option(
            "--max-files",
            metavar="N",
            min=1,
            help="The most files that one commit changes. The oldest files come first.",
            rich_help_panel=TABLES,
        ),
    ] = None
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes",
            metavar="SIZE",
            help="The most bytes of files that one commit changes: 512MiB or 2GB.",
            rich_help_panel=TABLES,
        ),
    ] = None
    erase: Annotated[
        bool,
        typer.Option(
            "--erase",
            help="Also erase the dropped rows from storage: purge deletion vectors, and VACUUM old files.",
            rich_help_panel=TABLES,
        ),
    ] = False
    retention: Annotated[
        str | None,
        typer.Option(
            "--retention",
            metavar="DURATION",
            help="With --erase: how long to keep old files. If this is shorter than the table's own retention, it "
            "needs --yes, and no rollback is possible.",
            rich_help_panel=TABLES,
        ),
    ] = None

    def arguments(self, *, yes: bool) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        from ttlsnap.delta.planning import Limits
        from ttlsnap.delta.run import Erase
        from ttlsnap.schema.units import parse_retention, parse_size

        if self.retention is not None and not self.erase:
            raise UsageError("--retention needs --erase")
        retention_ms = None if self.retention is None else parse_retention(self.retention)
        return {
            "key": tuple(self.key or ()),
            "jars": self.jars,
            "limits": Limits(self.max_files, None if self.max_bytes is None else parse_size(self.max_bytes)),
            "erasing": Erase(retention_ms, yes) if self.erase else None,
        }


def register(app: typer.Typer) -> None:
    app.command("compact", cls=OrderedOptions, epilog=EXAMPLES)(separate(compact))


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
    *,
    dropped: DroppedOptions,
    now: NowOption = "checkpoint",
    states: StateOptions,
    trial: TrialOptions,
    publishing: CompactPublishingOptions,
    engine: EngineOptions,
    partitions: PartitionOptions,
    operators: OperatorOptions,
    tables: TableOptions,
    page: PageOptions,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Drop the expired entries from the state of checkpoints or Delta tables, and publish the result.

    Stop the query first. ttlsnap scans the whole state and replaces its files. It keeps the old files until the next
    run, and [bold]ttlsnap rollback[/bold] restores them. At the end it plans a batch without data, with which the query
    restarts. If ttlsnap does not understand something in the checkpoint, it refuses and changes nothing.
    """
    from ttlsnap.compaction.options import CompactOptions

    if publishing.output is not None and len(targets) > 1:
        raise UsageError("--output works with one checkpoint at a time")
    require_dry_run(wanted=trial.exit_code, dry_run=trial.dry_run)
    of_tables = tables.arguments(yes=publishing.yes)
    options = CompactOptions(
        now=now,
        dry_run=trial.dry_run,
        show=trial.show,
        ages=bool(page.report),
        **states.arguments(),
        **publishing.arguments(),
        **partitions.arguments(),
        **operators.arguments(),
        **dropped.arguments(),
    )
    job = _Job(
        factories=dropped.make_factories(),
        options=options,
        engine=engine,
        of_tables=of_tables,
        ask=publishing.asks(dry_run=trial.dry_run),
        output_format=output_format,
        several=len(targets) > 1,
        ends_as_run=trial.exit_code,
        pages=page.parse(targets, publishing.output),
    )
    for_checkpoints = [
        *given(states),
        *given(trial, "show"),
        *given(publishing, "output", "no_planned_batch"),
        *engine.only_for_checkpoints(),
        *given(partitions),
        *given(operators),
    ]
    job.run(targets, for_checkpoints, given(tables))


@dataclass
class _Job:
    """The request of a command line, for each of its targets."""

    factories: Sequence[StateSnapshotTransformerFactory]
    options: CompactOptions
    engine: EngineOptions
    of_tables: Mapping[str, Any]
    ask: bool
    output_format: Format
    several: bool
    ends_as_run: bool
    pages: Sequence[PageFile]
    documents: list[dict[str, Any]] = field(default_factory=list)

    def run(self, targets: Sequence[str], for_checkpoints: Sequence[str], for_tables: Sequence[str]) -> None:
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
            else:
                code = max(code, code_of_run(self.documents[-1]["warnings"]) if self.ends_as_run else 0)
        document = self.documents if self.several else self.documents[0]
        if self.output_format is Format.JSON:
            print_json(document)
        write_pages(self.pages, "compact", document)
        if code:
            raise typer.Exit(code)

    def _compact_checkpoint(self, target: str) -> None:
        from ttlsnap.compaction.run import compact as run

        text, name = self.output_format is Format.TEXT, target if self.several else None
        engine = self.engine.make()
        options = self.options
        with TerminalListener(
            text, ask=self.ask, stopped=options.stopped, max_drop=options.max_drop, target=name
        ) as listener:
            report = run(target, self.factories, self.options, engine, listener)
        listener.warnings.print(report.warnings)
        self.documents.append(report.to_json())
        if text:
            show_report(console(), report, tables=not listener.shown, target=name)

    def _compact_table(self, target: str) -> None:
        from ttlsnap.compaction.options import ExpiryOptions
        from ttlsnap.keywords import fields_of

        common_options = {**fields_of(self.options, ExpiryOptions), "dry_run": self.options.dry_run}
        report = compact_table(
            target,
            self.factories,
            {**self.of_tables, **common_options, "master": self.engine.master},
            ask=self.ask,
            several=self.several,
            output_format=self.output_format,
        )
        self.documents.append(report.to_json())
