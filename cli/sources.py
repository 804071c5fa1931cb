"""``ttlsnap sources``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.copy import show_report
from ttlsnap.cli.exit_codes import ExitCodeOption, require_dry_run
from ttlsnap.cli.groups import given, separate
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import PUBLISH, WITHOUT_PLAN, Checkpoint, ConsentOptions, Format, FormatOption, pairs
from ttlsnap.cli.output import MISSING, ask_person, console, number, place, print_json, say, size, tell
from ttlsnap.cli.published import describe_published
from ttlsnap.errors import Foreseen, RefusedError, UsageError
from ttlsnap.positions.kinds import TITLES, describe
from ttlsnap.printable import printable

if TYPE_CHECKING:
    from ttlsnap.positions.log_edits import LogEdit
    from ttlsnap.positions.report import (
        PartitionRange,
        PositionsReport,
        SourcePosition,
        SourcesReport,
        TableVersions,
    )

SET = "Setting positions"
FILES = "What a source of files has read"
NAMES = "Names of sources"
KAFKA = "Kafka"
DELTA = "Delta"
_MOST_NAMED = 10
_NEEDS = {
    "--forget": ("--files",),
    "--record": ("--files",),
    "--moved": ("--root",),
    "--trim": ("--older-than", "--max-file-age"),
}
"""The other options that a change of what a source of files has read needs."""
_WITH_RECORDED = ("--recorded", "--files", "--stopped")  # TTLSNAP_STOPPED may be set
_ROOTS = re.compile(r"(.*)=((?:[A-Za-z][A-Za-z0-9+.-]*:)?/.*)", re.DOTALL)
EXAMPLES = """
Examples:
  # what each source has read
  ttlsnap sources ck

  # the next offset of partition 3 of a topic of Kafka
  ttlsnap sources ck --format json | jq '.sources[0].position.visits["3"]'

  # how far it is behind, and whether its offsets exist
  ttlsnap sources ck --bootstrap-servers kafka:9092

  # which batch has read a file
  ttlsnap sources ck --recorded 0 --files '/in/2026-11-20/a.json'

  # give the sources names, for source evolution
  ttlsnap sources ck --rename 0=visits --rename 1=clicks --stopped

  # go on with a topic that was created again, from its beginning
  ttlsnap sources ck --set 0 --to '{"visits": {"0": 0, "1": 0}}' --stopped

  # go on with what a Delta table got since a day or a time
  ttlsnap sources ck --set 0 --to 2026-11-20 --table 0=/data/visits --stopped

  # the files were moved; change the path in the query, too
  ttlsnap sources ck --moved 0 --root /in=/data/in --stopped

  # read some files again, or never
  ttlsnap sources ck --forget 0 --files '/in/2026-11-2?/**' --stopped
  ttlsnap sources ck --record 0 --files '/in/bad/*.json' --stopped

  # shorten the log of a source of files
  ttlsnap sources ck --trim 0 --older-than 30d --max-file-age 7d --stopped
