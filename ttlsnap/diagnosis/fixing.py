"""What ``doctor --fix`` does: files are set aside, or written anew, behind the journal and the fence of publishing.

Four of the repairs are one: go back to the state after a batch. Whatever later batches left (their logs, their state
files, operator metadata that they wrote) goes to the run's backup, from where ``rollback`` brings it back.

``last-batch-lost`` keeps the offsets of the first batch after the one it goes back to, so that Spark runs that batch
again over the very same input; those after it are planned anew. It gives up committed batches, so it asks first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ttlsnap.backups import HeldTable, held_tables
from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import partition_folders, query_id, state_files
from ttlsnap.checkpoint.listing import list_activity
from ttlsnap.checkpoint.logs import Logs, read_conf, read_logs, shuffle_partitions
from ttlsnap.checkpoint.metadata import relocated
from ttlsnap.diagnosis.folders import leftovers, operator_metadata
from ttlsnap.diagnosis.logs import examine_logs
from ttlsnap.diagnosis.problems import CODES
from ttlsnap.errors import CorruptionError, RefusedError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.filesystem import Directory
from ttlsnap.journal import FileFacts, Journal, Move, backup_path, facts_of, next_number, report_path, staged_path
from ttlsnap.locking import refuse_if_running
from ttlsnap.plan import new_run_id
from ttlsnap.publish import fence_file, refuse_if_changed, set_aside, swap
from ttlsnap.recovery import discard_leftovers, discard_unless_open, refuse_if_cut_off
from ttlsnap.shadows import find_shadows

if TYPE_CHECKING:
    from ttlsnap.diagnosis.examination import DoctorReport


@dataclass(frozen=True)
class GoingBack:
    """A repair that gives up committed ``batches`` of ``target`` and goes back to the state after ``batch``."""

    target: str
    name: str
    batch: int
    batches: tuple[int, ...]

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        given_up = f"batch {first}" if first == last else f"batches {first} to {last}"
        return (
            f"--fix {self.name} gives up {given_up} of {self.target}, committed, and goes back to the state after "
            f"batch {self.batch}"
        )


Confirm = Callable[[GoingBack], bool]
"""Answers whether committed batches may be given up. Nothing is changed unless it returns True."""


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise UsageError for a name that is no code."""
    for name in names:
        if name not in CODES:
            known = ", ".join(sorted(code for code, kind in CODES.items() if kind.fixable))
            raise UsageError(f"--fix {name}: there is no such problem; what can be fixed is: {known}")


def repair(
    files: Directory, found: DoctorReport, names: Sequence[str], stopped: bool, confirm: Confirm | None
) -> str | None:
    """Repair the problems ``names`` of those ``found``. The caller holds the lock on the checkpoint.

    Return the name of the run, or None if ``confirm`` said no. Raise RefusedError if committed batches would be given
    up and there is no ``confirm``.
    """
    refuse_if_cut_off(files)
    there = {problem.code: problem for problem in found.problems}
    for name in names:
        if name not in there:
            raise UsageError(f"--fix {name}: {files.root} has no such problem. Nothing was changed")
        if not there[name].fixable:
            raise RefusedError(
                f"--fix {name}: that is not safe for doctor to do. Nothing was changed. {there[name].fix}"
            )
    _refuse_out_of_order(names)
    refuse_if_running(files, _query_id(files), stopped=stopped)
    discard_leftovers(files)
    before = list_activity(files)
    logs = read_logs(files)
    if logs.commits[-1] != found.batch:
        raise RefusedError(f"{files.root}: batch {logs.commits[-1]} was committed meanwhile: the query runs")
    batch = found.batch
    if "last-batch-lost" in names:
        batch = next(version.batch for version in found.versions if version.restorable == "yes")
        given_up = tuple(number for number in logs.commits if number > batch)
        if not _confirmed(GoingBack(files.root, "last-batch-lost", batch, given_up), confirm):
            return None
    run = new_run_id()
    moves = _Moves(files, run)
    try:
        for name in dict.fromkeys(names):
            if name == "last-batch-lost":
                _go_back(moves, batch, keep_next=_can_run_again(files, batch + 1))
            elif name in ("unfinished-repartition", "torn-offset"):
                _go_back(moves, batch, keep_next=False)
            elif name in ("abandoned-repartition", "stale-snapshot"):
                _set_leftovers_aside(moves, name)
            elif name == "table-in-backup":
                moves.put_back(held_tables(files, [info.name for info in files.list(layout.RUNS)]))
            elif name == "hidden-batch":
                _uncover(moves, logs)
        if "moved-schema-paths" in names:
            _relocate(moves)
        journal = Journal(
            run=run,
            number=next_number(files),
            kind="repair",
            batch=batch,
            fence=fence_file(logs),
            moves=tuple(moves.all),
            status="open",
            published=moves.published,
        )
        files.mkdirs(layout.run_directory(run))
        files.replace(report_path(run), json.dumps({"fixed": list(dict.fromkeys(names))}, indent=1).encode())
        swap(
            files,
            journal,
            check=lambda: refuse_if_changed(files, journal, before),
            recheck=lambda: refuse_if_changed(files, journal, before, only_signs=True),
        )
    except BaseException:
        discard_unless_open(files, run)
        raise
    return run


