"""The findings of a check that an evolution repairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ttlsnap.check.findings import Finding, Verdict
from ttlsnap.evolution.model import Evolution, Step
from ttlsnap.repairs.answers import Obstacle

_REPAIRABLE = (
    *(f"key-{what}" for what in ("added", "removed", "reordered", "retyped", "widened", "nullability", "renamed")),
    *(f"value-{what}" for what in ("added", "removed", "reordered", "retyped", "widened", "nullability", "renamed")),
    *("keys-swapped", "values-swapped", "aggregate-changed"),
)
FIX = "ttlsnap migrate CHECKPOINT --to NEW"


def with_repairs(findings: Iterable[Finding], evolution: Evolution, obstacles: Iterable[Obstacle]) -> list[Finding]:
    """Return the findings; those that the evolution repairs have the verdict ``after_migration``, and their step."""
    blocked = {obstacle.place.operator for obstacle in obstacles}
    return [
        finding if finding.place.operator in blocked or None in blocked else _repaired(finding, evolution)
        for finding in findings
    ]


def _repaired(finding: Finding, evolution: Evolution) -> Finding:
    step = _find_step(finding, evolution.steps)
    if step is None or finding.verdict.rank <= Verdict.RECONFIGURATION.rank or finding.code not in _REPAIRABLE:
        return finding
    return replace(finding, verdict=Verdict.AFTER_MIGRATION, fix=FIX, migration=step.to_json())


def _find_step(finding: Finding, steps: Iterable[Step]) -> Step | None:
    """Return the step nearest to the place of a finding, within its operator."""
    place = finding.place

    def nearness(step: Step) -> tuple[bool, ...]:
        other = step.place
        return other.store == place.store, other.state == place.state, other.field == place.field

    mine = [step for step in steps if step.place.operator == place.operator]
    return max(mine, key=nearness, default=None)
