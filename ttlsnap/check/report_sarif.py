"""SARIF 2.1.0 (an OASIS standard): what code scanning reads.

A finding's place is a logical location; where a contract is a file of the repository, its line is the physical one,
which some consumers ask for. Fingerprints are of the rule and the place and not of lines, so that a finding stays the
same finding when the contract is written again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.check.report_files import ContractFile, contract_file
from ttlsnap.check.report_levels import MILDEST, describe_place, level, spark_does, worst_first
from ttlsnap.check.rules import RULES
from ttlsnap.entries.place import Place
from ttlsnap.printable import printable
from ttlsnap.versions import VERSION

# The name by which the standard calls its schema; consumers tell by it what they have before them.
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: CheckReport, fail_on: Verdict = MILDEST) -> str:
    return json.dumps(document(report), indent=2, ensure_ascii=True) + "\n"


def document(report: CheckReport) -> dict[str, Any]:
    """A log of one run."""
    file = contract_file(report)
    reported = [(finding, None) for finding in worst_first(report.findings)]
    suppressed = [(ignored.finding, ignored.reason) for ignored in report.ignored]
    codes = sorted({finding.code for finding, _ in [*reported, *suppressed]})
    fingerprint_counts: Counter[str] = Counter()
    results = [
        _result(finding, reason, codes, file, fingerprint_counts) for finding, reason in [*reported, *suppressed]
    ]
    driver = {"name": "ttlsnap", "version": VERSION, "rules": [_rule(code) for code in codes]}
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification("not compared", "note", line) for line in report.unseen],
                "toolConfigurationNotifications": [
                    _notification("unused ignore", "warning", line) for line in report.unused
                ],
            }
        ],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdict": report.verdict.value,
            "old": report.old,
            "new": report.new,
            "direction": report.direction,
        },
    }
    if file is not None:
        # Several contracts of one commit are several analyses; without it the last one would replace the others.
        run["automationDetails"] = {"id": f"ttlsnap check/{file.path}/"}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    rule = RULES.get(code)
    title, explanation = (rule.title, rule.why) if rule else (code, code)
    return {
        "id": code,
        "shortDescription": {"text": title},
        "fullDescription": {"text": f"{title}: {explanation}"},
        "help": {"text": explanation},
    }


def _result(
    finding: Finding, reason: str | None, codes: list[str], file: ContractFile | None, fingerprint_counts: Counter[str]
) -> dict[str, Any]:
    text = [f"{describe_place(finding.place)}: {printable(finding.message)}"]
    text += [f"Spark: {spark_does(finding)}"] if finding.spark else []
    text += [f"What to do: {printable(finding.fix)}"] if finding.fix else []
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": level(finding.verdict).value,
        "message": {"text": "\n".join(text)},
        "locations": [_location(finding.place, file)],
        "partialFingerprints": _fingerprints(finding, fingerprint_counts),
        "properties": {
            "verdict": finding.verdict.value,
            "old": finding.old,
            "new": finding.new,
            "spark": finding.spark,
            "fix": finding.fix,
        },
    }
    if reason is not None:
        result["suppressions"] = [{"kind": "external", "justification": reason}]
    return result


def _location(place: Place, file: ContractFile | None) -> dict[str, Any]:
    parts = {"operator": place.operator, "store": place.store, "state": place.state, "field": place.field}
    kind, name = ([("query", "query")] + [(key, str(part)) for key, part in parts.items() if part is not None])[-1]
    location: dict[str, Any] = {
        "logicalLocations": [{"name": name, "fullyQualifiedName": str(place), "kind": kind}],
    }
    if file is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(file.path, errors="replace")},
            "region": {"startLine": file.line(place)},
        }
    return location


def _fingerprints(finding: Finding, fingerprint_counts: Counter[str]) -> dict[str, str]:
    place = finding.place
    identity = json.dumps([finding.code, place.operator, place.store, place.state, place.field])
    fingerprint_counts[identity] += 1
    digest = hashlib.sha256(f"{identity}#{fingerprint_counts[identity]}".encode()).hexdigest()[:32]
    # The second is the one that GitHub follows a finding by; left out, it would be made from the contract's lines.
    return {"ttlsnapFinding/v1": digest, "primaryLocationLineHash": f"{digest}:1"}


def _notification(label: str, severity: str, line: str) -> dict[str, Any]:
    return {"level": severity, "message": {"text": f"{label}: {printable(line)}"}}
