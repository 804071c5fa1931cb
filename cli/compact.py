"""``ttlsnap compact``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from ttlsnap.cli.options import (
    EngineName,
    Format,
    FormatOption,
    JarsOption,
    MasterOption,
    NowOption,
    OperatorOption,
    SchemaOption,
    StateOption,
    StoppedOption,
    StoreOption,
)
from ttlsnap.cli.output import MISSING, console, named, number, print_error, print_json, print_warning, size, table
from ttlsnap.cli.places import look_in_current_folder, place_given
from ttlsnap.cli.progress import TerminalListener
from ttlsnap.cli.tables import compact_one, refuse
from ttlsnap.errors import TtlsnapError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from ttlsnap.engines import Engine
    from ttlsnap.report import CompactionReport, StateReport
    from ttlsnap.transform import StateSnapshotTransformerFactory

EXAMPLES = """[bold]Examples[/bold]

ttlsnap compact ck --ttl 7d --timestamp value.max --dry-run   what would go?

ttlsnap compact ck --ttl 7d --timestamp value.max             drop it

ttlsnap compact ck                                            what Spark itself holds to be expired

ttlsnap compact ck --ttl 7d --timestamp value.max --output new   a new checkpoint, the old one left alone

ttlsnap compact ck --transformer mymodule:keep_vip             your own rule

ttlsnap compact tables/sessions --key user_id --timestamp last_seen --ttl 30d      a Delta state table

