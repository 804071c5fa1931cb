"""After the publishing: recover a run that was cut off, roll back the last one, forget old backups.

All three hold the checkpoint's lock. Each change goes through the same journal and fence as publishing, so that
``recover`` can be cut off itself, and run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.errors import CorruptionError, NotACheckpointError, RefusedError
from ttlsnap.filesystem import Directory, open_directory
from ttlsnap.journal import (
    Journal,
    Move,
    close_journal,
    read_journal,
    read_journals,
    report_path,
    staged_path,
)
from ttlsnap.locking import locked
from ttlsnap.plan import new_run_id
from ttlsnap.publish import (
    apply,
    fence_file,
    is_done,
    is_fence,
    lower_fence,
    raise_fence,
    set_aside,
    swap,
    undo,
)

Outcome = Literal["nothing", "finished", "undone"]


@dataclass(frozen=True)
class RecoverReport:
    """What ``recover`` did: ``finished`` or ``undone`` with the run, or ``nothing`` when nothing was open."""

    target: str
    outcome: Outcome
    run: str | None


@dataclass(frozen=True)
class RollbackReport:
    """What ``rollback`` put back: the run that was undone, the run that undid it, and the files restored."""

    target: str
    run: str
    undone: str
    restored: int


def recover(target: str, *, prefer_undo: bool = False) -> RecoverReport:
    """Finish the run that was cut off, or undo it where that is not possible or not wanted.

    Raises RefusedError when the fence was removed by hand and the query has gone on, CorruptionError when files
    that the journal names are gone.
    """
    files = _existing(target)
    with locked(files):
        journal = next((j for j in read_journals(files) if j.status == "open"), None)
        if journal is None:
            _refuse_orphan_fence(files)
            discard_leftovers(files)
            return RecoverReport(files.root, "nothing", None)
        outcome = _settle(files, journal, prefer_undo)
        return RecoverReport(files.root, outcome, journal.run)


def _settle(files: Directory, journal: Journal, prefer_undo: bool) -> Outcome:
    done = [is_done(files, move) for move in journal.moves]
    if not is_fence(files, journal.fence):
        if not any(done):
            close_journal(files, journal, "undone")
            return "undone"
        if all(done) and not prefer_undo:
            close_journal(files, journal, "done")
            return "finished"
        _fence_again(files, journal)
    # A move that is not done needs its source, one that is done is taken back from its target.
    can_finish = all(d or files.stat(m.source) is not None for m, d in zip(journal.moves, done, strict=True))
    can_undo = all(not d or files.stat(m.target) is not None for m, d in zip(journal.moves, done, strict=True))
    if can_finish and not (prefer_undo and can_undo):
        apply(files, journal)
        lower_fence(files, journal)
        close_journal(files, journal, "done")
        return "finished"
    if can_undo:
        undo(files, journal)
        lower_fence(files, journal)
        close_journal(files, journal, "undone")
        return "undone"
    lost = next(m for m, d in zip(journal.moves, done, strict=True) if not d and files.stat(m.source) is None)
    raise CorruptionError(
        f"{files.root}/{lost.source} is gone, and other files that run {journal.run} replaced are too: the run can "
        "neither be finished nor undone. The fence stays; restore the folder from a copy and run recover again"
    )


def _fence_again(files: Directory, journal: Journal) -> None:
    """Half of the moves are done and the fence is gone: somebody removed it."""
    logs = read_logs(files)
    if logs.offsets[-1] >= (layout.parse_number(journal.fence.rpartition("/")[2]) or 0):
        raise RefusedError(
            f"{files.root}: the fence of run {journal.run} was removed by hand and the query has gone on to batch "
            f"{logs.offsets[-1]}, on a state that is half old and half new. The old files are in "
            f"{files.root}/{layout.run_directory(journal.run)}/backup"
        )
    raise_fence(files, journal)


def _refuse_orphan_fence(files: Directory) -> None:
    if read_logs(files).fence is not None:
        raise RefusedError(
            f"{files.root} is fenced, but the journal of the run that did it is gone from {layout.RUNS}. If that "
            "folder was moved away, put it back and run recover again"
        )


def rollback(target: str) -> RollbackReport:
    """Put back what the last published run replaced, byte for byte.

    Raises RefusedError when a newer batch is committed, when there is no such run, or its backup was removed.
    """
    files = _existing(target)
    with locked(files):
        _refuse_open(files)
        last = next((j for j in reversed(read_journals(files)) if j.status == "done"), None)
        if last is None or last.kind != "compact":
            raise RefusedError(f"{files.root}: there is no run to roll back")
        logs = read_logs(files)
        if not logs.commits or logs.commits[-1] != last.batch:
            raise RefusedError(
                f"{files.root}: batch {logs.commits[-1] if logs.commits else 'none'} has been committed since run "
                f"{last.run} (batch {last.batch}); the old state does not belong to it"
            )
        kept = [move for move in last.moves if move.target.startswith(f"{layout.RUNS}/")]
        lost = next((move for move in kept if files.stat(move.target) is None), None)
        if lost is not None or files.stat(f"{layout.run_directory(last.run)}/backup") is None:
            raise RefusedError(f"{files.root}: the backup of run {last.run} has been removed; it cannot be rolled back")
        run = new_run_id()
        journal = Journal(
            run=run,
            kind="rollback",
            batch=last.batch,
            fence=fence_file(logs),
            moves=tuple(_back(files, last, run)),
            status="open",
            undoes=last.run,
        )
        swap(files, journal)
        return RollbackReport(files.root, run, last.run, len(kept))


def _back(files: Directory, last: Journal, run: str) -> list[Move]:
    """Everything in the way goes to the rollback's own backup, then the old files come back."""
    replaced = [m.target for m in last.moves if m.source.startswith(f"{layout.RUNS}/")]
    kept = [m for m in last.moves if m.target.startswith(f"{layout.RUNS}/")]
    # A batch that was begun since, and not committed, was computed from the state that goes.
    folders = sorted({path.rpartition("/")[0] for path in replaced})
    newer = [
        f"{folder}/{info.name}"
        for folder in folders
        for info in files.list(folder)
        if (parsed := layout.parse_state_file(info.name)) is not None and parsed[0] > last.batch + 1
    ]
    in_the_way = dict.fromkeys([*replaced, *newer, *(m.source for m in kept)])
    seen: dict[str, Move] = {}
    for move in set_aside(files, run, list(in_the_way)):
        seen.setdefault(move.source, move)
    return [*seen.values(), *(Move(m.target, m.source) for m in kept)]


