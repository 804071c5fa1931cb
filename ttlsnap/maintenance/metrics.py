"""The results of ``maintain`` and of ``inspect --sizes`` for Prometheus, as files for the textfile collector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from ttlsnap.backups.regular import PolicyBackup
from ttlsnap.compaction.report import Counts
from ttlsnap.gauges import gauge, join_gauges
from ttlsnap.maintenance.runs import Status, TargetResult, worst_exit_code
from ttlsnap.reading.inspected import Inspection
from ttlsnap.reading.sizes import Sizes, StateSizes

_COUNTS: tuple[tuple[str, str, Callable[[Counts], int | None]], ...] = (
    ("entries", "Entries, or rows, that were scanned.", lambda counts: counts.entries),
    ("dropped_entries", "Entries that were dropped.", lambda counts: counts.dropped),
    ("rewritten_entries", "Entries that were rewritten.", lambda counts: counts.rewritten),
    ("before_bytes", "Bytes on disk before.", lambda counts: counts.bytes_before),
    ("after_bytes", "Bytes on disk after.", lambda counts: counts.bytes_after),
)


_BACKUPS: tuple[tuple[str, str, Callable[[PolicyBackup], float | None]], ...] = (
    ("backups", "Complete backups of a target.", lambda backup: backup.backups),
    ("backup_timestamp_seconds", "When the newest backup was made.", lambda backup: backup.made_at_s),
    (
        "backup_is_current",
        "1 if the newest backup has what the checkpoint had before this run changed it, 0 if not.",
        lambda backup: None if backup.is_current is None else int(backup.is_current),
    ),
    ("backup_bytes", "Bytes of the newest backup.", lambda backup: backup.bytes),
)


_SIZES: tuple[tuple[str, str, Callable[[StateSizes], int | None]], ...] = (
    ("entries", "Entries of a state.", lambda state: state.estimated_entries),
    ("bytes", "Bytes of the keys and values of a state.", lambda state: state.estimated_bytes),
    (
        "expired_entries",
        "Entries of a state that the rule would drop.",
        lambda state: state.rule.estimated_entries if state.rule else None,
    ),
    (
        "expired_bytes",
        "Bytes of the keys and values that the rule would drop.",
        lambda state: state.rule.estimated_bytes if state.rule else None,
    ),
)


def run_metrics(results: Sequence[TargetResult], finished_s: float) -> str:
    """Return the metrics of a policy's run, which ended at ``finished_s`` seconds since the epoch."""
    lines = [
        *gauge("run_finished_timestamp_seconds", "When the policy was last carried out.", [({}, finished_s)]),
        *gauge("run_exit_code", "The highest exit code of its targets.", [({}, worst_exit_code(results))]),
        *gauge(
            "target_status",
            "1 for the status of a target, 0 for the other statuses.",
            [
                ({"target": result.target, "status": status}, int(status == result.status))
                for result in results
                for status in get_args(Status)
            ],
        ),
        *gauge(
            "target_exit_code",
            "A target's exit code.",
            [({"target": result.target}, result.exit_code) for result in results],
        ),
        *gauge(
            "target_duration_seconds",
            "How long a target took.",
            [({"target": result.target}, result.seconds) for result in results],
        ),
    ]
    backups = {result.target: result.backup for result in results if result.backup is not None}
    for name, help_text, measure in _BACKUPS:
        lines += gauge(name, help_text, [({"target": path}, measure(backup)) for path, backup in backups.items()])
    for name, help_text, count in _COUNTS:
        samples = [
            ({"target": result.target}, count(result.report.totals)) for result in results if result.report is not None
        ]
        lines += gauge(f"target_{name}", help_text, samples)
    return join_gauges(lines)


def size_metrics(inspection: Inspection, sizes: Sizes, measured_s: float) -> str:
    """Return the metrics of a checkpoint's state, which was measured at ``measured_s`` seconds since the epoch.

    Sizes are estimates if only a sample was read.
    """
    target = {"target": inspection.checkpoint.target}
    batch = inspection.checkpoint.batch
    lines = [
        *gauge("measured_timestamp_seconds", "When the state was measured.", [(target, measured_s)]),
        *gauge("measured_share", "The share of the bytes of files that was read.", [(target, sizes.share)]),
        *gauge("batch", "The last committed batch.", [(target, batch.id)]),
        *gauge(
            "batch_timestamp_seconds", "When the last committed batch began.", [(target, batch.timestamp_ms / 1000)]
        ),
        *gauge(
            "store_file_bytes",
            "Bytes of the files of a store.",
            [
                ({**target, "operator": str(store.operator), "store": store.store}, store.file_bytes)
                for store in sizes.stores
            ],
        ),
    ]
    for name, help_text, measure in _SIZES:
        samples = [({**target, **_labels_of(state)}, measure(state)) for state in sizes.states]
        lines += gauge(f"state_{name}", help_text, samples)
    return join_gauges(lines)


def _labels_of(state: StateSizes) -> dict[str, str]:
    return {"operator": str(state.operator), "store": state.store, "state": state.state}
