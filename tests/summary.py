"""The last lines of a test run: the ten slowest files, the number of restarts of real Spark, and missing inputs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import restarts, support
from .judge import inputs
from .judge.processes import PYTHON
from .matrix import FULL, seed

_seconds: Counter[str] = Counter()


def pytest_report_header() -> str:
    """Name the seed."""
    return f"seed of rotating cases: {'none, all run' if FULL else seed()}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the time of each file."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Settle what a test noted, and print the command that repeats a failed one."""
    report = yield
    if report.when == "call" or report.failed:
        has_passed = report.when == "call" and report.passed
        restarts.settle(has_passed=has_passed)
        support.settle(passed=has_passed)
    if report.failed:
        full = "TTLSNAP_MATRIX=full " if FULL else f"TTLSNAP_SEED={seed()} "
        report.sections.append(("Repeat this test", f"{full}{PYTHON} -m pytest '{item.nodeid}'"))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a worker has noted to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["restarts"] = [list(restart) for restart in restarts.passed]
        output["not stored"] = sorted(inputs.not_stored)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add what a worker has noted."""
    output = getattr(node, "workeroutput", {})
    restarts.passed.update(restarts.Restart(*one) for one in output.get("restarts", []))
    inputs.not_stored.update(output.get("not stored", []))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the summary, and write the list of restarts if somebody wants it."""
    if place := os.environ.get("TTLSNAP_RESTARTS"):
        Path(place).write_text("".join(f"{' '.join(restart)}\n" for restart in sorted(restarts.passed)))
    if inputs.not_stored and not FULL:
        names = ", ".join(sorted(inputs.not_stored))
        terminalreporter.write_line(
            f"Spark wrote {len(inputs.not_stored)} inputs that could be stored ({names}). Run the tests with "
            "TTLSNAP_STORE=1, and commit the archives"
        )
    if len(_seconds) < 10:
        return
    terminalreporter.section("slowest files")
    for name, seconds in _seconds.most_common(10):
        terminalreporter.write_line(f"{seconds:6.0f} s  {name}")
    if FULL:
        folders = Counter[str]()
        for name, seconds in _seconds.items():
            folders[Path(name).parent.as_posix()] += seconds
        terminalreporter.section("folders")
        for name, seconds in folders.most_common():
            terminalreporter.write_line(f"{seconds / 60:6.1f} min  {name}")
    if restarts.passed:
        terminalreporter.write_line(
            f"{len(restarts.passed)} different restarts of real Spark (command, operator, store, layout, versions)"
        )
