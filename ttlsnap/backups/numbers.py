"""The numbers of the batches of a checkpoint that gets the state of a backup. They never go back.

A query that is idle has the old state in memory. It must find the number of its next batch taken, or it would go on
with that state. And a sink skips a batch whose number it has seen. So a batch that has written state counts as
committed, even if not all of its state is there: what is missing may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttlsnap.checkpoint import Logs, layout
from ttlsnap.checkpoint.listing import Listing
from ttlsnap.errors import CorruptionError, UsageError
from ttlsnap.publishing.in_progress import find_written
from ttlsnap.publishing.runs import Runs

_EACH_END = 100
"""How many of the lowest numbers that an idle query may begin are blocked, and how many of the highest."""


@dataclass(frozen=True)
class Numbers:
    """The numbers in the restored checkpoint. ``batch`` gets the backup's state and offsets, and counts as committed.

    The next one is planned. ``begun`` says that a batch of that number was begun, and not committed: its offsets are
    replaced. ``blocked`` are the numbers below ``batch`` that an idle query may begin next. ``known`` is the last batch
    that the sink is sure to have. It may lack the later ones.
    """

    batch: int
    begun: bool
    blocked: tuple[int, ...]
    known: int

    @property
    def planned(self) -> int:
        """The batch without data that the query runs first."""
        return self.batch + 1


def number_batches(
    runs: Runs, logs: Logs, listing: Listing, backup_batch: int, last_batch: int | None = None
) -> Numbers:
    """Return the numbers for a checkpoint with these ``logs``, and with the state files of ``listing``.

    Without a commit log, the number is the highest that any file names. ``last_batch`` is one that the user knows.
    Raise CorruptionError if no batch can follow, and UsageError if the sink must have a later one than ``last_batch``.
    """
    known_batch = -1 if last_batch is None else last_batch
    sure_batch = max((backup_batch, *logs.commits))
    if last_batch is not None and last_batch < sure_batch:
        raise UsageError(
            f"--last-batch {last_batch}: the checkpoint or the copy has batch {sure_batch}, and numbers do not go "
            f"back. Name {sure_batch}, or a later batch if the sink has one. Nothing was changed"
        )
    in_files = [*logs.offsets, *logs.commits, *_batches_of(listing)]
    highest = max((*in_files, *_batches_of_runs(runs), backup_batch, known_batch))
    if layout.parse_number(str(known_batch + 2)) is None:
        raise UsageError(f"batch {known_batch} is so high that no batch can follow")
    if layout.parse_number(str(highest + 2)) is None:  # the planned batch, or the fence after a batch that was begun
        path = next((path for path in listing if layout.batch_of(path) == highest), layout.RUNS)
        raise CorruptionError(
            f"{runs.files.root}/{path} names batch {highest}, which is so high that no batch can follow. Nothing was "
            "changed. Move that file out of the checkpoint, and repeat the command"
        )
    last_committed = max(logs.commits, default=None)
    known = min(known_batch, max(in_files, default=known_batch)) if last_committed is None else last_committed
    if (
        last_committed is not None
        and max(highest - 1, backup_batch, known_batch) <= last_committed
        and find_written(logs, listing) is None
    ):
        return Numbers(last_committed, logs.offsets[-1:] == (last_committed + 1,), (), known)
    blocked = _may_be_next(logs, [*in_files, known_batch])
    return Numbers(highest, False, tuple(number for number in blocked if number < highest), known)


def _may_be_next(logs: Logs, named: Sequence[int]) -> list[int]:
    """Return the numbers that an idle query may begin next, also if a part of the logs is lost.

    It has committed at least the batch before its newest offsets, and at most the highest batch that a file or the user
    names. The journals of runs do not count: numbers of a restore that was undone are higher.
    """
    highest = max(named)
    first = logs.commits[-1] + 1 if logs.commits else max(logs.offsets, default=0)
    numbers = range(first, highest + 2)
    return sorted({*numbers[:_EACH_END], *numbers[-_EACH_END:]})


def _batches_of(listing: Listing) -> Iterator[int]:
    for path in listing:
        batch = layout.batch_of(path)
        if batch is not None:
            yield batch


def _batches_of_runs(runs: Runs) -> Iterator[int]:
    for journal in runs.journals:
        yield journal.batch
        if journal.planned is not None and journal.status == "done" and journal.fence_batch is not None:
            yield journal.fence_batch
