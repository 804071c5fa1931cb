"""JUnit's XML, as GitLab and Jenkins read it: a test case for each finding, failed where the check fails.

GitLab shows the text within ``failure`` and ``error`` (not their attributes), takes ``classname`` for the suite, and
ignores a case whose name occurred before, so names are made distinct. What is unknown is an error and no failure;
what was not compared, or is ignored, is a skipped case.
"""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from ttlsnap.check.findings import CheckReport, Finding, Verdict
from ttlsnap.check.report_files import contract_file
from ttlsnap.check.report_levels import MILDEST, fails, summary, worst_first
from ttlsnap.check.report_text import finding_lines, plain
from ttlsnap.printable import printable

_SUITE = "ttlsnap.check"


def render(report: CheckReport, fail_on: Verdict = MILDEST) -> str:
    return _Suite(report).document(fail_on)


class _Suite:
    """One test suite that is being built."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        self.file = contract_file(report)
        self.names: Counter[tuple[str, str]] = Counter()
        self.suite = ElementTree.Element("testsuite", name=_SUITE)

    def document(self, fail_on: Verdict) -> str:
        report = self.report
        for finding in worst_first(report.findings):
            self._finding(finding, fail_on)
        for ignored in report.ignored:
            self._add_skipped(
                ignored.finding.code,
                str(ignored.finding.place),
                f"ignored: {ignored.reason}\n{ignored.finding.message}",
            )
        for line in report.unseen:
            self._add_skipped("not-compared", line, line)
        for line in report.unused:
            self._add_skipped("unused-ignore", line, line)
        if not report.findings:
            self._case("restores", f"{report.new} goes on with the state of {report.old}")
        ElementTree.SubElement(self.suite, "system-out").text = printable(summary(report, fail_on))
        totals = {
            "tests": len(self.suite.findall("testcase")),
            "failures": len(self.suite.findall("testcase/failure")),
            "errors": len(self.suite.findall("testcase/error")),
            "skipped": len(self.suite.findall("testcase/skipped")),
        }
        attributes = {name: str(count) for name, count in totals.items()}
        self.suite.attrib.update(attributes, time="0")
        suites = ElementTree.Element("testsuites", {"name": "ttlsnap", **attributes, "time": "0"})
        suites.append(self.suite)
        ElementTree.indent(suites)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'

    def _finding(self, finding: Finding, fail_on: Verdict) -> None:
        case = self._case(finding.code, str(finding.place))
        details = plain(finding_lines(finding))
        if not fails(finding.verdict, fail_on):
            ElementTree.SubElement(case, "system-out").text = details
            return
        kind = "error" if finding.verdict is Verdict.UNKNOWN else "failure"
        failed = ElementTree.SubElement(case, kind, message=printable(finding.message), type=finding.verdict.value)
        failed.text = details

    def _add_skipped(self, code: str, name: str, reason: str) -> None:
        skipped = ElementTree.SubElement(self._case(code, name), "skipped", message=printable(reason))
        skipped.text = printable(reason)

    def _case(self, code: str, name: str) -> ElementTree.Element:
        # Jenkins takes what is before the last dot for the package.
        classname, name = f"{_SUITE}.{printable(code)}", printable(name)
        self.names[classname, name] += 1
        occurrence = self.names[classname, name]
        distinct = name if occurrence == 1 else f"{name} #{occurrence}"
        case = ElementTree.SubElement(self.suite, "testcase", classname=classname, name=distinct, time="0")
        if self.file is not None:
            case.set("file", printable(self.file.path))
        return case
