"""What a run has published, or a migration changes, in words that commands share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ttlsnap.amounts import quantity
from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from ttlsnap.compaction.report import CompactionReport
    from ttlsnap.copies.report import CopyReport
    from ttlsnap.imports.report import ImportReport
    from ttlsnap.migration.report import MigrationReport
    from ttlsnap.positions.report import PositionsReport


def describe_published(
    report: CompactionReport | MigrationReport | ImportReport | CopyReport | PositionsReport,
    *,
    archive: str | None = None,
    archived: str | None = None,
    settings: str = "",
) -> list[str]:
    """Return lines about a published run: its files, what to do next, and how to undo it.

    ``archive`` has the dropped entries, and ``archived`` is a line about them. ``settings`` follows the advice to
    restart the query.
    """
    from ttlsnap.pages.words import describe_made_final, undo_command

    lines = [f"Published as run {report.run}. The replaced files are in {report.backup}"]
    lines += filter(None, (archived, describe_made_final({"made_final": report.made_final})))
    undo = undo_command(shell_word(report.target), archive)
    lines.append(f"Next: restart the query{settings}. To undo this run before you restart the query: {undo}")
    return [*lines, *filter(None, (report.first_run,))]


_PREFIX = "spark.sql."


def describe_changes(
    plan: Sequence[Mapping[str, object]], settings: Mapping[str, str], session: Mapping[str, str]
) -> str:
    """Return the number of the steps in ``plan``, and the settings; ``session`` has those that no file records."""
    removed = [f"{step['state']}" for step in plan if step["change"] == "drop-unused"]
    change_count = len(plan) - len(removed)
    steps = f"{quantity(change_count, 'change')} of the schema" if change_count else ""
    drops = f"removal of what Spark has kept of {', '.join(removed)}" if removed else ""
    return ", ".join(phrase for phrase in (steps, drops, describe_settings(settings, session)) if phrase)


def describe_settings(settings: Mapping[str, str], session: Mapping[str, str]) -> str:
    """Return the settings, with what the user must do about those of the ``session``."""
    parts = [f"{name.removeprefix(_PREFIX)} = {value}" for name, value in settings.items()]
    parts += [
        f"{name} = {value} (not recorded; set it in the query's session)" for name, value in sorted(session.items())
    ]
    return ", ".join(parts)
