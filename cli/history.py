"""``ttlsnap history``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttlsnap.amounts import quantity
from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Format, FormatOption, Target
from ttlsnap.cli.output import MISSING, ask_person, console, number, place, print_json, say, size, table, tell
from ttlsnap.cli.published import describe_changes
from ttlsnap.errors import RefusedError, TtlsnapError, UsageError, explain_errors
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from ttlsnap.backups.found import FoundBackup
    from ttlsnap.publishing.history import HistoryEntry
    from ttlsnap.transaction.pruning import Backup

_SPARE = ("rule", "now", "old files", "rewritten", "of", "batch", "version", "kind")
"""Columns to leave out on a narrow terminal, first to last."""

PRUNE = (
    "Remove the files that runs have replaced, and that are kept in the checkpoint. These runs can then no longer be "
    "rolled back. Backups that copy has made stay."
)
BACKUPS = (
    "List also the backups of the checkpoint that copy has made in this folder, each in a folder of its own. The "
    "checkpoint need not exist any more."
)
_MOST_STEPS = 20
"""The steps of a migration that are shown."""


def register(app: typer.Typer) -> None:
    app.command("history", cls=Command)(history)


def history(
    target: Target,
    prune: Annotated[
        bool,
        typer.Option("--prune", help=PRUNE),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --prune: show the backups that it would remove, and remove nothing."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="With --prune: do not ask before removing the backup of a run that can still be rolled back. Required "
            "without a terminal.",
        ),
    ] = False,
    backups: Annotated[
        str | None,
        typer.Option(
            "--backups",
            metavar="FOLDER",
            help=BACKUPS,
        ),
    ] = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """List the runs on a checkpoint or a Delta table, and the backups of a checkpoint, oldest first."""
    from ttlsnap.checkpoint.logs import read_logs
    from ttlsnap.delta import is_table
    from ttlsnap.publishing.history import history as read
    from ttlsnap.publishing.runs import Runs
    from ttlsnap.storage.open import open_directory
    from ttlsnap.transaction.pruning import find_backups as find_removable
    from ttlsnap.transaction.pruning import prune as remove
    from ttlsnap.transaction.rollback import undoable_run

    if not prune and (option := "--dry-run" if dry_run else "--yes" if yes else None):
        raise UsageError(f"{option} needs --prune")
    if is_table(open_directory(target)):
        if backups is not None:
            raise UsageError(f"{target} is a Delta table, and --backups is for checkpoints")
        _of_table(target, prune, output_format)
        return
    found_backups = _find_backups(target, backups) if backups is not None else None
    if found_backups and open_directory(target).stat("") is None:
        _print_backups_only(target, found_backups, output_format)
        return
    removable = find_removable(target) if dry_run else []
    with _showing_after_error(target, found_backups if output_format is Format.TEXT else None):
        entries = read(target)  # before anything is removed: an error says that nothing was changed
    pruned = remove(target, confirm=None if yes else partial(_ask, target)) if prune and not dry_run else []
    files = open_directory(target)
    with (
        explain_errors(f"Before that, the backup of run {', '.join(pruned)} was removed.") if pruned else nullcontext()
    ):
        entries = read(target) if pruned else entries
        found_runs = Runs.read(files)
        planning_run = found_runs.find_planning(read_logs(files))
        undoable = None if any(entry.status == "open" for entry in entries) else undoable_run(found_runs)
    planned_batch = planning_run.fence_batch if planning_run is not None else None
    if output_format is Format.JSON:
        runs: list[dict[str, Any]] = [entry.to_json() for entry in entries]
        planned_removal = {"to_prune": [backup.to_json() for backup in removable]} if dry_run else {}
        document = {"target": target, "runs": runs, "pruned": pruned, "undoable": undoable}
        print_json({**document, **planned_removal, **_to_json(found_backups)})
        return
    if not entries:
        say(f"{target}: no runs.")
        _show_backups(target, found_backups)
        return
    steps = {entry.run: list(_steps(entry.report or {})) for entry in entries}
    listed_rules = {
        entry.run: _describe_rules(entry.report or {}, listed=True) for entry in entries if steps[entry.run]
    }
    _show([_row(entry) for entry in entries], listed_rules)
    for run, lines in steps.items():
        for line in lines:
            say(f"{run}: {line}")
    if planned_batch is not None:
        say(f"Batch {planned_batch} is planned, without data. The query restarts with it.")
    if undoable is not None:
        say(f"To undo run {undoable}: {_undo_command(target, entries, undoable)}")
    for entry in entries:
        if entry.status == "open":
            say(f"Run {entry.run} was interrupted. Run: ttlsnap recover {shell_word(target)}")
        if entry.waiting and entry.status == "rolled back":
            archive = (entry.report or {}).get("expired_to")
            say(
                f"Run {entry.run} is rolled back, but its dropped entries are still in {archive}. To remove them "
                f"there: ttlsnap recover {shell_word(target)} --expired-to {shell_word(str(archive))}"
            )
        elif entry.waiting:
            say(f"The entries that run {entry.run} dropped are not archived yet. The next run will try again.")
    _show_removal(pruned, removable if dry_run else None)
    _show_backups(target, found_backups, runs=[entry.run for entry in entries if entry.kind != "rollback"])


def _undo_command(target: str, entries: Sequence[HistoryEntry], run: str) -> str:
    from ttlsnap.pages.words import undo_command

    archives = [(entry.report or {}).get("expired_to") for entry in entries if entry.run == run]
    return undo_command(shell_word(target), *archives)


@contextmanager
def _showing_after_error(target: str, backups: Sequence[FoundBackup] | None) -> Iterator[None]:
    """Print the backups after an error within the block: a damaged checkpoint needs them most."""
    try:
        yield
    except TtlsnapError:
        _show_backups(target, backups)
        raise


def _show_removal(pruned: Sequence[str], removable: Sequence[Backup] | None) -> None:
    """Print the backups of runs that were removed, or in a dry run those that would be."""
    for run in pruned:
        say(f"Removed the backup of run {run}.")
    if removable is not None:
        for backup in removable:
            note = " The run can still be rolled back, but only with it." if backup.needed_to_undo else ""
            say(f"--prune would remove the backup of run {backup.run} ({_size(backup)}).{note}")
        say("Nothing was removed.")


def _find_backups(target: str, folder: str) -> list[FoundBackup]:
    """Return the backups of a checkpoint in a folder. Raise UsageError if there is no such folder."""
    from ttlsnap.backups.found import find_backups
    from ttlsnap.checkpoint.checkpoint import query_id
    from ttlsnap.storage.open import open_directory

    files, source = open_directory(folder), open_directory(target)
    if files.stat("") is None:
        raise UsageError(f"{files.root} does not exist. --backups needs the folder that contains the backups")
    source_id = None
    with suppress(TtlsnapError):  # a damaged checkpoint needs its backups most
        source_id = query_id(source)
    return [backup for backup in find_backups(files) if backup.is_of(source.root, source_id)]


def _to_json(backups: Sequence[FoundBackup] | None) -> dict[str, Any]:
    return {} if backups is None else {"backups": [backup.to_json() for backup in backups]}


def _print_backups_only(target: str, backups: Sequence[FoundBackup], output_format: Format) -> None:
    """Print the backups of a checkpoint that does not exist any more."""
    if output_format is Format.JSON:
        print_json({"target": target, "runs": [], "pruned": [], **_to_json(backups)})
        return
    say(f"{target} does not exist.")
    _show_backups(target, backups, exists=False)


def _show_backups(
    target: str, backups: Sequence[FoundBackup] | None, *, exists: bool = True, runs: Collection[str] = ()
) -> None:
    """Print the backups, and commands that restore one. ``runs`` are those that are published and not rollbacks."""
    if backups is None:
        return
    from ttlsnap.backups.found import restorable, restore_command

    if not backups:
        say("No folder in that of --backups is a backup of this checkpoint. Perhaps they are one level above or below.")
        return
    out = console()
    columns = ("backup", "status", "batch", "made", "after run", "files", "size")
    rows = table(*columns, right=("batch", "files", "size"), spare=("files", "after run"))
    for backup in backups:
        rows.add_row(
            place(backup.place),
            backup.status,
            number(backup.batch),
            (backup.made_at or MISSING).replace("T", " "),
            backup.last_run or MISSING,
            number(backup.files),
            size(backup.bytes),
        )
    out.print(rows)
    for backup in backups:
        if backup.error is not None:
            say(f"{place(backup.place)}: {backup.error}")
    usable = restorable(backups)
    newest_by_query = {backup.query_id: backup for backup in usable}
    what_n_is = "" if exists else ". N is the last batch that the sink of the query has"
    for query_id, newest in newest_by_query.items():
        of_query = f" of the query {query_id}" if len(newest_by_query) > 1 else ""
        command = restore_command(newest.place, target, is_lost=not exists)
        say(
            f"To restore the newest{of_query}, as of batch {newest.batch}, after you have stopped the query (in a "
            f"script, add --yes): {command}{what_n_is}"
        )
        of_same_query = (one for one in reversed(usable) if one.query_id == query_id)
        before = next((one for one in of_same_query if one.last_run != newest.last_run), None)
        if before is not None and newest.last_run in runs:
            command = restore_command(before.place, target)
            say(f"To go back to before run {newest.last_run}, as of batch {before.batch}: {command}")


def _ask(target: str, backup: Backup) -> bool:
    """Ask a person whether the last run may become final. Raise RefusedError if there is no terminal."""
    message = (
        f"{target}: no batch was committed after run {backup.run}, so it can still be rolled back, but only with its "
        f"backup ({_size(backup)})."
    )
    if not sys.stdin.isatty():
        raise RefusedError(f"{message} Nothing was removed. To remove the backup without a terminal, add --yes")
    tell(message)
    if ask_person("Remove its backup?"):
        return True
    tell("Nothing was removed.")
    return False


def _size(backup: Backup) -> str:
    return f"{quantity(backup.files, 'file')}, {size(backup.bytes)}"


def _of_table(target: str, prune: bool, output_format: Format) -> None:
    from ttlsnap.delta.history import table_history

    if prune:
        raise UsageError(f"{target} is a Delta table: VACUUM removes its old files")
    runs = table_history(target)
    if output_format is Format.JSON:
        print_json({"target": target, "runs": [run.to_json() for run in runs], "pruned": []})
        return
    if not runs:
        say(f"{target}: no runs.")
        return
    _show(
        [
            {
                "run": run.run,
                "when": MISSING if run.at is None else f"{run.at.replace('T', ' ')[:19]}Z",
                "kind": run.kind,
                "version": number(run.version),
                "dropped": number(run.dropped),
                "rewritten": number(run.rewritten),
                "rule": "; ".join(run.rules) or MISSING,
            }
            for run in runs
        ]
    )


def _row(entry: HistoryEntry) -> dict[str, str]:
    from ttlsnap.publishing.runs import started_at

    report = entry.report or {}
    totals = report.get("totals", {})
    return {
        "run": entry.run,
        "when": started_at(entry.run),
        "kind": entry.kind,
        "status": entry.status,
        "batch": number(entry.batch),
        "dropped": MISSING if entry.kind == "import" else number(totals.get("dropped")),
        "of": number(totals.get("entries")),
        "rewritten": number(totals.get("rewritten")),
        "old files": "kept" if entry.backup else "no",
        "now": _now(report),
        "rule": _describe_rules(report),
    }


def _now(report: Mapping[str, Any]) -> str:
    """Return the time that a run compared with the times of entries, and the clock that it is from."""
    report = report.get("compaction") or report
    if report.get("now") is None:
        return MISSING
    return f"{str(report['now']).replace('T', ' ')[:19]}Z ({report.get('now_source')})"


def _steps(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes of schemas that a migration made."""
    steps = report.get("plan", ()) if report.get("kind") == "migrate" else ()
    for step in steps[:_MOST_STEPS]:
        names = [str(step[name]) for name in ("operator", "store", "state", "field") if step.get(name) is not None]
        sides = " -> ".join(str(step[side]) for side in ("old", "new") if step.get(side) is not None)
        yield f"{step['change']} {'.'.join(names)}: {sides}"
    if len(steps) > _MOST_STEPS:
        yield f"{quantity(len(steps) - _MOST_STEPS, 'more change')}; --format json shows them"


