"""``import``: fill states of a checkpoint with the rows of tables, and publish the result as ``compact`` does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, get_args

from ttlsnap.checkpoint import Checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.checkpoint.logs import source_positions
from ttlsnap.compaction.planned_run import PlannedRun
from ttlsnap.compaction.staged import settle
from ttlsnap.compaction.task import Progress
from ttlsnap.engines.listener import SilentWorkListener, WorkListener
from ttlsnap.engines.local import spread, useful_threads
from ttlsnap.errors import CorruptionError, RefusedError, UsageError
from ttlsnap.expired.receivers import Receiver
from ttlsnap.imports.conforming import HAS_KEY, Misfits
from ttlsnap.imports.partition import BuildResult, BuildTask, FileResult, FileTask, Mode, StoreFiles
from ttlsnap.imports.plan import ImportPlan, plan_import
from ttlsnap.imports.report import ImportReport, TableReport
from ttlsnap.imports.sorted_rows import Room, SortedRows
from ttlsnap.migration.fingerprint import add
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Staging
from ttlsnap.stores.scratch import scratch_folder
from ttlsnap.transaction.options import RunOptions
from ttlsnap.transaction.steps import Place, write_new_state


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
    if mode not in get_args(Mode):
        raise UsageError(f"unknown mode {mode}; use one of {', '.join(get_args(Mode))}")
    options = RunOptions(
        schemas=schemas,
        dry_run=dry_run,
        output=output,
        scratch=scratch,
        stopped=stopped,
        planned_batch=planned_batch,
    )

    def begin(checkpoint: Checkpoint, runs: Runs, _: Receiver | None) -> Import:
        plan = plan_import(checkpoint, runs, source, selection or Selection(), tables)
        return Import(plan, runs, options, source, mode, parallelism, listener or SilentListener())

    return write_new_state(target, options, begin)


class Import(PlannedRun[ImportReport]):
    """A run of ``import``."""

    kind = "import"

    def __init__(
        self,
        imported: ImportPlan,
        runs: Runs,
        options: RunOptions,
        source: str,
        mode: Mode,
        parallelism: int | None,
        listener: ImportListener,
    ) -> None:
        super().__init__(imported.plan, runs, options)
        self._imported, self._source, self._mode = imported, source, mode
        self._parallelism, self._listener = parallelism, listener
        self._written_ms = time.time_ns() // 1_000_000

    def work(self, place: Place) -> ImportReport:
        with scratch_folder(place.scratch) as folder:
            rows = self._places_of_rows(folder)
            read = self._read_files(folder, rows)
            built = self._build(folder, rows, place)
        self._require_all(read, built)
        results = [result for partition in built for result in partition.stores]
        if place.below is not None:
            staging = Staging(open_directory(place.root), place.below)
            staged = [file for result in results for file in result.staged or ()]
            settled = iter(each(staging.files, lambda f: settle(staging.files, f, staging.place(f.target)), staged))
            results = [
                result if result.staged is None else replace(result, staged=tuple(next(settled) for _ in result.staged))
                for result in results
            ]
        self.results = results
        return self._report(read, built)

    def refuse_unwanted(self, files: Directory) -> None:
        """Do nothing: the mode says what the user has allowed."""

    def confirm(self, report: ImportReport) -> bool:
        return self._listener.confirm(report)

    def _places_of_rows(self, folder: Path) -> list[list[SortedRows]]:
        """Return a place for the rows of each file, by table."""
        room = Room()
        return [
            [
                SortedRows(folder / f"rows-{number}-{n}", len(self._partitions(one.table.state.operator)), room)
                for n in range(len(one.files))
            ]
            for number, one in enumerate(self._imported.filled)
        ]

    def _read_files(self, folder: Path, rows: Sequence[Sequence[SortedRows]]) -> list[list[FileResult]]:
        """Sort the rows of every file by partition. Return the results by table."""
        batch = self.checkpoint.batch
        tasks = [
            FileTask(
                file,
                one.table,
                len(self._partitions(one.table.state.operator)),
                batch.watermark_ms,
                batch.timestamp_ms,
                rows[number][n],
            )
            for number, one in enumerate(self._imported.filled)
            for n, file in enumerate(one.files)
        ]
        partitions = sum(len(self._partitions(operator.id)) for operator in self._imported.operators)
        self._listener.planned(len(tasks) + partitions)
        threads = self._parallelism or useful_threads(folder.as_posix(), sum(task.file.size for task in tasks))
        results = iter(spread(_read_file, tasks, threads, self._listener.partition_done, self._listener.progress))
        found = [[next(results) for _ in one.files] for one in self._imported.filled]
        misfits = Misfits()
        for result in (result for mine in found for result in mine):
            misfits.include(result.misfits)
        self._require_fits(misfits)
        return found

    def _build(self, folder: Path, rows: Sequence[Sequence[SortedRows]], place: Place) -> list[BuildResult]:
        plan, tasks = self.plan, []
        kept = plan.kept_states()
        for operator in self._imported.operators:
            mine = [
                (number, one)
                for number, one in enumerate(self._imported.filled)
                if one in self._imported.of(operator.id)
            ]
            stores = [store for store in plan.stores if store.operator == operator.id]
            dated = {s.store: tuple(k for k in kept if k.operator == s.operator and k.store == s.store) for s in stores}
            for number, partition in enumerate(self._partitions(operator.id)):
                tasks.append(
                    BuildTask(
                        root=self.checkpoint.target,
                        run_id=plan.run,
                        history=plan.history,
                        written_ms=max(self._written_ms, plan.checkpoint.batch.timestamp_ms),
                        operator=operator.id,
                        partition=partition,
                        partitions=len(self._partitions(operator.id)),
                        stores=tuple(StoreFiles(s.store, s.partitions[number].lineage, dated[s.store]) for s in stores),
                        tables=tuple(one.table for _, one in mine),
                        rows=tuple(tuple(rows[number]) for number, _ in mine),
                        mode=self._mode,
                        state_store=plan.state_store,
                        staging_root=place.root,
                        staged_below=place.below,
                        scratch=str(folder),
                    )
                )
        threads = self._parallelism or useful_threads(self.checkpoint.target, sum(task.size for task in tasks))
        return spread(_build_partition, tasks, threads, self._listener.partition_done, self._listener.progress)

    def _partitions(self, operator: int) -> tuple[int, ...]:
        return next(o.stores[0].partitions for o in self.checkpoint.operators if o.id == operator)

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
                f"{self.checkpoint.target}: the new partitions do not have the rows of the tables. Nothing was "
                "published. Check the disk and the memory of this machine"
            )

    def _require_fits(self, misfits: Misfits) -> None:
        if misfits.counts:
            has_keys = any(reason.endswith(HAS_KEY) for reason in misfits.counts)
            raise RefusedError(
                f"--from {self._source}: some rows do not fit the state. Nothing was changed: "
                + misfits.describe()
                + ("\nTo replace the entries of existing keys, use --mode merge or replace" if has_keys else "")
            )

    def _report(self, read: Sequence[Sequence[FileResult]], built: Sequence[BuildResult]) -> ImportReport:
        checkpoint, replaced, warnings = self.checkpoint, Counter[str](), Counter[str]()
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
            for one, mine in zip(self._imported.filled, read, strict=True)
        )
        return ImportReport(
            run=self.id,
            target=checkpoint.target,
            source=self._source,
            mode=self._mode,
            dry_run=self.options.dry_run,
            published=bool(self.results),
            batch=checkpoint.batch.id,
            tables=tables,
            sources=tuple(source_positions(checkpoint.files, checkpoint.batch.id)),
            bytes_before=sum(result.bytes_before for result in self.results),
            bytes_after=sum(result.bytes_after for result in self.results),
            warnings=(*self._empty(tables), *(f"{words} ({count:,} rows)" for words, count in warnings.items())),
        )

    def _empty(self, tables: Sequence[TableReport]) -> list[str]:
        """Return a warning for each table without rows."""
        then = ", so the state is empty afterwards" if self._mode == "replace" else ""
        return [f"{table.name}: the table has no rows{then}" for table in tables if not table.rows + table.expired]


def _read_file(task: FileTask, progress: Progress) -> FileResult:
    return task.run(progress)


def _build_partition(task: BuildTask, progress: Progress) -> BuildResult:
    return task.run(progress)
