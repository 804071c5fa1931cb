"""What a run did, as data: the same types for a dry run and a real one, and the JSON that scripts rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ttlsnap.clock import iso
from ttlsnap.drop_limit import StateDrop
from ttlsnap.partition import PartitionResult
from ttlsnap.plan import Plan
from ttlsnap.state import StateDescriptor
from ttlsnap.transform import TimeSummary


@dataclass(frozen=True)
class Counts:
    """Entries seen, kept as they were, dropped, rewritten; bytes on disk before and after.

    ``entries``, ``kept`` are None for a state that no transformer looked at: it was not counted. The bytes are those of
    the whole store, beside the first of its states that was looked at, and None for the others.
    """

    entries: int | None
    kept: int | None
    dropped: int
    rewritten: int
    bytes_before: int | None
    bytes_after: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": self.entries,
            "kept": self.kept,
            "dropped": self.dropped,
            "rewritten": self.rewritten,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
        }


@dataclass(frozen=True)
class StateReport:
    """What became of one state; times in microseconds since the epoch.

    ``timestamp`` names the field that was judged by, ``unit`` is that of a number, ``now_us`` is the moment it was
    compared with; ``null_timestamps`` entries had none and were kept. ``unclosed`` counts dropped groups that the
    watermark had not reached, whose results an append-mode query had still to emit, ``unmatched`` a join's dropped rows
    that had matched nothing yet. ``left_alone`` says why no transformer looked at the state. ``rewrites``, of a RocksDB
    store's first state, counts its partitions by how they are written: ``full``, as ``tombstones``, or ``untouched``.
    ``whole`` is False if an incremental run visited some of the partitions only.
    """

    state: StateDescriptor
    counts: Counts
    timestamp: str | None = None
    unit: str | None = None
    time: str | None = None
    now_us: int | None = None
    oldest_us: int | None = None
    newest_us: int | None = None
    null_timestamps: int = 0
    unclosed: int = 0
    unmatched: int = 0
    left_alone: str | None = None
    rewrites: Mapping[str, int] | None = None
    whole: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.state.operator,
            "operator_name": self.state.operator_name,
            "store": self.state.store,
            "state": self.state.state,
            "role": self.state.role,
            **self.counts.to_json(),
            "timestamp": self.timestamp,
            "timestamp_unit": self.unit,
            "time": self.time,
            "now": iso(self.now_us),
            "oldest": iso(self.oldest_us),
            "newest": iso(self.newest_us),
            "null_timestamps": self.null_timestamps,
            "unclosed": self.unclosed,
            "unmatched_dropped": self.unmatched,
            "left_alone": self.left_alone,
            **({"partitions": dict(self.rewrites)} if self.rewrites is not None else {}),
        }


@dataclass(frozen=True)
class CompactionReport:
    """A run of ``compact``. ``backup`` is the folder with the replaced files, ``output`` the new checkpoint.

    ``fingerprint`` is of the files that it found. ``published`` is False for a dry run, and where nothing was to be
    changed. ``warnings`` tell of what went wrong after the publishing, which stands. ``visited``, of incremental
    cleanup, is how many partitions were, of how many, and how many have still to come before one comes again.
    ``expired_to`` is the folder that gets what was dropped.
    """

    run: str
    target: str
    dry_run: bool
    published: bool
    engine: str
    batch: int
    fingerprint: str
    now_us: int
    now_source: str
    totals: Counts
    states: tuple[StateReport, ...]
    output: str | None
    backup: str | None
    seconds: float
    warnings: tuple[str, ...] = ()
    visited: tuple[int, int, int] | None = None
    expired_to: str | None = None

    @property
    def changed(self) -> bool:
        """Whether something was, or in a dry run would be, dropped or rewritten."""
        return bool(self.totals.dropped or self.totals.rewritten)

    @property
    def drops(self) -> list[StateDrop]:
        """How much of each primary state was dropped, for the limit on it."""
        return [
            StateDrop(
                str(state.state),
                state.counts.entries,
                state.counts.dropped,
                state.timestamp,
                state.unit,
                state.time,
                state.now_us,
                self.now_source,
                state.oldest_us,
                state.newest_us,
                state.whole,
            )
            for state in self.states
            if state.counts.entries and state.state.role == "primary"
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of ``compact --format json``."""
        return {
            "run": self.run,
            "target": self.target,
            "kind": "checkpoint",
            "dry_run": self.dry_run,
            "published": self.published,
            "engine": self.engine,
            "batch": self.batch,
            "fingerprint": self.fingerprint,
            "now": iso(self.now_us),
            "now_source": self.now_source,
            "totals": self.totals.to_json(),
            "stores": [state.to_json() for state in self.states],
            "output": self.output,
            "backup": self.backup,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
            "expired_to": self.expired_to,
            **({"visited": dict(zip(("partitions", "of", "left"), self.visited, strict=True))} if self.visited else {}),
        }


