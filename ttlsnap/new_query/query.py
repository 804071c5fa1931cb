"""The evolution of a checkpoint to the contract of its new query, and whether nothing else stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ttlsnap.check import compare
from ttlsnap.check.commands import ignore_option
from ttlsnap.check.findings import Finding, Verdict
from ttlsnap.check.ignores import Ignore, apply
from ttlsnap.checkpoint import Checkpoint
from ttlsnap.clock import MICROS, clock_at, iso, moment_of
from ttlsnap.contract import Contract
from ttlsnap.contract.given import require_contract
from ttlsnap.contract.of_checkpoint import describe_checkpoint
from ttlsnap.contract.of_query import join_contracts
from ttlsnap.errors import UnsupportedError, UsageError
from ttlsnap.migration.evolution import Evolution
from ttlsnap.migration.recorded import with_schemas_of
from ttlsnap.migration.unused import drop_unused, require_consent, split_drops
from ttlsnap.new_query.answers import NO_ANSWERS, Answers
from ttlsnap.new_query.findings import OF_SPARK, describe_findings, with_repairs
from ttlsnap.new_query.plan import find_evolution
from ttlsnap.transform.converters import ConvertsValues


@dataclass(frozen=True)
class NewQuery:
    """The contract of a new query. ``old`` is that of the old one, if the user has it. ``converters`` give new values.

    ``ignores`` are the findings that the user accepts. Unless the plan ``may_drop`` values, one that can is refused; in
    a ``dry_run``, the notes say so.
    ``now`` is the time at which values with a TTL have expired, as for ``compact``; by default, it is the wall clock.

    Raise UsageError for what is not the contract of a query.
    """

    contract: Contract
    old: Contract | None = None
    answers: Answers = NO_ANSWERS
    ignores: Sequence[Ignore] = ()
    may_drop: bool = True
    converters: Sequence[ConvertsValues] = ()
    now: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        require_contract(self.contract, "contract", of_query=True)
        if self.old is not None:
            require_contract(self.old, "old", of_query=True)

    def evolve(self, checkpoint: Checkpoint) -> Evolution:
        """See ``ttlsnap.migration.changes.NewSchemas``."""
        now_ms = _find_now(self.now, checkpoint)
        old_contract = describe_checkpoint(checkpoint)
        if self.old is not None:
            old_contract = join_contracts(old_contract, self.old)
        unused, drops = split_drops(checkpoint, self.answers.drops)
        answers = replace(self.answers, drops=frozenset(drops))
        evolution, obstacles = find_evolution(old_contract, self.contract, answers, now_ms, self.converters)
        evolution = drop_unused(checkpoint, evolution, sorted(unused))
        last_ms = checkpoint.batch.timestamp_ms
        if now_ms < last_ms and any(state.expiry is not None for state in evolution.states):
            # From 4.2 on, Spark never looks for an expiry time before the last batch.
            raise UsageError(f"--now {self.now} is before the last batch ({iso(last_ms * MICROS)}), and a TTL changes")
        if obstacles:
            lines = "".join(f"\n  {obstacle.place}: {obstacle.message}" for obstacle in obstacles)
            raise UnsupportedError(f"{checkpoint.target} cannot be migrated to the new query as it is:{lines}")
        notes = _require_repaired(checkpoint, old_contract, self, evolution)
        notes += require_consent(checkpoint.target, evolution, may_drop=self.may_drop, dry_run=self.dry_run)
        return replace(evolution, notes=tuple(notes))


def _find_now(now: str | None, checkpoint: Checkpoint) -> int:
    """Return the time at which values have expired, in milliseconds.

    By default it is the wall clock: a query that restarts does not return a value that has expired since it stopped.
    """
    if now is None:
        return max(moment_of("wall") // MICROS, checkpoint.batch.timestamp_ms)
    return clock_at(now, checkpoint.batch).processing_us // MICROS


def _require_repaired(checkpoint: Checkpoint, old: Contract, new: NewQuery, evolution: Evolution) -> list[str]:
    """Return what could not be compared.

    Raise UnsupportedError if ``check`` finds something that the migration does not repair.
    """
    report = apply(compare(old, new.contract, renamed=new.answers.renamed), new.ignores)
    repaired = with_repairs(report.findings, evolution, (), proves=True)
    _refuse(
        checkpoint, "a migration does not repair everything that ttlsnap check finds", repaired, Verdict.AFTER_MIGRATION
    )
    other = [finding for finding in repaired if finding.code == "sources"]
    _refuse(checkpoint, "migrate does not change sources", other, Verdict.RECONFIGURATION)
    after = apply(compare(_migrated(checkpoint, old, new, evolution), new.contract), new.ignores)
    message = "after the migration, ttlsnap check would still find this. Please report it"
    # The migration leaves the values of these variables, as Spark does.
    removed_variables = {step.old for step in evolution.steps if step.change == "drop-state"}
    findings = [
        finding
        for finding in after.findings
        if finding.code != "variable-renamed" or finding.old not in removed_variables
    ]
    changes = {step.change for step in evolution.steps}
    # Its version stays the old one.
    findings = [finding for finding in findings if OF_SPARK.get(finding.code) not in changes]
    _refuse(checkpoint, message, findings, Verdict.RECONFIGURATION)
    return ["not compared: " + line for line in report.unseen]


def _refuse(checkpoint: Checkpoint, message: str, findings: Sequence[Finding], worst: Verdict) -> None:
    """Raise UnsupportedError if a finding has a worse verdict than ``worst``."""
    refused_findings = [finding for finding in findings if finding.verdict.rank > worst.rank]
    if refused_findings:
        options = " ".join(dict.fromkeys(map(ignore_option, refused_findings)))
        lines = describe_findings(refused_findings)
        raise UnsupportedError(f"{checkpoint.target}: {message}:{lines}\nTo accept it all the same, add {options}")


def _migrated(checkpoint: Checkpoint, old: Contract, new: NewQuery, evolution: Evolution) -> Contract:
    """Return the contract of the migrated checkpoint. What the files do not show is as in the new query."""
    migrated = describe_checkpoint(with_schemas_of(checkpoint, evolution))
    if new.old is None:
        return migrated
    operators = [
        replace(operator, name=old_operator.name, plan=new_operator.plan, functions=new_operator.functions)
        for operator, old_operator, new_operator in zip(
            migrated.operators, old.operators, new.contract.operators, strict=True
        )
    ]
    contract = new.contract
    return replace(
        migrated,
        made_from="checkpoint and query",
        planned_by=contract.planned_by,
        output_mode=contract.output_mode,
        reads=contract.reads,
        operators=tuple(operators),
    )
