"""The public function ``rewind``: an earlier batch of a checkpoint becomes its last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from ttlsnap.backups.replacing import rewind_state
from ttlsnap.checkpoint.logs import MicroBatch, named_offsets, named_positions, read_logs
from ttlsnap.checkpoint.recognize import require_checkpoint
from ttlsnap.clock import iso
from ttlsnap.copies.report import CopyReport
from ttlsnap.copies.run import CopyListener, CopyRequest
from ttlsnap.copies.selection import restorable_batches
from ttlsnap.documents import Document
from ttlsnap.keywords import public, takes
from ttlsnap.positions.delta_tables import open_tables
from ttlsnap.positions.kinds import find_kind
from ttlsnap.publishing.journal import Journal
from ttlsnap.publishing.runs import refuse_if_interrupted
from ttlsnap.storage.open import open_for_reading


@dataclass(frozen=True, kw_only=True)
class RewindRequest:
    """The arguments of ``rewind``.

    ``target`` is the checkpoint: a path, or a URI of an object store or HDFS. ``batch`` is an earlier batch whose state
    it still retains. ``tables`` has the paths of Delta tables by the names of the sources that read them: then a batch
    is refused whose positions a table does not have any more. ``stopped`` and ``planned_batch`` are as for ``compact``.
    ``scratch`` is a local folder for the work, and ``parallelism`` the number of partitions that are built at the same
    time.
    """

    target: str = field(kw_only=False)
    batch: int = field(kw_only=False)
    tables: Mapping[str, str] | None = None
    dry_run: bool = False
    stopped: bool = False
    planned_batch: bool = True
    scratch: str | None = None
    parallelism: int | None = None
    listener: CopyListener | None = None


@dataclass(frozen=True)
class RestorableBatch(Document):
    """A batch to which a checkpoint can go back.

    began_at          when it began, in ISO 8601
    has_input         whether a source has read on in it; None if nothing shows that
    restored_batch    the batch whose state and positions it has after a rewind or a restore; None if it has its own
    """

    batch: int
    began_at: str | None
    has_input: bool | None
    restored_batch: int | None


@public
def list_restorable(target: str) -> list[RestorableBatch]:
    """Return the batches to which the checkpoint ``target`` can go back, oldest first, without changing anything."""
    return find_restorable(target)[0]


def find_restorable(target: str) -> tuple[list[RestorableBatch], Journal | None]:
    """Return the batches of ``list_restorable``, and the journal of the last run in force that changed the state."""
    files = open_for_reading(target)
    require_checkpoint(files)
    runs, logs = refuse_if_interrupted(files), read_logs(files)
    offsets = cache(partial(named_offsets, files))

    def describe(batch: MicroBatch) -> RestorableBatch:
        restored_batch, has_input = runs.find_restored(batch.id), None
        if restored_batch is None and batch.id - 1 in logs.offsets:
            has_input = offsets(batch.id) != offsets(batch.id - 1)
        return RestorableBatch(batch.id, iso(batch.timestamp_ms * 1000), has_input, restored_batch)

    last_change = next((journal for journal in reversed(runs.in_force) if journal.has_new_state), None)
    return [describe(batch) for batch in restorable_batches(runs, only_earlier=True)], last_change


@takes(RewindRequest)
def rewind(request: RewindRequest) -> CopyReport:
    """Give the checkpoint ``target`` the state and the positions that it had after ``batch``.

    Its query must be stopped. When it starts again, it reads once more what came after that batch. The numbers of its
    batches go on, and ``rollback`` undoes the run. In the report, the checkpoint is both the source and the target.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    files = open_for_reading(request.target)
    require_checkpoint(files)
    positions = named_positions(files, request.batch) if request.batch in read_logs(files).offsets else {}
    tables = open_tables(request.tables, positions)
    for name, table in tables.items():
        table.require(name, positions[name])
    unknown = [name for name, one in positions.items() if find_kind(one) == "delta" and name not in tables]
    return rewind_state(
        CopyRequest(
            request.target,
            request.target,
            batch=request.batch,
            dry_run=request.dry_run,
            replace=True,
            stopped=request.stopped,
            planned_batch=request.planned_batch,
            scratch=request.scratch,
            parallelism=request.parallelism,
            listener=request.listener,
        ),
        [
            f"source {name} reads a Delta table, which may have lost what is read again: by VACUUM, or by the "
            f"retention of its log. Then the query fails. To look first: --table {name}=PATH"
            for name in unknown
        ],
    )