def summarize(plan: Plan, results: Sequence[PartitionResult]) -> tuple[Counts, tuple[StateReport, ...]]:
    """Totals and one report per state, from what the partitions counted."""
    reports = []
    for store in plan.stores:
        mine = [r for r in results if (r.operator, r.store) == (store.operator, store.store)]
        before, after = store.size, store.size
        if store.touched:
            before, after = sum(r.bytes_before for r in mine), sum(r.bytes_after for r in mine)
        ways = [r.rewrite or "untouched" for r in mine]
        is_rocksdb = plan.checkpoint.provider == "rocksdb"
        rewrites = {way: ways.count(way) for way in ("full", "tombstones", "untouched")} if is_rocksdb else None
        first = next((n for n, planned in enumerate(store.states) if planned.left_alone is None), 0)
        for number, planned in enumerate(store.states):
            # States of one store share its files, whose bytes go with the first of them that was looked at.
            size = (before, after) if number == first else (None, None)
            if planned.left_alone is not None:
                counts = Counts(None, None, 0, 0, *size)
                reports.append(StateReport(planned.state, counts, left_alone=planned.left_alone))
                continue
            parts = [state for r in mine for state in r.states if state.state == planned.state.state]
            counts = Counts(
                sum(p.entries for p in parts),
                sum(p.kept for p in parts),
                sum(p.dropped for p in parts),
                sum(p.rewritten for p in parts),
                *size,
            )
            report = StateReport(
                planned.state,
                counts,
                unmatched=sum(p.unmatched for p in parts),
                rewrites=rewrites if number == first else None,
                whole=len(mine) == len(store.partitions),
            )
            reports.append(_with_times(report, [p.times for p in parts if p.times]))
    return _total(reports), tuple(reports)


def _with_times(report: StateReport, times: Sequence[TimeSummary]) -> StateReport:
    if not times:
        return report
    return replace(
        report,
        timestamp=times[0].field,
        unit=times[0].unit,
        time=times[0].time,
        now_us=times[0].now_us,
        oldest_us=min((t.oldest_us for t in times if t.oldest_us is not None), default=None),
        newest_us=max((t.newest_us for t in times if t.newest_us is not None), default=None),
        null_timestamps=sum(t.nulls for t in times),
        unclosed=sum(t.unclosed for t in times),
    )


def _total(reports: Sequence[StateReport]) -> Counts:
    """Primary entries are counted; what is derived from them has bytes alone."""
    parts = [report.counts for report in reports if report.state.role == "primary"]
    sizes = [report.counts for report in reports]
    return Counts(
        sum(p.entries or 0 for p in parts),
        sum(p.kept or 0 for p in parts),
        sum(p.dropped for p in parts),
        sum(p.rewritten for p in parts),
        sum(p.bytes_before or 0 for p in sizes),
        sum(p.bytes_after or 0 for p in sizes),
    )
