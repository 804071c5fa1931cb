"""The report of a run, as data and as the JSON on which scripts rely; a dry run uses the same types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ttlsnap.clock import iso
from ttlsnap.compaction.drop_limit import StateDrop
from ttlsnap.compaction.plan import Plan
from ttlsnap.compaction.task import PartitionResult
from ttlsnap.documents import Document, in_json, json_property
from ttlsnap.entries.ages import AgeCounts
from ttlsnap.entries.descriptor import StateDescriptor
from ttlsnap.transaction.report import RunReport
from ttlsnap.transform.protocols import TimeSummary


@dataclass(frozen=True)
class Counts(Document):
    """The numbers of entries seen, kept, dropped and rewritten, and the bytes on disk before and after.

    ``entries`` and ``kept`` are None for a state that no transformer saw: it was not counted. The bytes are those of
    the whole store, for the first of its states that a transformer saw, and None for the others.
    """

    entries: int | None
    kept: int | None
    dropped: int
    rewritten: int
    bytes_before: int | None
    bytes_after: int | None


def _name(state: StateDescriptor) -> dict[str, Any]:
    """Return the name of a state, as keys of its report."""
    return {name: getattr(state, name) for name in ("operator", "operator_name", "store", "state", "role")}


@dataclass(frozen=True)
class StateReport(Document):
    """The report of one state; times are microseconds since the epoch.

    ``timestamp`` names the field that decided, ``unit`` its unit if it is a number, and ``now_us`` the time with which
    it was compared. Entries up to ``cutoff_us`` have expired. ``null_timestamps`` entries had none and were kept.
    ``unclosed`` counts dropped groups that the watermark had not reached: an append-mode query would still have emitted
    them. ``older`` entries were written before ``older_than_us``, where the known history begins, and count as written
    then. ``event_us`` is the current event time, if nobody chose the clock. ``unmatched`` counts a join's dropped rows
    that had not matched yet. ``left_alone`` says why no transformer saw the state. ``rewrites``, for a RocksDB store's
    first state, counts its partitions by how they are written: ``full``, as ``tombstones``, or ``untouched``. ``whole``
    is False if an incremental run visited only some of the partitions. ``age_counts`` are the entries with a time by
    age.
    """

    JSON_ORDER = (
        "state counts timestamp unit time now_us cutoff_us oldest_us newest_us null_timestamps unclosed timeout "
        "unmatched left_alone event_us written_before ages"
    )

    state: StateDescriptor = field(metadata=in_json(convert=_name, inline=True))
    counts: Counts = field(metadata=in_json(inline=True))
    timestamp: str | None = None
    unit: str | None = field(default=None, metadata=in_json("timestamp_unit"))
    time: str | None = None
    now_us: int | None = field(default=None, metadata=in_json("now", convert=iso))
    cutoff_us: int | None = field(default=None, metadata=in_json("cutoff", convert=iso))
    oldest_us: int | None = field(default=None, metadata=in_json("oldest", convert=iso))
    newest_us: int | None = field(default=None, metadata=in_json("newest", convert=iso))
    null_timestamps: int = 0
    unclosed: int = 0
    older: int = field(default=0, metadata=in_json(hidden=True))
    older_than_us: int | None = field(default=None, metadata=in_json(hidden=True))
    event_us: int | None = field(default=None, metadata=in_json("event_now", convert=iso, optional=True))
    unmatched: int = field(default=0, metadata=in_json("unmatched_dropped"))
    left_alone: str | None = None
    rewrites: Mapping[str, int] | None = field(default=None, metadata=in_json("partitions", optional=True))
    whole: bool = field(default=True, metadata=in_json(hidden=True))
    age_counts: AgeCounts | None = field(default=None, metadata=in_json(hidden=True))

    @property
    @json_property()
    def timeout(self) -> str | None:
        """The field with the timeout of a group."""
        return self.state.timeout

    @property
    @json_property(optional=True)
    def written_before(self) -> dict[str, Any] | None:
        """The time at which the known history begins, and the entries that are older, if there are any."""
        return {"time": iso(self.older_than_us), "entries": self.older} if self.older else None

    @property
    @json_property(optional=True)
    def ages(self) -> dict[str, Any] | None:
        """The entries by age, if they were counted."""
        counts = self.age_counts
        if counts is None:
            return None
        return {
            "future": counts.future,
            "null": self.null_timestamps,
            "cutoff_seconds": counts.buckets.cutoff_seconds,
            "buckets": counts.buckets.to_json(counts.entries),
        }


def _by_name(visited: tuple[int, int, int]) -> dict[str, int]:
    """Return the numbers of partitions that were visited, with their names."""
    return dict(zip(("partitions", "of", "left"), visited, strict=True))


@dataclass(frozen=True, kw_only=True)
class CompactionReport(RunReport):
    """The report of a run of ``compact``.

    engine_reason  why the engine was chosen; None if the user chose it
    fingerprint    the digest of the batch and of the files that the run read
    visited        in incremental cleanup, numbers of partitions: visited, all, and left
    expired_to     the archive of the dropped entries
    rules          the rule of each transformer, in words
    shown          the first entries that are dropped or rewritten, as JSON
    ledger_updated whether nothing was published, but the ledger of ``@written`` has new times
    """

    JSON_ORDER = (
        "run target kind dry_run published engine engine_reason rules batch fingerprint now_us now_source totals "
        "states output backup seconds warnings first_run expired_to destination refused made_final ledger_updated shown"
    )

    kind: str = field(default="checkpoint", init=False)
    engine: str
    fingerprint: str
    now_us: int = field(metadata=in_json("now", convert=iso))
    now_source: str
    totals: Counts
    states: tuple[StateReport, ...] = field(metadata=in_json("stores"))
    visited: tuple[int, int, int] | None = field(default=None, metadata=in_json(convert=_by_name, optional=True))
    expired_to: str | None = None
    engine_reason: str | None = None
    rules: tuple[str, ...] = ()
    shown: tuple[Mapping[str, Any], ...] = field(default=(), metadata=in_json(optional=True))
    ledger_updated: bool = False

    @property
    def changed(self) -> bool:
        """Whether something was, or in a dry run would be, dropped or rewritten."""
        return bool(self.totals.dropped or self.totals.rewritten)

    @property
    def drops(self) -> list[StateDrop]:
        """The drop of each primary state, for the limit on drops."""
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
                state.cutoff_us,
            )
            for state in self.states
            if state.counts.entries and state.state.role == "primary"
        ]


def shown_in(results: Sequence[PartitionResult], rules: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries that the results show, with their places, and the rules in words."""
    for result in results:
        for state in result.states:
            place = {"operator": result.operator, "store": result.store, "state": state.state}
            for entry in state.shown:
                yield {**place, "partition": result.partition, **entry, "rule": rules[entry["rule"]]}


