"""``migrate``: another number of partitions, or another state store, for the same state.

Each old partition is split by the new partitions of its keys, and each new partition is built from its parts. Between
the two, the entries are in scratch files, so memory does not grow with the state.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ttlsnap.checkpoint import layout, open_checkpoint
from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.compaction.copy import (
    begin_copy,
    check_destination,
    describe_owner,
    discard_copy,
    finish_copy,
    share_copy,
    staging_directory,
)
from ttlsnap.compaction.publish import check_listing
from ttlsnap.compaction.scratch import existing_folder
from ttlsnap.compaction.staged import settle
from ttlsnap.engines.local import spread, useful_threads
from ttlsnap.errors import FencedError, RefusedError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.migration.changes import Changes
from ttlsnap.migration.copy import write_copy
from ttlsnap.migration.plan import MigrationPlan, StoreMigration, plan_migration
from ttlsnap.migration.publish import publish, refuse_unmovable
from ttlsnap.migration.report import MigrationReport, NewPartition, StoreReport
from ttlsnap.migration.task import BuildTask, Built, Split, SplitTask, build, require_all, split
from ttlsnap.publishing.cleanup import discard_backups, discard_leftovers, discard_run, discard_unless_open
from ttlsnap.publishing.journal import report_path, scratch_path, staged_path
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.preflight import refuse_planned_batch, require_ownership
from ttlsnap.publishing.runs import refuse_if_interrupted
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.storage.open import for_reading, open_directory
from ttlsnap.storage.uris import is_local
from ttlsnap.stores.lineage import Lineage
from ttlsnap.stores.protocols import StagedFile, Staging


class MigrationListener(Protocol):
    """A listener to the progress of a migration. ``confirm`` returns whether to publish."""

    def planned(self, steps: int) -> None: ...
    def progress(self, entries: int, dropped: int) -> None: ...
    def partition_done(self) -> None: ...
    def confirm(self, report: MigrationReport) -> bool: ...


class SilentListener:
    """A listener that prints nothing and agrees."""

    def planned(self, steps: int) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass

    def confirm(self, report: MigrationReport) -> bool:
        return True


def migrate(
    target: str,
    *,
    partitions: int | None = None,
    provider: str | None = None,
    settings: Mapping[str, str] | None = None,
    schemas: Schemas | None = None,
    dry_run: bool = False,
    output: str | None = None,
    scratch: str | None = None,
    parallelism: int | None = None,
    stopped: bool = False,
    planned_batch: bool = True,
    listener: MigrationListener | None = None,
) -> MigrationReport:
    """Change the state of the checkpoint ``target``, and publish the result.

    It gets another number of ``partitions``, another state store ``provider`` ("hdfs" or "rocksdb"), or other
    ``settings`` (see ``ttlsnap.migration.changes``).

    ``scratch`` is a local folder with room for the whole state, uncompressed. ``schemas``, ``output``, ``stopped`` and
    ``planned_batch`` are as in ``compact``. The placement of the keys shows whether the schemas of the keys are right.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    started = time.monotonic()
    changes = Changes(partitions, provider, settings or {})
    if scratch is not None:
        scratch = existing_folder(scratch)
    files = open_directory(target)
    with suppress(FencedError):  # a run that is publishing holds the lock
        open_checkpoint(for_reading(files), schemas=schemas)  # fail before locking if this is not a checkpoint
    only_read = output is not None
    with nullcontext() if dry_run else files.lock(shared=only_read):
        refuse_if_interrupted(files)
        checkpoint = replace(open_checkpoint(for_reading(files), schemas=schemas), files=files)
        plan = plan_migration(checkpoint, changes)
        run = _Run(plan, parallelism, listener or SilentListener(), started)
        if plan.is_done:
            if output is not None:
                raise UsageError(f"{files.root} is already as it should be, so --output would only be a copy")
            return replace(run.report([], dry_run=dry_run), published=False, backup=None)
        destination = check_destination(files.root, output) if output is not None else None
        if not dry_run:
            refuse_if_running(files, checkpoint.query_id, stopped=stopped, only_read=only_read)
        if destination is not None:
            return run.dry(scratch) if dry_run else run.to_copy(files, destination, scratch)
        refuse_unmovable(plan)
        if not dry_run:
            if planned_batch:
                refuse_planned_batch(checkpoint)
            require_ownership(files, [*_new_snapshots(plan), layout.offset_file(checkpoint.logs.offsets[-1] + 1)])
            discard_leftovers(files)
        return run.dry(scratch) if dry_run else run.in_place(files, scratch, planned_batch)


