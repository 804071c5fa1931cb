"""``history``: the runs made on a checkpoint, from what each left in ``_ttlsnap/runs``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ttlsnap.checkpoint import layout
from ttlsnap.expired.delivery import is_unsettled
from ttlsnap.journal import read_journal, read_report, staged_path
from ttlsnap.recovery import existing_checkpoint


@dataclass(frozen=True)
class HistoryEntry:
    """One run, oldest first in a history.

    ``status`` is ``done``, ``undone``, ``open`` (cut off: run recover), ``rolled back`` or ``copy`` (this checkpoint
    is the output of the run). ``report`` is the run's own report, None for a rollback. ``waiting`` is whether what it
    dropped is not delivered yet to where it is to be kept. ``planned`` is the batch without data that the run planned,
    with which the query restarts.
    """

    run: str
    kind: str
    status: str
    batch: int | None
    backup: bool
    report: dict[str, Any] | None
    waiting: bool = False
    planned: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "kind": self.kind,
            "status": self.status,
            "batch": self.batch,
            "backup": self.backup,
            "report": self.report,
            "waiting": self.waiting,
            "planned_batch": self.planned,
        }


def history(target: str) -> list[HistoryEntry]:
    """The runs that were published, copied, undone or cut off on ``target``, oldest first."""
    files = existing_checkpoint(target)
    entries: list[tuple[int, HistoryEntry]] = []
    rolled_back = set()
    for info in files.list(layout.RUNS):
        journal = read_journal(files, info.name)
        report = read_report(files, info.name)
        if journal is None and (report is None or files.stat(staged_path(info.name, "")) is not None):
            continue  # cut off before anything was changed
        if journal is not None and journal.undoes and journal.status == "done":
            rolled_back.add(journal.undoes)
        entry = HistoryEntry(
            run=info.name,
            kind=journal.kind if journal else "compact",
            status=journal.status if journal else "copy",
            batch=journal.batch if journal else (report or {}).get("batch"),
            backup=files.stat(f"{layout.run_directory(info.name)}/backup") is not None,
            report=report,
            waiting=is_unsettled(files, info.name),
            planned=journal.fence_batch if journal and journal.planned is not None else None,
        )
        # Journals are numbered, since clocks go back; the copy that made this checkpoint came before all of them.
        entries.append((journal.number if journal else 0, entry))
    return [
        replace(entry, status="rolled back") if entry.run in rolled_back else entry
        for _, entry in sorted(entries, key=lambda numbered: (numbered[0], numbered[1].run))
    ]