Stop the query first (a stream that writes a table may go on). Undo with: ttlsnap rollback ck
"""


_WAYS = {"full": "written whole", "tombstones": "written as tombstones over the old files", "untouched": "untouched"}
_WIDE = 140  # columns that the table takes with field names of ordinary length


class RewriteName(StrEnum):
    """How a RocksDB partition is written."""

    AUTO = "auto"
    FULL = "full"
    TOMBSTONES = "tombstones"


class TimerPolicyName(StrEnum):
    """What becomes of the timers of a key."""

    KEEP = "keep"
    FOLLOW = "follow"


class TimeName(StrEnum):
    """The clock a timestamp is compared with."""

    EVENT = "event"
    PROCESSING = "processing"


class _OrderedOptions(TyperCommand):
    """Ties each ``--set`` to the ``--transformer`` before it, which click's lists of values would lose."""

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
        typer.Argument(metavar="TARGET...", help="Checkpoints or Delta tables: local paths or file: URIs."),
    ],
    ttl: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ttl", metavar="DURATION", help="90s, 36h, 7d, P7D. An entry goes when timestamp + ttl <= now."),
    ] = None,
    timestamp: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--timestamp",
            metavar="FIELD",
            help="The field that holds an entry's time, as inspect names it: value.last_seen, key.window.end, "
            "value.seen:ms (a number needs its unit: s, ms, us, ns). Left out: what Spark stores for the operator. "
            "The sides of a join may have one each: left:value.at and right:value.then.",
        ),
    ] = None,
    old_ttl: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--old-ttl",
            metavar="DURATION",
            help="What Spark stores is a moment of expiry: take this off, and --ttl counts from the moment of writing.",
        ),
    ] = None,
    now: NowOption = "checkpoint",
    time: Annotated[
        Optional[TimeName],  # noqa: UP045
        typer.Option("--time", help="Which of the two clocks; default from the operator."),
    ] = None,
    operator: OperatorOption = None,
    store: StoreOption = None,
    state: StateOption = None,
    transformer: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--transformer",
            metavar="NAME",
            help="Another transformer, by name or as module:attribute (which runs that code); repeatable, in order.",
        ),
    ] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="K=V", help="An option of the --transformer before it; repeatable."),
    ] = None,
    schema: SchemaOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan, scan, transform and report; write nothing anywhere.")
    ] = False,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", metavar="DIR", help="Write a new checkpoint there; the source stays as it is."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="Spark, or workers on this machine without a JVM.")
    ] = EngineName.SPARK,
    master: MasterOption = None,
    parallelism: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--parallelism", metavar="N", min=1, help="Partitions at a time. Default: the cores."),
    ] = None,
    rewrite: Annotated[
        RewriteName,
        typer.Option(
            "--rewrite",
            help="RocksDB: write a partition whole, or only what changed over the files there are; auto goes by how "
            "much that is.",
        ),
    ] = RewriteName.AUTO,
    scratch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--scratch",
            metavar="DIR",
            help="RocksDB: where the work is done. Default: beside the new files, for a dry run the temporary folder.",
        ),
    ] = None,
    drop_unmatched: Annotated[
        bool,
        typer.Option("--drop-unmatched", help="Joins: drop rows, too, that an outer join has still to emit unmatched."),
    ] = False,
    timers: Annotated[
        TimerPolicyName,
        typer.Option(
            "--timers", help="transformWithState: a key's timers stay, or follow when the last of its state goes."
        ),
    ] = TimerPolicyName.KEEP,
    stopped: StoppedOption = False,
    no_planned_batch: Annotated[
        bool,
        typer.Option(
            "--no-planned-batch",
            help="Leave out the batch without data that stops a query which is still running. Dangerous: such a query "
            "then damages the state.",
        ),
    ] = False,
    max_drop: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--max-drop",
            metavar="SHARE",
            help="Refuse to drop more than this share of a state's entries, 30% or 0.3, when nobody can be asked (no "
            "terminal, or --yes). Default: refuse only to drop all of them, which 100% allows.",
        ),
    ] = None,
    expired_to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--expired-to",
            metavar="PLACE",
            help="Keep what is dropped: in a folder, as Parquet; in a Delta table, delta:PATH; or call "
            "MODULE:FUNCTION(key, value) with each.",
        ),
    ] = None,
    key: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--key", metavar="COLUMN", help="Delta tables: a column that a row goes by; repeatable. Remembered."
        ),
    ] = None,
    jars: JarsOption = None,
    max_files: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--max-files", metavar="N", min=1, help="Delta tables: files that one commit may touch; cold ones first."
        ),
    ] = None,
    max_bytes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--max-bytes", metavar="SIZE", help="Delta tables: the same in bytes, 512MiB or 2GB."),
    ] = None,
    erase: Annotated[
        bool,
        typer.Option("--erase", help="Delta tables: then purge deletion vectors, and VACUUM what is old enough."),
    ] = False,
    retention: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--retention",
            metavar="DURATION",
            help="With --erase: how long old files stay. Less than the table says needs --yes, and ends rollback.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Do not ask on a terminal before publishing; see --max-drop and --retention."),
    ] = False,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Scan a checkpoint's whole state, or a Delta table, drop what has expired, and publish the result.

    Stop the query first. The run ends with a planned batch without data, with which the query restarts. The old files
    are kept until the next run, and [bold]ttlsnap rollback[/bold] puts them
    back. What is not understood is refused, with nothing changed.
    """
    from ttlsnap.compaction import compact as run
    from ttlsnap.delta import is_table
    from ttlsnap.delta.planning import Limits
    from ttlsnap.delta.run import Erase
    from ttlsnap.filesystem import open_directory
    from ttlsnap.operators import Selection
    from ttlsnap.schema.ddl import parse_schemas
    from ttlsnap.units import parse_retention, parse_share, parse_size

    if output is not None and len(targets) > 1:
        raise UsageError("--output takes one checkpoint at a time")
    if any(":" in name for name in transformer or []):
        look_in_current_folder()
    archive = place_given(expired_to)
    factories = _factories(ttl, tuple(timestamp or ()), time, old_ttl, transformer or [], settings or [])
    schemas = parse_schemas(schema)
    ask = not yes and not dry_run and sys.stdin.isatty()
    limits = Limits(max_files, None if max_bytes is None else parse_size(max_bytes))
    most = None if max_drop is None else parse_share(max_drop)
    retention_ms = None if retention is None else parse_retention(retention)
    if retention is not None and not erase:
        raise UsageError("--retention goes with --erase")
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
    tables = {target for target in targets if is_table(open_directory(target))}
    for target in targets:
        refuse(target, *((for_checkpoints, "checkpoints") if target in tables else (for_tables, "Delta tables")))
    documents: list[dict[str, Any]] = []
    code, several = 0, len(targets) > 1

    def failed(target: str, error: TtlsnapError) -> int:
        """One of several does not stop the others."""
        if not several:
            raise error
        print_error(error, target)
        documents.append({"target": target, "error": str(error), "exit_code": error.exit_code})
        return error.exit_code

    for target in targets:
        if target in tables:
            try:
                done = compact_one(
                    target,
                    factories,
                    key=key or (),
                    now=now,
                    dry_run=dry_run,
                    limits=limits,
                    erasing=Erase(retention_ms, yes) if erase else None,
                    expired_to=archive,
                    jars=jars,
                    master=master,
                    max_drop=most,
                    ask=ask,
                    several=several,
                    output_format=output_format,
                )
            except TtlsnapError as error:
                code = max(code, failed(target, error))
            else:
                documents.append(done.to_json())
            continue
        show = _show if output_format is Format.TEXT else None
        with TerminalListener(show, ask=ask, max_drop=most, target=target if several else None) as listener:
            try:
                report = run(
                    target,
                    factories,
                    now=now,
                    selection=Selection(operator, store, state),
                    schemas=schemas,
                    dry_run=dry_run,
                    output=output,
                    engine=_engine(engine, master, parallelism),
                    rewrite=rewrite.value,
                    scratch=scratch,
                    drop_unmatched=drop_unmatched,
                    timers=timers.value,
                    stopped=stopped,
                    planned_batch=not no_planned_batch,
                    max_drop=most,
                    expired_to=archive,
                    listener=listener,
                )
            except TtlsnapError as error:
                code = max(code, failed(target, error))
                continue
        for warning in report.warnings:
            print_warning(warning, target if several else None)
        documents.append(report.to_json())
        if output_format is Format.TEXT:
            _show(console(), report, tables=not listener.shown, target=target if several else None)
    if output_format is Format.JSON:
        print_json(documents if several else documents[0])
    if code:
        raise typer.Exit(code)


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
            raise UsageError(f"--set {pair!r} stands before any --transformer; it belongs after the one it is for")
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
    if name is EngineName.LOCAL:
        from ttlsnap.engines.local import LocalEngine

        if master is not None:
            raise UsageError("--master goes with --engine spark")
        return LocalEngine(parallelism)
    from ttlsnap.engines.spark import SparkEngine

    return SparkEngine(master=master, parallelism=parallelism)


def _show(out: Console, report: CompactionReport, *, tables: bool = True, target: str | None = None) -> None:
    from ttlsnap.expired.receivers import place_told

    if tables:
        _show_counts(out, report)
    lines = []
    if report.dry_run:
        lines.append("A dry run: nothing was written. Without --dry-run this is what will be published.")
    elif not report.published:
        lines.append("Nothing was changed.")
    elif report.output is not None:
        lines.append(f"A new checkpoint is at {report.output}; {report.target} is as it was.")
        lines.append(f'Next: start the query with the checkpoint location "{report.output}".')
    else:
        lines.append(f"Published as run {report.run}. The replaced files are in {report.backup}")
        if report.expired_to is not None and report.totals.dropped and not report.warnings:
            lines.append(f"What was dropped is {place_told(report.expired_to, report.run)}")
        lines.append(f"Next: restart the query. Undo, as long as it has not: ttlsnap rollback {report.target}")
    lines[0] = named(lines[0], target)
    out.print("\n".join(lines))


def _show_counts(out: Console, report: CompactionReport) -> None:
    from ttlsnap.clock import iso

    title = f"{report.target}, batch {report.batch}, now {iso(report.now_us)} ({report.now_source})"
    out.print(title)
    if out.width < _WIDE:
        _show_narrow(out, report)
    else:
        _show_table(out, report)
    _show_notes(out, report)


def _field(state: StateReport) -> str:
    """The field and the clock it was compared with."""
    if state.timestamp is None:
        return MISSING
    return f"{state.timestamp} ({state.time} time)" if state.time else state.timestamp


def _looked_at(report: CompactionReport) -> list[StateReport]:
    """All states but those that would have had something to follow, and had not."""
    return [state for state in report.states if state.state.role == "primary" or state.counts.entries is not None]


def _show_narrow(out: Console, report: CompactionReport) -> None:
    """For a terminal that would cut the columns off, the oldest timestamp first."""
    from ttlsnap.clock import iso

    for state in _looked_at(report):
        c = state.counts
        out.print(f"{state.state}")
        out.print(f"  timestamp {_field(state)}, oldest {(iso(state.oldest_us) or '-')[:19]}")
        out.print(
            f"  {number(c.entries)} entries: {number(c.kept)} kept, {number(c.dropped)} dropped, "
            f"{number(c.rewritten)} rewritten"
        )
        if c.bytes_before is not None:
            out.print(f"  {size(c.bytes_before)} before, {size(c.bytes_after)} after")


def _show_table(out: Console, report: CompactionReport) -> None:
    from ttlsnap.clock import iso

    numbers = ("entries", "kept", "dropped", "rewritten", "before", "after")
    counts = table("operator", "state", "timestamp", "oldest", *numbers, right=numbers)
    for state in _looked_at(report):
        c, name = state.counts, state.state
        place = name.store if name.state == "default" else f"{name.store}.{name.state}"
        operator = f"{name.operator} {name.operator_name or ''}".rstrip()
        numbers_shown = (c.entries, c.kept, c.dropped, c.rewritten)
        counts.add_row(
            operator,
            place,
            _field(state),
            (iso(state.oldest_us) or "-")[:19],
            *(number(n) for n in numbers_shown),
            size(c.bytes_before),
            size(c.bytes_after),
        )
    out.print(counts)


def _show_notes(out: Console, report: CompactionReport) -> None:
    from ttlsnap.operators import group_state

    for state in report.states:
        place = state.state.state if state.state.state != "default" else state.state.store
        name = "" if place == "default" else f", {place},"
        if state.left_alone and state.state.role == "primary":
            out.print(f"operator {state.state.operator}{name} is left as it is: {state.left_alone}")
        if state.rewrites:
            ways = ", ".join(f"{number(count)} {_WAYS[way]}" for way, count in state.rewrites.items() if count)
            out.print(f"operator {state.state.operator}, partitions: {ways}")
        if state.null_timestamps:
            note = f"operator {state.state.operator}: {number(state.null_timestamps)} entries have no timestamp: kept"
            out.print(note)
        if state.unclosed:
            what = (
                "still had a timeout ahead, which will never fire"
                if group_state.stored_timestamp(state.state.value_schema)
                else "lie beyond the watermark; a query in append mode has not emitted them, and never will"
            )
            note = f"operator {state.state.operator}: {number(state.unclosed)} of the dropped groups {what}"
            out.print(note)
        if state.unmatched:
            note = (
                f"operator {state.state.operator}: {number(state.unmatched)} of the dropped rows of the "
                f"{state.state.side} side had matched nothing yet; an outer join will never emit them"
            )
            out.print(note)
        if state.counts.dropped and state.counts.dropped == state.counts.entries and state.state.role == "primary":
            note = f"operator {state.state.operator}: every entry goes. Is it the right field, and the right unit?"
            out.print(note)
    out.print(f"{report.engine} engine, {report.seconds:.1f} s")
