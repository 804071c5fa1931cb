"""A run that rewrites the partitions of a plan: what it changes, and what it needs to find as it was planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ttlsnap.archives.receivers import Receiver
from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.logs import plan_next
from ttlsnap.compaction.plan import Plan, StorePlan
from ttlsnap.compaction.task import PartitionResult
from ttlsnap.errors import BusyError, CorruptionError
from ttlsnap.publishing.preflight import refuse_immovable
from ttlsnap.publishing.reading import refuse_shared_folders
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.directory import Directory, each
from ttlsnap.storage.trees import find_existing
from ttlsnap.stores.open import lineage_of
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import Staging
from ttlsnap.transaction.change import Change
from ttlsnap.transaction.copy import copy_all_but_state, copy_state_files
from ttlsnap.transaction.options import RunOptions
from ttlsnap.transaction.steps import AnyReport, StateRun
from ttlsnap.written.keeping import renew_ledgers


class PlannedRun(StateRun[AnyReport]):
    """A run that rewrites partitions of a plan. ``results`` are those of all partitions, after staging."""

    kind: Literal["compact", "import"]

    def __init__(self, plan: Plan, runs: Runs, options: RunOptions, archive: Receiver | None = None) -> None:
        super().__init__(plan.checkpoint, runs, plan.run, plan.listing, options, archive)
        self.plan = plan if options.output is None else plan.for_copy()
        self.results: Sequence[PartitionResult] = ()

    @property
    def ledgers(self) -> list[str]:
        """The paths of the staged ledgers."""
        return [path for result in self.results for path in result.ledgers]

    @property
    def _places(self) -> list[tuple[StorePlan, StorePartition]]:
        """The partitions that may get new files."""
        return [(store, partition) for store in self.plan.stores if store.touched for partition in store.partitions]

    def new_files(self) -> list[str]:
        return [partition.lineage.new_snapshot for _, partition in self._places]

    def refuse_unmovable(self) -> None:
        refuse_shared_folders(self.files, [_folder(*place) for place in self._places])
        version = self.checkpoint.version
        paths = [layout.offset_file(self.checkpoint.logs.offsets[-1] + 1)]
        paths += [path for path in self.before if layout.is_newer_snapshot(path, version)]
        for _, partition in self._places:
            snapshot = partition.lineage.new_snapshot
            paths += [snapshot, *self._replaced_deltas([snapshot]), *(file.path for file in partition.lineage.shared)]
        refuse_immovable(self.files, [name for path in paths for name in (path, *layout.all_checksums(path))])

    def change(self) -> Change:
        staged = [file for result in self.results for file in result.staged or ()]
        tables = [path for result in self.results for path in result.superseded]
        checksums = find_existing(self.files, [name for path in tables for name in layout.all_checksums(path)])
        is_next = self.checkpoint.logs.offsets[-1] == self.checkpoint.batch.id
        plans_batch = self.options.planned_batch and is_next
        return Change(
            kind=self.kind,
            batch=self.checkpoint.batch.id,
            staged=staged,
            ledgers=self.ledgers,
            set_aside=[*self._replaced_deltas([file.target for file in staged]), *self._later_snapshots()],
            preserved=[*tables, *sorted(checksums)],
            planned=plan_next(self.files, self.checkpoint.batch) if plans_batch else None,
        )

    def _later_snapshots(self) -> list[str]:
        """Return the snapshots of an uncommitted batch, which Spark runs again.

        It then replaces its deltas, but not its snapshots. The second run may differ in every partition of every
        operator, because the output of one operator is the input of the next. The deltas stay, because the batch needs
        them if it is running after all, and commits.
        """
        ending = "zip" if self.checkpoint.provider == "rocksdb" else "snapshot"
        return [path for path in self.before if layout.is_newer_snapshot(path, self.checkpoint.version, ending)]

    def _replaced_deltas(self, targets: Sequence[str]) -> list[str]:
        """Return the deltas and changelogs of the versions that new snapshots replace.

        From 4.2 on, Spark that fails once to read a snapshot replays deltas from an older one. With this delta it would
        continue with the old state: in one partition, or in one store of a join. Without it, Spark fails.
        """
        deltas = map(layout.delta_beside, targets)
        return [path for path in deltas if path is not None and path in self.before]

    def check(self) -> None:
        # All other files are in the listing that was compared.
        places = [place for place in self._places if place[1].lineage.shared]
        each(self.files, lambda place: self._check_partition(*place), places)

    def _check_partition(self, store: StorePlan, partition: StorePartition) -> None:
        """Raise BusyError unless a partition has the planned files, with those that its snapshots share."""
        try:
            lineage = self.plan.find(store, partition.partition)
        except CorruptionError as error:
            raise BusyError(
                error.text
                + "\nThe file existed when the run began: the query is running. Nothing was changed. Stop the "
                "query first"
            ) from error
        if lineage != partition.lineage:
            raise BusyError(
                f"{self.files.root}/{_folder(store, partition)} changed while ttlsnap worked: the query is running. "
                "Nothing was changed. Stop the query first"
            )

    def fill_copy(self, staging: Directory, home: str) -> None:
        reused_files = {(r.operator, r.partition, r.store): r.reused for r in self.results if r.staged is not None}
        state_files: list[str] = []
        for operator in self.checkpoint.operators:
            for store in operator.stores:
                for partition in store.partitions:
                    staging.mkdirs(store.directory(partition))
                    kept_files = reused_files.get((operator.id, partition, store.name))
                    if kept_files is None:
                        lineage = lineage_of(self.checkpoint, self.plan.state_store, store, partition)
                        kept_files = tuple(file.path for file in lineage.files)
                    state_files += kept_files
        copy_all_but_state(self.files, staging, home, self.checkpoint.logs)
        copy_state_files(self.files, staging, home, state_files)
        renew_ledgers(self.checkpoint, self.plan.history, Staging(staging, ""), self.id, done=self.ledgers)


def _folder(store: StorePlan, partition: StorePartition) -> str:
    return layout.store_directory(store.operator, partition.partition, store.store)
