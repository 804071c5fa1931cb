"""Functions of the public API that choose an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ttlsnap.compaction import run
from ttlsnap.compaction.engine import Engine
from ttlsnap.compaction.listener import Listener
from ttlsnap.compaction.options import CompactOptions, DropOptions
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.engines.automatic import AutoEngine
from ttlsnap.engines.moving import MovingEngine
from ttlsnap.errors import UsageError
from ttlsnap.keywords import fields_of, takes
from ttlsnap.migration.changes import ChangeOptions, Changes
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import MigrationListener
from ttlsnap.migration.run import migrate as run_migration
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory


@dataclass(frozen=True, kw_only=True)
class CompactRequest(CompactOptions):
    """The arguments of ``compact``."""

    target: str = field(kw_only=False)
    transformers: Sequence[StateSnapshotTransformerFactory] = field(kw_only=False)
    engine: Engine | None = None
    listener: Listener | None = None


@takes(CompactRequest)
def compact(request: CompactRequest) -> CompactionReport:
    """Run ``transformers`` over the state of the checkpoint ``target``, and publish the result.

    ``engine`` runs the partitions. By default that is Spark if a session is active or the state is large, and otherwise
    workers on this machine.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    options = CompactOptions(**fields_of(request, CompactOptions))
    engine = request.engine or AutoEngine.of()
    return run.compact(request.target, request.transformers, options, engine, request.listener)


@dataclass(frozen=True, kw_only=True)
class MigrateRequest(DropOptions, ChangeOptions):
    """The arguments of ``migrate``."""

    target: str = field(kw_only=False)
    transformers: Sequence[StateSnapshotTransformerFactory] = ()
    engine: MovingEngine | None = None
    listener: MigrationListener | None = None


@takes(MigrateRequest)
def migrate(request: MigrateRequest) -> MigrationReport:
    """Migrate the checkpoint ``target``, and publish the result.

    It gets another number of ``partitions``, another state store ``provider`` ("hdfs" or "rocksdb"), other
    ``settings`` (see ``ttlsnap.migration.changes``), or the schemas of a ``new_query``
    (``ttlsnap.NewQuery``). ``drops`` are state variables that the query no longer has: what Spark has
    kept of them is removed. ``transformers`` run in the same pass. ``engine`` is as for ``compact``. The other
    arguments are those of ``compact``. ``scratch`` needs room for the whole state, uncompressed.

    Raise a ``TtlsnapError`` (see ``ttlsnap.errors``). The checkpoint is then as it was, unless the message names
    ``ttlsnap recover``.
    """
    changes = Changes(**{**fields_of(request, ChangeOptions), "settings": request.settings or {}})
    options = CompactOptions(**fields_of(request, DropOptions))
    _require_transformers(request, options)
    engine = request.engine or AutoEngine.of()
    return run_migration(request.target, changes, request.transformers, options, engine, request.listener)


def _require_transformers(request: MigrateRequest, options: CompactOptions) -> None:
    """Raise UsageError for an option of what is dropped if nothing drops anything."""
    if request.transformers:
        return
    defaults = CompactOptions()
    names = ["selection", "drop_unmatched", "timers", "variables", "max_drop", *([] if request.new_query else ["now"])]
    for name in names:
        if getattr(options, name) != getattr(defaults, name):
            raise UsageError(f"{name} needs transformers: without them, a migration drops nothing")
