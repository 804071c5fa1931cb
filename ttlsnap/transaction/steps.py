"""The steps of every run that changes a checkpoint, in one place and in one order.

    lock          a run that writes a copy shares the lock with others; a dry run takes none
    look again    refuse if an earlier run was interrupted, if the query may be running, if files cannot be moved
    stage         the command's own work: new files, which nobody reads yet
    confirm       refuse what the user has not allowed, and ask
    publish       swap the files behind a fence (see ``publishing.swap``), or give the copy its name
    deliver       move dropped entries to their archive
    tidy          remove what the run and earlier runs have left

``write_new_state`` has all of them. ``change_in_place`` begins with staging: its caller holds the lock.
"""

from __future__ import annotations

import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from ttlsnap.archives.places import AllowedPlaces
from ttlsnap.archives.receivers import ExpiredCallback, Receiver, open_receiver, refuse_within
from ttlsnap.checkpoint import Checkpoint, layout, open_checkpoint
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.checkpoint.own_paths import find_moved_schemas
from ttlsnap.errors import FencedError, tidy_after_error
from ttlsnap.publishing.archives import deliver_all
from ttlsnap.publishing.cleanup import (
    discard_after_error,
    discard_leftovers,
    discard_run,
    foresee_final,
    tidy_up,
    warn_of_only_copies,
)
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.in_progress import refuse_uncommitted
from ttlsnap.publishing.journal import Journal, report_path, scratch_path, staged_path
from ttlsnap.publishing.late_logs import refuse_late_logs
from ttlsnap.publishing.liveness import longest_gap_ms
from ttlsnap.publishing.preflight import foresee, refuse_in_place, refuse_running
from ttlsnap.publishing.runs import Runs, refuse_if_interrupted
from ttlsnap.publishing.swap import refuse_activity, refuse_if_changed, swap
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.lease import refuse_other_systems
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.uris import is_local
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.copy import Destination, write_report
from ttlsnap.transaction.options import RunOptions
from ttlsnap.transaction.report import RunReport
from ttlsnap.transaction.scratch import claim_scratch, discard_old_scratch, existing_folder


@dataclass(frozen=True)
class WorkPlace:
    """Where a run works: new files wait ``below`` a folder of ``root``, None in a dry run.

    ``scratch`` is a local folder for the work, which the transaction removes; None for one of the system.
    """

    root: str
    below: str | None
    scratch: str | None


class Run(ABC):
    """A run that changes a checkpoint in place. The methods are called in the order in which they are here.

    ``runs`` are the ones before this, and after publishing also this one. ``before`` has the logs and the state files
    as they were when the run was planned. The transaction collects the ``warnings``, and sets ``made_final`` to the run
    before, if only its backup could undo it and this run removed that.
    """

    replaces_backups = False
    """Whether the run's backup takes the place of those of earlier runs, which are removed."""

    def __init__(self, runs: Runs, run: str, before: Listing) -> None:
        self.files, self.runs, self.id, self.before = runs.files, runs, run, before
        self.warnings: list[str] = []
        self.made_final: str | None = None

    def deliver_waiting(self) -> list[str]:
        """Deliver what earlier runs have dropped. Return the failures, which do not stop this run."""
        return []

    @abstractmethod
    def stage(self, place: WorkPlace) -> None:
        """Write the new files into ``place``."""

    @abstractmethod
    def is_wanted(self) -> bool:
        """Return whether to publish, after asking. Raise RefusedError for what the user has not allowed."""

    def document(self) -> dict[str, Any] | None:
        """Return the report of the run for its history; None if it has none."""
        return None

    @abstractmethod
    def journal(self) -> Journal:
        """Return the journal of what the run changes."""

    def check(self) -> None:  # noqa: B027 - most runs need no more
        """Raise a TtlsnapError if what the run needs has changed; logs and state files are compared without this."""

    def check_again(self) -> None:  # noqa: B027 - most runs need no more
        """Raise a TtlsnapError if the state that is now in place is not right."""

    def deliver(self, files: Directory) -> list[str]:
        """Deliver what the run has dropped from ``files``. Return warnings if that fails."""
        return []


def change_in_place(run: Run, scratch: str | None = None) -> bool:
    """Stage, confirm and publish a run on a checkpoint whose lock the caller holds. Then deliver, and tidy.

    ``scratch`` is the user's folder for the work. Return whether the run was published. After an error, the checkpoint
    is as it was before, unless the message names ``ttlsnap recover``.
    """
    files = run.files
    run.runs = discard_leftovers(run.runs)
    run.warnings += [*warn_of_only_copies(run.runs), *run.deliver_waiting()]
    # On a local disk, the work is in the run's own folder, so that its files need only be renamed.
    scratch_folder = f"{files.root}/{scratch_path(run.id)}" if is_local(files.root) else None
    with discard_after_error(files, run.id):
        files.mkdirs(layout.run_directory(run.id))
        _stage(run, WorkPlace(files.root, staged_path(run.id, ""), scratch_folder), scratch)
        if not run.is_wanted():
            discard_run(files, run.id)
            return False
        if (document := run.document()) is not None:
            files.replace(report_path(run.id), json.dumps(document, indent=1).encode())
        _publish(run)
    run.warnings += run.deliver(files)
    if run.replaces_backups:
        tidied = tidy_up(run.runs, run.id)
        run.warnings += tidied.warnings
        run.made_final = tidied.made_final
    return True


