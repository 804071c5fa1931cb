"""The backups that a policy asks for: one every so often, one before each run, and no more than some."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from ttlsnap.backups.found import FoundBackup, find_backups, remove_backup, restorable, restore_command
from ttlsnap.checkpoint.checkpoint import query_id
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.clock import iso_of
from ttlsnap.copies.earlier import EarlierCopy
from ttlsnap.copies.report import CopyReport
from ttlsnap.copies.run import CopyRequest, SilentCopyListener, make_copy
from ttlsnap.copies.selection import select_files
from ttlsnap.documents import Document
from ttlsnap.errors import BusyError, NotACheckpointError, RefusedError, TtlsnapError, UsageError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.open import for_reading, open_directory

_Status = Literal["done", "planned", "waiting", "current", "failed"]
_NAMES = ("name", "batch")
_PART = re.compile(r"\{([^{}]*)\}")
_EARLY = 0.1
"""The part of the time between backups by which one may be early: a nightly job does not begin at the same second."""


@dataclass(frozen=True, kw_only=True)
class BackupRule:
    """What a policy says about backups.

    ``to`` is the place of each, with ``{name}`` for the name of the checkpoint's folder and ``{batch}`` for the batch.
    ``prefix`` comes before it. ``every_s`` is the time between two of them, in seconds; None for one in each run of the
    policy. ``keep`` is how many remain; None for all. ``before_run``: one is made before a run changes the checkpoint.
    Then, without ``every_s``, there are no others. With ``verify``, everything in a new one is read again.
    """

    to: str
    every_s: float | None = None
    keep: int | None = None
    before_run: bool = False
    verify: bool = False
    prefix: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError if the place is not one for several backups."""
        unknown = [name for name in _PART.findall(self.to) if name not in _NAMES]
        folder, _, last = self.to.rstrip("/").rpartition("/")
        if unknown or set("{}") & set(_PART.sub("", self.to)):
            raise UsageError(f"backup, to has an unknown part in braces: {self.to}. There are {{name}} and {{batch}}")
        if last.count("{batch}") != 1 or "{batch}" in folder:
            raise UsageError(
                f"backup, to must have {{batch}} in its last part, as in /backups/{{name}}/{{batch}}, not {self.to}"
            )

    def place_of(self, target: str, batch: int) -> str:
        """Return the place of the backup of a checkpoint as of a batch."""
        name = target.rstrip("/").rpartition("/")[2]
        return self.prefix + self.to.rstrip("/").replace("{batch}", str(batch)).replace("{name}", name)

    def folder_of(self, target: str) -> str:
        """Return the folder of the backups of a checkpoint."""
        return self.place_of(target, 0).rpartition("/")[0]


@dataclass(frozen=True, kw_only=True)
class PolicyBackup(Document):
    """What a run of a policy did about the backups of a checkpoint.

    status          ``done``: it made one; ``planned``: it would make one; ``waiting``: it is not time for one;
                    ``current``: the newest one has what the checkpoint has; ``failed``: none was made
    place, batch, made_at, bytes    the newest one; those of the planned one, if ``planned``. None if there is none
    sent_bytes      what was sent for it in this run
    is_current      whether the newest one has the last batch that the query has committed, and the files that the
                    checkpoint had before this run changed it; None if that is not known
    backups         how many there are; None if that is not known, because the checkpoint could not be read
    removed         those that are more than the policy keeps, and were removed, or would be, with ``dry_run``
    """

    status: _Status = "failed"
    place: str | None = None
    batch: int | None = None
    made_at: str | None = None
    bytes: int | None = None
    sent_bytes: int = 0
    is_current: bool | None = None
    backups: int | None = None
    removed: tuple[str, ...] = ()
    dry_run: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def existing_place(self) -> str | None:
        """The place of the newest backup; None if there is none, or only a planned one."""
        return None if self.status == "planned" else self.place

    @property
    def made_at_s(self) -> float | None:
        """When the newest one was made, in seconds since the epoch; None if there is none."""
        return None if self.made_at is None else datetime.fromisoformat(self.made_at).timestamp()


class _Listener(SilentCopyListener):
    def __init__(self, refuse_if_stopped: Callable[[], None]) -> None:
        self._refuse_if_stopped = refuse_if_stopped

    def chosen(self, batch: int, files: int, size: int) -> None:
        self._refuse_if_stopped()

    def arrived(self, files: int, size: int) -> None:
        self._refuse_if_stopped()


