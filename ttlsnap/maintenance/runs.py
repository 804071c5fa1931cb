"""The run of a policy: all targets, several at a time, with one Spark session.

A target that fails does not stop the others. The policy says what to do if one is busy, fenced, damaged or unknown. The
result of a target has its error.
"""

from __future__ import annotations

import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Protocol

from ttlsnap.amounts import quantity
from ttlsnap.backups.found import restore_command
from ttlsnap.backups.regular import PolicyBackup, RegularBackups
from ttlsnap.clock import iso_of
from ttlsnap.compaction.options import ExpiryOptions
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.compaction.run import compact
from ttlsnap.delta import is_table
from ttlsnap.delta.planning import Limits
from ttlsnap.delta.report import TableReport
from ttlsnap.delta.run import Erase, compact_table
from ttlsnap.documents import Document
from ttlsnap.errors import (
    BusyError,
    CorruptionError,
    FencedError,
    Foreseen,
    NotACheckpointError,
    NothingToMigrateError,
    StoppedError,
    TtlsnapError,
    UnsupportedError,
    UsageError,
)
from ttlsnap.interrupts import Received
from ttlsnap.keywords import fields_of
from ttlsnap.maintenance.policy import TargetPolicy
from ttlsnap.maintenance.rules import options_of, rule_factories
from ttlsnap.maintenance.targets import MatchedTarget
from ttlsnap.maintenance.workers import Workers
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.run import migrate
from ttlsnap.pages.words import for_policy
from ttlsnap.printable import shell_word
from ttlsnap.publishing.preflight import WOULD_BE_REFUSED
from ttlsnap.publishing.recover import recover
from ttlsnap.storage.open import open_directory

Status = Literal["planned", "done", "nothing", "skipped", "refused", "undecided", "failed", "stopped"]
Report = CompactionReport | MigrationReport | TableReport

_AT_ONCE = 8
_MOST_OF_A_REASON = 300
LOOK_AGAIN_S = 15.0
"""The pause before another attempt at a busy target."""
_LOOK_FOR_SIGNALS = 0.2  # seconds