def _publish(run: Run) -> None:
    files = run.files
    # The run may move logs away that show how far apart the query's batches are.
    journal = replace(run.journal(), longest_gap_ms=longest_gap_ms(run.runs, read_logs(files)))

    def check() -> None:
        refuse_if_changed(files, run.before, fence=journal.fence)
        refuse_late_logs(files, journal)
        run.check()

    def check_again() -> None:
        refuse_activity(files, journal, run.before)
        refuse_late_logs(files, journal)
        run.check_again()

    run.runs = run.runs.with_journal(swap(files, journal, check=check, recheck=check_again))


def _stage(run: Run, place: WorkPlace, scratch: str | None) -> None:
    """Let a run work in its own folder of the user's ``scratch`` folder, or else in that of ``place``."""
    folder = place.scratch
    if scratch is not None:
        discard_old_scratch(scratch, run.files.root)
        folder = claim_scratch(scratch, run.files.root, run.id)
    try:
        run.stage(replace(place, scratch=folder))
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)  # a worker that is killed leaves its own folder there


AnyReport = TypeVar("AnyReport", bound=RunReport)


class StateRun(Run, Generic[AnyReport]):
    """A run that computes new state from the checkpoint, in place or in a copy, and reports it.

    ``refusals`` say why a run would be refused, in a dry run that goes on all the same. ``plans_batch``: the run can
    plan a batch, which then must be one that Spark can run. ``names_schemas``: it writes metadata with the paths of
    state schemas.
    """

    checkpoint: Checkpoint
    options: RunOptions
    report: AnyReport
    refusals: tuple[str, ...] = ()
    plans_batch = True
    names_schemas = False
    replaces_backups = True
    started: float

    def __init__(
        self,
        checkpoint: Checkpoint,
        runs: Runs,
        run: str,
        before: Listing,
        options: RunOptions,
        archive: Receiver | None = None,
    ) -> None:
        super().__init__(runs, run, before)
        self.checkpoint, self.options, self.archive = checkpoint, options, archive

    def nothing_to_do(self) -> AnyReport | None:
        """Return the report of a run that would change nothing, whatever the state is; None if there is work."""
        return None

    @abstractmethod
    def refuse_unmovable(self) -> None:
        """Raise RefusedError if a file that the run may move cannot be moved."""

    @abstractmethod
    def new_files(self) -> list[str]:
        """Return a path for every folder where the run may put new files."""

    def deliver_waiting(self) -> list[str]:
        return deliver_all(self.runs, AllowedPlaces(self.archive))

    @abstractmethod
    def work(self, place: WorkPlace) -> AnyReport:
        """Stage the new state. Return the report, in which ``published`` says whether something changes."""

    def stage(self, place: WorkPlace) -> None:
        report = self.work(place)
        backup_folder = f"{self.files.root}/{layout.run_directory(self.id)}/backup"
        self.report = replace(
            report,
            backup=backup_folder if report.published else None,
            destination=self.options.output,
        )
        if report.changed and self.options.output is None:
            self.made_final = foresee_final(self.runs, self.checkpoint.batch.id)

    @abstractmethod
    def refuse_unwanted(self, files: Directory) -> None:
        """Raise RefusedError if the run would drop what the user has not allowed. ``files`` has what it staged."""

    def foresee(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return, for a dry run, why a run would be refused because of its result, and further warnings."""
        return (), ()

    @abstractmethod
    def confirm(self, report: AnyReport) -> bool:
        """Return whether the user wants to publish what the report says."""

    def keep(self) -> None:
        """Keep what a run that changes nothing has found out."""

    def is_wanted(self) -> bool:
        self.refuse_unwanted(self.files)
        if not self.report.published:
            self.keep()
            return False
        if self.confirm(self.whole_report):
            return True
        self.made_final = None
        self.report = self.report.unpublished()
        return False

    @property
    def whole_report(self) -> AnyReport:
        """The report with the warnings that were collected so far."""
        warnings = (*self.report.warnings, *self.warnings)
        return replace(self.report, warnings=warnings, made_final=self.made_final, seconds=self.seconds)

    def document(self) -> dict[str, Any]:
        return self.whole_report.to_json()

    @abstractmethod
    def change(self) -> Change:
        """Return what the run changes, after staging what is left to stage."""

    def journal(self) -> Journal:
        return self.change().journal(self.runs, self.id, self.checkpoint.logs, self.before)

    @abstractmethod
    def fill_copy(self, staging: Directory, home: str) -> None:
        """Add everything but new state to ``staging``. The final place of the copy is ``home``."""

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.monotonic() - self.started


def write_new_state(
    target: str,
    options: RunOptions,
    plan: Callable[[Checkpoint, Runs, Receiver | None], StateRun[AnyReport]],
    expired_to: str | ExpiredCallback | None = None,
) -> AnyReport:
    """Carry out the run that ``plan`` returns for the checkpoint ``target``. Return its report.

    ``plan`` also gets the runs before it, and the archive for what it drops, which is at ``expired_to``.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then unchanged, unless the message names
    ``ttlsnap recover``.
    """
    started = time.monotonic()
    scratch = existing_folder(options.scratch) if options.scratch is not None else None
    files = open_directory(target)
    with suppress(FencedError):  # a run that is publishing holds the lock
        open_checkpoint(for_reading(files), schemas=options.schemas)  # fail before locking if this is not a checkpoint
    archive = _open_archive(target, expired_to, options, files)
    with nullcontext() if options.dry_run else files.lock(shared=options.output is not None):
        runs = refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=options.schemas), files=files)
        run = plan(checkpoint, runs, archive)
        run.started = started
        report = run.nothing_to_do()
        return _carry_out(run, scratch) if report is None else replace(report, seconds=run.seconds)


def _open_archive(
    target: str, expired_to: str | ExpiredCallback | None, options: RunOptions, files: Directory
) -> Receiver | None:
    """Return the archive for the dropped entries of ``target``, after a check; None if the user wants none."""
    if expired_to is None:
        return None
    refuse_within(expired_to, *filter(None, (target, options.output)))
    archive = open_receiver(expired_to)
    archive.check(make=not options.dry_run, source=files)
    return archive


def _carry_out(run: StateRun[AnyReport], scratch: str | None) -> AnyReport:
    files, options, dry_run = run.files, run.options, run.options.dry_run
    only_read = options.output is not None
    refusals = [*run.refusals]
    refusals += refuse_running(run.runs, run.checkpoint.query_id, options.stopped, only_read, dry_run)
    logs = run.checkpoint.logs
    refusals += foresee(partial(refuse_uncommitted, files, logs, run.before), dry_run=dry_run)
    destination = None
    if options.output is not None:
        refusals += foresee(partial(refuse_other_systems, files.root), dry_run=dry_run)
        destination = Destination.check(files, options.output, run.id, logs)
    if destination is None:
        run.refuse_unmovable()
        plans_batch = options.planned_batch and run.plans_batch
        # The fence, and then the planned batch, is a new file, too.
        new_files = [*run.new_files(), layout.offset_file(logs.offsets[-1] + 1)]
        moved = find_moved_schemas(files, [one.id for one in run.checkpoint.operators], run.checkpoint.batch.id)
        if moved is not None and not (moved.is_here or run.names_schemas):
            run.warnings.append(moved.words)
            moved = None
        refusals += refuse_in_place(run.checkpoint, new_files, planned_batch=plans_batch, moved=moved, dry_run=dry_run)
    if dry_run:
        return _foresee(run, refusals, scratch)
    if destination is not None:
        return _copy(run, destination, scratch)
    first_run = describe_first_run(run.runs) if change_in_place(run, scratch) else None
    return replace(run.whole_report, first_run=first_run)


def _foresee(run: StateRun[AnyReport], refusals: Sequence[str], scratch: str | None) -> AnyReport:
    """Return the report of a dry run, with warnings about what a run would refuse."""
    _stage(run, WorkPlace(run.files.root, None, None), scratch)
    more_refusals, more_warnings = run.foresee()
    run.warnings += [*refusals, *more_refusals, *more_warnings]
    return replace(run.whole_report.unpublished(), refused=bool((*refusals, *more_refusals)))


def _copy(run: StateRun[AnyReport], destination: Destination, scratch: str | None) -> AnyReport:
    """Write a copy of the checkpoint with the new state."""
    files, staging, home = run.files, destination.staging, destination.files.root
    with destination.hold(), tidy_after_error(destination.discard):
        destination.begin()
        _stage(run, WorkPlace(staging.root, "", destination.scratch), scratch)
        run.report = replace(run.report, published=True, output=home, backup=None)
        run.refuse_unwanted(staging)
        if not run.confirm(run.whole_report):
            destination.discard()
            return run.whole_report.unpublished()
        run.fill_copy(staging, home)
        write_report(run.runs, staging, run.id, run.document())
        refuse_if_interrupted(files)  # the lock may not keep out other machines
        refuse_if_changed(files, run.before)
        run.check()
        warnings = destination.finish()
    run.warnings += [*run.deliver(destination.files), *warnings]
    return run.whole_report
