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

from ttlsnap.contract.functions import digests
from ttlsnap.errors import RefusedError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.expired.receivers import ExpiredCallback
from ttlsnap.filesystem import read_given
from ttlsnap.maintenance.policy import Policy
from ttlsnap.maintenance.runs import Report, Target, TargetResult
from ttlsnap.strict_json import parse_json, typed

VERSION = 2
_MAX_BYTES = 1 << 30
_TO_DO = ("planned", "done")
"""The status of a target to which something is to be done; ``done`` in plans of version 1."""

_EXIT_CODES = {"skipped": 0, "refused": 4, "undecided": 3, "failed": 5, "stopped": 143}
"""The status of a target for which there is no plan, with the exit code that plans of version 1 do not record."""

_COUNTS = ("entries", "kept", "dropped", "rewritten")


@dataclass(frozen=True)
class ReviewedPlan:
    """A plan that was read.

    ``targets`` are what is to become of those to which something is to be done, ``failed`` the results of those that
    could not be planned, or were skipped.
    """

    policy: str
    digest: str
    wall_us: int
    targets: Mapping[str, Mapping[str, Any]]
    failed: tuple[TargetResult, ...] = ()

    def require(self, policy: Policy) -> None:
        """Raise RefusedError where the policy, or the code that it names, is not what the plan was made of."""
        if digest_of(policy) != self.digest:
            raise RefusedError(
                f"{policy.path}, or the code of a transformer that it names, is not what the plan was made of. "
                "Nothing was changed; make a new one with --plan-out"
            )

    def missing(self, targets: Sequence[Target]) -> list[TargetResult]:
        """A result for each place to which something was to be done, and to which the policy does not lead any more."""
        gone = self.targets.keys() - {target.path for target in targets}
        told = "is in the plan, and the policy does not lead there any more: is it gone?"
        return [TargetResult(path, "plan", "refused", 0, error=RefusedError(f"{path} {told}")) for path in sorted(gone)]

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
                "exit_code": result.exit_code,
                "facts": _facts(result.report) if result.report else None,
            }
            for result in results
        ],
    }
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def read_plan(path: str) -> ReviewedPlan:
    """The plan in a file; raises UsageError for what is none, UnsupportedError for one of another version."""
    data = read_given(path, _MAX_BYTES, "a plan")
    try:
        # Paths need not be Unicode.
        document = parse_json(data.decode("utf-8", "surrogateescape"), any_text=True)
        if typed(document["version"], int) > VERSION:
            raise UnsupportedError(f"{path} is a plan of version {document['version']}: use a newer ttlsnap")
        found = [one for one in document["targets"] if one["status"] in _TO_DO]
        targets = {typed(one["target"], str): one["facts"] for one in found}
        return ReviewedPlan(
            typed(document["policy"], str),
            typed(document["policy_digest"], str),
            typed(document["wall_us"], int),
            {target: dict(facts) for target, facts in targets.items()},
            tuple(_failed(one) for one in document["targets"] if one["status"] in _EXIT_CODES),
        )
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:200]
        raise UsageError(f"{path} is no plan ({reason}). Make one with `ttlsnap maintain --plan-out`") from error


def _failed(document: Mapping[str, Any]) -> TargetResult:
    """Return the result of a target for which there is no plan: it fails again."""
    target, status = typed(document["target"], str), document["status"]
    why = "was skipped when the plan was made" if status == "skipped" else "could not be planned"
    error = TtlsnapError(
        f"{target} {why}, so nothing was done to it: {document['error']}\nAfter correcting that, make a new plan with "
        "--plan-out"
    )
    error.exit_code = typed(document.get("exit_code", _EXIT_CODES[status]), int)
    return TargetResult(target, "plan", status, 0, error=error)


def digest_of(policy: Policy) -> str:
    """Of what a policy says, the environment's variables in it, of where it lies, and of the code that it names."""
    receivers = [target.expired_to for target in policy.targets]
    code = [digests(factory) for target in policy.targets for rule in target.rules for factory in rule.factories]
    code += [digests(receiver.function) for receiver in receivers if isinstance(receiver, ExpiredCallback)]
    said = json.dumps([policy.document, policy.folder, code], sort_keys=True, default=str)
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


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
