"""The lines that ``compact``, ``migrate`` and ``import`` print after they have published a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttlsnap.printable import shell_word

if TYPE_CHECKING:
    from ttlsnap.compaction.report import CompactionReport
    from ttlsnap.imports.report import ImportReport
    from ttlsnap.migration.report import MigrationReport


def describe_published(
    report: CompactionReport | MigrationReport | ImportReport, *, archived: str | None = None, settings: str = ""
) -> list[str]:
    """Return lines about a published run: its files, what to do next, and how to undo it.

    ``archived`` is a line about the dropped entries. ``settings`` follows the advice to restart the query.
    """
    from ttlsnap.pages.words import describe_made_final

    lines = [f"Published as run {report.run}. The replaced files are in {report.backup}"]
    lines += filter(None, (archived, describe_made_final({"made_final": report.made_final})))
    undo = f"ttlsnap rollback {shell_word(report.target)} --stopped"
    lines.append(f"Next: restart the query{settings}. To undo this run before you restart the query: {undo}")
    return [*lines, *filter(None, (report.first_run,))]
