"""ttlsnap: drop, keep or rewrite the entries of Spark Structured Streaming state, offline.

    from ttlsnap import compact, inspect, rollback
    from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

    report = compact(
        "/checkpoints/sessions",
        [TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), timestamp="value.max")],
        dry_run=True,
    )
    print(report.totals.dropped)

What the commands do is in this package as typed functions that return dataclasses; see ``docs/library.md``. Names
are loaded when they are first used, so that ``import ttlsnap`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttlsnap.checkpoint import Checkpoint, open_checkpoint
    from ttlsnap.clock import Clock, TimeCharacteristic, clock_at
    from ttlsnap.compaction import Listener, SilentListener, compact
    from ttlsnap.diagnosis import DoctorReport, doctor
    from ttlsnap.engines import Engine
    from ttlsnap.engines.local import LocalEngine
    from ttlsnap.engines.spark import SparkEngine
    from ttlsnap.entries import StateEntries
    from ttlsnap.errors import TtlsnapError
    from ttlsnap.expired.receivers import ExpiredCallback
    from ttlsnap.inspection import Inspection, inspect
    from ttlsnap.operators import Selection
    from ttlsnap.plan import Plan, plan_compaction
    from ttlsnap.recovery import RecoverReport, RollbackReport, prune, recover, rollback
    from ttlsnap.report import CompactionReport, Counts, StateReport
    from ttlsnap.run_history import HistoryEntry, history
    from ttlsnap.state import StateDescriptor
    from ttlsnap.transform import (
        CollectionStrategy,
        Drop,
        EntryTransformerFactory,
        Keep,
        Replace,
        StateSnapshotTransformer,
        StateSnapshotTransformerFactory,
    )

_HOMES = {
    "checkpoint": ("Checkpoint", "open_checkpoint"),
    "clock": ("Clock", "TimeCharacteristic", "clock_at"),
    "compaction": ("Listener", "SilentListener", "compact"),
    "diagnosis": ("DoctorReport", "doctor"),
    "engines": ("Engine",),
    "engines.local": ("LocalEngine",),
    "engines.spark": ("SparkEngine",),
    "entries": ("StateEntries",),
    "errors": ("TtlsnapError",),
    "expired.receivers": ("ExpiredCallback",),
    "run_history": ("HistoryEntry", "history"),
    "inspection": ("Inspection", "inspect"),
    "operators": ("Selection",),
    "plan": ("Plan", "plan_compaction"),
    "recovery": ("RecoverReport", "RollbackReport", "prune", "recover", "rollback"),
    "report": ("CompactionReport", "Counts", "StateReport"),
    "state": ("StateDescriptor",),
    "transform": (
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
    "Checkpoint",
    "Clock",
    "CollectionStrategy",
    "CompactionReport",
    "Counts",
    "DoctorReport",
    "Drop",
    "Engine",
    "EntryTransformerFactory",
    "ExpiredCallback",
    "HistoryEntry",
    "Inspection",
    "Keep",
    "Listener",
    "LocalEngine",
    "Plan",
    "RecoverReport",
    "Replace",
    "RollbackReport",
    "Selection",
    "SilentListener",
    "SparkEngine",
    "StateDescriptor",
    "StateEntries",
    "StateReport",
    "StateSnapshotTransformer",
    "StateSnapshotTransformerFactory",
    "TimeCharacteristic",
    "TtlsnapError",
    "clock_at",
    "compact",
    "doctor",
    "history",
    "inspect",
    "open_checkpoint",
    "plan_compaction",
    "prune",
    "recover",
    "rollback",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'ttlsnap' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ttlsnap.{home}"), name)
    # No submodule has the name of anything here, or importing that would put the module in its place.
    globals()[name] = value
    return value
