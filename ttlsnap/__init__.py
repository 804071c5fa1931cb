"""ttlsnap: drop, keep or rewrite the entries of Spark Structured Streaming state, offline.

    from ttlsnap import compact, inspect, rollback
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

    report = compact(
        "/checkpoints/sessions",
        [TtlTransformerFactory(StateTtlConfig.of("7d"), timestamp="value.max")],
        dry_run=True,
    )
    print(report.totals.dropped)

Each command is a typed function that returns a dataclass; see ``docs/library.md``. A name is imported at its first
use, so ``import ttlsnap`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ttlsnap.versions import VERSION as __version__

if TYPE_CHECKING:
    from ttlsnap.archives.receivers import ExpiredCallback
    from ttlsnap.backups.run import copy
    from ttlsnap.checkpoint import Checkpoint, open_checkpoint
    from ttlsnap.clock import Clock, TimeCharacteristic, clock_at
    from ttlsnap.compaction.engine import Engine
    from ttlsnap.compaction.listener import Listener, SilentListener
    from ttlsnap.compaction.options import CompactOptions
    from ttlsnap.compaction.plan import Plan, plan_compaction
    from ttlsnap.compaction.report import CompactionReport, Counts, StateReport
    from ttlsnap.copies.report import CopyReport
    from ttlsnap.diagnosis import DoctorReport, doctor
    from ttlsnap.engines.local import LocalEngine
    from ttlsnap.engines.spark import SparkEngine
    from ttlsnap.entries.batch import StateEntries
    from ttlsnap.entries.descriptor import StateDescriptor
    from ttlsnap.errors import TtlsnapError
    from ttlsnap.library import compact, migrate
    from ttlsnap.migration.report import MigrationReport
    from ttlsnap.new_query.answers import Answers
    from ttlsnap.new_query.query import NewQuery
    from ttlsnap.operators.registry import Selection
    from ttlsnap.positions.log_edits import Forget, Move, Record, Trim
    from ttlsnap.positions.recorded import recorded_files
    from ttlsnap.positions.report import PositionsReport, SourcesReport
    from ttlsnap.positions.rewinding import list_restorable, rewind
    from ttlsnap.positions.setting import set_positions
    from ttlsnap.positions.show import sources
    from ttlsnap.publishing.history import HistoryEntry, history
    from ttlsnap.publishing.recover import RecoverReport, recover
    from ttlsnap.reading.diff import DiffReport, diff
    from ttlsnap.reading.explain import ExplainReport, explain
    from ttlsnap.reading.export import ExportReport, export
    from ttlsnap.reading.inspect import inspect
    from ttlsnap.reading.inspected import Inspection
    from ttlsnap.transaction.pruning import prune
    from ttlsnap.transaction.rollback import RollbackReport, rollback
    from ttlsnap.transform.converters import ConvertsValues, for_new_query
    from ttlsnap.transform.protocols import (
        CollectionStrategy,
        Drop,
        EntryTransformerFactory,
        Keep,
        Replace,
        StateSnapshotTransformer,
        StateSnapshotTransformerFactory,
    )

_HOMES = {
    "positions.rewinding": ("list_restorable", "rewind"),
    "backups.run": ("copy",),
    "copies.report": ("CopyReport",),
    "checkpoint": ("Checkpoint", "open_checkpoint"),
    "clock": ("Clock", "TimeCharacteristic", "clock_at"),
    "compaction.listener": ("Listener", "SilentListener"),
    "compaction.options": ("CompactOptions",),
    "library": ("compact", "migrate"),
    "migration.report": ("MigrationReport",),
    "new_query.answers": ("Answers",),
    "new_query.query": ("NewQuery",),
    "diagnosis": ("DoctorReport", "doctor"),
    "compaction.engine": ("Engine",),
    "engines.local": ("LocalEngine",),
    "engines.spark": ("SparkEngine",),
    "entries.batch": ("StateEntries",),
    "errors": ("TtlsnapError",),
    "archives.receivers": ("ExpiredCallback",),
    "reading.diff": ("DiffReport", "diff"),
    "reading.explain": ("ExplainReport", "explain"),
    "reading.export": ("ExportReport", "export"),
    "imports.report": ("ImportReport",),
    "imports.run": ("import_state",),
    "positions.log_edits": ("Forget", "Move", "Record", "Trim"),
    "positions.recorded": ("recorded_files",),
    "positions.report": ("PositionsReport", "SourcesReport"),
    "positions.setting": ("set_positions",),
    "positions.show": ("sources",),
    "publishing.history": ("HistoryEntry", "history"),
    "reading.inspect": ("Inspection", "inspect"),
    "operators.registry": ("Selection",),
    "compaction.plan": ("Plan", "plan_compaction"),
    "transaction.pruning": ("prune",),
    "publishing.recover": ("RecoverReport", "recover"),
    "transaction.rollback": ("RollbackReport", "rollback"),
    "compaction.report": ("CompactionReport", "Counts", "StateReport"),
    "entries.descriptor": ("StateDescriptor",),
    "transform.converters": ("ConvertsValues", "for_new_query"),
    "transform.protocols": (
        "Drop",
        "CollectionStrategy",
        "EntryTransformerFactory",
        "Keep",
        "Replace",
        "StateSnapshotTransformer",
        "StateSnapshotTransformerFactory",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answers",
    "Checkpoint",
    "Clock",
    "CollectionStrategy",
    "CompactOptions",
    "CompactionReport",
    "ConvertsValues",
    "CopyReport",
    "Counts",
    "DiffReport",
    "DoctorReport",
    "Drop",
    "Engine",
    "EntryTransformerFactory",
    "ExpiredCallback",
    "ExplainReport",
    "ExportReport",
    "Forget",
    "HistoryEntry",
    "Inspection",
    "Keep",
    "Listener",
    "LocalEngine",
    "MigrationReport",
    "Move",
    "NewQuery",
    "Plan",
    "PositionsReport",
    "Record",
    "RecoverReport",
    "Replace",
    "RollbackReport",
    "Selection",
    "SilentListener",
    "SourcesReport",
    "SparkEngine",
    "StateDescriptor",
    "StateEntries",
    "StateReport",
    "StateSnapshotTransformer",
    "StateSnapshotTransformerFactory",
    "TimeCharacteristic",
    "Trim",
    "TtlsnapError",
    "__version__",
    "clock_at",
    "compact",
    "copy",
    "diff",
    "doctor",
    "explain",
    "export",
    "for_new_query",
    "history",
    "import_state",
    "inspect",
    "list_restorable",
    "migrate",
    "open_checkpoint",
    "plan_compaction",
    "prune",
    "recorded_files",
    "recover",
    "rewind",
    "rollback",
    "set_positions",
    "sources",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ttlsnap' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ttlsnap.{home}"), name)
    # No submodule may have one of these names: its import would replace the object by the module.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
