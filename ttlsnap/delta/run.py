"""``compact`` of a Delta state table: a ``DELETE`` of expired rows, or a scan and a ``MERGE`` for other transformers.

Deletion vectors, change data, column mapping, constraints and the log are Delta's business: one statement, one commit,
with the run's name and its policy in the commit's ``userMetadata``. A dry run of a ``DELETE`` needs no Spark.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ttlsnap.archives.places import AllowedPlaces
from ttlsnap.archives.receivers import Receiver, open_receiver, refuse_within
from ttlsnap.clock import iso
from ttlsnap.compaction.drop_limit import StateDrop, refuse_excess, warn_of_excess, warn_of_far_future
from ttlsnap.compaction.options import ExpiryOptions
from ttlsnap.compaction.report import Counts
from ttlsnap.delta.archiving import TableArchive, deliver_waiting, has_waiting
from ttlsnap.delta.committing import commit, count_changed_rows, read_run_metadata, sql_name
from ttlsnap.delta.counting import count_rows
from ttlsnap.delta.cutoff import quote_identifier
from ttlsnap.delta.erasing import check_retention, erase, read_retention
from ttlsnap.delta.features import check_features, downstream_warnings
from ttlsnap.delta.log import Commit, commits, live_files, open_table, read_table, set_key
from ttlsnap.delta.planning import Limits, TablePlan, delete_parts, plan_table
from ttlsnap.delta.report import TableReport, sum_known
from ttlsnap.delta.rewriting import check_unique, read_planned_version, scan_table
from ttlsnap.delta.session import delta_session, require_delta
from ttlsnap.engines.launch import SessionSource
from ttlsnap.errors import RefusedError, TtlsnapError, tidy_after_error
from ttlsnap.extras import require_package
from ttlsnap.keywords import takes
from ttlsnap.publishing.runs import new_run_id
from ttlsnap.transform.protocols import StateSnapshotTransformerFactory, name_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Confirm = Callable[[TableReport], bool]


@dataclass(frozen=True)
class Erase:
    """The options of ``--erase``: dropped rows are removed from the disk, too.

    ``retention_ms`` is how long old files are kept; None for the table's own retention. Less than that needs ``yes``.
    """

    retention_ms: int | None = None
    yes: bool = False


@dataclass(frozen=True, kw_only=True)
class TableRequest(ExpiryOptions):
    """The arguments of ``compact_table``."""

    target: str = field(kw_only=False)
    transformers: Sequence[StateSnapshotTransformerFactory] = field(kw_only=False)
    key: Sequence[str] = ()
    dry_run: bool = False
    limits: Limits | None = None
    erasing: Erase | None = None
    session: SessionSource = None
    jars: str | None = None
    master: str | None = None
    confirm: Confirm | None = None
    asks: bool = False


@takes(TableRequest)
def compact_table(request: TableRequest) -> TableReport:
    """Run ``transformers`` over the rows of the Delta table ``target``.

    ``key`` has the columns of a row's key; by default those that the table has recorded. ``now`` is ``checkpoint``
    (when rows were last written by anything but ttlsnap), ``wall``, or an ISO 8601 time. ``limits`` apply to each
    commit; a run makes as many as it needs. ``expired_to`` receives the dropped rows, as for a checkpoint (see
    ``ttlsnap.archives``). ``confirm`` is called with the report of a dry run before anything is changed. ``max_drop``
    is the share of the rows, from 0.0 to 1.0, that may be dropped; without it, only dropping all rows is refused. If
    ``confirm`` ``asks`` a person, that person decides instead.

    Raise a ``TtlsnapError``; the table is then unchanged, or as the run's last complete commit left it.
    """
    started, dry_run = time.monotonic(), request.dry_run
    files = open_table(request.target)
    require_package("pyroaring")
    if not dry_run:
        require_delta(request.session, request.jars)
    table = read_table(files)
    check_features(files, table)
    erasing, retention_warnings = request.erasing, tuple[str, ...]()
    if erasing is not None:
        retention_warnings = check_retention(files, table.metadata, erasing.retention_ms, erasing.yes)
    plan = plan_table(files, table, request.transformers, request.key, request.now)
    receives = None
    if request.expired_to is not None:
        refuse_within(request.expired_to, request.target)
        receives = open_receiver(request.expired_to)
        receives.check(make=not dry_run, source=files)
    report = replace(
        _begin_report(plan, dry_run),
        erasing=erasing is not None,
        expired_to=receives.name if receives is not None else None,
    )
    report = replace(report, warnings=(*report.warnings, *retention_warnings))
    report = _work(plan, report, request, receives)
    drops = [_drop(plan, report)]
    excess = warn_of_excess(drops, request.max_drop) if dry_run else ()
    report = replace(report, warnings=(*report.warnings, *warn_of_far_future(drops), *excess))
    return replace(report, seconds=time.monotonic() - started)


def _work(plan: TablePlan, report: TableReport, request: TableRequest, receives: Receiver | None) -> TableReport:
    """Count the rows, or change the table with Spark. Return the report."""
    files, dry_run, erasing = plan.files, request.dry_run, request.erasing
    drops_nothing = plan.cutoffs is not None and all(decision is False for decision in plan.decided)
    with ExitStack() as stack:
        session = delta_session(request.session, jars=request.jars, master=request.master)
        spark_of = functools.cache(lambda: stack.enter_context(session))
        if not dry_run and (receives is not None or has_waiting(files)):
            stack.enter_context(files.lock())
            waiting_archives = deliver_waiting(files, AllowedPlaces(receives), spark_of)
            if erasing is not None and waiting_archives:
                raise RefusedError(
                    waiting_archives[0] + "\nThe archive may need rows that --erase would remove. Nothing was changed"
                )
            report = replace(report, warnings=(*report.warnings, *waiting_archives))
        if (plan.cutoffs is not None and dry_run) or (drops_nothing and erasing is None):
            return count_rows(plan, report)
        limits, max_drop = request.limits or Limits(), 1.0 if request.asks else request.max_drop
        archive = TableArchive(plan, report.run, receives) if receives is not None else None
        table_run = _Run(spark_of(), plan, replace(report, engine="spark"), limits, request.confirm, archive, max_drop)
        report = table_run.run()
        if erasing is not None and not dry_run and not table_run.declined:
            report = _erase(spark_of(), plan, report, erasing)
    return report


def _erase(spark: SparkSession, plan: TablePlan, report: TableReport, erasing: Erase) -> TableReport:
    try:
        erased, removal_time = erase(spark, plan.files, _words(plan, report), erasing.retention_ms)
    except TtlsnapError as error:
        if not report.versions:
            raise
        raise type(error)(
            error.text
            + f"\nRun {report.run} committed version {report.versions[-1]}, which stays. The dropped rows are "
            "still on disk. Run again with --erase"
        ) from error
    return replace(report, erased=erased, physically_gone_by=removal_time)


def _begin_report(plan: TablePlan, dry_run: bool) -> TableReport:
    """Return the report before any row is read."""
    live = plan.live
    return TableReport(
        run=new_run_id(),
        target=plan.files.root,
        version=plan.table.version,
        key=plan.key,
        dry_run=dry_run,
        now_us=plan.clock.processing_us,
        now_source=plan.clock.source,
        timestamp=plan.timestamp,
        counts=Counts(sum_known(file.rows for file in live), None, 0, 0, sum_known(file.size for file in live), None),
        files=len(live),
        decided=sum(decision is not None for decision in plan.decided),
        warnings=tuple(downstream_warnings(plan.files, plan.table)),
    )


def _words(plan: TablePlan, report: TableReport) -> dict[str, Any]:
    """Return the metadata for the commits of a run: its name, its rules, and the counts known before."""
    policy: dict[str, Any] = {"transformers": [name_class(factory.written_as) for factory in plan.factories]}
    if plan.cutoffs is not None:
        policy = {
            "drop": [
                {"timestamp": cutoff.timestamp.field.name, "at": iso(cutoff.at_us), "time": cutoff.time}
                for cutoff, _ in plan.cutoffs
            ]
        }
    counts = {
        name: count for name, count in report.counts.to_json().items() if name in ("entries", "dropped", "rewritten")
    }
    if plan.cutoffs is not None:
        counts = {"entries": counts["entries"]}
    rules = [factory.describe() for factory in plan.factories]
    run_metadata = {"run": report.run, "key": list(plan.key), "now": iso(report.now_us), "rules": rules, **policy}
    run_metadata["counts"] = counts
    return (
        run_metadata
        if report.expired_to is None
        else {**run_metadata, "expired_to": report.expired_to, "target": report.target}
    )


class _Run:
    """A run that needs Spark."""

    def __init__(
        self,
        spark: SparkSession,
        plan: TablePlan,
        report: TableReport,
        limits: Limits,
        confirm: Confirm | None,
        archive: TableArchive | None,
        max_drop: float | None,
    ) -> None:
        self._spark, self._plan, self._report, self._limits, self._confirm = spark, plan, report, limits, confirm
        self._archive, self._max_drop = archive, max_drop
        self.declined = False

    def run(self) -> TableReport:
        plan = self._plan
        part_bounds = None if plan.cutoffs is None else delete_parts(plan, self._limits)
        if part_bounds is None:
            return self._rewritten()
        drops_nothing = all(decision is False for decision in plan.decided)
        if drops_nothing or self._confirm is not None or _may_exceed(plan, self._max_drop):
            self._report = count_rows(plan, self._report)
            self._refuse_excess()
        if self._is_declined() or drops_nothing:
            return self._report
        self._remember_key()
        (_, cutoff), *_ = plan.cutoffs or ()
        conditions = [*(replace(cutoff, most=upper_bound).sql for upper_bound in part_bounds[:-1]), plan.sql]
        self._commit(
            [f"DELETE FROM {sql_name(plan.files)} WHERE {condition}" for condition in conditions],
            [functools.partial(self._select_expired, *pair) for pair in itertools.pairwise(["false", *conditions])],
        )
        return self._published()

    def _select_expired(self, condition_before: str, condition: str) -> DataFrame:
        """Return the rows for which ``condition`` is true and ``condition_before`` is not, with columns by position."""
        from pyspark.sql import functions as F

        rows = read_planned_version(self._spark, self._plan).where(
            f"({condition}) AND NOT coalesce(({condition_before}), false)"
        )
        names = self._plan.table.metadata.schema.names
        return rows.select(*(F.col(quote_identifier(name)).alias(f"c{place}") for place, name in enumerate(names)))

    def _rewritten(self) -> TableReport:
        plan, report = self._plan, self._report
        if not plan.remembered:
            check_unique(self._spark, plan)
        with scan_table(self._spark, plan, not report.dry_run, by_file=bool(self._limits)) as changes:
            result = changes.result
            # Where only what goes was read, the files say how many rows there are.
            entries = result.entries if plan.cutoffs is None else report.counts.entries
            counts = replace(
                report.counts,
                entries=entries,
                kept=None if entries is None else entries - result.dropped - result.rewritten,
                dropped=result.dropped,
                rewritten=result.rewritten,
            )
            self._report = replace(
                report, counts=counts, times=result.times, timestamp=report.timestamp or _field(result.times)
            )
            if report.dry_run or (not self._report.changed and not report.erasing):
                return self._report
            self._refuse_excess()
            if self._is_declined() or not self._report.changed:
                return self._report
            self._remember_key(checked=True)
            parts = changes.parts(plan, self._limits)
            self._commit(
                [functools.partial(changes.statement, plan, part) for part in parts],
                [functools.partial(changes.read_dropped, part) for part in parts] if result.dropped else [],
            )
        return self._published()

    def _refuse_excess(self) -> None:
        drop = _drop(self._plan, self._report)
        self._report = replace(self._report, drop=drop)
        refuse_excess(self._report.target, [drop], self._max_drop)

    def _is_declined(self) -> bool:
        self.declined = self._confirm is not None and not self._confirm(self._report)
        return self.declined

    def _remember_key(self, checked: bool = False) -> None:
        plan = self._plan
        if plan.remembered:
            return
        if not checked:
            check_unique(self._spark, plan)
        statement = f"ALTER TABLE {sql_name(plan.files)} {set_key(plan.key)}"
        commit(self._spark, plan.files, statement, {"key": list(plan.key)})

    def _commit(self, statements: Sequence[str | Callable[[], str]], doomed: Sequence[Callable[[], DataFrame]]) -> None:
        """Make one commit for a statement that drops the ``doomed`` rows, and deliver them."""
        if self._archive is None or not doomed:
            self._commit_all(statements)
            return
        with tidy_after_error(self._archive.discard):
            self._archive.begin()
            for part_number, rows in enumerate(doomed):
                self._archive.stage(part_number, rows())
        try:
            self._commit_all(statements)
        except RefusedError:
            # After anything else the JVM may still be at it: the next run sees what became of it.
            if not _list_commits(self._plan, self._report):
                self._archive.discard()
            raise
        try:
            self._archive.deliver(self._spark)
        except TtlsnapError as error:
            if self._report.erasing:
                raise type(error)(
                    error.text
                    + f"\nRun {self._report.run} dropped rows, and that stays. Nothing was erased. The next run "
                    "archives the dropped rows; then run again with --erase"
                ) from error
            warning = (
                f"the dropped rows are not in {self._report.expired_to} yet; the next run on the table will archive "
                "them: " + error.text
            )
            self._report = replace(self._report, warnings=(*self._report.warnings, warning))

    def _commit_all(self, statements: Sequence[str | Callable[[], str]]) -> None:
        """Make one commit for each statement. After several, an error says how many succeeded."""
        run_metadata = _words(self._plan, self._report)
        for number, statement in enumerate(statements):
            part_metadata: Mapping[str, Any] = run_metadata
            if len(statements) > 1:
                part_metadata = {**run_metadata, "part": [number + 1, len(statements)]}
            try:
                commit(self._spark, self._plan.files, statement, part_metadata)
            except RefusedError as error:
                if not number:
                    raise
                raise RefusedError(
                    error.text
                    + f"\n{number} of {len(statements)} commits of run {self._report.run} were made and stay. The "
                    "next run makes the others"
                ) from error

    def _published(self) -> TableReport:
        """Return the report with Delta's metrics; without a commit if there was nothing to do."""
        plan, report = self._plan, self._report
        run_commits = _list_commits(plan, report)
        dropped, rewritten = count_changed_rows(run_commits)
        if any("numDeletedRows" not in deletion.metrics for deletion in run_commits if deletion.operation == "DELETE"):
            # Of partitions that go whole Delta does not always count the rows.
            dropped = count_rows(plan, report).counts.dropped
        live, entries = live_files(plan.files, read_table(plan.files).version), report.counts.entries
        counts = replace(
            report.counts,
            kept=None if entries is None else entries - dropped - rewritten,
            dropped=dropped,
            rewritten=rewritten,
            bytes_after=sum_known(file.size for file in live),
        )
        return replace(
            report,
            counts=counts,
            versions=tuple(sorted(table_commit.version for table_commit in run_commits)),
            overtaken=max(report.counts.dropped + report.counts.rewritten - dropped - rewritten, 0),
            physically_gone_by=_predict_removal(plan, run_commits)
            if all(file.vector is None for file in live)
            else None,
        )


