"""The numbers of the batches of a checkpoint that gets the state of a backup. They never go back.

A query that is idle has the old state in memory. It must find the number of its next batch taken, or it would go on
with that state. And a sink skips a batch whose number it has seen. So a batch that has written state counts as
committed, even if not all of its state is there: what is missing may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.publishing.in_progress import find_written
from ttlsnap.publishing.runs import Runs


@dataclass(frozen=True)
class Numbers:
    """The numbers in the restored checkpoint. ``batch`` gets the backup's state and offsets, and counts as committed.

    The next one is planned. ``begun`` says that a batch of that number was begun, and not committed: its offsets are
    replaced. ``blocked`` is the number that an idle query would begin, if it is below ``batch``.
    """

    batch: int
    begun: bool
    blocked: int | None

    @property
    def planned(self) -> int:
        """The batch without data that the query runs first."""
        return self.batch + 1


def number_batches(
    runs: Runs, logs: Logs, listing: Listing, backup_batch: int, last_batch: int | None = None
) -> Numbers:
    """Return the numbers for a checkpoint with these ``logs``, and with the state files of ``listing``.

    Without a commit log, the number is the highest that any file names, and the next one is blocked. ``last_batch`` is
    one that the user knows.
    Raise CorruptionError if no batch can follow, and UsageError if the sink must have a later one than ``last_batch``.
    """
    known_batch = -1 if last_batch is None else last_batch
    sure_batch = max((backup_batch, *logs.commits))
    if last_batch is not None and last_batch < sure_batch:
        raise UsageError(
            f"--last-batch {last_batch}: the query has committed batch {sure_batch}, so its sink has that one. Name "
            "the last batch that the sink has. Nothing was changed"
        )
    named = max(_named_batches(runs, logs, listing), default=-1)
    highest = max(named, backup_batch, known_batch)
    if layout.parse_number(str(known_batch + 2)) is None:
        raise UsageError(f"batch {known_batch} is so high that no batch can follow")
    if layout.parse_number(str(highest + 2)) is None:  # the planned batch, or the fence after a batch that was begun
        path = next((path for path in listing if layout.batch_of(path) == highest), layout.RUNS)
        raise CorruptionError(
            f"{runs.files.root}/{path} names batch {highest}, which is so high that no batch can follow. Nothing was "
            "changed. Move that file out of the checkpoint, and repeat the command"
        )
    if not logs.commits:
        return Numbers(highest, False, named + 1 if 0 <= named < highest - 1 else None)
    last_committed = logs.commits[-1]
    is_known = max(backup_batch, known_batch) <= last_committed
    if highest <= last_committed + 1 and is_known and find_written(logs, listing) is None:
        return Numbers(last_committed, logs.offsets[-1:] == (last_committed + 1,), None)
    return Numbers(highest, False, last_committed + 1)


def _named_batches(runs: Runs, logs: Logs, listing: Listing) -> Iterator[int]:
    yield from (*logs.offsets, *logs.commits)
    for path in listing:
        batch = layout.batch_of(path)
        if batch is not None:
            yield batch
    for journal in runs.journals:
        yield journal.batch
        if journal.planned is not None and journal.status == "done" and journal.fence_batch is not None:
            yield journal.fence_batch