def _new_snapshots(plan: MigrationPlan) -> list[str]:
    return [store.new_snapshot(partition) for store in plan.stores for partition in range(store.partitions)]


@dataclass
class _Run:
    plan: MigrationPlan
    parallelism: int | None
    listener: MigrationListener
    started: float

    def dry(self, scratch: str | None) -> MigrationReport:
        with tempfile.TemporaryDirectory(prefix="ttlsnap-", dir=scratch) as work:
            return self.report(self._build(Path(work), self.plan.checkpoint.target, None), dry_run=True)

    def in_place(self, files: Directory, scratch: str | None, planned_batch: bool) -> MigrationReport:
        plan = self.plan
        # On a local disk, the work is in the run's own folder, so that its files need only be renamed.
        place = f"{files.root}/{scratch_path(plan.run)}" if scratch is None and is_local(files.root) else None
        try:
            files.mkdirs(layout.run_directory(plan.run))
            if place is not None:
                files.mkdirs(scratch_path(plan.run))
            work = Path(place or tempfile.mkdtemp(prefix="ttlsnap-", dir=scratch))
            try:
                built = self._build(work, files.root, staged_path(plan.run, ""))
            finally:
                shutil.rmtree(work, ignore_errors=True)
            report = self.report(built, dry_run=False)
            if not self.listener.confirm(report):
                discard_run(files, plan.run)
                return replace(report, published=False, backup=None)
            files.replace(report_path(plan.run), json.dumps(report.to_json(), indent=1).encode())
            publish(plan, _settled(files, staged_path(plan.run, ""), built), planned_batch=planned_batch)
        except BaseException:
            discard_unless_open(files, plan.run)
            raise
        try:
            files.remove_tree(staged_path(plan.run, ""))
            discard_backups(files, keep=plan.run)
        except (TtlsnapError, MemoryError) as error:
            kept = f"an older backup could not be removed; the next run will try again: {error or 'out of memory'}"
            report = replace(report, warnings=(*report.warnings, kept))
        return replace(report, seconds=time.monotonic() - self.started)

    def to_copy(self, files: Directory, destination: LocalDirectory, scratch: str | None) -> MigrationReport:
        plan, staging = self.plan, staging_directory(destination, self.plan.run)
        try:
            begin_copy(files, staging)
            with tempfile.TemporaryDirectory(prefix="ttlsnap-", dir=scratch or staging.root) as work:
                built = self._build(Path(work), staging.root, "")
            report = replace(self.report(built, dry_run=False), backup=None, output=destination.root)
            if not self.listener.confirm(report):
                discard_copy(staging)
                return replace(report, published=False, output=None)
            _settled(staging, "", built)
            write_copy(plan, staging, destination.root, json.dumps(report.to_json(), indent=1).encode())
            refuse_if_interrupted(files)  # the lock may not keep out other machines
            check_listing(plan.checkpoint, plan.listing)
            given = share_copy(files, staging)
            finish_copy(staging, destination)
        except BaseException:
            discard_copy(staging)
            raise
        if not given and is_local(files.root):
            report = replace(report, warnings=(*report.warnings, describe_owner(files.root, destination.root)))
        return replace(report, seconds=time.monotonic() - self.started)

    def _build(self, work: Path, staging_root: str, below: str | None) -> list[list[Built]]:
        """Return the new partitions of each store."""
        plan = self.plan
        self.listener.planned(sum(len(store.lineages) + store.partitions for store in plan.stores))
        splits = self._split(work)
        self._require_placed(splits)
        built = []
        for number, (store, parts) in enumerate(zip(plan.stores, splits, strict=True)):
            like = self._choose_model(store, parts)
            tasks = [
                BuildTask(
                    root=plan.checkpoint.target,
                    target=store.new_snapshot(partition),
                    partition=partition,
                    partitions=store.partitions,
                    like=like,
                    size=sum(part.sizes[partition] for part in parts),
                    state_store=plan.new_store,
                    spills=tuple(_spill(work, number, old) for old in range(len(parts))),
                    staging_root=staging_root,
                    staged_below=below,
                    scratch=str(work),
                )
                for partition in range(store.partitions)
            ]
            mine = spread(build, tasks, self._threads, self.listener.partition_done, self.listener.progress)
            require_all(f"{plan.checkpoint.target}: {store.states[0]}", parts, mine)
            built.append(mine)
        if below is not None:
            check_listing(plan.checkpoint, plan.listing)
        return built

    def _choose_model(self, store: StoreMigration, parts: Sequence[Split]) -> Lineage:
        """Return the old partition whose settings the new ones get; an empty one if they come from another provider.

        Raise UnsupportedError if a column family has different ids in two partitions.
        """
        if self.plan.new_store.provider != self.plan.state_store.provider:
            return Lineage(store.lineages[0].version, None, (), (), "")
        chosen = next((number for number, lineage in enumerate(store.lineages) if lineage.snapshot is not None), 0)
        for number, part in enumerate(parts):
            if any(part.entries) and part.families != parts[chosen].families:
                raise UnsupportedError(
                    f"{self.plan.checkpoint.target}: operator {store.operator}, store {store.store.name}: partitions "
                    f"{chosen} and {number} have different ids for their column families; migrating such a store is "
                    "not supported"
                )
        return store.lineages[chosen]

    def _split(self, work: Path) -> list[list[Split]]:
        plan = self.plan
        return [
            spread(
                split,
                [
                    SplitTask(
                        root=plan.checkpoint.target,
                        where=f"{plan.checkpoint.target}/{store.store.directory(partition)}",
                        partition=partition,
                        before=len(store.lineages),
                        partitions=store.partitions,
                        states=store.states,
                        new_states=store.new_states,
                        lineage=lineage,
                        state_store=plan.state_store,
                        new_store=plan.new_store,
                        spill=_spill(work, number, partition),
                        scratch=str(work),
                    )
                    for partition, lineage in enumerate(store.lineages)
                ],
                self._threads,
                self.listener.partition_done,
                self.listener.progress,
            )
            for number, store in enumerate(plan.stores)
        ]

    def _require_placed(self, splits: Sequence[Sequence[Split]]) -> None:
        """Raise RefusedError if a key is not where Spark's hash puts it."""
        for store, parts in zip(self.plan.stores, splits, strict=True):
            misplaced = sum(part.misplaced for part in parts)
            if misplaced:
                example = next(part.example for part in parts if part.misplaced)
                raise RefusedError(
                    f"{self.plan.checkpoint.target}: operator {store.operator}, store {store.store.name}: "
                    f"{misplaced:,} keys are not in the partition that Spark's hash gives, so ttlsnap does not know "
                    f"where Spark would look for them. For example, {example}. Nothing was changed. Run: ttlsnap "
                    f"doctor {self.plan.checkpoint.target}"
                )

    @property
    def _threads(self) -> int:
        size = sum(store.size for store in self.plan.stores)
        return self.parallelism or useful_threads(self.plan.checkpoint.target, size)

    def report(self, built: Sequence[Sequence[Built]], *, dry_run: bool) -> MigrationReport:
        plan = self.plan
        backup = f"{plan.checkpoint.target}/{layout.run_directory(plan.run)}/backup"
        return MigrationReport(
            run=plan.run,
            target=plan.checkpoint.target,
            dry_run=dry_run,
            published=not dry_run,
            batch=plan.checkpoint.batch.id,
            partitions=plan.partitions,
            provider_before=plan.state_store.provider,
            provider=plan.new_store.provider,
            settings=dict(plan.target.pinned),
            session_settings=dict(plan.target.session),
            stores=tuple(map(_report_store, plan.stores, built)) if built else (),
            single=plan.single,
            backup=None if dry_run else backup,
            output=None,
            seconds=time.monotonic() - self.started,
        )


def _spill(work: Path, store: int, partition: int) -> Path:
    return work / f"{store}-{partition}"


def _report_store(store: StoreMigration, built: Sequence[Built]) -> StoreReport:
    return StoreReport(
        operator=store.operator,
        operator_name=store.states[0].operator_name,
        store=store.store.name,
        partitions_before=len(store.lineages),
        bytes_before=store.size,
        partitions=tuple(NewPartition(n, found.entries, found.size) for n, found in enumerate(built)),
    )


def _settled(files: Directory, below: str, built: Sequence[Sequence[Built]]) -> list[StagedFile]:
    """Give the staged files their final names."""
    staging = Staging(files, below)
    staged = [file for partitions in built for partition in partitions for file in partition.files]
    return each(files, lambda file: settle(files, file, staging.place(file.target)), staged)