def summarize(plan: Plan, results: Sequence[PartitionResult]) -> tuple[Counts, tuple[StateReport, ...]]:
    """Return totals and one report for each state, from the counts of the partitions."""
    reports = []
    for store in plan.stores:
        store_results = [
            result for result in results if (result.operator, result.store) == (store.operator, store.store)
        ]
        bytes_before, bytes_after = store.size, store.size
        if store.touched:
            bytes_before, bytes_after = (
                sum(result.bytes_before for result in store_results),
                sum(result.bytes_after for result in store_results),
            )
        rewrites_of_partitions = [result.rewrite or "untouched" for result in store_results]
        is_rocksdb = plan.checkpoint.provider == "rocksdb"
        rewrites = (
            {rewrite: rewrites_of_partitions.count(rewrite) for rewrite in ("full", "tombstones", "untouched")}
            if is_rocksdb
            else None
        )
        first_seen = next(
            (number for number, state_plan in enumerate(store.states) if state_plan.left_alone is None), 0
        )
        for number, state_plan in enumerate(store.states):
            # States of one store share its files, so the bytes are those of the first state that a transformer saw.
            sizes = (bytes_before, bytes_after) if number == first_seen else (None, None)
            if state_plan.left_alone is not None:
                counts = Counts(None, None, 0, 0, *sizes)
                reports.append(StateReport(state_plan.state, counts, left_alone=state_plan.left_alone))
                continue
            states = [
                state for result in store_results for state in result.states if state.state == state_plan.state.state
            ]
            counts = Counts(
                sum(state.entries for state in states),
                sum(state.kept for state in states),
                sum(state.dropped for state in states),
                sum(state.rewritten for state in states),
                *sizes,
            )
            report = StateReport(
                state_plan.state,
                counts,
                unmatched=sum(state.unmatched for state in states),
                rewrites=rewrites if number == first_seen else None,
                whole=len(store_results) == len(store.partitions),
                age_counts=AgeCounts.merged(state.ages for state in states),
            )
            reports.append(_with_times(report, [state.times for state in states if state.times]))
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
        cutoff_us=times[0].cutoff_us,
        oldest_us=min((summary.oldest_us for summary in times if summary.oldest_us is not None), default=None),
        newest_us=max((summary.newest_us for summary in times if summary.newest_us is not None), default=None),
        null_timestamps=sum(summary.nulls for summary in times),
        unclosed=sum(summary.unclosed for summary in times),
        older=sum(summary.older for summary in times),
        older_than_us=max(
            (summary.older_than_us for summary in times if summary.older_than_us is not None), default=None
        ),
        event_us=times[0].event_us,
    )


def _total(reports: Sequence[StateReport]) -> Counts:
    """Return the totals: primary entries are counted; derived ones add only bytes."""
    primary_counts = [report.counts for report in reports if report.state.role == "primary"]
    all_counts = [report.counts for report in reports]
    return Counts(
        sum(counts.entries or 0 for counts in primary_counts),
        sum(counts.kept or 0 for counts in primary_counts),
        sum(counts.dropped for counts in primary_counts),
        sum(counts.rewritten for counts in primary_counts),
        sum(counts.bytes_before or 0 for counts in all_counts),
        sum(counts.bytes_after or 0 for counts in all_counts),
    )
