"""The journal of a run: what is to be moved where, so that a run that was cut off can be finished or undone.

    _ttlsnap/lock                      held while a run publishes, recovers or rolls back
    _ttlsnap/runs/<run>/journal.json   the moves, in order, and how far the run has come
    _ttlsnap/runs/<run>/report.json    the run's report, for ``history``
    _ttlsnap/runs/<run>/staged/...     new files, under the paths they will have
    _ttlsnap/runs/<run>/backup/...     the files they replaced

Every change to a checkpoint is a list of renames within it. A rename is done or not done, which the disk itself
tells, so the journal is written twice only: ``open`` before the first change and ``done`` or ``undone`` after the
last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ttlsnap.checkpoint import layout
from ttlsnap.errors import CorruptionError
from ttlsnap.filesystem import Directory

Status = Literal["open", "done", "undone"]
_MAX_JOURNAL_BYTES = 1 << 30


@dataclass(frozen=True)
class Move:
    """One rename within the checkpoint, from ``source`` to ``target`` (relative paths)."""

    source: str
    target: str


@dataclass(frozen=True)
class Journal:
    """One run's changes. ``fence`` is the offset file that keeps Spark out; ``batch`` the batch whose state it is."""

    run: str
    kind: Literal["compact", "rollback"]
    batch: int
    fence: str
    moves: tuple[Move, ...]
    status: Status
    undoes: str | None = None

    @property
    def path(self) -> str:
        return journal_path(self.run)


def journal_path(run: str) -> str:
    """Where a run's journal lies."""
    return f"{layout.run_directory(run)}/journal.json"


def report_path(run: str) -> str:
    """Where a run's report lies."""
    return f"{layout.run_directory(run)}/report.json"


def staged_path(run: str, path: str) -> str:
    """Where the new file for ``path`` waits."""
    return f"{layout.run_directory(run)}/staged/{path}".rstrip("/")


def backup_path(run: str, path: str) -> str:
    """Where the old file of ``path`` is kept."""
    return f"{layout.run_directory(run)}/backup/{path}"


def write_journal(files: Directory, journal: Journal) -> None:
    """Write the journal whole and durably."""
    files.mkdirs(layout.run_directory(journal.run))
    document = asdict(journal)
    files.replace(journal.path, json.dumps(document, indent=1).encode())


def close_journal(files: Directory, journal: Journal, status: Status) -> Journal:
    """Mark a run as ended."""
    closed = replace(journal, status=status)
    write_journal(files, closed)
    return closed


def read_journals(files: Directory) -> list[Journal]:
    """The journals of all runs, oldest first; raises CorruptionError for one that cannot be read."""
    runs = [info.name for info in files.list(layout.RUNS) if info.is_dir]
    return [journal for run in runs if (journal := read_journal(files, run)) is not None]


def read_journal(files: Directory, run: str) -> Journal | None:
    """The journal of a run; None when it never came to publishing."""
    path = journal_path(run)
    if files.stat(path) is None:
        return None
    where = f"{files.root}/{path}"
    try:
        document: dict[str, Any] = json.loads(files.read(path, _MAX_JOURNAL_BYTES))
        moves = tuple(Move(str(m["source"]), str(m["target"])) for m in document.pop("moves"))
        journal = Journal(**document, moves=moves)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"{where} is not a journal of ttlsnap's ({error!r})") from error
    if journal.run != run or journal.status not in ("open", "done", "undone"):
        raise CorruptionError(f"{where}: it names run {journal.run!r} with status {journal.status!r}")
    _check_moves(journal.moves, journal.fence, where)
    return journal


def _check_moves(moves: Sequence[Move], fence: str, where: str) -> None:
    """Only state files are ever moved, and only between the state folder and what ttlsnap keeps."""
    for path in (fence, *(p for move in moves for p in (move.source, move.target))):
        parts = path.split("/")
        inside = parts[0] == layout.STATE or path.startswith(f"{layout.RUNS}/") or path == fence
        if not inside or ".." in parts or "" in parts or "." in parts:
            raise CorruptionError(f"{where} names {path!r}, which no run of ttlsnap's would touch")
    number = layout.parse_number(fence.removeprefix(f"{layout.OFFSETS}/"))
    if number is None or not fence.startswith(f"{layout.OFFSETS}/"):
        raise CorruptionError(f"{where} names the fence {fence!r}, which is no offset file")
