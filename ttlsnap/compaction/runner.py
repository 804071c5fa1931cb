"""The runner of a plan's partitions, which also checks and reports the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ttlsnap.archives.delivery import deliver
from ttlsnap.archives.receivers import Receiver
from ttlsnap.archives.writing import check_complete, folder_of
from ttlsnap.checkpoint import layout
from ttlsnap.compaction.drop_limit import refuse_excess, warn_of_excess, warn_of_far_future, warn_of_lag
from ttlsnap.compaction.engine import Engine, reason_of, run_tasks
from ttlsnap.compaction.incremental import Visits, read_visited, write_visited
from ttlsnap.compaction.listener import Listener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.partial_keys import warn_of_partial_keys
from ttlsnap.compaction.plan import Plan
from ttlsnap.compaction.report import CompactionReport, shown_in, summarize
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.cores import available_cores
from ttlsnap.errors import Foreseen, RefusedError, TtlsnapError
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.access import own_access, umask
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.new_access import access_of_new
from ttlsnap.transaction.steps import WorkPlace


class Runner:
    """A plan, its options, and the engine that runs it."""

    def __init__(
        self,
        plan: Plan,
        runs: Runs,
        options: CompactOptions,
        engine: Engine,
        listener: Listener,
        archive: Receiver | None,
    ) -> None:
        self.plan, self._options, self._listener, self._archive = plan, options, listener, archive
        self._engine = engine
        self._visited = read_visited(runs) if options.visits_some_partitions else {}
        self._visits: Visits | None = None

    def partitions(self, place: WorkPlace) -> list[PartitionResult]:
        """Run every partition. Raise the first failure."""
        plan, options = self.plan, self._options
        self._listener.planned(plan)
        expired = self._archive is not None
        tasks = plan.tasks(place.root, place.below, rewrite=options.rewrite, scratch=place.scratch, expired=expired)
        tasks = [replace(task, show=options.show, ages=options.ages, run=plan.run) for task in tasks]
        return self._run_in_turns(tasks) if options.visits_some_partitions else self._run_all(tasks)

    def _run_all(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        return run_tasks(self._engine, tasks, self._listener.partition_done, self._listener.progress)

    def _run_in_turns(self, tasks: Sequence[PartitionTask]) -> list[PartitionResult]:
        self._visits = Visits(tasks, self._options.parts, self._visited, available_cores())
        waves, results = self._visits.waves(), []
        with contextlib.suppress(StopIteration):
            wave = next(waves)
            while True:
                wave_results = self._run_all(wave)
                results += wave_results
                wave = waves.send(wave_results)
        return results

    def note_visited(self, run: str | None) -> None:
        """Record the visited partitions, which count if ``run`` is published; None if it has nothing to publish."""
        if self._visits is not None:
            write_visited(self.plan.checkpoint.files, self._visits, run)

    def report(self, results: Sequence[PartitionResult]) -> CompactionReport:
        """Return the report of these results; ``published`` says whether they change something."""
        plan = self.plan
        totals, states = summarize(plan, results)
        rules = tuple(factory.describe() for factory in plan.factories)
        moments = {state.now_us for state in states if state.now_us is not None}
        report = CompactionReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=self._options.dry_run,
            published=any(result.staged is not None for result in results),
            engine=self._engine.name,
            engine_reason=reason_of(self._engine),
            rules=rules,
            shown=tuple(shown_in(results, rules))[: self._options.show],
            batch=plan.checkpoint.batch.id,
            fingerprint=plan.fingerprint,
            now_us=moments.pop() if len(moments) == 1 else plan.clock.processing_us,
            now_source=plan.clock.source,
            totals=totals,
            states=states,
            warnings=tuple(_cautions(plan)),
            visited=self._visits.counts if self._visits else None,
            expired_to=self._archive.name if self._archive is not None else None,
        )
        cautions = (*warn_of_far_future(report.drops), *warn_of_lag(report.drops), *warn_of_partial_keys(report.states))
        return replace(report, warnings=(*report.warnings, *cautions))

    def refuse_unwanted(
        self, files: Directory, report: CompactionReport, results: Sequence[PartitionResult], *, asks: bool
    ) -> None:
        """Raise RefusedError if more would be dropped than is allowed, unless the run ``asks`` a person.

        Raise it also if rows of a join that have not matched would be dropped, unless the user wants that. Raise
        CorruptionError unless all dropped entries are in the archive's files in ``files``, if there is an archive.
        """
        if not asks:
            refuse_excess(report.target, report.drops, self._options.max_drop)
        if (reason := self._unmatched(report)) is not None:
            raise RefusedError(f"{reason} Nothing was changed. For an inner join, {_WITH_OPTION}")
        if self._archive is not None:
            archive_files = [result.expired.target for result in results if result.expired is not None]
            self._share_archive(files, results)
            followed = sum(result.followed for result in results)
            check_complete(files, archive_files, report.totals.dropped + followed)
            if archive_files:  # the names must survive a power failure, like those of the new files
                files.sync(folder_of(self.plan.run))

    def foresee(self, report: CompactionReport) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return why a run would be refused because of what it drops, and warnings about drops that nobody allowed."""
        reason = self._unmatched(report)
        warning = Foreseen(f"a run refuses this. {reason} For an inner join, {_WITH_OPTION}")
        return () if reason is None else (warning,), warn_of_excess(report.drops, self._options.max_drop)

    def deliver(self, files: Directory) -> list[str]:
        """Move the dropped entries to their archive, after the run is published. Return a warning if that fails."""
        if self._archive is None:
            return []
        try:
            deliver(files, self.plan.run, self._archive)
        except (TtlsnapError, MemoryError) as error:
            staged_folder = f"{files.root}/{folder_of(self.plan.run)}"
            reason = error.text if isinstance(error, TtlsnapError) else "out of memory"
            return [f"the dropped entries are still in {staged_folder}. The next run will archive them: " + reason]
        return []

    def _share_archive(self, files: Directory, results: Sequence[PartitionResult]) -> None:
        """Give the files of dropped entries the access of the state."""
        source = self.plan.checkpoint.files
        for result in results:
            if result.expired is not None:
                folder = layout.store_directory(result.operator, result.partition, result.store)
                access = access_of_new(source, f"{folder}/new")
                files.set_access(result.expired.target, access or own_access(0o666 & ~umask()))

    def _unmatched(self, report: CompactionReport) -> str | None:
        unmatched = sum(state.unmatched for state in report.states)
        if not unmatched or self._options.drop_unmatched:
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
    for version in sorted(
        {
            partition.lineage.only_for
            for store in plan.stores
            for partition in store.partitions
            if partition.lineage.only_for
        }
    ):
        yield (
            f"only Spark {version} reads the snapshots of this checkpoint, old or new. A later version reads the "
            "changelogs instead, which still contain the dropped entries, or does not start"
        )
