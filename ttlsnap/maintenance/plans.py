"""A plan that somebody reviews before it is carried out: ``maintain --plan-out FILE``, and ``--apply FILE``.

What is carried out is what was reviewed, or nothing: the same policy, at the same moment, on the same files, with the
same entries going. Each target is held to that right before it is published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.filesystem import read_given
from ttlsnap.maintenance.policy import Policy
from ttlsnap.maintenance.runs import Report, TargetResult
from ttlsnap.strict_json import parse_json, typed

VERSION = 1
_MAX_BYTES = 1 << 30
_COUNTS = ("entries", "kept", "dropped", "rewritten")


@dataclass(frozen=True)
class ReviewedPlan:
    """A plan that was read: ``targets`` are what is to become of those to which something is to be done."""

    policy: str
    digest: str
    wall_us: int
    targets: Mapping[str, Mapping[str, Any]]

    def require(self, policy: Policy) -> None:
        """Raise RefusedError where the policy is not the one that the plan was made of."""
        if digest_of(policy) != self.digest:
            raise RefusedError(f"{policy.path} is not what the plan was made of; make a new one with --plan-out")

    def confirm(self, target: str, report: Report) -> bool:
        """Agree to what was reviewed; raises RefusedError for anything else."""
        planned, found = self.targets.get(target), _facts(report)
        if planned != found:
            what = "files" if planned and planned["fingerprint"] != found["fingerprint"] else "entries that go"
            raise RefusedError(
                f"{target}: its {what} are not those of the plan, which is not carried out. Nothing was changed here; "
                "make a new plan with --plan-out"
            )
        return True


def write_plan(policy: Policy, results: Sequence[TargetResult]) -> bytes:
    """What ``results`` of a dry run say is to be done, as a document."""
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
                "facts": _facts(result.report) if result.report else None,
            }
            for result in results
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def read_plan(path: str) -> ReviewedPlan:
    """The plan in a file; raises UsageError for what is none, UnsupportedError for one of another version."""
    data = read_given(path, _MAX_BYTES, "a plan")
    try:
        document = parse_json(data)
        if typed(document["version"], int) > VERSION:
            raise UnsupportedError(f"{path} is a plan of version {document['version']}: use a newer ttlsnap")
        targets = {typed(one["target"], str): one["facts"] for one in document["targets"] if one["status"] == "done"}
        return ReviewedPlan(
            typed(document["policy"], str),
            typed(document["policy_digest"], str),
            typed(document["wall_us"], int),
            {target: dict(facts) for target, facts in targets.items()},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no plan ({error!r}). Make one with `ttlsnap maintain --plan-out`") from error


def digest_of(policy: Policy) -> str:
    """Of what a policy says, with the environment's variables in it."""
    return hashlib.sha256(json.dumps(policy.document, sort_keys=True, default=str).encode()).hexdigest()


def _facts(report: Report) -> dict[str, Any]:
    """What of a report has to be the same when the plan is carried out."""
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
