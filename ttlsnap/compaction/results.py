"""The transformers' type, the times and a store's result, for the compaction of one store and of linked stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ttlsnap.compaction.shown import Shown
from ttlsnap.compaction.task import PartitionResult, PartitionTask
from ttlsnap.entries.batch import RowEntries
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.storage.open import open_for_reading
from ttlsnap.stores.partitions import StorePartition
from ttlsnap.stores.protocols import Written
from ttlsnap.transform.chain import StateResult, StateTransformers, Watch
from ttlsnap.written.keeping import KeptTimes


class RowTransformers(StateTransformers[RowEntries]):
    """The transformers of a state in one partition, and the first entries that they drop or rewrite."""

    def __init__(self, task: PartitionTask, state: StateDescriptor, watch: Watch | None = None) -> None:
        self._shown = Shown(state, task.show)
        watch = self._shown.watch if task.show else watch
        super().__init__(state, task.factories, task.clock, watch, ages=task.ages)

    def result(self) -> StateResult:
        """See ``StateTransformers.result``."""
        return replace(super().result(), shown=tuple(self._shown.entries))


def make_result(
    task: PartitionTask, store: StorePartition, written: Written | None, states: Sequence[StateResult]
) -> PartitionResult:
    """Return the result of a store; ``written`` is None if no entry changed."""
    size = store.lineage.size
    result = PartitionResult(task.operator, store.name, task.partition, tuple(states), size, size)
    if written is None:
        return result
    return replace(
        result,
        bytes_after=written.size,
        staged=written.files or None,
        rewrite=written.rewrite,
        reused=written.reused,
        superseded=written.superseded,
    )


def kept_times(task: PartitionTask) -> KeptTimes:
    """Return the times of the entries of a task, which stages new ledgers if it has a ``run``."""
    staging = task.staging if task.run is not None else None
    return KeptTimes(open_for_reading(task.root), task.history, task.stores, staging, task.run or "")
