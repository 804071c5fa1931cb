"""The repairs of ``doctor --fix``: files move to a backup, or are rewritten, with the journal and fence of publishing.

Some of the repairs do the same: they go back to the state after the last committed batch. The files of later batches
(logs, state files, operator metadata) move to the run's backup, from which ``rollback`` restores them.

``last-batch-lost`` gives up committed batches, so it asks first. Then it does what ``ttlsnap rewind`` does (see
``backups.replacing``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttlsnap.backups.replacing import go_back
from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import HDFS_PROVIDER, PROVIDERS, partition_folders, query_id, state_files
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.checkpoint.logs import PROVIDER, Logs, read_conf, read_logs
from ttlsnap.checkpoint.own_paths import SCHEMA_PATHS, SOURCE_PATHS, find_own_paths, operator_metadata
from ttlsnap.copies.run import CopyRequest
from ttlsnap.diagnosis.folders import leftovers
from ttlsnap.diagnosis.logs import examine_logs
from ttlsnap.diagnosis.problems import CODES
from ttlsnap.diagnosis.report import DoctorReport
from ttlsnap.errors import CorruptionError, RefusedError, UnsupportedError, UsageError
from ttlsnap.printable import shell_word
from ttlsnap.publishing.backups import HeldTable, find_held_tables
from ttlsnap.publishing.hidden_batches import find_hidden_batches
from ttlsnap.publishing.in_progress import refuse_uncommitted
from ttlsnap.publishing.journal import Journal, facts_of, find_backup, staged_path
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.runs import Runs, new_run_id, refuse_if_interrupted
from ttlsnap.storage.directory import Directory
from ttlsnap.stores.open import unknown_provider
from ttlsnap.stores.protocols import StagedFile
from ttlsnap.suggestions import did_you_mean
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.steps import Run, WorkPlace, change_in_place
from ttlsnap.written.ledger import list_ledgers, read_ledger


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
            f"--fix {self.name} gives up committed {given_up} of {self.target}, and goes back to the state after batch "
            f"{self.batch}"
        )


Confirm = Callable[[GoingBack], bool]
"""A function that returns whether committed batches may be given up. Without True nothing is changed."""


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise UsageError for a name that is not a code."""
    for name in names:
        if name not in CODES:
            codes = sorted(code for code, kind in CODES.items() if kind.fixable)
            hint = did_you_mean(name, codes)
            raise UsageError(f"--fix {name}: unknown problem{hint}; these can be fixed: {', '.join(codes)}")


def repair(
    files: Directory,
    report: DoctorReport,
    before: Listing,
    names: Sequence[str],
    request: CopyRequest,
    confirm: Confirm | None,
) -> Run | None:
    """Repair the problems in ``report`` whose codes are ``names``. The caller holds the lock on the checkpoint.

    ``before`` has the logs and state files as they were before they were examined. A repair that finds others is
    undone. ``request`` is for going back.

    Return the run, or None if ``confirm`` said no. Raise RefusedError if committed batches would be given
    up and there is no ``confirm``.
    """
    runs = refuse_if_interrupted(files)
    problems_by_code = {problem.code: problem for problem in report.problems}
    for name in names:
        if name not in problems_by_code:
            raise UsageError(f"--fix {name}: {files.root} does not have this problem. Nothing was changed")
        if not problems_by_code[name].fixable:
            raise RefusedError(
                f"--fix {name}: doctor cannot repair this safely. Nothing was changed. {problems_by_code[name].fix}"
            )
    _refuse_out_of_order(names)
    _refuse_unknown_provider(files)
    refuse_if_running(runs, _query_id(files), stopped=request.stopped)
    logs = read_logs(files)
    if logs.commits[-1] != report.batch:
        raise RefusedError(f"{files.root}: batch {logs.commits[-1]} was committed during the run: the query is running")
    if "torn-offset" in names:
        advice = f"Go back to batch {report.batch} with another number: ttlsnap rewind {shell_word(files.root)} "
        advice += f"--batch {report.batch} --stopped"
        refuse_uncommitted(files, logs, before, advice)
        if runs.has_set_positions(report.batch):
            raise RefusedError(
                f"{files.root}: ttlsnap has set the positions of batch {report.batch}, and Spark may not start without "
                f"a batch after it. Nothing was changed. {advice}"
            )
    if "last-batch-lost" in names:
        return _go_back_if_wanted(files, report, logs, request, confirm)
    run = Repair(runs, report, logs, before, list(dict.fromkeys(names)))
    change_in_place(run)
    return run