def _confirmed(going_back: GoingBack, confirm: Confirm | None) -> bool:
    if confirm is None:
        raise RefusedError(
            f"{going_back}. Nobody can be asked. Nothing was changed; add --yes (in Python, confirm=...)"
        )
    return confirm(going_back)


def _query_id(files: Directory) -> str | None:
    """The query's id; where it cannot be read, nobody knows whether the query runs, and rollback refuses."""
    try:
        return query_id(files)
    except (CorruptionError, UnsupportedError) as error:
        raise RefusedError(f"{error}. Put that right first; nothing was changed") from error


def _refuse_out_of_order(names: Sequence[str]) -> None:
    """Going back further makes what only concerns later batches meaningless."""
    if "last-batch-lost" in names and len(set(names) - {"moved-schema-paths"}) > 1:
        raise UsageError("--fix last-batch-lost sets aside all that later batches left; give it alone")


def _can_run_again(files: Directory, batch: int) -> bool:
    """Whether Spark can run a batch again over the input that its offsets name; a repartition it cannot."""
    try:
        return shuffle_partitions(read_conf(files, batch)) == shuffle_partitions(read_conf(files, batch - 1))
    except TtlsnapError:
        return False


class _Moves:
    """The moves of a repair: each file is moved once, whichever of the repairs wants it."""

    def __init__(self, files: Directory, run: str) -> None:
        self.files, self.run = files, run
        self._aside: dict[str, Move] = {}
        self._new: dict[str, Move] = {}

    def aside(self, path: str) -> None:
        """Set a file aside, with its checksum files."""
        for move in set_aside(self.files, self.run, [path]):
            self._aside.setdefault(move.source, move)
        self._new.pop(path, None)

    def new(self, path: str, data: bytes) -> None:
        """Put new content in a file's place."""
        if path in self._aside:
            return  # it goes
        staged = staged_path(self.run, path)
        self.files.mkdirs(staged.rpartition("/")[0])
        with self.files.writer(staged) as file:
            file.write(data)
        self.aside(path)
        self._new[path] = Move(staged, path)

    def put_back(self, tables: Sequence[HeldTable]) -> None:
        """Put tables where they are missing; the backups keep theirs."""
        for held in tables:
            staged = staged_path(self.run, held.path)
            if held.path not in self._new:
                self.files.preserve(backup_path(held.run, held.path), staged)
                self._new[held.path] = Move(staged, held.path)

    @property
    def published(self) -> tuple[FileFacts, ...]:
        """What identifies the files with new content."""
        staged = facts_of(self.files, [move.source for move in self._new.values()])
        return tuple(replace(facts, path=path) for facts, path in zip(staged, self._new, strict=True))

    @property
    def all(self) -> list[Move]:
        return [*self._aside.values(), *self._new.values()]


def _go_back(moves: _Moves, batch: int, *, keep_next: bool) -> None:
    """Set aside all that batches after ``batch`` left; with ``keep_next`` not the plan of the first of them."""
    files = moves.files
    for folder, kept in ((layout.COMMITS, batch), (layout.OFFSETS, batch + keep_next)):
        for info in files.list(folder):
            number = layout.parse_number(info.name)
            if number is not None and number > kept:
                moves.aside(f"{folder}/{info.name}")
    for operator in _operators(files):
        for partition in partition_folders(files, operator):
            for path, name in state_files(files, operator, partition):
                if name.version > batch + 1:
                    moves.aside(path)
    for path in operator_metadata(files):
        if int(path.rpartition("/")[2]) > batch + keep_next:
            moves.aside(path)


def _set_leftovers_aside(moves: _Moves, code: str) -> None:
    """Set aside the snapshots that no batch has written."""
    logs = examine_logs(moves.files)
    checkpoint = open_checkpoint(moves.files, spare=True)
    for left in leftovers(checkpoint, logs):
        for path in left.files if left.code == code else ():
            moves.aside(path)
    begun = max(logs.logs.offsets[-1], logs.logs.commits[-1])
    for path in operator_metadata(moves.files):
        if int(path.rpartition("/")[2]) > begun:
            moves.aside(path)


def _uncover(moves: _Moves, logs: Logs) -> None:
    """Set aside the snapshots of earlier runs that hide what a batch wrote when it was run again."""
    for shadow in find_shadows(moves.files, logs):
        for path in (*shadow.files, *([shadow.planned] if shadow.planned else ())):
            moves.aside(path)


def _relocate(moves: _Moves) -> None:
    for path in operator_metadata(moves.files):
        moves.new(path, relocated(moves.files, path, moves.files.root))


def _operators(files: Directory) -> list[int]:
    found = (layout.parse_number(info.name) for info in files.list(layout.STATE) if info.is_dir)
    return [operator for operator in found if operator is not None]
