"""The runner of a plan's partitions, which also checks and reports the results."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ttlsnap.checkpoint import layout
from ttlsnap.compaction.drop_limit import refuse_excess, warn_of_excess
from ttlsnap.compaction.engine import Engine, run_tasks
from ttlsnap.compaction.incremental import Visits, read_visited, write_visited
from ttlsnap.compaction.listener import Listener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.plan import Plan
from ttlsnap.compaction.report import CompactionReport, shown_in, summarize
from ttlsnap.compaction.scratch import claim_scratch
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.errors import RefusedError, TtlsnapError
from ttlsnap.expired.delivery import deliver
from ttlsnap.expired.places import AllowedPlaces
from ttlsnap.expired.receivers import Receiver
from ttlsnap.expired.writing import check_complete, folder_of
from ttlsnap.publishing.archives import deliver_all
from ttlsnap.storage.access import own_access, umask
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.transform.protocols import describe_rule


class Runner:
    """A plan, its options, and the engine that runs it."""

    def __init__(
        self,
        plan: Plan,
        options: CompactOptions,
        engine: Engine,
        listener: Listener,
        expired_to: Receiver | None,
        started: float,
    ) -> None:
        self.plan, self.options, self.listener, self.expired_to = plan, options, listener, expired_to
        self._engine, self._started = engine, started
        self._visited = read_visited(plan.checkpoint.files) if options.visits_some_partitions else {}
        self._visits: Visits | None = None

    def partitions(self, staging_root: str, below: str | None, scratch: str | None) -> list[PartitionResult]:
        """Run every partition. Raise the first failure. New files are staged ``below`` a folder of ``staging_root``.

        ``scratch`` is the folder for the work if the user named none.
        """
        plan = self.plan
        if self.options.scratch is not None:
            scratch = claim_scratch(self.options.scratch, plan.checkpoint.target, plan.run)
        self.listener.planned(plan)
        expired = self.expired_to is not None
        tasks = plan.tasks(staging_root, below, rewrite=self.options.rewrite, scratch=scratch, expired=expired)
        tasks = [replace(task, show=self.options.show, run=plan.run) for task in tasks]
        try:
            return self._run_in_turns(tasks) if self.options.visits_some_partitions else self._run_all(tasks)
        finally:
            if scratch is not None:
                # Each worker removes its own folder, unless it is killed.
                shutil.rmtree(scratch, ignore_errors=True)

    def _run_all(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        return run_tasks(self._engine, tasks, self.listener.partition_done, self.listener.progress)

    def _run_in_turns(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        self._visits = Visits(tasks, self.options.parts, self._visited, len(os.sched_getaffinity(0)))
        waves, found = self._visits.waves(), []
        with contextlib.suppress(StopIteration):
            wave = next(waves)
            while True:
                results = self._run_all(wave)
                found += results
                wave = waves.send(results)
        return found

    def note_visited(self, run: str | None) -> None:
        """Record the visited partitions, which count if ``run`` is published; None if it has nothing to publish."""
        if self._visits is not None:
            write_visited(self.plan.checkpoint.files, self._visits, run)

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.monotonic() - self._started

    def report(
        self, results: Sequence[PartitionResult], *, dry_run: bool = False, output: str | None = None
    ) -> CompactionReport:
        """Return the report of these results; ``published`` says what is about to happen."""
        plan = self.plan
        totals, states = summarize(plan, results)
        rules = tuple(map(describe_rule, plan.factories))
        moments = {state.now_us for state in states if state.now_us is not None}
        changed = any(result.staged is not None for result in results)
        backup = f"{plan.checkpoint.target}/{layout.run_directory(plan.run)}/backup"
        return CompactionReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=dry_run,
            published=not dry_run and (changed or output is not None),
            engine=self._engine.name,
            engine_reason=getattr(self._engine, "reason", None),
            rules=rules,
            shown=tuple(shown_in(results, rules))[: self.options.show],
            batch=plan.checkpoint.batch.id,
            fingerprint=plan.fingerprint,
            now_us=moments.pop() if len(moments) == 1 else plan.clock.processing_us,
            now_source=plan.clock.source,
            totals=totals,
            states=states,
            output=output,
            backup=backup if changed and output is None and not dry_run else None,
            seconds=self.seconds,
            warnings=tuple(_cautions(plan)),
            visited=self._visits.counts if self._visits else None,
            expired_to=self.expired_to.name if self.expired_to is not None else None,
            destination=self.options.output,
        )

    def check_archive(self, files: Directory, report: CompactionReport, results: Sequence[PartitionResult]) -> None:
        """Raise CorruptionError unless all dropped entries are in the archive's files, if there is an archive."""
        if self.expired_to is not None:
            written = [result.expired.target for result in results if result.expired is not None]
            self._share_archive(files, results)
            followed = sum(result.followed for result in results)
            check_complete(files, written, report.totals.dropped + followed)
            if written:  # the names must survive a power failure, like those of the new files
                files.sync(folder_of(self.plan.run))

    def deliver_waiting(self, files: Directory) -> list[str]:
        """Deliver the dropped entries of earlier runs. Return the failures, which do not stop this run."""
        return deliver_all(files, AllowedPlaces(self.expired_to))

    def deliver(self, files: Directory) -> list[str]:
        """Move the dropped entries to their archive, after the run is published. Return a warning if that fails."""
        if self.expired_to is None:
            return []
        try:
            deliver(files, self.plan.run, self.expired_to)
        except (TtlsnapError, MemoryError) as error:
            left = f"{files.root}/{folder_of(self.plan.run)}"
            reason = error.text if isinstance(error, TtlsnapError) else "out of memory"
            return [f"the dropped entries are still in {left}. The next run will archive them: " + reason]
        return []

    def require_limit(self, report: CompactionReport, listener: object) -> None:
        """Raise RefusedError if more would be dropped than is allowed, and ``listener`` asks no person."""
        if not getattr(listener, "asks", False):
            refuse_excess(report.target, report.drops, self.options.max_drop)

    def _share_archive(self, files: Directory, results: Sequence[PartitionResult]) -> None:
        """Give the files of dropped entries the access of the state."""
        source = self.plan.checkpoint.files
        for result in results:
            if result.expired is not None:
                folder = layout.store_directory(result.operator, result.partition, result.store)
                access = access_of_new(source, f"{folder}/new")
                files.set_access(result.expired.target, access or own_access(0o666 & ~umask()))

    def require_matched(self, report: CompactionReport) -> None:
        """Raise RefusedError if rows of a join that have not matched would be dropped, unless the user wants that."""
        if (told := self._unmatched(report)) is not None:
            raise RefusedError(f"{told} Nothing was changed. For an inner join, {_WITH_OPTION}")

    def dry_report(self, results: Sequence[PartitionResult], refusals: Sequence[str]) -> CompactionReport:
        """Return the report of a dry run, with warnings about ``refusals`` and about what a run refuses to drop."""
        report = self.report(results, dry_run=True)
        refusals = (*refusals, *self.refusals(report))
        warnings = (*report.warnings, *refusals, *self.warnings_of_excess(report))
        return replace(report, warnings=warnings, refused=bool(refusals))

    def refusals(self, report: CompactionReport) -> tuple[str, ...]:
        """Return why a run would be refused, because of what it drops."""
        told = self._unmatched(report)
        return () if told is None else (f"a run refuses this. {told} For an inner join, {_WITH_OPTION}",)

    def warnings_of_excess(self, report: CompactionReport) -> tuple[str, ...]:
        """Return warnings about drops that a run refuses unless somebody agrees."""
        return warn_of_excess(report.drops, self.options.max_drop)

    def _unmatched(self, report: CompactionReport) -> str | None:
        unmatched = sum(state.unmatched for state in report.states)
        if not unmatched or self.options.drop_unmatched:
            return None
        return (
            f"{unmatched:,} of the rows to drop belong to a join and have not matched yet. If it is an outer join, it "
            "must still emit them, with nulls. The checkpoint does not record the join type."
        )


_WITH_OPTION = "repeat the command with --drop-unmatched (in a policy: drop_unmatched)"


def _cautions(plan: Plan) -> Iterator[str]:
    """Yield warnings about the new snapshots, and about times that are not those of the logs."""
    if plan.history is not None and plan.history.wrong_clock is not None:
        yield plan.history.wrong_clock
    for only in sorted({p.lineage.only_for for store in plan.stores for p in store.partitions if p.lineage.only_for}):
        yield (
            f"only Spark {only} reads the snapshots of this checkpoint, old or new. A later version reads the "
            "changelogs instead, which still contain the dropped entries, or does not start"
        )
