"""``import``: fill states of a checkpoint with the rows of tables, and publish the result as ``compact`` does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Protocol, get_args

from ttlsnap.amounts import quantity
from ttlsnap.archives.receivers import Receiver
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.checkpoint.logs import source_positions
from ttlsnap.compaction.engine import reason_of, settle_all
from ttlsnap.compaction.planned_run import PlannedRun
from ttlsnap.engines.local import LocalEngine
from ttlsnap.engines.moving import Move, MovingEngine
from ttlsnap.engines.progress import SilentWorkListener, WorkListener
from ttlsnap.engines.proof import require_all
from ttlsnap.errors import RefusedError, UsageError
from ttlsnap.imports.conforming import HAS_KEY, Misfits
from ttlsnap.imports.partition import FilledPartition, FilledResult, Mode, ReadRows, TableSource
from ttlsnap.imports.plan import ImportPlan, plan_import
from ttlsnap.imports.report import ImportedTable, ImportReport
from ttlsnap.imports.sources import TableFile
from ttlsnap.keywords import fields_of, takes
from ttlsnap.operators.registry import AnyOf, Selection
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.open import open_directory
from ttlsnap.stores.protocols import Staging
from ttlsnap.transaction.options import RunOptions
from ttlsnap.transaction.steps import WorkPlace, write_new_state

SOURCES = 64
"""The most sources of a table. Every partition reads a part of each."""

_ROOM = 256 << 20
"""The bytes of rows that wait in memory for their partitions, on this machine. Scratch files have the rest."""


class ImportListener(WorkListener, Protocol):
    """A listener to the progress of an import. ``confirm`` returns whether to publish."""

    def confirm(self, report: ImportReport) -> bool: ...


class SilentListener(SilentWorkListener):
    """A listener that prints nothing and agrees."""

    def confirm(self, report: ImportReport) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class ImportRequest(RunOptions):
    """The arguments of ``import_state``."""

    target: str = field(kw_only=False)
    source: str = field(kw_only=False)
    selection: Selection | AnyOf | None = None
    tables: Sequence[str] = ()
    mode: Mode = "insert"
    parallelism: int | None = None
    engine: MovingEngine | None = None
    listener: ImportListener | None = None


@takes(ImportRequest)
def import_state(request: ImportRequest) -> ImportReport:
    """Fill states of the checkpoint ``target`` with the rows of ``source``, and publish the result.

    ``source`` is a Parquet file, a folder of them, a Delta table, or a folder that ``export`` wrote, with a folder for
    each table. ``selection`` or the names of ``tables`` say which states to fill. With the mode ``insert``, no row may
    have a key that a state already has. ``merge`` replaces the entries of such keys, and ``replace`` all entries.

    ``engine`` runs the work; by default at most ``parallelism`` workers on this machine.

    ``output``, ``stopped``, ``planned_batch`` and ``scratch`` are as for ``compact``. Raise a ``TtlsnapError`` (see
    ``ttlsnap.errors``); the checkpoint is then unchanged, unless the message names ``ttlsnap recover``.
    """
    source, mode = request.source, request.mode
    if mode not in get_args(Mode):
        raise UsageError(f"unknown mode {mode}; use one of {', '.join(get_args(Mode))}")
    options = RunOptions(**fields_of(request, RunOptions))

    def begin(checkpoint: Checkpoint, runs: Runs, _: Receiver | None) -> Import:
        plan = plan_import(checkpoint, runs, source, request.selection or Selection(), request.tables)
        engine = request.engine or LocalEngine(request.parallelism)
        return Import(plan, runs, options, source, mode, engine, request.listener or SilentListener())

    return write_new_state(request.target, options, begin)


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
        engine: MovingEngine,
        listener: ImportListener,
    ) -> None:
        super().__init__(imported.plan, runs, options)
        self._imported, self._source, self._mode = imported, source, mode
        self._engine, self._listener = engine, listener
        self._written_ms = time.time_ns() // 1_000_000

    def work(self, place: WorkPlace) -> ImportReport:
        sources, targets = self._sources(), self._targets(place)
        self._listener.planned(len(sources) + len(targets))
        root, state_store = self.checkpoint.target, self.plan.state_store
        move = Move(root, state_store, sources, targets, self._require_fits, place.scratch, _ROOM)
        source_results, partitions = self._engine.move(move, self._listener.partition_done, self._listener.progress)
        self._require_fits(partitions)
        rows_of_tables: list[list[ReadRows]] = [
            source_results[numbers.start : numbers.stop] for numbers in self._numbers
        ]
        self._require_all(rows_of_tables, partitions)
        results = [result for partition in partitions for result in partition.stores]
        if place.below is not None:
            staging = Staging(open_directory(place.root), place.below)
            results = each(staging.files, lambda result: settle_all(staging, result), results)
        self.results = results
        return self._report(rows_of_tables, partitions)

    def refuse_unwanted(self, files: Directory) -> None:
        """Do nothing: the mode says what the user has allowed."""

    def confirm(self, report: ImportReport) -> bool:
        return self._listener.confirm(report)

    @cached_property
    def _runs_of_files(self) -> list[list[tuple[TableFile, ...]]]:
        """The files of each table, in runs of some that follow one another. Each run is a source."""
        return [split_evenly(filled.files, SOURCES) for filled in self._imported.filled]

    @property
    def _numbers(self) -> list[range]:
        """The numbers of the sources of each table."""
        ends = list(accumulate(map(len, self._runs_of_files)))
        return [range(end - len(runs), end) for end, runs in zip(ends, self._runs_of_files, strict=True)]

    @property
    def _first_targets(self) -> dict[int, int]:
        """The number of the first target of each operator."""
        operators = [operator.id for operator in self._imported.operators]
        counts = [len(self._partitions(operator)) for operator in operators]
        return dict(zip(operators, accumulate(counts, initial=0), strict=False))

    def _sources(self) -> list[TableSource]:
        batch, first_targets = self.checkpoint.batch, self._first_targets
        return [
            TableSource(
                files,
                filled.table,
                first_targets[filled.table.state.operator],
                len(self._partitions(filled.table.state.operator)),
                batch.watermark_ms,
                batch.timestamp_ms,
            )
            for filled, runs in zip(self._imported.filled, self._runs_of_files, strict=True)
            for files in runs
        ]

    def _targets(self, place: WorkPlace) -> list[FilledPartition]:
        plan, tasks = self.plan, []
        kept_states = plan.kept_states()
        for operator in self._imported.operators:
            tables_of_operator = [
                (filled.table, numbers)
                for filled, numbers in zip(self._imported.filled, self._numbers, strict=True)
                if filled.table.state.operator == operator.id
            ]
            stores = [store for store in plan.stores if store.operator == operator.id]
            kept_of_stores = {
                store_plan.store: tuple(
                    kept_state
                    for kept_state in kept_states
                    if kept_state.operator == store_plan.operator and kept_state.store == store_plan.store
                )
                for store_plan in stores
            }
            for number in range(len(self._partitions(operator.id))):
                tasks.append(
                    FilledPartition(
                        run_id=plan.run,
                        history=plan.history,
                        written_ms=max(self._written_ms, plan.checkpoint.batch.timestamp_ms),
                        stores=tuple(
                            replace(store_plan.partitions[number], others=kept_of_stores[store_plan.store])
                            for store_plan in stores
                        ),
                        tables=tuple(table for table, _ in tables_of_operator),
                        sources=tuple(numbers for _, numbers in tables_of_operator),
                        mode=self._mode,
                        staging_root=place.root,
                        staged_below=place.below,
                    )
                )
        return tasks

    def _partitions(self, operator: int) -> tuple[int, ...]:
        return next(
            candidate.stores[0].partitions for candidate in self.checkpoint.operators if candidate.id == operator
        )

    def _require_all(self, rows_of_tables: Sequence[Sequence[ReadRows]], partitions: Sequence[FilledResult]) -> None:
        """Raise CorruptionError unless every row became an entry, exactly once."""
        for operator, first_target in self._first_targets.items():
            sent = [
                source_rows.sent
                for filled, rows_of_table in zip(self._imported.filled, rows_of_tables, strict=True)
                for source_rows in rows_of_table
                if filled.table.state.operator == operator
            ]
            targets = partitions[first_target : first_target + len(self._partitions(operator))]
            require_all(self.checkpoint.target, "rows of the tables", sent, [target.received for target in targets])

    def _require_fits(self, parts: Sequence[ReadRows] | Sequence[FilledResult]) -> None:
        """Raise RefusedError if a row was refused."""
        misfits = Misfits()
        for part in parts:
            misfits.include(part.misfits)
        if misfits.counts:
            has_keys = any(reason.endswith(HAS_KEY) for reason in misfits.counts)
            raise RefusedError(
                f"--from {self._source}: some rows do not fit the state. Nothing was changed: "
                + misfits.describe()
                + ("\nTo replace the entries of existing keys, use --mode merge or replace" if has_keys else "")
            )

    def _report(self, rows_of_tables: Sequence[Sequence[ReadRows]], partitions: Sequence[FilledResult]) -> ImportReport:
        checkpoint, replaced, warnings = self.checkpoint, Counter[str](), Counter[str]()
        for result in partitions:
            replaced.update(result.replaced)
        for source_rows in (source_rows for rows_of_table in rows_of_tables for source_rows in rows_of_table):
            warnings.update(source_rows.warnings)
        tables = tuple(
            ImportedTable(
                filled.table.name,
                str(filled.table.state),
                sum(source_rows.rows for source_rows in rows_of_table),
                replaced[filled.table.name],
                sum(source_rows.expired for source_rows in rows_of_table),
            )
            for filled, rows_of_table in zip(self._imported.filled, rows_of_tables, strict=True)
        )
        return ImportReport(
            run=self.id,
            target=checkpoint.target,
            source=self._source,
            mode=self._mode,
            dry_run=self.options.dry_run,
            published=bool(self.results),
            engine=self._engine.name,
            engine_reason=reason_of(self._engine),
            batch=checkpoint.batch.id,
            tables=tables,
            sources=tuple(source_positions(checkpoint.files, checkpoint.batch.id)),
            bytes_before=sum(result.bytes_before for result in self.results),
            bytes_after=sum(result.bytes_after for result in self.results),
            warnings=(
                *self._empty(tables),
                *(f"{warning} ({quantity(count, 'row')})" for warning, count in warnings.items()),
            ),
        )

    def _empty(self, tables: Sequence[ImportedTable]) -> list[str]:
        """Return a warning for each table without rows."""
        note = ", so the state is empty afterwards" if self._mode == "replace" else ""
        return [f"{table.name}: the table has no rows{note}" for table in tables if not table.rows + table.expired]


def split_evenly(files: Sequence[TableFile], parts: int) -> list[tuple[TableFile, ...]]:
    """Split files into at most so many runs of about the same size, each of files that follow one another."""
    runs: list[list[TableFile]] = [[]]
    size, size_done = sum(file.size for file in files), 0
    for file in files:
        if runs[-1] and size_done * parts >= size * len(runs):
            runs.append([])
        runs[-1].append(file)
        size_done += file.size
    return [tuple(run) for run in runs]
