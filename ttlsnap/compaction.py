"""``compact``: a full scan of a checkpoint's state through transformers, published or copied.

Plan, run and publish, put together. A dry run is the same run without a staged file and without publishing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, get_args

import xxhash

from ttlsnap.access import access_of_new, own_access, read_access, umask
from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.clock import clock_at
from ttlsnap.copying import (
    begin_copy,
    check_destination,
    discard_copy,
    finish_copy,
    share_copy,
    staging_directory,
    write_copy,
)
from ttlsnap.drop_limit import check_limit, refuse_excess, warn_of_excess
from ttlsnap.engines import Engine, run_tasks
from ttlsnap.engines.local import LocalEngine
from ttlsnap.errors import RefusedError, StorageError, TtlsnapError, UsageError
from ttlsnap.expired.delivery import deliver, deliver_all
from ttlsnap.expired.places import Places
from ttlsnap.expired.receivers import ExpiredCallback, Receiver, receiver, refuse_within
from ttlsnap.expired.writing import check_complete, folder_of
from ttlsnap.filesystem import OWN, Directory, LocalDirectory, for_reading, is_local, open_directory
from ttlsnap.incremental import Parts, Turns, read_visited, write_visited
from ttlsnap.journal import report_path, scratch_path, staged_path
from ttlsnap.lease import Owner
from ttlsnap.locking import refuse_if_running
from ttlsnap.operators import AnyOf, Selection, TimerPolicy
from ttlsnap.partition import PartitionResult, PartitionTask
from ttlsnap.plan import Plan, plan_compaction
from ttlsnap.preflight import new_files, refuse_foreign, refuse_unmovable
from ttlsnap.publish import check_unchanged, publish
from ttlsnap.recovery import (
    discard_backups,
    discard_leftovers,
    discard_run,
    discard_unless_open,
    refuse_if_cut_off,
    warn_of_only_copies,
)
from ttlsnap.report import CompactionReport, summarize
from ttlsnap.schema_check import check_given_schemas
from ttlsnap.stores import Rewrite, RewriteChoice
from ttlsnap.transform import StateSnapshotTransformerFactory

_OWNER = "owner.json"


class Listener(Protocol):
    """Hears how a run goes on; every method may do nothing.

    A listener may also have ``asks``, which is true if ``confirm`` asks a person. That person, not the limit on what
    may be dropped (``max_drop``), then decides.
    """

    def planned(self, plan: Plan) -> None: ...
    def progress(self, entries: int, dropped: int) -> None: ...
    def partition_done(self) -> None: ...
    def confirm(self, report: CompactionReport) -> bool:
        """Asked before anything is published; False ends the run with nothing changed."""
        ...


class SilentListener:
    """Says nothing and agrees."""

    def planned(self, plan: Plan) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass

    def confirm(self, report: CompactionReport) -> bool:
        return True


def compact(
    target: str,
    transformers: Sequence[StateSnapshotTransformerFactory],
    *,
    now: str = "checkpoint",
    selection: Selection | AnyOf | None = None,
    schemas: Schemas | None = None,
    dry_run: bool = False,
    output: str | None = None,
    engine: Engine | None = None,
    rewrite: RewriteChoice = "auto",
    scratch: str | None = None,
    drop_unmatched: bool = False,
    timers: TimerPolicy = "keep",
    stopped: bool = False,
    planned_batch: bool = True,
    max_drop: float | None = None,
    parts: Parts = (),
    expired_to: str | ExpiredCallback | None = None,
    listener: Listener | None = None,
) -> CompactionReport:
    """Run ``transformers`` over the state of the checkpoint ``target``, and publish the result.

    ``now`` is ``checkpoint``, ``wall`` or an ISO 8601 time. With ``output`` a new checkpoint is written there and
    the source stays as it is. ``rewrite`` and ``scratch`` are for RocksDB: how a partition is written (a number is the
    share of its entries up to which they go as tombstones), and in which local folder the work is done.
    ``drop_unmatched`` lets rows of a join go that have matched nothing yet.
    ``timers`` "follow" lets those of a key go with the last of its state.
    ``stopped`` is your word that the query is stopped, however young its logs are. Without ``planned_batch`` the run
    ends without the batch that stops a query which was idle all the while (see ``docs/publishing.md``).
    ``max_drop`` is the share of a state's entries, from 0.0 to 1.0, that may be dropped when the listener asks nobody
    (see ``Listener``); without it only dropping all of them is refused, and 1.0 allows that.
    ``parts`` say of which states a run visits some partitions only, and the next run others. ``expired_to`` is what
    gets what was dropped: a folder, ``delta:`` and the path of a Delta table, or what is called with it (see
    ``ttlsnap.expired``).

    Raises a ``TtlsnapError`` (see ``ttlsnap.errors``); the checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    started = time.monotonic()
    if rewrite not in get_args(Rewrite) and not (isinstance(rewrite, float) and 0 <= rewrite <= 1):
        raise UsageError(
            f"rewrite is {rewrite!r}, not one of {', '.join(get_args(Rewrite))}, nor a share from 0.0 to 1.0"
        )
    if timers not in get_args(TimerPolicy):
        raise UsageError(f"timers is {timers!r}, not one of {', '.join(get_args(TimerPolicy))}")
    check_limit(max_drop)
    if output is not None and any(part is not None for _, part in parts):
        raise UsageError("a new checkpoint has all partitions: incremental cleanup goes without an output")
    if scratch is not None:
        if not Path(scratch).is_dir():
            raise UsageError(f"--scratch {scratch} is no folder")
        scratch = os.path.realpath(scratch)
    files = open_directory(target)
    open_checkpoint(for_reading(files), schemas=schemas)  # whatever is no checkpoint is not even locked
    archive = None
    if expired_to is not None:
        refuse_within(expired_to, *filter(None, (target, output)))
        archive = receiver(expired_to)
        archive.check(make=not dry_run, source=files)
    listener = listener or SilentListener()
    with nullcontext() if dry_run else files.lock(shared=output is not None):
        refuse_if_cut_off(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=schemas), files=files)
        plan = plan_compaction(checkpoint, transformers, clock_at(now, checkpoint.batch), selection, timers)
        check_given_schemas(plan, schemas or {}, scratch)
        if not dry_run:
            refuse_if_running(files, checkpoint.query_id, stopped=stopped, only_read=output is not None)
        run = _Run(
            plan, engine or LocalEngine(), listener, started, rewrite, scratch, drop_unmatched, max_drop, parts, archive
        )
        destination = check_destination(files.root, output) if output is not None else None
        if output is None:
            refuse_unmovable(plan)
        if dry_run:
            report = run.report(run.partitions(files.root, None, None), dry_run=True)
            return replace(report, warnings=(*report.warnings, *warn_of_excess(report.drops, max_drop)))
        if destination is not None:
            return _to_copy(run, files, destination)
        return _in_place(run, files, planned_batch)