def _may_exceed(plan: TablePlan, limit: float | None) -> bool:
    """Return whether the rows must be counted to know that the limit is kept."""
    if limit is None:
        return not any(decision is False and file.rows for file, decision in zip(plan.live, plan.decided, strict=True))
    return limit < 1


def _drop(plan: TablePlan, report: TableReport) -> StateDrop:
    """Return how many of the rows are dropped, and what they are judged by, for the limit on it."""
    times, counts = report.times, report.counts
    unit, time, now, oldest, newest = None, None, report.now_us, None, None
    if times is not None:
        unit, time, now, oldest, newest = times.unit, times.time, times.now_us, times.oldest_us, times.newest_us
    elif plan.cutoffs is not None and len(plan.cutoffs) == 1:
        ((cutoff, column),) = plan.cutoffs
        unit, time, now = cutoff.timestamp.unit, cutoff.time, cutoff.now_us
        oldest, newest = column.range_us(plan.live, cutoff.timestamp.scale)
    return StateDrop(
        "the table",
        counts.entries or 0,
        counts.dropped,
        report.timestamp,
        unit,
        time,
        now,
        report.now_source,
        oldest,
        newest,
    )


def _field(times: Any) -> str | None:
    return times.field if times is not None else None


def _list_commits(plan: TablePlan, report: TableReport) -> list[Commit]:
    """Return the commits of this run."""
    newer_commits = itertools.takewhile(
        lambda table_commit: table_commit.version > plan.table.version, commits(plan.files)
    )
    return [
        table_commit
        for table_commit in newer_commits
        if (read_run_metadata(table_commit) or {}).get("run") == report.run
    ]


def _predict_removal(plan: TablePlan, run_commits: Sequence[Commit]) -> datetime | None:
    last_ms = max(
        (table_commit.timestamp_ms for table_commit in run_commits if table_commit.timestamp_ms is not None),
        default=None,
    )
    days = read_retention(plan.table.metadata)
    return None if last_ms is None or days is None else datetime.fromtimestamp(last_ms / 1000, UTC) + days
