"""``history``: the runs on a checkpoint, from their files in ``_ttlsnap/runs``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.documents import Result, in_json
from ttlsnap.keywords import public
from ttlsnap.publishing.archives import is_unsettled
from ttlsnap.publishing.journal import find_backup, read_report
from ttlsnap.publishing.runs import Runs, open_existing


@dataclass(frozen=True)
class HistoryEntry(Result):
    """One run, oldest first in a history.

    ``status`` is ``done``, ``undone``, ``open`` (interrupted: run recover), ``rolled back`` or ``copy`` (this
    checkpoint is the output of the run). ``report`` is the run's own report, None for a rollback. ``waiting``: its
    dropped entries are not delivered to the archive yet. ``planned`` is the batch without data that the run planned,
    and with which the query restarts.
    """

    run: str
    kind: str
    status: str
    batch: int | None
    backup: bool
    report: dict[str, Any] | None
    waiting: bool = False
    planned: int | None = field(default=None, metadata=in_json("planned_batch"))


def _kind_of_copy(report: dict[str, Any]) -> str:
    """Return the kind of the run that made this checkpoint as a copy."""
    return str(report["kind"]) if report.get("kind") in ("import", "migrate") else "compact"


@public
def history(target: str) -> list[HistoryEntry]:
    """Return the runs that were published, copied, undone or interrupted on ``target``, oldest first."""
    return list_runs(Runs.read(open_existing(target)))


def list_runs(runs: Runs) -> list[HistoryEntry]:
    """See ``history``."""
    entries: list[tuple[int, HistoryEntry]] = []
    rolled_back = set()
    for run in sorted(runs.ids):
        journal = runs.find(run)
        report = runs.report_of_copy(run) if journal is None else read_report(runs.known, run)
        if journal is None and report is None:
            continue  # interrupted before it changed anything
        if journal is not None and journal.undoes and journal.status == "done":
            rolled_back.add(journal.undoes)
        entry = HistoryEntry(
            run=run,
            kind=journal.kind if journal else _kind_of_copy(report or {}),
            status=journal.status if journal else "copy",
            batch=journal.batch if journal else (report or {}).get("batch"),
            backup=runs.known.stat(find_backup(runs.known, run)) is not None,
            report=report,
            waiting=is_unsettled(runs, run),
            planned=journal.fence_batch if journal and journal.planned is not None else None,
        )
        # Journals have numbers, because clocks can go back. The run that made this copy was before all of them.
        entries.append((journal.number if journal else 0, entry))
    return [
        replace(entry, status="rolled back") if entry.run in rolled_back else entry
        for _, entry in sorted(entries, key=lambda numbered: (numbered[0], numbered[1].run))
    ]