def prune(target: str) -> list[str]:
    """Remove the backups of all runs that have ended; their names."""
    files = _existing(target)
    with locked(files):
        _refuse_open(files)
        return discard_backups(files, keep=None)


def discard_backups(files: Directory, keep: str | None) -> list[str]:
    """Remove what ended runs, other than ``keep``, still hold besides journal and report; their names."""
    removed = []
    for journal in read_journals(files):
        if journal.status == "open" or journal.run == keep:
            continue
        for folder in ("backup", "staged"):
            path = f"{layout.run_directory(journal.run)}/{folder}"
            if files.stat(path) is not None:
                files.remove_tree(path)
                if folder == "backup":
                    removed.append(journal.run)
    return removed


def discard_leftovers(files: Directory) -> None:
    """Remove what runs left that were cut off before their journal: they changed nothing."""
    for info in files.list(layout.RUNS):
        # The report of a copy stands alone: this checkpoint is what that run made.
        is_copy = files.stat(report_path(info.name)) and not files.stat(staged_path(info.name, ""))
        if info.is_dir and not is_copy and read_journal(files, info.name) is None:
            discard_run(files, info.name)


def discard_run(files: Directory, run: str) -> None:
    """Remove a run's folder, and ttlsnap's own when it was the only one."""
    files.remove_tree(layout.run_directory(run))
    if not files.list(layout.RUNS):
        files.remove_tree(layout.RUNS)
        if not files.list("_ttlsnap"):
            files.remove_tree("_ttlsnap")


def refuse_if_cut_off(files: Directory) -> None:
    """Raise RefusedError when an earlier run needs ``recover``."""
    _refuse_open(files)


def _refuse_open(files: Directory) -> None:
    if any(j.status == "open" for j in read_journals(files)) or read_logs(files).fence is not None:
        raise RefusedError(f"{files.root}: a run was cut off while it published. Run: ttlsnap recover {files.root}")


def _existing(target: str) -> Directory:
    files = open_directory(target)
    if files.stat(layout.OFFSETS) is None:
        raise NotACheckpointError(f"{files.root} is not a checkpoint: it has no {layout.OFFSETS} folder")
    return files