@dataclass(frozen=True)
class TargetResult(Document):
    """The result of a target.

    ``status`` is ``done`` (something was changed; ``planned`` in a dry run, which changes nothing), ``nothing`` (there
    was nothing to do), ``skipped`` (the policy says so), ``refused`` (for safety), ``undecided`` (unknown or
    unsupported), ``failed``, or ``stopped`` by a signal before it was published.
    ``recovered`` names the interrupted run, if there was one. ``exit_code`` is that of ``compact``. After a dry run,
    ``exit_code_of_run`` is the exit code of a run. ``backup`` says what was done about backups, if the policy has any.
    """

    target: str
    policy: str
    status: Status
    seconds: float
    report: Report | None = None
    error: TtlsnapError | None = None
    recovered: str | None = None
    exit_code_of_run: int = 0
    backup: PolicyBackup | None = None

    @property
    def exit_code(self) -> int:
        return 0 if self.error is None or self.status == "skipped" else self.error.exit_code

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``compact`` or ``migrate`` prints, with the status and the error."""
        report = self.report.to_json() if self.report else {"target": self.target}
        return {
            **report,
            "status": self.status,
            "error": self.error.text if self.error else None,
            "error_type": type(self.error).__name__ if self.error else None,
            "exit_code": self.exit_code,
            "recovered": self.recovered,
            "policy_backup": self.backup.to_json() if self.backup else None,
            "seconds": round(self.seconds, 3),
        }


Confirm = Callable[[str, "Report"], bool]
"""A function that gets a target and its report before publishing, and returns whether to publish. It may raise."""


class MaintenanceListener(Protocol):
    """A listener to the run of a policy."""

    def found(self, targets: int) -> None: ...
    def ended(self, result: TargetResult) -> None: ...


def maintain(
    targets: Sequence[MatchedTarget],
    workers: Workers,
    *,
    dry_run: bool = False,
    ages: bool = False,
    confirm: Confirm | None = None,
    listener: MaintenanceListener | None = None,
    known: Sequence[TargetResult] = (),
    received: Received | None = None,
) -> list[TargetResult]:
    """Process ``targets``, each by its policy. Return a result for each, in their order.

    ``ages`` is as for ``compact``. ``confirm`` is called before anything is published. ``known`` are results of targets
    that need no work; they are last. After a signal is ``received``, no target starts. Those in progress stop before
    they publish, or finish it.
    """
    if listener is not None:
        listener.found(len(targets) + len(known))
        for result in known:
            listener.ended(result)
    runner = _Runner(workers, dry_run, ages, confirm)
    with ThreadPoolExecutor(min(_AT_ONCE, max(len(targets), 1)), "ttlsnap-target") as pool:
        futures = {pool.submit(runner.run, target): number for number, target in enumerate(targets)}
        results: dict[int, TargetResult] = {}
        futures_left: set[Future[TargetResult]] = set(futures)
        try:
            while futures_left:
                ended, futures_left = wait(futures_left, _LOOK_FOR_SIGNALS, FIRST_COMPLETED)
                for future in ended:
                    results[futures[future]] = future.result()
                    if listener is not None:
                        listener.ended(results[futures[future]])
                if received is not None and received.signum is not None:
                    runner.stop(received.signum)
        except BaseException:
            runner.stop(signal.SIGINT)
            raise
    return [*(results[number] for number in range(len(targets))), *known]


def worst_exit_code(results: Sequence[TargetResult]) -> int:
    """Return the highest exit code of the targets."""
    return max((result.exit_code for result in results), default=0)


def describe_failures(policy: str, results: Sequence[TargetResult]) -> dict[str, Any] | None:
    """Return a document about the failed targets of a policy, without keys and values of entries; None without any.

    ``text`` is for chats, which show the key of that name.
    """
    failed_results = [result for result in results if result.exit_code]
    if not failed_results:
        return None
    exit_code = worst_exit_code(failed_results)
    targets = quantity(len(results), "target")
    host = socket.gethostname()
    summary = f"ttlsnap maintain {policy} on {host}: {len(failed_results)} of {targets} failed, exit code {exit_code}"
    return {
        "policy": policy,
        "host": host,
        "time": iso_of(datetime.now(UTC)),
        "exit_code": exit_code,
        "text": "\n".join([summary, *map(_describe_failure, failed_results)]),
        "targets": [
            {
                "target": result.target,
                "status": result.status,
                "exit_code": result.exit_code,
                "error": result.error.text.without_keys if result.error else None,
                "error_type": type(result.error).__name__ if result.error else None,
                "next": _next_command(result),
                "newest_backup": _newest_backup(result),
            }
            for result in failed_results
        ],
    }


def _next_command(result: TargetResult) -> str | None:
    """Return the command that shows what is wrong with a damaged target; None for another failure."""
    return f"ttlsnap doctor {shell_word(result.target)}" if isinstance(result.error, CorruptionError) else None


def _newest_backup(result: TargetResult) -> dict[str, Any] | None:
    backup = result.backup
    if backup is None or backup.existing_place is None:
        return None
    facts = {"place": backup.existing_place, "batch": backup.batch, "made_at": backup.made_at}
    return {**facts, "restore": how_to_restore(result)}


def how_to_restore(result: TargetResult) -> str | None:
    """Return the command that restores a damaged target from its newest backup; None for others."""
    place = None if result.backup is None else result.backup.existing_place
    if place is None or not isinstance(result.error, CorruptionError):
        return None
    return restore_command(place, result.target)


def _describe_failure(result: TargetResult) -> str:
    """Return a line about a failed target, with the first sentence of its error, without keys and values of entries."""
    line = f"{result.target}: {result.status}"
    if result.error is None:
        return line
    reason = for_policy(result.error.text.without_keys, result.target).partition("\n")[0]
    sentence = re.split(r"(?<=[.?!])\s", reason, maxsplit=1)[0]
    line = f"{line}: {sentence if len(sentence) <= _MOST_OF_A_REASON else sentence[:_MOST_OF_A_REASON] + ' ...'}"
    command, restore = _next_command(result), how_to_restore(result)
    line = line if command is None else f"{line} - {command}"
    return line if restore is None else f"{line} - if that cannot repair it: {restore}"


class _Runner:
    """The runner of targets, one after another; several threads use it."""

    def __init__(self, workers: Workers, dry_run: bool, ages: bool, confirm: Confirm | None) -> None:
        self._workers, self._dry_run, self._ages, self._confirm = workers, dry_run, ages, confirm
        self._stopped = threading.Event()

    def stop(self, signum: int) -> None:
        """Start and publish no further target. It can be called again."""
        self._workers.stop(signum)
        self._stopped.set()

    def run(self, target: MatchedTarget) -> TargetResult:
        started = time.monotonic()
        policy, recovered_run = target.policy, None
        deadline = started + (policy.wait_seconds if policy.on_busy == "wait" else 0)
        backups = self._backups(target)

        def result(status: Status, report: Report | None = None, error: TtlsnapError | None = None) -> TargetResult:
            seconds = time.monotonic() - started
            backup = backups.result if backups is not None else None
            return TargetResult(target.path, policy.name, status, seconds, report, error, recovered_run, backup=backup)

        while True:
            try:
                report = self._process(target, backups)
            except BusyError as error:
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0:
                    return result("skipped" if policy.on_busy == "skip" else "refused", error=error)
                self._stopped.wait(min(LOOK_AGAIN_S, seconds_left))
            except FencedError as error:
                # A reviewed plan does not include a recovery.
                may_recover = policy.on_fenced == "recover" and not self._dry_run and self._confirm is None
                if not may_recover or recovered_run is not None:
                    if policy.on_fenced == "recover" and self._dry_run:
                        error = FencedError(error.text + ". Without --plan, maintain recovers it first")
                    return result("skipped" if policy.on_fenced == "skip" else "refused", error=error)
                try:
                    recovered_run = recover(target.path, expired_to=policy.options.expired_to).run
                except TtlsnapError as failure:
                    return result(_status(failure, policy), error=failure)
            except TtlsnapError as error:
                return result(_status(error, policy), error=error)
            except (Exception, SystemExit) as error:  # no failure of one target stops the others
                unexpected = TtlsnapError(f"{target.path}: {type(error).__name__}: {error}\nThis is unexpected")
                return result("failed", error=unexpected)
            else:
                if report is None:
                    return result("nothing")
                changed_status: Status = "planned" if self._dry_run else "done"
                kind = Foreseen.first_in(report.warnings)
                is_skipped = kind is None or (issubclass(kind, BusyError) and policy.on_busy == "skip")
                if kind is not None and is_skipped:
                    report = replace(report, warnings=tuple(map(_say_skipped, report.warnings)))
                elif kind is not None and not (issubclass(kind, BusyError) and policy.on_busy == "wait"):
                    report = replace(report, refused=True)
                ended = result(changed_status if report.changed else "nothing", report)
                return ended if is_skipped or kind is None else replace(ended, exit_code_of_run=kind.exit_code)

    def _backups(self, target: MatchedTarget) -> RegularBackups | None:
        rule = target.policy.backup
        if rule is None:
            return None
        refuse_if_stopped = partial(self._workers.refuse_if_stopped, target.path)
        return RegularBackups(
            target.path, rule, refuse_if_stopped, dry_run=self._dry_run, parallelism=self._workers.parallelism
        )

    def _process(self, target: MatchedTarget, backups: RegularBackups | None) -> Report | None:
        """Back a target up, and apply its rules. Return None if there are no rules and no changes."""
        policy = target.policy
        self._workers.refuse_if_stopped(target.path)
        if target.trouble is not None:
            raise target.trouble
        if is_table(open_directory(target.path)):
            for names, option in (
                ("partitions, provider and settings are", policy.changes),
                ("backup is", policy.backup),
            ):
                if option is not None:
                    raise UsageError(f"{target.path}: {names} not for Delta tables")
            return self._compact_table(target)
        if backups is None:
            return self._compact(target, None)
        backups.make_regular()
        if not policy.rules and policy.changes is None:
            return None
        report = self._compact(target, backups)
        if self._dry_run and report.changed and Foreseen.first_in(report.warnings) is None:
            backups.make_before_run()
        return report

    def _compact(self, target: MatchedTarget, backups: RegularBackups | None) -> Report:
        policy, rules = target.policy, target.policy.rules
        factories, engine = rule_factories(rules), self._workers.engine
        listener = _Asking(target.path, self._confirm, self._workers, backups)
        options = replace(options_of(policy), dry_run=self._dry_run, ages=self._ages)
        if policy.changes is not None:
            # Without rules there is nothing to archive.
            own_options = options if rules else replace(options, expired_to=None)
            try:
                report = migrate(target.path, policy.changes, factories, own_options, engine, listener)
                if report.changed or not rules:
                    return report
            except NothingToMigrateError:
                if not rules:
                    raise
        options = replace(options, parts=[(rule.selection, rule.part) for rule in rules])
        return compact(target.path, factories, options, engine, listener)

    def _compact_table(self, target: MatchedTarget) -> TableReport:
        try:
            return self._run_table(target)
        except Exception as error:
            self._workers.refuse_if_stopped(target.path, f". {error}")
            raise

    def _run_table(self, target: MatchedTarget) -> TableReport:
        policy = target.policy
        return compact_table(
            target.path,
            rule_factories(policy.rules),
            key=policy.key,
            dry_run=self._dry_run,
            limits=Limits(policy.max_files, policy.max_bytes),
            erasing=Erase(policy.retention_ms, yes=True) if policy.erase else None,
            session=self._workers.delta_session,
            confirm=partial(self._confirm, target.path) if self._confirm else None,
            **fields_of(policy.options, ExpiryOptions),
        )


class _Asking:
    """A listener that asks before a target is published, and backs it up. It raises StoppedError after a signal."""

    def __init__(self, target: str, confirm: Confirm | None, workers: Workers, backups: RegularBackups | None) -> None:
        self._target, self._confirm, self._workers, self._backups = target, confirm, workers, backups

    def planned(self, plan: object) -> None:
        pass

    def progress(self, entries: int, dropped: int) -> None:
        pass

    def partition_done(self) -> None:
        pass

    def confirm(self, report: CompactionReport | MigrationReport) -> bool:
        agreed = self._confirm is None or self._confirm(self._target, report)
        self._workers.refuse_if_stopped(self._target)
        if agreed and self._backups is not None:
            self._backups.make_before_run()
        return agreed


def _say_skipped(warning: str) -> str:
    """Return a warning of a plan about a busy target in the words for a policy that skips such targets."""
    if isinstance(warning, Foreseen) and issubclass(warning.kind, BusyError):
        reason = warning.removeprefix(WOULD_BE_REFUSED)
        return Foreseen(f'a run would skip this target, because of on_busy = "skip": {reason}', warning.kind)
    return warning


def _status(error: TtlsnapError, policy: TargetPolicy) -> Status:
    if isinstance(error, StoppedError):
        return "stopped"
    if isinstance(error, CorruptionError) and policy.on_damaged == "skip":
        return "skipped"
    if isinstance(error, (UnsupportedError, NotACheckpointError)) and policy.on_unknown == "skip":
        return "skipped"
    return {3: "undecided", 4: "refused"}.get(error.exit_code, "failed")  # type: ignore[return-value]