def _go_back_if_wanted(
    files: Directory, report: DoctorReport, logs: Logs, request: CopyRequest, confirm: Confirm | None
) -> Run | None:
    """Go back to the newest batch that can be restored. Return the run, or None if ``confirm`` said no."""
    batch = next(version.batch for version in report.versions if version.restorable == "yes")
    given_up = tuple(number for number in logs.commits if number > batch)
    going_back = GoingBack(files.root, "last-batch-lost", batch, given_up)
    if confirm is None:
        raise RefusedError(
            f"{going_back}. Nothing was changed. To accept that without a terminal, add --yes (in Python: confirm=...)"
        )
    return go_back(files, replace(request, batch=batch)) if confirm(going_back) else None


def _refuse_unknown_provider(files: Directory) -> None:
    """Raise UnsupportedError if the newest batch whose settings can be read has a provider that is not Spark's own."""
    for batch in reversed(read_logs(files).offsets):
        with contextlib.suppress(CorruptionError, UnsupportedError):
            name = read_conf(files, batch).get(PROVIDER, HDFS_PROVIDER)
            break
    else:
        return
    if name not in PROVIDERS:
        raise unknown_provider(files.root, name)


class Repair(Run):
    """A run of ``doctor --fix``."""

    def __init__(self, runs: Runs, report: DoctorReport, logs: Logs, before: Listing, names: Sequence[str]) -> None:
        super().__init__(runs, new_run_id(), before)
        self._doctor_report, self._names = report, names
        self._logs, self._batch = logs, report.batch
        self._moves = _Moves(runs.files, self.id)

    def stage(self, place: WorkPlace) -> None:
        moves = self._moves
        for name in self._names:
            if name in ("unfinished-repartition", "torn-offset"):
                _go_back(moves, self._batch)
            elif name in ("abandoned-repartition", "stale-snapshot"):
                _move_leftovers(moves, name)
            elif name == "hidden-batch":
                _uncover(moves, self.runs, self._logs)
            elif name == "table-in-backup":
                moves.put_back(find_held_tables(self.files, list(self.runs.ids)))
            if name in ("damaged-snapshot", "stale-checksum", "stale-snapshot"):
                for problem in self._doctor_report.problems:
                    if problem.code == name:
                        moves.set_aside(problem.where)
        _relocate(moves, self._names)

    def is_wanted(self) -> bool:
        return True

    def document(self) -> dict[str, Any]:
        return {"fixed": list(self._names)}

    def journal(self) -> Journal:
        return self._moves.change(self._batch).journal(self.runs, self.id, self._logs, self.before)


def _query_id(files: Directory) -> str | None:
    """Return the query's id. Raise RefusedError without one: a running query is not detected, and rollback refuses."""
    try:
        return query_id(files)
    except (CorruptionError, UnsupportedError) as error:
        raise RefusedError(error.text + ". Nothing was changed. Repair that first") from error


def _refuse_out_of_order(names: Sequence[str]) -> None:
    """Raise UsageError for other repairs beside ``last-batch-lost``, which replaces all files but those with paths."""
    if "last-batch-lost" in names and len(set(names) - {SCHEMA_PATHS, SOURCE_PATHS}) > 1:
        raise UsageError(
            "--fix last-batch-lost moves all of the state and the logs to the backup; use it without another --fix"
        )


