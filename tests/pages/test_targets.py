"""The page of several targets: the worst result is what its reader sees first."""

from __future__ import annotations

from typing import Any

import pytest

from ttlsnap.pages.maintain import maintain_page
from ttlsnap.pages.model import Tone

COUNTS = {"entries": 10, "dropped": 1, "rewritten": 0, "bytes_before": 100, "bytes_after": 90}


def target(status: str) -> dict[str, Any]:
    """Return the result of a target, as ``maintain --format json`` prints it."""
    found: dict[str, Any] = {"target": f"/{status}", "status": status, "seconds": 1.0, "exit_code": 0, "error": None}
    if status in ("done", "planned", "nothing"):
        return {**found, "kind": "checkpoint", "dry_run": status == "planned", "totals": COUNTS, "warnings": []}
    return {**found, "exit_code": 5, "error": "it broke", "error_type": "StorageError"}


@pytest.mark.parametrize(
    ("statuses", "tone", "answer"),
    [
        (["done"], Tone.GOOD, "The target is in order"),
        (["done", "nothing"], Tone.GOOD, "All 2 targets are in order"),
        (["done", "refused"], Tone.WARNING, "Of 2 targets, 1 refused"),
        (["skipped", "done", "failed"], Tone.BAD, "Of 3 targets, 1 skipped and 1 failed"),
        (["failed", "done"], Tone.BAD, "Of 2 targets, 1 failed"),
    ],
)
def test_the_page_looks_like_its_worst_target(statuses: list[str], tone: Tone, answer: str) -> None:
    page = maintain_page({"policy": "policy.toml", "targets": list(map(target, statuses))}, False)
    assert (page.tone, page.answer.startswith(answer)) == (tone, True), page.answer


def test_a_target_without_a_rule_that_applies_is_not_in_order() -> None:
    state = {"operator": 0, "store": "default", "state": "default", "role": "primary", "left_alone": "it has no time"}
    counts = {**COUNTS, "entries": 0, "dropped": 0}
    idle = {**target("nothing"), "totals": counts, "stores": [state]}
    page = maintain_page({"policy": "policy.toml", "targets": [target("done"), idle]}, False)
    told = "Of 2 targets, 1 without a rule that applies; the run dropped 1 of 10 counted entries (10 %)."
    assert (page.tone, page.answer) == (Tone.WARNING, told)
    assert [card.title for section in page.sections for card in section.cards] == [
        "operator 0 is not changed: it has no time."
    ]
