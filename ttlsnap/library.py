"""Functions of the public API that choose an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ttlsnap.checkpoint.checkpoint import Schemas
from ttlsnap.compaction import run
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.incremental import Parts
from ttlsnap.compaction.listener import Listener
from ttlsnap.compaction.options import CompactOptions
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.engines.automatic import AutoEngine
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.expired.receivers import ExpiredCallback
from ttlsnap.migration.changes import Changes, NewSchemas
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import MigrationListener
from ttlsnap.migration.run import migrate as run_migration
from ttlsnap.operators.registry import AnyOf, Selection, TimerPolicy
from ttlsnap.stores.protocols import RewriteChoice
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory


def compact(
    target: str,
    transformers: Sequence[StateSnapshotTransformerFactory],
    *,
    now: str = "checkpoint",
    selection: Selection | AnyOf | None = None,
    schemas: Schemas | None = None,
    dry_run: bool = False,
    output: str | None = None,
    engine: Engine | None = None,
    rewrite: RewriteChoice = "auto",
    scratch: str | None = None,
    drop_unmatched: bool = False,
    timers: TimerPolicy = "keep",
    stopped: bool = False,
    planned_batch: bool = True,
    max_drop: float | None = None,
    parts: Parts = (),
    expired_to: str | ExpiredCallback | None = None,
    show: int = 0,
    listener: Listener | None = None,
) -> CompactionReport:
    """Run ``transformers`` over the state of the checkpoint ``target``, and publish the result.

    ``engine`` runs the partitions. By default that is Spark if a session is active or the state is large, and otherwise
    workers on this machine. ``CompactOptions`` describes the other arguments.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    options = CompactOptions(
        now=now,
        selection=selection,
        schemas=schemas,
        dry_run=dry_run,
        output=output,
        rewrite=rewrite,
        scratch=scratch,
        drop_unmatched=drop_unmatched,
        timers=timers,
        stopped=stopped,
        planned_batch=planned_batch,
        max_drop=max_drop,
        parts=parts,
        expired_to=expired_to,
        show=show,
    )
    return run.compact(target, transformers, options, engine or AutoEngine.of(), listener)


def migrate(
    target: str,
    *,
    partitions: int | None = None,
    provider: str | None = None,
    settings: Mapping[str, str] | None = None,
    new_query: NewSchemas | None = None,
    transformers: Sequence[StateSnapshotTransformerFactory] = (),
    now: str = "checkpoint",
    selection: Selection | AnyOf | None = None,
    schemas: Schemas | None = None,
    dry_run: bool = False,
    output: str | None = None,
    engine: MovingEngine | None = None,
    scratch: str | None = None,
    drop_unmatched: bool = False,
    timers: TimerPolicy = "keep",
    stopped: bool = False,
    planned_batch: bool = True,
    max_drop: float | None = None,
    expired_to: str | ExpiredCallback | None = None,
    drops: Sequence[str] = (),
    listener: MigrationListener | None = None,
) -> MigrationReport:
    """Migrate the checkpoint ``target``, and publish the result.

    It gets another number of ``partitions``, another state store ``provider`` ("hdfs" or "rocksdb"), other
    ``settings`` (see ``ttlsnap.migration.changes``), or the schemas of a ``new_query``
    (``ttlsnap.repairs.new_query.NewQuery``). ``drops`` are state variables that the query no longer has: what Spark has
    kept of them is removed. ``transformers`` run in the same pass. ``engine`` is as for
    ``compact``, and ``CompactOptions`` describes the other arguments. ``scratch`` needs room for the whole state,
    uncompressed.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    options = CompactOptions(
        now=now,
        selection=selection,
        schemas=schemas,
        dry_run=dry_run,
        output=output,
        scratch=scratch,
        drop_unmatched=drop_unmatched,
        timers=timers,
        stopped=stopped,
        planned_batch=planned_batch,
        max_drop=max_drop,
        expired_to=expired_to,
    )
    changes = Changes(partitions, provider, settings or {}, new_query, drops)
    return run_migration(target, changes, transformers, options, engine or AutoEngine.of(), listener)
