"""``ttlsnap rollback``."""

from __future__ import annotations

import typer

from ttlsnap.cli.help import Command
from ttlsnap.cli.options import Format, FormatOption, JarsOption, StoppedOption, Target
from ttlsnap.cli.output import place, print_json, print_warnings, say
from ttlsnap.cli.places import ArchiveOption, confirm_on_terminal, parse_archive
from ttlsnap.printable import shell_word


def register(app: typer.Typer) -> None:
    app.command("rollback", cls=Command)(rollback)


def rollback(
    target: Target,
    stopped: StoppedOption = False,
    expired_to: ArchiveOption = None,
    jars: JarsOption = None,
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Undo the last run: restore the files that it replaced, byte for byte.

    ttlsnap refuses this once the query has committed a newer batch. If the last run was a rewind or a restore of a
    backup, it refuses this as soon as the query has begun one. For a Delta table, it restores the version before the
    run, and refuses this if anybody has written to the table since.
    """
    from ttlsnap.delta import is_table
    from ttlsnap.storage.open import open_directory
    from ttlsnap.transaction.rollback import rollback as run

    if is_table(open_directory(target)):
        _of_table(target, expired_to, jars, output_format)
        return

    report = run(target, stopped=stopped, expired_to=parse_archive(expired_to), confirm=confirm_on_terminal())
    if output_format is Format.JSON:
        print_json(report.to_json())
        return
    restored_text = f". Restored files: {report.restored}" if report.restored else ""
    say(f"{place(report.target)}: rolled back run {report.undone} (as run {report.run}){restored_text}.")
    print_warnings(report.warnings)
    if report.kind == "repair":
        say(f"The checkpoint is as it was before the repair. Next: ttlsnap doctor {shell_word(report.target)}")
    elif report.nothing_left:
        say(
            "There was no checkpoint before the run, and there is none now: a query would begin from nothing. Next: "
            f"ttlsnap copy BACKUP {shell_word(report.target)} --replace --last-batch N --stopped, where N is the last "
            "batch that the sink of the query has"
        )
    elif report.set_back_to is not None:
        say(
            f"Next: restart the query. Its state is the one after batch {report.set_back_to}, and batch "
            f"{report.set_back_to + 1} runs again."
        )
    else:
        of_sources = report.kind == "sources"
        what = "The positions and names of its sources are those" if of_sources else "Its state is the one"
        say(f"Next: restart the query. {what} from before the run.")


def _of_table(target: str, expired_to: str | None, jars: str | None, output_format: Format) -> None:
    from ttlsnap.delta.history import rollback_table

    warnings: list[str] = []
    undone, version = rollback_table(
        target, jars=jars, expired_to=parse_archive(expired_to), confirm=confirm_on_terminal(), warnings=warnings
    )
    if output_format is Format.JSON:
        print_json({"target": target, "undone": undone.run, "version": version, "warnings": warnings})
        return
    print_warnings(warnings)
    say(
        f"{target}: rolled back run {undone.run}. Version {version} has the content of version "
        f"{undone.versions[0] - 1}."
    )