class _Run:
    """A plan, and who carries it out."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        listener: Listener,
        started: float,
        rewrite: RewriteChoice,
        scratch: str | None,
        drop_unmatched: bool,
        max_drop: float | None,
        parts: Parts,
        expired_to: Receiver | None,
    ) -> None:
        self.plan, self.engine, self.listener, self.started = plan, engine, listener, started
        self._rewrite: RewriteChoice = rewrite
        self.scratch, self._drop_unmatched, self._max_drop = scratch, drop_unmatched, max_drop
        self._parts, self.expired_to = parts, expired_to
        self._is_partial = any(part is not None for _, part in parts)
        self._visited = read_visited(plan.checkpoint.files) if self._is_partial else {}
        self._turns: Turns | None = None

    def partitions(self, staging_root: str, below: str | None, scratch: str | None) -> list[PartitionResult]:
        """Run every partition; raises the first failure. New files go ``below`` a folder of ``staging_root`` first.

        ``scratch`` is the folder for the work where the user named none.
        """
        plan = self.plan
        if self.scratch is not None:
            scratch = claim_scratch(self.scratch, plan)
        self.listener.planned(plan)
        expired = self.expired_to is not None
        tasks = plan.tasks(staging_root, below, rewrite=self._rewrite, scratch=scratch, expired=expired)
        try:
            return self._run_in_turns(tasks) if self._is_partial else self._run_all(tasks)
        finally:
            if scratch is not None:
                # Each worker removes its own; this is for those that were killed.
                shutil.rmtree(scratch, ignore_errors=True)

    def _run_all(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        return run_tasks(self.engine, tasks, self.listener.partition_done, self.listener.progress)

    def _run_in_turns(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        self._turns = Turns(tasks, self._parts, self._visited, len(os.sched_getaffinity(0)))
        waves, found = self._turns.waves(), []
        with contextlib.suppress(StopIteration):
            wave = next(waves)
            while True:
                results = self._run_all(wave)
                found += results
                wave = waves.send(results)
        return found

    def note_visited(self, run: str | None) -> None:
        """Note down which partitions had their turn, provided that ``run`` is published, if one is to be."""
        if self._turns is not None:
            write_visited(self.plan.checkpoint.files, self._turns, run)

    def report(
        self, results: Sequence[PartitionResult], *, dry_run: bool = False, output: str | None = None
    ) -> CompactionReport:
        """The report of these results, ``published`` being what is about to happen."""
        plan = self.plan
        totals, states = summarize(plan, results)
        moments = {state.now_us for state in states if state.now_us is not None}
        changed = any(result.staged is not None for result in results)
        backup = f"{plan.checkpoint.target}/{layout.run_directory(plan.run)}/backup"
        return CompactionReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=dry_run,
            published=not dry_run and (changed or output is not None),
            engine=self.engine.name,
            batch=plan.checkpoint.batch.id,
            fingerprint=plan.fingerprint,
            now_us=moments.pop() if len(moments) == 1 else plan.clock.processing_us,
            now_source=plan.clock.source,
            totals=totals,
            states=states,
            output=output,
            backup=backup if changed and output is None and not dry_run else None,
            seconds=time.monotonic() - self.started,
            warnings=tuple(_cautions(plan)),
            visited=self._turns.counts if self._turns else None,
            expired_to=self.expired_to.name if self.expired_to is not None else None,
        )

    def check_archive(self, files: Directory, report: CompactionReport, results: Sequence[PartitionResult]) -> None:
        """Raise CorruptionError unless all that is dropped was written down, where it is to be."""
        if self.expired_to is not None:
            written = [result.expired.target for result in results if result.expired is not None]
            self._share_archive(files, results)
            followed = sum(result.followed for result in results)
            check_complete(files, written, report.totals.dropped + followed)
            if written:  # their names must outlive a power cut as those of the new files do
                files.sync(folder_of(self.plan.run))

    def require_limit(self, report: CompactionReport) -> None:
        """Raise RefusedError when more would be dropped than is allowed, and no person is asked."""
        if not getattr(self.listener, "asks", False):
            refuse_excess(report.target, report.drops, self._max_drop)

    def _share_archive(self, files: Directory, results: Sequence[PartitionResult]) -> None:
        """Let those read what was dropped who may read the state that it was in."""
        source = self.plan.checkpoint.files
        for result in results:
            if result.expired is not None:
                folder = layout.store_directory(result.operator, result.partition, result.store)
                access = access_of_new(source, f"{folder}/new")
                files.set_access(result.expired.target, access or own_access(0o666 & ~umask()))

    def require_matched(self, report: CompactionReport) -> None:
        """Raise RefusedError when rows of a join would go that had matched nothing yet, unless that is wanted."""
        unmatched = sum(state.unmatched for state in report.states)
        if unmatched and not self._drop_unmatched:
            raise RefusedError(
                f"{unmatched:,} of the rows that would be dropped are of a join and have matched nothing yet. An outer "
                "join has still to emit them, with nulls, and never would; to an inner join they are nothing but "
                "state. Which of the two it is no checkpoint tells. Nothing was changed. To drop them: --drop-unmatched"
            )


def _cautions(plan: Plan) -> Iterator[str]:
    """What a user has to know of the new snapshots."""
    for only in sorted({p.lineage.only_for for store in plan.stores for p in store.partitions if p.lineage.only_for}):
        yield (
            f"only Spark {only} reads the snapshots of this checkpoint, new or old: a later version goes on from its "
            "changelogs, in which what was dropped is still there, or does not start"
        )


def claim_scratch(given: str, plan: Plan) -> str:
    """Make the run's own folder in the one that the user gave, with a file that names this process; its path."""
    folder = Path(given) / f"{_scratch_beginning(plan)}{plan.run}"
    try:
        folder.mkdir()
        (folder / _OWNER).write_text(json.dumps(asdict(Owner.of_this_process())))
    except OSError as error:
        raise StorageError(f"cannot make a scratch folder in {given}: {error.strerror}") from error
    return str(folder)