"""


@dataclass(frozen=True)
class SettingOptions(ConsentOptions):
    """New positions of sources, and what a run may do without a question."""

    names: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SOURCE",
            help="Give this source the position that --to names. The state stays as it is. Stop the query first. Can "
            "be repeated: the first --to is for the first --set. ttlsnap rollback undoes it.",
            rich_help_panel=SET,
        ),
    ] = None
    positions: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="The position of the source after --set, in the form that --format json shows, or the path of a file "
            "that has it. Kafka with --bootstrap-servers, and Delta with --table: also earliest, latest, or a "
            "time in ISO 8601. Delta: also the number of a version.",
            rich_help_panel=SET,
        ),
    ] = None
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="OLD=NEW",
            help="Kafka: the query reads the topic NEW in place of OLD. Can be repeated.",
            rich_help_panel=SET,
        ),
    ] = None
    new_names: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="SOURCE=NAME",
            help="The query calls this source by another name, or by its first one (0=visits), or by none (visits=0): "
            "source evolution, from Spark 4.2 on. Stop the query first. Can be repeated.",
            rich_help_panel=NAMES,
        ),
    ] = None
    recorded: Annotated[
        str | None,
        typer.Option(
            "--recorded",
            metavar="SOURCE",
            help="Files: list what the source has recorded, and so does not read again, with the batch that read each "
            "file. With --files, only those. Changes nothing.",
            rich_help_panel=FILES,
        ),
    ] = None
    forget: Annotated[
        str | None,
        typer.Option(
            "--forget",
            metavar="SOURCE",
            help="Files: the source reads the files that --files names again.",
            rich_help_panel=FILES,
        ),
    ] = None
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="SOURCE",
            help="Files: the source never reads the files that --files names. They must exist.",
            rich_help_panel=FILES,
        ),
    ] = None
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--files",
            metavar="PATTERN",
            help="The whole paths of files, such as '/in/2026-11-*/**'. * and ? match no slash, and ** is any "
            "number of folders. Can be repeated.",
            rich_help_panel=FILES,
        ),
    ] = None
    moved: Annotated[
        str | None,
        typer.Option(
            "--moved",
            metavar="SOURCE",
            help="Files: the files of the source are in another folder now, which --root names.",
            rich_help_panel=FILES,
        ),
    ] = None
    root: Annotated[
        str | None,
        typer.Option(
            "--root", metavar="OLD=NEW", help="The whole paths of the old and the new folder.", rich_help_panel=FILES
        ),
    ] = None
    trim: Annotated[
        str | None,
        typer.Option(
            "--trim",
            metavar="SOURCE",
            help="Files: shorten the log of the source, which Spark never does.",
            rich_help_panel=FILES,
        ),
    ] = None
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="With --trim: leave out files that are so much older than the newest file that was read when the "
            "oldest retained batch ended, such as 30d.",
            rich_help_panel=FILES,
        ),
    ] = None
    max_file_age: Annotated[
        str | None,
        typer.Option(
            "--max-file-age",
            metavar="DURATION",
            help="With --trim: the option maxFileAge of the source. Give 7d if the query does not set it. Spark never "
            "reads older files.",
            rich_help_panel=FILES,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what a run would do, and change nothing.", rich_help_panel=SET),
    ] = False
    no_planned_batch: Annotated[
        bool,
        typer.Option(
            "--no-planned-batch",
            help=f"{WITHOUT_PLAN} With --set only for Kafka and rate-micro-batch.",
            rich_help_panel=PUBLISH,
        ),
    ] = False
    exit_code: ExitCodeOption = False

    def read(self) -> dict[str, Any]:
        """Return the new positions by the names of the sources. Raise UsageError if there is not one for each."""
        names, positions = self.names or [], self.positions or []
        if len(names) != len(positions):
            raise UsageError("give one --to for each --set")
        if len(set(names)) < len(names):
            raise UsageError("a source has one position, so name it only once with --set")
        return {name: _parse(text) for name, text in zip(names, positions, strict=True)}

    def read_edit(self) -> dict[str, LogEdit]:
        """Return the change of what a source of files has recorded, by its name. Raise UsageError for wrong options."""
        from ttlsnap.positions.log_edits import Forget, Move, Record, Trim

        actions = {"--forget": self.forget, "--record": self.record, "--moved": self.moved, "--trim": self.trim}
        chosen = {option: name for option, name in actions.items() if name is not None}
        parts = {"--files": self.patterns, "--root": self.root, "--older-than": self.older_than}
        parts["--max-file-age"] = self.max_file_age
        if len(chosen) + bool(self.names) + bool(self.new_names) > 1:
            raise UsageError(f"give only one of --set, --rename, {', '.join(actions)} in a run")
        (option, name), *_ = [*chosen.items(), ("", "")]
        for part, value in parts.items():
            owners = [owner for owner, needed in _NEEDS.items() if part in needed]
            if value is not None and option not in owners:
                owners = ["--recorded", *owners] if part == "--files" else owners
                raise UsageError(f"{part} needs {' or '.join(owners)}")
        if missing := [part for part in _NEEDS.get(option, ()) if parts[part] is None]:
            raise UsageError(f"{option} needs {' and '.join(missing)}")
        if not option:
            return {}
        if option == "--moved":
            if (roots := _ROOTS.fullmatch(self.root or "")) is None:
                raise UsageError(f"--root {self.root}: write the whole paths of two folders, as /old=/new")
            return {name: Move(*roots.groups())}
        if option == "--trim":
            return {name: Trim(self.older_than or "", self.max_file_age or "")}
        return {name: (Forget if option == "--forget" else Record)(tuple(self.patterns or ()))}


@dataclass(frozen=True)
class ConnectionOptions:
    """The connection to Kafka, and the places of Delta tables."""

    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            help="Ask these servers what the topics have: how far the query is behind, and whether its offsets exist.",
            rich_help_panel=KAFKA,
        ),
    ] = None
    kafka_options: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka-option",
            metavar="NAME=VALUE",
            help="An option of the client (librdkafka), such as security.protocol=SASL_SSL. Can be repeated.",
            rich_help_panel=KAFKA,
        ),
    ] = None

    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="SOURCE=PATH",
            help="The Delta table that this source reads: how far the query is behind, and whether the table has its "
            "position. Can be repeated.",
            rich_help_panel=DELTA,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of the library."""
        options = pairs("--kafka-option", self.kafka_options, "security.protocol=SASL_SSL")
        tables = pairs("--table", self.tables, "0=/data/visits")
        return {"bootstrap_servers": self.bootstrap_servers, "kafka_options": options, "tables": tables}