@dataclass(frozen=True)
class _Backups:
    """The backups of a checkpoint that are in a folder, oldest first. Its last committed batch is ``batch``.

    A copy of the same query elsewhere, which has the same id, is another checkpoint. ``current`` is the one that has
    what the checkpoint has: this batch, and not another one with the same number, from before a restore; and no run has
    changed the checkpoint since. None if there is none. ``damaged`` ones do not count. ``taken`` are the places in use.
    """

    batch: int | None
    complete: list[FoundBackup]
    unfinished: list[FoundBackup]
    damaged: list[FoundBackup]
    current: FoundBackup | None
    taken: frozenset[str]

    @property
    def newest(self) -> FoundBackup | None:
        return self.current or (self.complete[-1] if self.complete else None)

    @classmethod
    def find(cls, target: str, rule: BackupRule) -> _Backups:
        source = for_reading(open_directory(target))
        require_checkpoint(source)
        found = find_backups(open_directory(rule.folder_of(target)))
        identity = (source.root, query_id(source), False)
        own = [backup for backup in found if (backup.source, backup.query_id, backup.new_id) == identity]
        complete = [backup for backup in own if backup.status == "complete"]
        unfinished = [backup for backup in own if backup.status == "unfinished"]
        damaged = [backup for backup in own if backup.status == "damaged"]
        commits = read_logs(source).commits
        batch = commits[-1] if commits else None
        runs = Runs.read(source)
        same = [backup for backup in complete if (backup.batch, backup.last_run) == (batch, runs.last_published)]
        # After a rollback, the newest may have the state from before the run. An older one would not be the first to
        # restore.
        same += [backup for backup in complete[-1:] if (backup.batch, backup.last_run) == (batch, runs.last_in_force)]
        current = next((backup for backup in reversed(same) if _has_what_is_there(source, backup)), None)
        taken = frozenset(backup.place for backup in found if backup not in unfinished)
        return cls(batch, complete, unfinished, damaged, current, taken)


def _has_what_is_there(source: Directory, backup: FoundBackup) -> bool:
    """Return whether a copy of the checkpoint as of the batch of a backup would have the same files."""
    try:
        copy = EarlierCopy.open(open_directory(backup.place))
        selection = select_files(source, backup.batch, copy.files.root)
    except TtlsnapError:  # a new backup says what is wrong
        return False
    is_same = all(file.parts or copy.find(file) is not None for file in selection.files)
    return is_same and {file.path for file in selection.files} == copy.manifest.files.keys()


