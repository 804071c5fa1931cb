"""``import``: fill states of a checkpoint with the rows of tables, and publish the result as ``compact`` does."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, get_args

from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.checkpoint.logs import source_positions
from ttlsnap.compaction.copy import (
    begin_copy,
    check_destination,
    describe_copy,
    discard_copy,
    finish_copy,
    share_copy,
    staging_directory,
    write_copy,
)
from ttlsnap.compaction.publish import check_unchanged, new_files, publish, refuse_unmovable
from ttlsnap.compaction.scratch import claim_scratch, discard_old_scratch, existing_folder
from ttlsnap.compaction.staged import settle
from ttlsnap.compaction.task import PartitionResult, Progress
from ttlsnap.engines.listener import SilentWorkListener, WorkListener
from ttlsnap.engines.local import spread, useful_threads
from ttlsnap.errors import CorruptionError, FencedError, RefusedError, UsageError
from ttlsnap.imports.conforming import HAS_KEY, Misfits
from ttlsnap.imports.partition import BuildResult, BuildTask, FileResult, FileTask, Mode, StoreFiles
from ttlsnap.imports.plan import ImportPlan, plan_import
from ttlsnap.imports.report import ImportReport, TableReport
from ttlsnap.imports.sorted_rows import Room, SortedRows
from ttlsnap.migration.fingerprint import add
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.publishing.cleanup import discard_after_error, discard_leftovers, discard_run, tidy_up
from ttlsnap.publishing.first_run import describe_first_run
from ttlsnap.publishing.journal import report_path, scratch_path, staged_path
from ttlsnap.publishing.preflight import refuse_in_place, refuse_running
from ttlsnap.publishing.runs import refuse_if_interrupted
from ttlsnap.storage.directory import OWN, Directory, each
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.protocols import Staging
from ttlsnap.stores.scratch import scratch_folder


class ImportListener(WorkListener, Protocol):
    """A listener to the progress of an import. ``confirm`` returns whether to publish."""

    def confirm(self, report: ImportReport) -> bool: ...


class SilentListener(SilentWorkListener):
    """A listener that prints nothing and agrees."""

    def confirm(self, report: ImportReport) -> bool:
        return True


def import_state(
    target: str,
    source: str,
    *,
    selection: Selection | AnyOf | None = None,
    tables: Sequence[str] = (),
    mode: Mode = "insert",
    schemas: Schemas | None = None,
    dry_run: bool = False,
    output: str | None = None,
    stopped: bool = False,
    planned_batch: bool = True,
    scratch: str | None = None,
    parallelism: int | None = None,
    listener: ImportListener | None = None,
) -> ImportReport:
    """Fill states of the checkpoint ``target`` with the rows of ``source``, and publish the result.

    ``source`` is a Parquet file, a folder of them, a Delta table, or a folder that ``export`` wrote, with a folder for
    each table. ``selection`` or the names of ``tables`` say which states to fill. With the mode ``insert``, no row may
    have a key that a state already has. ``merge`` replaces the entries of such keys, and ``replace`` all entries.

    ``output``, ``stopped``, ``planned_batch`` and ``scratch`` are as for ``compact``. Raise a ``TtlsnapError`` (see
    ``ttlsnap.errors``); the checkpoint is then unchanged, unless the message names ``ttlsnap recover``.
    """
    started = time.monotonic()
    if mode not in get_args(Mode):
        raise UsageError(f"unknown mode {mode}; use one of {', '.join(get_args(Mode))}")
    scratch = existing_folder(scratch) if scratch is not None else None
    files = open_directory(target)
    with suppress(FencedError):  # a run that is publishing holds the lock
        open_checkpoint(for_reading(files), schemas=schemas)  # fail before locking if this is not a checkpoint
    only_read = output is not None
    with nullcontext() if dry_run else files.lock(shared=only_read):
        refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=schemas), files=files)
        plan = plan_import(checkpoint, source, selection or Selection(), tables)
        plan = replace(plan, plan=plan.plan.for_copy()) if only_read else plan
        refusals = refuse_running(files, checkpoint.query_id, stopped, only_read, dry_run)
        destination = check_destination(files.root, output) if output is not None else None
        if destination is None:
            refuse_unmovable(plan.plan)
            refusals += refuse_in_place(checkpoint, new_files(plan.plan), planned_batch=planned_batch, dry_run=dry_run)
        listener = listener or SilentListener()
        run = _Run(plan, source, mode, dry_run, planned_batch, scratch, parallelism, listener, started, output)
        if dry_run:
            report = run.dry()
            return replace(report, warnings=(*report.warnings, *refusals), refused=bool(refusals))
        return run.to_copy(files, destination) if destination is not None else run.in_place(files)


@dataclass
class _Run:
    plan: ImportPlan
    source: str
    mode: Mode
    dry_run: bool
    planned_batch: bool
    scratch: str | None
    parallelism: int | None
    listener: ImportListener
    started: float
    destination: str | None
    written_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def dry(self) -> ImportReport:
        return self._work(self.plan.checkpoint.target, None, None)[0]

    def in_place(self, files: Directory) -> ImportReport:
        plan = self.plan.plan
        discard_leftovers(files)
        # On a local disk, the work is in the run's own folder, so that its files need only be renamed.
        place = f"{files.root}/{scratch_path(plan.run)}" if is_local(files.root) else None
        with discard_after_error(files, plan.run):
            files.mkdirs(layout.run_directory(plan.run))
            report, results = self._work(files.root, staged_path(plan.run, ""), place)
            backup = f"{files.root}/{layout.run_directory(plan.run)}/backup"
            if not results:
                discard_run(files, plan.run)
                return report
            report = replace(report, published=True, backup=backup)
            if not self.listener.confirm(report):
                discard_run(files, plan.run)
                return replace(report, published=False, backup=None)
            files.replace(report_path(plan.run), json.dumps(report.to_json(), indent=1).encode())
            publish(plan, results, planned_batch=self.planned_batch, kind="import")
        tidied = tidy_up(files, plan.run)
        report = replace(report, warnings=(*report.warnings, *tidied.warnings), made_final=tidied.made_final)
        return replace(report, seconds=time.monotonic() - self.started, first_run=describe_first_run(files))

    def to_copy(self, files: Directory, destination: LocalDirectory) -> ImportReport:
        plan, staging = self.plan.plan, staging_directory(destination, self.plan.plan.run)
        try:
            begin_copy(files, staging)
            report, results = self._work(staging.root, "", f"{staging.root}/{OWN}/scratch")
            report = replace(report, published=True, output=destination.root)
            if not self.listener.confirm(report):
                discard_copy(staging)
                return replace(report, published=False, output=None)
            write_copy(plan, results, staging, destination.root, report.to_json())
            refuse_if_interrupted(files)  # the lock may not keep out other machines
            check_unchanged(plan)
            given = share_copy(files, staging)
            finish_copy(staging, destination)
        except BaseException:
            discard_copy(staging)
            raise
        report = replace(report, warnings=(*report.warnings, *describe_copy(files, destination, given=given)))
        return replace(report, seconds=time.monotonic() - self.started)

    def _work(
        self, staging_root: str, below: str | None, place: str | None
    ) -> tuple[ImportReport, list[PartitionResult]]:
        """Read the tables and build the partitions. Return the report, and the results with their staged files.

        ``place`` is the folder for the work if the user named none.
        """
        target = self.plan.checkpoint.target
        if self.scratch is not None:
            discard_old_scratch(self.scratch, target)
            place = claim_scratch(self.scratch, target, self.plan.plan.run)
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(scratch_folder(place))
                rows = self._places(folder)
                read = self._read_files(folder, rows)
                built = self._build(folder, rows, staging_root, below)
            self._require_all(read, built)
        finally:
            if place is not None:
                shutil.rmtree(place, ignore_errors=True)
        results = [result for partition in built for result in partition.stores]
        if below is not None:
            staging = Staging(open_directory(staging_root), below)
            staged = [file for result in results for file in result.staged or ()]
            settled = iter(each(staging.files, lambda f: settle(staging.files, f, staging.place(f.target)), staged))
            results = [
                result if result.staged is None else replace(result, staged=tuple(next(settled) for _ in result.staged))
                for result in results
            ]
        return self._report(read, built, results), results

    def _places(self, folder: Path) -> list[list[SortedRows]]:
        """Return a place for the rows of each file, by table."""
        room = Room()
        return [
            [
                SortedRows(folder / f"rows-{number}-{n}", len(self._partitions(one.table.state.operator)), room)
                for n in range(len(one.files))
            ]
            for number, one in enumerate(self.plan.filled)
        ]

    def _read_files(self, folder: Path, rows: Sequence[Sequence[SortedRows]]) -> list[list[FileResult]]:
        """Sort the rows of every file by partition. Return the results by table."""
        batch = self.plan.checkpoint.batch
        tasks = [
            FileTask(
                file,
                one.table,
                len(self._partitions(one.table.state.operator)),
                batch.watermark_ms,
                batch.timestamp_ms,
                rows[number][n],
            )
            for number, one in enumerate(self.plan.filled)
            for n, file in enumerate(one.files)
        ]
        partitions = sum(len(self._partitions(operator.id)) for operator in self.plan.operators)
        self.listener.planned(len(tasks) + partitions)
        threads = self.parallelism or useful_threads(folder.as_posix(), sum(task.file.size for task in tasks))
        results = iter(spread(_read_file, tasks, threads, self.listener.partition_done, self.listener.progress))
        found = [[next(results) for _ in one.files] for one in self.plan.filled]
        misfits = Misfits()
        for result in (result for mine in found for result in mine):
            misfits.include(result.misfits)
        self._require_fits(misfits)
        return found

    def _build(
        self, folder: Path, rows: Sequence[Sequence[SortedRows]], staging_root: str, below: str | None
    ) -> list[BuildResult]:
        plan, tasks = self.plan.plan, []
        kept = plan.kept_states()
        for operator in self.plan.operators:
            mine = [(number, one) for number, one in enumerate(self.plan.filled) if one in self.plan.of(operator.id)]
            stores = [store for store in plan.stores if store.operator == operator.id]
            dated = {s.store: tuple(k for k in kept if k.operator == s.operator and k.store == s.store) for s in stores}
            for number, partition in enumerate(self._partitions(operator.id)):
                tasks.append(
                    BuildTask(
                        root=self.plan.checkpoint.target,
                        run_id=plan.run,
                        history=plan.history,
                        written_ms=max(self.written_ms, plan.checkpoint.batch.timestamp_ms),
                        operator=operator.id,
                        partition=partition,
                        partitions=len(self._partitions(operator.id)),
                        stores=tuple(StoreFiles(s.store, s.partitions[number].lineage, dated[s.store]) for s in stores),
                        tables=tuple(one.table for _, one in mine),
                        rows=tuple(tuple(rows[number]) for number, _ in mine),
                        mode=self.mode,
                        state_store=plan.state_store,
                        staging_root=staging_root,
                        staged_below=below,
                        scratch=str(folder),
                    )
                )
        threads = self.parallelism or useful_threads(self.plan.checkpoint.target, sum(task.size for task in tasks))
        return spread(_build_partition, tasks, threads, self.listener.partition_done, self.listener.progress)

    def _partitions(self, operator: int) -> tuple[int, ...]:
        return next(o.stores[0].partitions for o in self.plan.checkpoint.operators if o.id == operator)

    def _require_all(self, read: Sequence[Sequence[FileResult]], built: Sequence[BuildResult]) -> None:
        """Raise an error unless every row became an entry, exactly once, and none was refused."""
        misfits, before, after = Misfits(), 0, 0
        for result in built:
            misfits.include(result.misfits)
            after = add(after, result.fingerprint)
        self._require_fits(misfits)
        for file in (file for mine in read for file in mine):
            before = add(before, file.fingerprint)
        rows = sum(file.rows for mine in read for file in mine)
        if before != after or rows != sum(result.rows.total() for result in built):
            raise CorruptionError(
                f"{self.plan.checkpoint.target}: the new partitions do not have the rows of the tables. Nothing was "
                "published. Check the disk and the memory of this machine"
            )

    def _require_fits(self, misfits: Misfits) -> None:
        if misfits.counts:
            has_keys = any(reason.endswith(HAS_KEY) for reason in misfits.counts)
            raise RefusedError(
                f"--from {self.source}: some rows do not fit the state. Nothing was changed: "
                + misfits.describe()
                + ("\nTo replace the entries of existing keys, use --mode merge or replace" if has_keys else "")
            )

    def _report(
        self, read: Sequence[Sequence[FileResult]], built: Sequence[BuildResult], results: Sequence[PartitionResult]
    ) -> ImportReport:
        checkpoint, replaced, warnings = self.plan.checkpoint, Counter[str](), Counter[str]()
        for result in built:
            replaced.update(result.replaced)
        for file in (file for mine in read for file in mine):
            warnings.update(file.warnings)
        tables = tuple(
            TableReport(
                one.table.name,
                str(one.table.state),
                sum(file.rows for file in mine),
                replaced[one.table.name],
                sum(file.expired for file in mine),
            )
            for one, mine in zip(self.plan.filled, read, strict=True)
        )
        return ImportReport(
            run=self.plan.plan.run,
            target=checkpoint.target,
            source=self.source,
            mode=self.mode,
            dry_run=self.dry_run,
            published=False,
            batch=checkpoint.batch.id,
            tables=tables,
            sources=tuple(source_positions(checkpoint.files, checkpoint.batch.id)),
            bytes_before=sum(result.bytes_before for result in results),
            bytes_after=sum(result.bytes_after for result in results),
            output=None,
            backup=None,
            seconds=time.monotonic() - self.started,
            destination=self.destination,
            warnings=(*self._empty(tables), *(f"{words} ({count:,} rows)" for words, count in warnings.items())),
        )

    def _empty(self, tables: Sequence[TableReport]) -> list[str]:
        """Return a warning for each table without rows."""
        then = ", so the state is empty afterwards" if self.mode == "replace" else ""
        return [f"{table.name}: the table has no rows{then}" for table in tables if not table.rows + table.expired]


def _read_file(task: FileTask, progress: Progress) -> FileResult:
    return task.run(progress)


def _build_partition(task: BuildTask, progress: Progress) -> BuildResult:
    return task.run(progress)