def _describe_rules(report: Mapping[str, Any], *, listed: bool = False) -> str:
    """Return what a run did, in words: what a migration changed, without steps that are ``listed``, and its rules."""
    texts = list(map(str, report.get("rules", ())))
    if report.get("kind") == "migrate":
        plan = () if listed else report.get("plan", ())
        texts.insert(0, describe_changes(plan, report.get("settings", {}), report.get("session_settings", {})))
    texts += [" ".join(map(shell_word, report.get("options", ())))]
    if (batch := report.get("source_batch")) is not None:
        is_own = report.get("source") == report.get("target")
        texts.insert(0, f"back to batch {batch}" if is_own else f"batch {batch} of {report.get('source')}")
    return "; ".join(filter(None, texts)) or MISSING


def _show(rows: Sequence[dict[str, str]], listed_rules: Mapping[str, str] | None = None) -> None:
    """Print the table. On a narrow terminal it has fewer columns, and the rules below it.

    ``listed_rules`` are those of runs whose other changes are listed after the table.
    """
    out = console()
    can_be_empty = ("rewritten", "now")
    names = [
        name for name in rows[0] if name not in can_be_empty or any(row[name] not in ("0", MISSING) for row in rows)
    ]
    text_table = table(*names, right=("batch", "version", "dropped", "of", "rewritten"), spare=_SPARE)
    for row in rows:
        text_table.add_row(*(row[name] for name in names))
    text_table = text_table.fitted(out.width)
    out.print(text_table)
    for row in [{**row, "rule": (listed_rules or {}).get(row["run"], row["rule"])} for row in rows]:
        below = [
            row[name]
            for name in ("rule", "now")
            if name not in text_table.columns and row.get(name, MISSING) != MISSING
        ]
        if below:
            out.print(f"{row['run']}: {', now '.join(below)}")