class RegularBackups:
    """The backups of the checkpoint ``target`` in one run of a policy. ``result`` is what was done about them so far.

    ``refuse_if_stopped`` raises an error if the run must end. What has arrived of a backup remains for the next run.
    ``parallelism`` is the number of files that are sent at the same time.
    """

    def __init__(
        self,
        target: str,
        rule: BackupRule,
        refuse_if_stopped: Callable[[], None],
        *,
        dry_run: bool = False,
        parallelism: int | None = None,
    ) -> None:
        self._target, self._rule, self._dry_run, self._parallelism = target, rule, dry_run, parallelism
        self._listener = _Listener(refuse_if_stopped)
        self._is_regular_done = False
        self.result = PolicyBackup(dry_run=dry_run)

    def make_regular(self) -> None:
        """Make a backup if it is time, at most once. Raise a TtlsnapError if that fails."""
        if self._is_regular_done:
            return
        found, every_s = self._find(), self._rule.every_s
        newest_s = found.newest.made_at_s if found.newest is not None else None
        is_young = every_s is not None and newest_s is not None and time.time() - newest_s < every_s * (1 - _EARLY)
        if is_young or (every_s is None and self._rule.before_run):
            self._note("waiting")
        else:
            self._make(found)
        self._is_regular_done = True

    def make_before_run(self) -> None:
        """Make a backup if the rule wants one before a change of the checkpoint. Raise a TtlsnapError if that fails."""
        if self._rule.before_run and self.result.status != "planned":
            self._make(self._find())

    def _find(self) -> _Backups:
        try:
            found = _Backups.find(self._target, self._rule)
        except NotACheckpointError as error:
            if (advice := self._describe_lost()) is not None:
                error.add(advice)
            raise
        if self.result.status != "done":
            self.result = replace(self._with_newest(found.newest), backups=len(found.complete))
        self.result = replace(self.result, is_current=found.current is not None)
        self._warn_of_damage(found.damaged)
        return found

    def _describe_lost(self) -> str | None:
        """Return the command that restores a lost checkpoint; None if it has no backup."""
        root = open_directory(self._target).root
        found = restorable(find_backups(open_directory(self._rule.folder_of(self._target))))
        newest = next((backup for backup in reversed(found) if backup.source == root), None)
        if newest is None:
            return None
        return (
            f"Its newest backup is of batch {newest.batch}: {newest.place}. To restore it: "
            f"{restore_command(newest.place, root, is_lost=True)}, where N is the last batch that the sink of the "
            "query has"
        )

    def _with_newest(self, newest: FoundBackup | None) -> PolicyBackup:
        if newest is None:
            return self.result
        return replace(self.result, place=newest.place, batch=newest.batch, made_at=newest.made_at, bytes=newest.bytes)

    def _make(self, found: _Backups) -> None:
        if found.current is None:
            self._note("failed")
            newest = found.newest
            # One that is older than a complete one is an old backup, and its removal was interrupted.
            continued = [backup for backup in found.unfinished[-1:] if newest is None or _is_newer(backup, newest)]
            if continued and not self._dry_run:
                self._copy(found, continued[0].place)
                found = self._find()
        if found.current is not None:
            self._note("current")
        else:
            report = self._copy(found, self._free_place(found))
            if report.onto_is_damaged and not self._dry_run:
                found = self._find()
                self.result = replace(self.result, backups=len(found.complete))
        made = self.result.place if self.result.status == "done" else None
        others = [backup for backup in found.complete if backup != found.current and backup.place != made]
        self._remove(found.unfinished, others)

    def _warn_of_damage(self, damaged: Iterable[FoundBackup]) -> None:
        """Warn of damaged backups, which do not count and are never removed, unless a warning names them already."""
        for backup in damaged:
            if not any(backup.place in warning for warning in self.result.warnings):
                warnings = (*self.result.warnings, f"{backup.place} does not count as a backup: {backup.error}")
                self.result = replace(self.result, warnings=warnings)

    def _note(self, status: _Status) -> None:
        """Set the status, unless a backup was made in this run."""
        if self.result.status != "done":
            self.result = replace(self.result, status=status)

    def _free_place(self, found: _Backups) -> str:
        place = self._rule.place_of(self._target, found.batch or 0)
        places = (place if number == 1 else f"{place}-{number}" for number in itertools.count(1))
        return next(place for place in places if open_directory(place).root not in found.taken)

    def _copy(self, found: _Backups, place: str) -> CopyReport:
        newest = found.newest
        request = CopyRequest(
            self._target,
            place,
            onto=newest.place if newest is not None else None,
            verify=self._rule.verify,
            dry_run=self._dry_run,
            listener=self._listener,
            parallelism=self._parallelism,
        )
        try:
            report = make_copy(request)
        except BusyError as error:  # a policy may skip a busy target, but not its backup
            raise RefusedError(error.text) from error
        except TtlsnapError as error:
            if not self._dry_run and open_directory(place).stat("") is not None:
                error.add(f"The unfinished backup {place} stays. The next run continues or removes it.")
            raise
        self.result = replace(
            self.result,
            status="planned" if self._dry_run else "done",
            place=report.target,
            batch=report.batch,
            made_at=None if self._dry_run else iso_of(datetime.now(UTC)),
            bytes=report.bytes,
            sent_bytes=self.result.sent_bytes + report.sent_bytes,
            is_current=found.current is not None if self._dry_run else report.batch == found.batch,
            backups=len(found.complete) + (not self._dry_run),
            warnings=tuple(dict.fromkeys((*self.result.warnings, *report.warnings, *_mark_others(found, report)))),
        )
        return report

    def _remove(self, unfinished: list[FoundBackup], others: list[FoundBackup]) -> None:
        """Remove the unfinished backups, and those complete ``others`` that the rule does not keep beside the current.

        The current one stays, also if its time says that it is older than others. One that is damaged does not count.
        """
        keep = self._rule.keep
        old = others[: max(len(others) + 1 - keep, 0)] if keep is not None else []
        for backup in [*old, *unfinished]:
            try:
                if not self._dry_run:
                    remove_backup(backup)
            except TtlsnapError as error:
                warnings = dict.fromkeys((*self.result.warnings, error.message))  # it is tried twice in some runs
                self.result = replace(self.result, warnings=tuple(warnings))
                continue
            is_counted = backup.status == "complete" and not self._dry_run
            self.result = replace(
                self.result,
                removed=(*self.result.removed, backup.place),
                backups=(self.result.backups or 0) - is_counted,
            )


def _mark_others(found: _Backups, report: CopyReport) -> list[str]:
    """Mark the other backups that have damaged files of the one from which files were shared, as by hard links.

    Return a warning for each.
    """
    warnings = []
    others = [backup for backup in found.complete if backup != found.newest] if report.damaged_onto else []
    for backup in others:
        try:
            copy = EarlierCopy.open(open_directory(backup.place))
            if damaged_paths := copy.damaged_among(report.damaged_onto):
                copy.mark_damaged(report.target)
                warnings.append(
                    f"{backup.place}/{damaged_paths[0]} is damaged, too. Do not restore from {backup.place}"
                )
        except TtlsnapError as error:
            warnings.append(f"{backup.place} was not compared: {error.message}")
    return warnings


def _is_newer(backup: FoundBackup, other: FoundBackup) -> bool:
    return (backup.made_at_s or 0) > (other.made_at_s or 0)
