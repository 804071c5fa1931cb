"""The findings of a check that an evolution repairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ttlsnap.check.findings import Finding, Verdict, worst
from ttlsnap.contract import Contract
from ttlsnap.new_query.answers import Answers, UnrepairedFinding

if TYPE_CHECKING:
    from ttlsnap.migration.evolution import Evolution, Step

REPAIRABLE = (
    *("key-floats", "key-intervals"),
    *(f"key-{change}" for change in ("added", "removed", "reordered", "retyped", "widened", "nullability", "renamed")),
    *(
        f"value-{change}"
        for change in ("added", "removed", "reordered", "retyped", "widened", "nullability", "renamed")
    ),
    *(
        "keys-swapped",
        "values-swapped",
        "aggregate-changed",
        "variable-renamed",
        "variable-returned",
        "ttl-on",
        "ttl-off",
    ),
    *("time-mode", "output-mode"),
)
"""The rules whose incompatible findings become ``after_migration`` where a migration repairs them."""
OF_SPARK = {"key-floats": "normalize", "key-intervals": "rehash"}
"""Findings that come from the version of Spark, and their steps."""


def find_repairs(
    old: Contract, new: Contract, renamed: Mapping[str, str], findings: Iterable[Finding], command: str
) -> list[Finding]:
    """Return the findings of a check of two contracts, as ``with_repairs`` does."""
    findings = list(findings)
    if worst(finding.verdict for finding in findings).rank <= Verdict.RECONFIGURATION.rank:
        return findings
    from ttlsnap.new_query.plan import find_evolution  # slow imports, which a check of equal contracts does not need

    return with_repairs(findings, *find_evolution(old, new, Answers(renamed=renamed)), command)


def with_repairs(
    findings: Iterable[Finding],
    evolution: Evolution,
    obstacles: Sequence[UnrepairedFinding],
    command: str = "",
    *,
    proves: bool = False,
) -> list[Finding]:
    """Return the findings; those that the evolution repairs have the verdict ``after_migration``, and their step.

    Their fix is the ``command`` of the migration, with the options that they need.

    Without obstacles, the steps of an operator together repair all differences of its keys and values. Where contracts
    that record more may show that a migration repairs a finding, the finding is unknown. A run of the migration
    ``proves`` what a comparison of contracts cannot: that no value is null, for example.
    """
    findings = list(findings)
    # There, the plans show that a key is another one, so that nothing has to be asked about its name.
    changed_operators = {finding.place.operator for finding in findings if finding.code == "key-changed"}
    obstacles_by_operator: dict[int | None, list[UnrepairedFinding]] = {}
    for obstacle in obstacles:
        if obstacle.place.operator in changed_operators:
            obstacle = replace(obstacle, renames_key="")
        obstacles_by_operator.setdefault(obstacle.place.operator, []).append(obstacle)
    if any(obstacle.stays for obstacle in obstacles_by_operator.get(None, ())):
        return findings
    return [
        _judge(finding, evolution, obstacles_by_operator.get(finding.place.operator, ()), command, proves=proves)
        for finding in findings
    ]


def _judge(
    finding: Finding, evolution: Evolution, obstacles: Sequence[UnrepairedFinding], command: str, *, proves: bool
) -> Finding:
    if any(obstacle.stays for obstacle in obstacles) or finding.code not in REPAIRABLE:
        return finding
    questions = [obstacle.renames_key for obstacle in obstacles if obstacle.renames_key]
    if questions:
        # Another name alone needs no migration, so ``check`` itself asks. Without an answer, nothing else is decided.
        if finding.code == "key-renamed" or finding.verdict is not Verdict.INCOMPATIBLE:
            return finding
        question = f"a migration may make the state fit. {questions[0]}"
        if finding.fix:
            question += f"; if not, {finding.fix}"
        return replace(finding, verdict=Verdict.UNKNOWN, fix=question)
    needs = [obstacle.needs for obstacle in obstacles if obstacle.needs]
    if not needs:
        return _repaired(finding, evolution, [command, *(obstacle.option for obstacle in obstacles)], proves=proves)
    here = [obstacle for obstacle in obstacles if obstacle.place == finding.place]
    if finding.verdict is Verdict.INCOMPATIBLE or (finding.verdict is Verdict.UNKNOWN and here):
        own = here or [obstacle for obstacle in obstacles if obstacle.old and obstacle.old == finding.old]
        fix = f"a migration may make the state fit. {own[0].advice if own else needs[0]}"
        return replace(finding, verdict=Verdict.UNKNOWN, fix=fix)
    return finding


def _repaired(finding: Finding, evolution: Evolution, words: Sequence[str], *, proves: bool) -> Finding:
    step = _find_step(finding, evolution.steps)
    # Unknown is whether the code uses names or positions. A migration does not know either.
    undecided = finding.verdict is Verdict.UNKNOWN and (finding.code == "values-swapped" or not proves)
    if step is None or undecided:
        return finding
    if finding.verdict.rank <= Verdict.RECONFIGURATION.rank:
        return finding
    fix = " ".join(dict.fromkeys(words))
    message = finding.message + _describe_dropped(finding, evolution.steps)
    if step.change == "narrow":
        message += ". The migration is refused if some values do not fit; with --dry-run, it says so"
    return replace(finding, verdict=Verdict.AFTER_MIGRATION, message=message, fix=fix, migration=step.to_json())


def _describe_dropped(finding: Finding, steps: Iterable[Step]) -> str:
    """Return a sentence about the values that the migration of the state of a finding drops."""
    place = finding.place
    dropping = [
        str(step)
        for step in steps
        if step.can_drop
        and step.place.operator == place.operator
        and place.store in (None, step.place.store)
        and place.state in (None, step.place.state)
    ]
    return f". The migration can drop values: {'; '.join(dropping)}" if dropping else ""


def describe_findings(findings: Iterable[Finding]) -> str:
    """Return findings for an error message, each on a line of its own, and then what to do about it."""
    return "".join(
        f"\n  {finding}" + (f"\n    What to do: {finding.fix}" if finding.fix else "") for finding in findings
    )


def _find_step(finding: Finding, steps: Iterable[Step]) -> Step | None:
    """Return the step nearest to the place of a finding, within its operator, and in keys or in values as it is."""
    place, side = finding.place, "key" if finding.code.startswith("key") else "value"

    def nearness(step: Step) -> tuple[bool, ...]:
        step_place = step.place
        return step_place.store == place.store, step_place.state == place.state, step_place.field == place.field

    candidates = [step for step in steps if step.place.operator == place.operator]
    if finding.code in ("time-mode", "output-mode"):
        return next((step for step in candidates if step.change == f"switch-{finding.code}"), None)
    if finding.code.startswith("ttl"):
        candidates = [step for step in candidates if step.change == "switch-ttl" and step.place.state == place.state]
    elif finding.code.startswith("variable"):
        changes = ("rename-state", "drop-state", "drop-unused")
        candidates = [step for step in candidates if step.change in changes and step.old == finding.old]
    else:
        candidates = [step for step in candidates if (step.place.field or "").partition(".")[0] == side]
    if finding.code in OF_SPARK:
        candidates = [step for step in candidates if step.change == OF_SPARK[finding.code]]
    if finding.code in ("keys-swapped", "values-swapped"):  # another step of the same state does not repair it
        candidates = [step for step in candidates if step.change in ("reorder", "swap")]
        candidates = [
            candidate
            for candidate in candidates
            if place.store in (None, candidate.place.store) and place.state in (None, candidate.place.state)
        ]
    return max(candidates, key=nearness, default=None)