def _scratch_beginning(plan: Plan) -> str:
    return f"ttlsnap-{xxhash.xxh3_64_hexdigest(os.fsencode(plan.checkpoint.target))}-"


def _discard_old_scratch(given: str, plan: Plan) -> None:
    """Remove what killed runs left in the scratch folder.

    Another run may be at work there: on another machine that shares the folder, or in a container whose checkpoint has
    the same path. So a folder is removed only if its process is known to have died.
    """
    for folder in Path(given).glob(f"{_scratch_beginning(plan)}*"):
        try:
            owner = Owner.read((folder / _OWNER).read_bytes())
        except OSError:
            continue
        if owner is not None and owner.has_died:
            shutil.rmtree(folder, ignore_errors=True)


def _in_place(run: _Run, files: Directory, planned_batch: bool) -> CompactionReport:
    plan = run.plan
    refuse_foreign(files, new_files(plan))
    discard_leftovers(files)
    warnings = [*warn_of_only_copies(files), *_deliver_waiting(files, run)]
    if run.scratch is not None:
        _discard_old_scratch(run.scratch, plan)
    # Beside the files that are made in it, where that is on a disk, so that they need only be renamed.
    scratch = f"{files.root}/{scratch_path(plan.run)}" if is_local(files.root) else None
    try:
        files.mkdirs(layout.run_directory(plan.run))
        results = run.partitions(files.root, staged_path(plan.run, ""), scratch)
        report = run.report(results)
        report = replace(report, warnings=(*report.warnings, *warnings))
        run.require_limit(report)
        run.require_matched(report)
        run.check_archive(files, report, results)
        if not report.published:
            discard_run(files, plan.run)
            run.note_visited(None)
            return report
        if not run.listener.confirm(report):
            discard_run(files, plan.run)
            return replace(report, published=False, backup=None)
        run.note_visited(plan.run)
        files.replace(report_path(plan.run), json.dumps(report.to_json(), indent=1).encode())
        publish(plan, results, planned_batch=planned_batch)
    except BaseException:
        discard_unless_open(files, plan.run)
        raise
    report = _delivered(files, run, report)
    try:
        files.remove_tree(staged_path(plan.run, ""))  # a worker that was killed may have left something there
        discard_backups(files, keep=plan.run)
    except (TtlsnapError, MemoryError) as error:
        kept = f"an older backup could not be removed; the next run will try again: {error or 'out of memory'}"
        report = replace(report, warnings=(*report.warnings, kept))
    return replace(report, seconds=time.monotonic() - run.started)


