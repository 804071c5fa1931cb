"""The report of a check in each format: for people, for programs and for build servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from ttlsnap.check import report_github as github
from ttlsnap.check import report_junit as junit
from ttlsnap.check import report_sarif as sarif
from ttlsnap.check import report_text as text
from ttlsnap.check.findings import CheckReport, Verdict
from ttlsnap.check.report_levels import MILDEST


class Render(Protocol):
    """Return a report as text. ``fail_on`` is the mildest verdict that makes the check fail."""

    def __call__(self, report: CheckReport, fail_on: Verdict = ...) -> str: ...


def _json(report: CheckReport, fail_on: Verdict = MILDEST) -> str:
    # Escaped, the document is the same in every encoding, even if a name is not valid text.
    return json.dumps(report.to_json(), indent=2, ensure_ascii=True) + "\n"


REPORTS: Mapping[str, Render] = {
    "text": text.render,
    "json": _json,
    "junit": junit.render,
    "sarif": sarif.render,
    "github": github.render,
}