def register(app: typer.Typer) -> None:
    app.command("sources", cls=Command, epilog=EXAMPLES)(separate(sources))


def sources(
    target: Checkpoint,
    setting: SettingOptions,
    connection: ConnectionOptions,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Show the position of each source of a query: what it has read, and what its next batch reads.

    With [bold]--set[/bold], a stopped query goes on at another position, with the state that it has. Other options
    change what a source of files has read, and the names of sources. Without these, sources changes nothing, and the
    query may be running. It needs no JVM.
    """
    require_dry_run(wanted=setting.exit_code, dry_run=setting.dry_run)
    if setting.recorded is not None:
        others = [one for one in (*given(setting), *given(connection)) if one not in _WITH_RECORDED]
        if others:
            raise UsageError(f"--recorded only lists files, so it cannot be used with {others[0]}")
        _list_recorded(target, setting.recorded, setting.patterns or (), output_format)
        return
    positions, edits = setting.read(), setting.read_edit()
    if positions or edits or setting.new_names:
        _set(target, positions, edits, setting, connection, output_format)
        return
    if options := [option for option in given(setting) if option != "--stopped"]:  # TTLSNAP_STOPPED may be set
        raise UsageError(f"{options[0]} needs an option that changes a source, such as --set")
    from ttlsnap.positions.show import sources as run

    report = run(target, **connection.arguments())
    if output_format is Format.JSON:
        print_json(report.to_json())
    else:
        _show(report)


def _list_recorded(target: str, source: str, patterns: Sequence[str], output_format: Format) -> None:
    """Print the files that a source has recorded."""
    from ttlsnap.positions.recorded import recorded_files

    found = recorded_files(target, source, patterns)
    if output_format is Format.JSON:
        print_json({"target": target, "source": source, "files": [file.to_json() for file in found]})
        return
    count = 0
    for count, file in enumerate(found, 1):
        if count == 1:
            say(f"{'modified':<24}  {'batch':>8}  path")
        batch = MISSING if file.batch is None else number(file.batch)
        if not file.is_read:
            batch = "never" if file.entry is None else "not yet"
        say(f"{(file.time or MISSING).replace('T', ' '):<24}  {batch:>8}  {file.path}")
    say(
        f"source {source} of {place(target)} has recorded "
        + (quantity(count, "file that matches.", "files that match.") if patterns else quantity(count, "file") + ".")
    )


def _parse(text: str) -> Any:
    """Return the position that an option has, or the file that it names."""
    from ttlsnap.checkpoint.logs import parse_offset

    if text.endswith(".json"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"--to {text}: cannot read this file ({error})") from error
    position = parse_offset(text.strip())
    if isinstance(position, str) and text.lstrip()[:1] in ("{", "["):
        raise UsageError(f"--to {text.strip()[:80]}: this is not valid JSON, or a name in it comes twice")
    if isinstance(position, dict) and position.keys() & {"sources", "position"}:
        raise UsageError("--to: give only what sources --format json has as the position of the source")
    return position


def _set(
    target: str,
    positions: dict[str, Any],
    edits: dict[str, LogEdit],
    setting: SettingOptions,
    connection: ConnectionOptions,
    output_format: Format,
) -> None:
    from ttlsnap.positions.setting import set_positions as run

    asks = setting.asks(dry_run=setting.dry_run)

    def confirm(report: PositionsReport) -> bool:
        if setting.yes:
            return True
        if not asks:
            effect = "find its sources by other names" if report.new_names else "read rows again, or never"
            raise RefusedError(
                f"{report.target}: the query would {effect}, and nobody can be asked. Nothing was changed. To agree, "
                "add --yes"
            )
        for line in _lines_of_changes(report):
            tell(printable(line))
        return ask_person("Change these sources?", stopped=setting.stopped)

    report = run(
        target,
        positions,
        log_edits=edits,
        new_names=pairs("--rename", setting.new_names, "0=visits"),
        dry_run=setting.dry_run,
        topics=pairs("--topic", setting.topics, "visits=visits2"),
        confirm=confirm,
        **setting.arguments(),
        **connection.arguments(),
    )
    if report.dry_run and _count(report) and not setting.yes:
        question = Foreseen("a run asks before it changes a source. If nobody can be asked, add --yes")
        report = replace(report, warnings=(*report.warnings, question))
    describe_run = _describe_edit if edits or setting.new_names else _describe_set
    show_report(report, describe_run, output_format, exit_code=setting.exit_code)


def _count(report: PositionsReport) -> int:
    return len(report.changes) + sum(log.changed > 0 for log in report.log_changes) + len(report.new_names)


def _describe_set(report: PositionsReport) -> Iterator[str]:
    if not report.changes:
        yield f"{place(report.target)}: its sources are at these positions already. Nothing was changed."
    elif report.dry_run:
        yield f"Would give {quantity(len(report.changes), 'source')} of {place(report.target)} another position:"
        yield from _lines_of_changes(report)
    elif not report.published:
        yield "Nothing was changed."
    else:
        yield f"Gave {quantity(len(report.changes), 'source')} of {place(report.target)} another position:"
        yield from _lines_of_changes(report)
        yield from describe_published(report)


def _lines_of_changes(report: PositionsReport) -> Iterator[str]:
    for change in report.changes:
        yield f"source {change.name}: {TITLES[change.kind]}"
        yield from (f"  {line}" for line in change.meaning)
    for log in report.log_changes:
        recorded = f"{quantity(log.before, 'file')} recorded before, and {number(log.after)} after"
        yield f"source {log.name}: {log.folder} has {recorded}"
        yield from (f"  {line}" for line in log.meaning)
        if not report.published:
            yield from (f"    {path}" for path in log.examples)
            more = log.changed - len(log.examples)
            yield from [f"    and {number(more)} more"] if more else []
    for one in report.new_names:
        is_same = one.name == one.new_name and one.folder == one.new_folder
        effect = "keeps its name" if is_same else f"new {_word(one.new_name)} {one.new_name}"
        yield f"source {one.name}: {TITLES[one.kind]}, {effect}"
        yield from (f"  {line}" for line in describe(one.position) or [_as_json(one.position)])
        if one.folder != one.new_folder:
            yield f"  {one.folder}: new folder {one.new_folder}"
    if report.new_names:
        yield from _describe_names([one.new_name for one in report.new_names])


def _word(name: str) -> str:
    return "number" if name.isdigit() else "name"


def _describe_names(names: Sequence[str]) -> Iterator[str]:
    """Yield what a query needs to find its sources."""
    from ttlsnap.checkpoint.logs import SOURCE_EVOLUTION

    if names[0].isdigit():
        yield f"The query finds its sources without names, if {SOURCE_EVOLUTION} is false."
    else:
        yield f"The query needs {SOURCE_EVOLUTION}=true, and .name(...) for each source: {', '.join(names)}."
    yield "The offset log then has version 2, which Spark before 4.2 cannot read."


def _subject(report: PositionsReport) -> str:
    return f"{'the sources' if report.new_names else 'a source'} of {place(report.target)}"


def _describe_edit(report: PositionsReport) -> Iterator[str]:
    if not _count(report):
        yield f"{place(report.target)}: there is nothing to change."
        yield from (line for log in report.log_changes for line in log.meaning)
    elif report.dry_run or not report.published:
        yield "Nothing was changed." if not report.dry_run else f"Would change {_subject(report)}:"
    else:
        yield f"Changed {_subject(report)}:"
    if _count(report) and (report.dry_run or report.published):
        yield from _lines_of_changes(report)
    yield from describe_published(report) if report.published else ()


def _show(report: SourcesReport) -> None:
    out = console()
    out.print(f"{place(report.target)}: {quantity(len(report.sources), 'source')}{_describe_batches(report)}")
    if report.restored_batch is not None:
        say(
            f"Batch {report.batch} has the state and the positions of batch {report.restored_batch}. The query reads "
            f"again what came after batch {report.restored_batch}."
        )
    for source in report.sources:
        out.print(f"source {source.name}: {TITLES[source.kind]}")
        for line in _lines(source, report.next_batch):
            out.print(f"  {line}")


def _describe_batches(report: SourcesReport) -> str:
    after = ", no batch is committed" if report.batch is None else f", after batch {report.batch}"
    if report.next_batch is None:
        return after
    return f"{after}; batch {report.next_batch} {'is planned' if report.is_planned else 'was begun'}"


def _lines(source: SourcePosition, next_batch: int | None) -> Iterator[str]:
    yield from describe(source.position) or [_as_json(source.position)]
    yield from _describe_partitions(source.partitions or ())
    if source.table is not None:
        yield _describe_table(source.table, source.position)
    if source.log is not None:
        recorded = "" if source.log.entries is None else f"{quantity(source.log.entries, 'file')} recorded, "
        yield f"{source.log.folder}: {recorded}{size(source.log.bytes)} in {quantity(source.log.files, 'log file')}"
    if next_batch is not None and source.next_position == source.position:
        yield f"batch {next_batch} reads nothing"
    elif next_batch is not None:
        known_lines = list(describe(source.position))  # such as the id of a table
        for line in describe(source.next_position) or [_as_json(source.next_position)]:
            if line not in known_lines:
                yield f"batch {next_batch} reads up to: {line}"
        if source.kind == "files":
            yield f"to list its files: --recorded {source.name}"


def _describe_table(table: TableVersions, position: Any) -> str:
    if table.lost_file is not None:
        return f"{place(table.path)} has lost {table.lost_file}, which the query still has to read"
    if table.behind is not None:
        return f"{place(table.path)} is at version {table.newest}: {quantity(table.behind, 'version')} behind"
    if position["reservoirId"] != table.id:
        return f"{place(table.path)} is another table: its id is {table.id}"
    return f"{place(table.path)} has the changes of the versions {table.first} to {table.newest}, and not this position"


def _describe_partitions(partitions: Sequence[PartitionRange]) -> Iterator[str]:
    for topic in dict.fromkeys(one.topic for one in partitions):
        of_topic = [one for one in partitions if one.topic == topic]
        if all(one.end is None for one in of_topic):
            yield f"{topic} does not exist"
            continue
        yield f"{topic}: {quantity(sum(one.behind or 0 for one in of_topic), 'offset')} behind"
        for one in [one for one in of_topic if one.is_lost][:_MOST_NAMED]:
            has = "does not exist" if one.end is None else f"has the offsets {one.first} to {one.end}"
            yield f"{topic}: partition {one.partition} {has}, and not {one.position}"
        for one in [one for one in of_topic if one.position is None][:_MOST_NAMED]:
            yield f"{topic}: partition {one.partition} has no position, so Spark reads all of it"


def _as_json(position: Any) -> str:
    return "no position yet" if position is None else json.dumps(position, ensure_ascii=False)
