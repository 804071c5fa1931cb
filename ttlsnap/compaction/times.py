"""The times at which the entries of a task were written."""

from __future__ import annotations

from ttlsnap.compaction.task import PartitionTask
from ttlsnap.storage.open import open_for_reading
from ttlsnap.written.keeping import KeptTimes


def kept_times(task: PartitionTask) -> KeptTimes:
    """Return the times of the entries of a task, which stages new ledgers if it has a ``run``."""
    staging = task.staging if task.run is not None else None
    return KeptTimes(open_for_reading(task.root), task.history, task.stores, staging, task.run or "")