def _deliver_waiting(files: Directory, run: _Run) -> list[str]:
    """What earlier runs have dropped and not delivered; where that fails again it is no reason not to go on."""
    return deliver_all(files, Places(run.expired_to))


def _delivered(files: Directory, run: _Run, report: CompactionReport) -> CompactionReport:
    """Move what was dropped to where it is wanted, now that the run is published."""
    if run.expired_to is None:
        return report
    try:
        deliver(files, report.run, run.expired_to)
    except (TtlsnapError, MemoryError) as error:
        left = f"{files.root}/{folder_of(report.run)}"
        reason = error or "out of memory"
        warning = f"what was dropped is still in {left}, from where the next run will deliver it: {reason}"
        return replace(report, warnings=(*report.warnings, warning))
    return report


def _to_copy(run: _Run, files: Directory, destination: LocalDirectory) -> CompactionReport:
    staging = staging_directory(destination, run.plan.run)
    try:
        begin_copy(files, staging)
        results = run.partitions(staging.root, "", f"{staging.root}/{OWN}/scratch")
        report = run.report(results, output=destination.root)
        run.require_limit(report)
        run.require_matched(report)
        run.check_archive(staging, report, results)
        if not run.listener.confirm(report):
            discard_copy(staging)
            return replace(report, published=False, output=None)
        write_copy(run.plan, results, staging, destination.root, json.dumps(report.to_json(), indent=1).encode())
        refuse_if_cut_off(files)  # a lock may not reach as far as another machine
        check_unchanged(run.plan)
        given = share_copy(files, staging)
        finish_copy(staging, destination)
    except BaseException:
        discard_copy(staging)
        raise
    report = _delivered(destination, run, report)
    if not given and is_local(files.root):
        report = replace(report, warnings=(*report.warnings, _not_given(files.root, destination.root)))
    return replace(report, seconds=time.monotonic() - run.started)


def _not_given(source: str, copy: str) -> str:
    owner, me = read_access(source).owner_name, own_access(0).owner_name
    return (
        f"{copy} belongs to {me}, who may not give files to the owner of the source ({owner}). Before a query of "
        f"{owner} starts on it, run as root: chown -R --reference={source} {copy}"
    )