class _Moves:
    """What a repair moves; each file moves once, even if several repairs need it."""

    def __init__(self, files: Directory, run: str) -> None:
        self.files, self._run = files, run
        self._paths_set_aside: dict[str, None] = {}
        self._new_contents: dict[str, bytes] = {}
        self._restored_tables: dict[str, StagedFile] = {}

    def set_aside(self, path: str) -> None:
        """Move a file to the backup, with its checksum files."""
        self._paths_set_aside[path] = None

    def new(self, path: str, data: bytes) -> None:
        """Replace the content of a file, unless another repair moves it to the backup."""
        self._new_contents[path] = data

    def put_back(self, tables: Sequence[HeldTable]) -> None:
        """Restore missing tables; the backups keep theirs."""
        for table in tables:
            if table.path not in self._restored_tables:
                staged_file = staged_path(self._run, table.path)
                self.files.keep_copy(f"{find_backup(self.files, table.run)}/{table.path}", staged_file)
                (facts,) = facts_of(self.files, [staged_file])
                self._restored_tables[table.path] = StagedFile(staged_file, table.path, facts.size, str(facts.digest))

    def change(self, batch: int) -> Change:
        """Return the change that the moves are."""
        new_contents = {path: data for path, data in self._new_contents.items() if path not in self._paths_set_aside}
        return Change(
            kind="repair",
            batch=batch,
            staged=[*self._restored_tables.values()],
            documents=new_contents,
            set_aside=[*self._paths_set_aside],
        )


def _go_back(moves: _Moves, batch: int) -> None:
    """Move the files of batches after ``batch`` to the backup."""
    files = moves.files
    for folder in (layout.COMMITS, layout.OFFSETS):
        for info in files.list(folder):
            number = layout.parse_number(info.name)
            if number is not None and number > batch:
                moves.set_aside(f"{folder}/{info.name}")
    for operator in _operators(files):
        for partition in partition_folders(files, operator):
            for path, name in state_files(files, operator, partition):
                if name.version > batch + 1:
                    moves.set_aside(path)
    for path in operator_metadata(files):
        if int(path.rpartition("/")[2]) > batch:
            moves.set_aside(path)
    for path in list_ledgers(files):  # a key that a later batch wrote may be written again, at another time
        ledger = read_ledger(files, path)
        if ledger is None or ledger.facts.version > batch + 1:
            moves.set_aside(path)


def _move_leftovers(moves: _Moves, code: str) -> None:
    """Move snapshots that no batch has written to the backup."""
    logs = examine_logs(moves.files)
    checkpoint = open_checkpoint(moves.files, tolerate_damage=True)
    for leftover in leftovers(checkpoint, logs):
        for path in leftover.files if leftover.code == code else ():
            moves.set_aside(path)
    newest_begun = max(logs.logs.offsets[-1], logs.logs.commits[-1])
    for path in operator_metadata(moves.files):
        if int(path.rpartition("/")[2]) > newest_begun:
            moves.set_aside(path)


def _uncover(moves: _Moves, runs: Runs, logs: Logs) -> None:
    """Move snapshots of earlier runs that hide a newer result of a batch to the backup."""
    for hidden_batch in find_hidden_batches(runs, logs):
        for path in (*hidden_batch.files, *([hidden_batch.planned] if hidden_batch.planned else ())):
            moves.set_aside(path)


def _relocate(moves: _Moves, codes: Sequence[str]) -> None:
    """Replace the files that have the paths of another place."""
    for own_paths in find_own_paths(moves.files):
        if own_paths.code in codes:
            moves.new(own_paths.path, own_paths.moved_to(moves.files, moves.files.root))


def _operators(files: Directory) -> list[int]:
    operators = (layout.parse_number(info.name) for info in files.list(layout.STATE) if info.is_dir)
    return [operator for operator in operators if operator is not None]
