"""Where the kept entries of a partition go: into a new snapshot, or, in a migration, to their new partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ttlsnap.compaction.task import PartitionTask
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import Renumbering, SnapshotWriter, StoredPartition


class EntrySink(Protocol):
    """The destination of the kept entries of a task's stores."""

    def needs_rows_of(self, store: StorePartition) -> Mapping[str, StateDescriptor]:
        """Return the states whose batches must have rows, by name, beside those that may change."""
        ...

    def writer(
        self,
        store: StorePartition,
        partition: StoredPartition,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> SnapshotWriter:
        """Return the writer of a store's open ``partition``; see ``StoredPartition.writer``."""
        ...


@dataclass(frozen=True)
class SnapshotSink:
    """The new snapshots of a task."""

    task: PartitionTask

    def needs_rows_of(self, store: StorePartition) -> Mapping[str, StateDescriptor]:
        """See ``EntrySink.needs_rows_of``: the stored bytes are enough."""
        return {}

    def writer(
        self,
        store: StorePartition,
        partition: StoredPartition,
        states: Mapping[str, StateDescriptor],
        moves: Mapping[str, Renumbering],
        changes: int = 0,
    ) -> SnapshotWriter:
        """See ``EntrySink.writer``."""
        return partition.writer(self.task.staging, self.task.rewrite, states, moves, changes)
