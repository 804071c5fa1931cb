"""A plan that somebody reviews before it is applied: ``maintain --plan-out FILE``, and ``--apply FILE``.

ttlsnap applies exactly the reviewed plan, or nothing: the same policy, the same time, the same files, and the same
dropped entries. It compares each target with the plan immediately before it publishes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttlsnap.archives.receivers import ExpiredCallback
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.contract.functions import digests
from ttlsnap.errors import RefusedError, TtlsnapError
from ttlsnap.maintenance.policy import Policy
from ttlsnap.maintenance.runs import Report, TargetResult
from ttlsnap.maintenance.targets import MatchedTarget
from ttlsnap.migration.report import MigrationReport
from ttlsnap.migration.reviewed import facts_of, read_plan_file
from ttlsnap.schema.strict_json import require_keys, require_type

VERSION = 2
_TO_DO = ("planned", "done")
"""The status of a target with something to do; plans of version 1 say ``done``."""

_EXIT_CODES = {"skipped": 0, "refused": 4, "undecided": 3, "failed": 5, "stopped": 143}
"""The status of a target without a plan, with the exit code that plans of version 1 do not record."""

_COUNTS = ("entries", "kept", "dropped", "rewritten")


@dataclass(frozen=True)
class ReviewedPlan:
    """A plan that was read.

    ``targets`` has the facts of the targets with something to do. ``failed`` has the results of those that could not
    be planned, or were skipped.
    """

    policy: str
    digest: str
    wall_us: int
    targets: Mapping[str, Mapping[str, Any]]
    failed: tuple[TargetResult, ...] = ()

    def require(self, policy: Policy) -> None:
        """Raise RefusedError if the policy, or the code that it names, has changed since the plan."""
        if digest_of(policy) != self.digest:
            raise RefusedError(
                f"{policy.path}, or the code of a transformer that it names, changed after the plan was made. Nothing "
                "was changed. Make a new plan with --plan-out"
            )

    def missing(self, targets: Sequence[MatchedTarget]) -> list[TargetResult]:
        """Return a result for each planned target that the policy no longer matches."""
        missing_paths = self.targets.keys() - {target.path for target in targets}
        reason = "is in the plan, but the policy does not find it any more"
        return [
            TargetResult(path, "plan", "refused", 0, error=RefusedError(f"{path} {reason}"))
            for path in sorted(missing_paths)
        ]

    def confirm(self, target: str, report: Report) -> bool:
        """Return True if ``report`` is the reviewed one. Raise RefusedError otherwise."""
        planned_facts, facts = self.targets.get(target), _facts(report)
        if planned_facts != facts:
            difference = (
                "files" if planned_facts and planned_facts["fingerprint"] != facts["fingerprint"] else "dropped entries"
            )
            raise RefusedError(
                f"{target}: its {difference} differ from the plan, so the plan is not applied. Nothing was changed "
                "here. Make a new plan with --plan-out"
            )
        return True


def write_plan(policy: Policy, results: Sequence[TargetResult]) -> bytes:
    """Return the plan from the ``results`` of a dry run, as a document."""
    document = {
        "version": VERSION,
        "policy": str(Path(policy.path).absolute()),
        "policy_digest": digest_of(policy),
        "wall_us": policy.wall_us,
        "targets": [
            {
                "target": result.target,
                "status": result.status,
                "error": str(result.error) if result.error else None,
                "exit_code": result.exit_code,
                "facts": _facts(result.report) if result.report else None,
            }
            for result in results
        ],
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def read_plan(path: str) -> ReviewedPlan:
    """Return the plan in a file. Raise UsageError if it is not a plan, UnsupportedError for a newer version."""
    return read_plan_file(path, VERSION, "maintain", _parse)


def _parse(document: dict[str, Any]) -> ReviewedPlan:
    require_keys(document, ("version", "policy", "policy_digest", "wall_us", "targets"), "the plan")
    for target_document in document["targets"]:
        require_keys(target_document, ("target", "status", "error", "exit_code", "facts"), "a target")
    planned_targets = [
        target_document for target_document in document["targets"] if target_document["status"] in _TO_DO
    ]
    targets = {
        require_type(target_document["target"], str): target_document["facts"] for target_document in planned_targets
    }
    return ReviewedPlan(
        require_type(document["policy"], str),
        require_type(document["policy_digest"], str),
        require_type(document["wall_us"], int),
        {target: dict(facts) for target, facts in targets.items()},
        tuple(
            _fail_again(target_document)
            for target_document in document["targets"]
            if target_document["status"] in _EXIT_CODES
        ),
    )


def _fail_again(document: Mapping[str, Any]) -> TargetResult:
    """Return the result of a target without a plan: it fails again."""
    target, status = require_type(document["target"], str), document["status"]
    reason = "was skipped when the plan was made" if status == "skipped" else "could not be planned"
    error = TtlsnapError(
        f"{target} {reason}, so nothing was changed there: {document['error']}\nCorrect that, and make a new plan with "
        "--plan-out"
    )
    error.exit_code = require_type(document.get("exit_code", _EXIT_CODES[status]), int)
    return TargetResult(target, "plan", status, 0, error=error)


def digest_of(policy: Policy) -> str:
    """Return the digest of a policy with its environment variables, its folder, and the code that it names."""
    receivers = [target.options.expired_to for target in policy.targets]
    code = [digests(factory) for target in policy.targets for rule in target.rules for factory in rule.factories]
    code += [digests(receiver.function) for receiver in receivers if isinstance(receiver, ExpiredCallback)]
    policy_text = json.dumps([policy.document, policy.folder, code], sort_keys=True, default=str)
    return hashlib.sha256(policy_text.encode("utf-8", "surrogateescape")).hexdigest()


def _facts(report: Report) -> dict[str, Any]:
    """Return the facts of a report that must be the same when the plan is applied."""
    if isinstance(report, MigrationReport | CompactionReport):
        return facts_of(report)
    document = report.to_json()
    return {
        "kind": document["kind"],
        "now": document["now"],
        "fingerprint": document["fingerprint"],
        "totals": {name: document["totals"][name] for name in _COUNTS},
        "stores": [
            {name: store[name] for name in ("operator", "store", "state", "timestamp", *_COUNTS)}
            for store in document["stores"]
        ],
    }
