"""``ttlsnap check`` as users and build servers see it: exit codes, reports, ignores, messages.

Tests of the output replace the comparison by one with the findings that the test sets (``finds``). The others compare
real contracts.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ttlsnap.check.findings import CheckReport, Finding, StateFindings, Verdict
from ttlsnap.check.rules import RULES
from ttlsnap.cli.app import run
from ttlsnap.cli.check import CheckFormat, FailOn
from ttlsnap.contract import Contract, contract_of_checkpoint
from ttlsnap.entries.place import Place

from ..samples import SAMPLES
from .running import Ttlsnap, runner

CODE, OTHER = list(RULES)[:2]
CHECKPOINT = str(SAMPLES / "agg-deltas-lz4-4.2")
Finds = Callable[..., None]


def finding(verdict: Verdict, code: str = CODE, place: Place = Place(0, "default")) -> Finding:  # noqa: B008 - frozen
    return Finding(code, verdict, place, "old", "new", "message", "silent", "fix")


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a contract in it, outside any build server."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state.json").write_text(contract_of_checkpoint(CHECKPOINT).dumps())
    return tmp_path


@pytest.fixture
def ttlsnap(capsys: pytest.CaptureFixture[str]) -> Ttlsnap:
    """Return a function that runs ``check``."""
    return runner(capsys, "check")


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Finds:
    """Return a function that sets the findings of the comparison."""

    def replace(*verdicts: Verdict | Finding) -> None:
        found = tuple(each if isinstance(each, Finding) else finding(each) for each in verdicts)

        def compare(
            old: Contract,
            new: Contract,
            *,
            direction: str,
            renamed: Mapping[str, str],
            names: tuple[str, str],
            state: StateFindings,
            find_repairs: object,
            old_command: str | None,
        ) -> CheckReport:
            return CheckReport(*names, direction, found, unseen=tuple(f"{a} is {b}" for a, b in renamed.items()))

        monkeypatch.setattr("ttlsnap.check.compare", compare)

    return replace


BOTH = ("state.json", "state.json")


def test_an_unchanged_contract_passes(ttlsnap: Ttlsnap) -> None:
    done = ttlsnap("state.json", "state.json")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("verdict: as_is")
    document = ttlsnap(CHECKPOINT, "state.json", "--format", "json").json
    assert (document["verdict"], document["old"], document["new"]) == ("as_is", CHECKPOINT, "state.json")


def test_a_change_that_spark_refuses_fails(ttlsnap: Ttlsnap, repository: Path) -> None:
    contract = json.loads((repository / "state.json").read_text())
    del contract["operators"][0]["stores"][0]["states"][0]["key"][0]
    (repository / "new.json").write_text(json.dumps(contract))
    done = ttlsnap("state.json", "new.json", "--format", "json")
    assert done.code == 1
    assert done.json["verdict"] == "incompatible"


def test_with_strict_a_comparison_must_be_complete(ttlsnap: Ttlsnap, finds: Finds) -> None:
    # The checkpoint does not record windows, aggregates and functions.
    done = ttlsnap(*BOTH, "--strict")
    assert done.code == 3
    assert re.search(r"Error: --strict: \d+ things could not be compared \(see the report\)", done.err)
    finds()
    assert ttlsnap(*BOTH, "--strict").code == 0
    finds(Verdict.INCOMPATIBLE)
    assert ttlsnap(*BOTH, "--strict", "--rename", "a=b").code == 1


@pytest.mark.parametrize(
    ("verdicts", "codes"),
    [
        # The codes are for --fail-on reconfiguration (the default), after_migration and incompatible.
        ("", (0, 0, 0)),
        ("as_is", (0, 0, 0)),
        ("reconfiguration", (1, 0, 0)),
        ("after_migration", (1, 1, 0)),
        ("incompatible", (1, 1, 1)),
        ("unknown", (3, 3, 3)),
        ("unknown reconfiguration as_is", (3, 3, 3)),
        ("unknown after_migration", (3, 3, 3)),
        ("unknown incompatible", (1, 1, 1)),
    ],
)
def test_the_exit_code_follows_the_verdict_and_the_threshold(
    ttlsnap: Ttlsnap, finds: Finds, verdicts: str, codes: tuple[int, ...]
) -> None:
    finds(*map(Verdict, verdicts.split()))
    assert ttlsnap(*BOTH).code == codes[0]
    assert tuple(ttlsnap(*BOTH, "--fail-on", each.value).code for each in FailOn) == codes


def test_unknown_is_not_a_threshold(ttlsnap: Ttlsnap) -> None:
    assert ttlsnap(*BOTH, "--fail-on", "unknown").code == 2


def test_an_ignored_finding_passes_and_is_shown(ttlsnap: Ttlsnap, finds: Finds) -> None:
    finds(Verdict.UNKNOWN, finding(Verdict.AS_IS, OTHER))
    done = ttlsnap(*BOTH, "--ignore", f"{CODE}:0.default")
    assert done.code == 0
    assert f"ignored: {CODE} at 0.default: message (reason: --ignore on the command line)" in done.out
    unused = ttlsnap(*BOTH, "--ignore", f"{CODE}:7")
    assert (unused.code, f"unused ignore: {CODE}:7 (--ignore): matches nothing" in unused.out) == (3, True)


def test_the_ignore_file_of_the_folder_is_the_default(ttlsnap: Ttlsnap, finds: Finds, repository: Path) -> None:
    finds(Verdict.INCOMPATIBLE)
    entry = f'[[ignore]]\ncode = "{CODE}"\nreason = "known"\n'
    (repository / ".ttlsnap-ignore.toml").write_text(entry)
    (repository / "expired.toml").write_text(f"{entry}until = 2020-02-29\n")
    assert ttlsnap(*BOTH).code == 0
    expired = ttlsnap(*BOTH, "--ignore-file", "expired.toml")
    assert expired.code == 1
    assert f"unused ignore: {CODE} (expired.toml, ignore 1): expired on 2020-02-29" in expired.out
    (repository / ".ttlsnap-ignore.toml").write_text("[[ignore]]\ncode = 'nonsense'\nreason = 'x'\n")
    assert ttlsnap(*BOTH).code == 2


def test_names_directions_and_renames_reach_the_comparison(ttlsnap: Ttlsnap, finds: Finds) -> None:
    finds(Verdict.AS_IS)
    renames = ("--renamed", "cnt=visits", "--renamed", "a=b", "--renamed", "a=b")
    document = ttlsnap(*BOTH, "--direction", "full", *renames, "--format", "json").json
    assert (document["old"], document["new"], document["direction"]) == ("state.json", "state.json", "full")
    assert document["unseen"] == ["cnt is visits", "a is b"]


def test_one_check_writes_several_reports(ttlsnap: Ttlsnap, finds: Finds, repository: Path) -> None:
    finds(Verdict.INCOMPATIBLE)
    reports = [text for form in CheckFormat for text in ("--report", f"{form}=check.{form}")]
    done = ttlsnap(*BOTH, "--format", "json", *reports)
    assert done.code == 1
    assert (repository / "check.json").read_text() == done.out
    assert (repository / "check.text").read_text() == ttlsnap(*BOTH).out
    assert json.loads((repository / "check.sarif").read_text())["version"] == "2.1.0"
    assert ElementTree.parse(repository / "check.junit").getroot().get("failures") == "1"
    assert (repository / "check.github").read_text().startswith("::error file=state.json,line=")
    assert not list(repository.glob("*.tmp"))


@pytest.mark.parametrize("form", CheckFormat)
def test_every_format_is_printed_to_stdout(ttlsnap: Ttlsnap, finds: Finds, form: CheckFormat) -> None:
    finds(Verdict.INCOMPATIBLE)
    done = ttlsnap(*BOTH, "--format", form)
    assert (done.code, done.err) == (1, "")
    assert CODE in done.out


def test_a_report_replaces_an_older_one_and_is_readable_by_all(
    ttlsnap: Ttlsnap, finds: Finds, repository: Path
) -> None:
    finds(Verdict.AS_IS)
    (repository / "real.json").write_text("old " * 9999)
    (repository / "check.json").symlink_to("real.json")
    umask = os.umask(0o022)
    try:
        assert ttlsnap(*BOTH, "--report", "json=check.json").code == 0
    finally:
        os.umask(umask)
    assert (repository / "check.json").is_symlink()
    assert json.loads((repository / "real.json").read_text())["verdict"] == "as_is"
    assert stat.S_IMODE((repository / "real.json").stat().st_mode) == 0o644
    assert ttlsnap(*BOTH, "--report", "json=/dev/null").code == 0


def test_a_failed_write_keeps_the_old_report_and_is_an_error(
    ttlsnap: Ttlsnap, finds: Finds, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(Verdict.AS_IS)
    (repository / "check.xml").write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = ttlsnap(*BOTH, "--report", "junit=check.xml")
    assert done.code == 5
    assert f"cannot write {repository.resolve()}/check.xml: No space left on device" in done.err
    assert "verdict: as_is" in done.out
    assert sorted(path.name for path in repository.iterdir()) == ["check.xml", "state.json"]
    assert (repository / "check.xml").read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gone.json", "state.json"), "gone.json"),
        (("state.json", "notes.txt"), "notes.txt is not a contract"),
        ((*BOTH, "--report", "junit"), "--report is FORMAT=FILE"),
        ((*BOTH, "--report", "xml=a.xml"), "with one of text, json, junit, sarif, github"),
        ((*BOTH, "--report", "junit="), "is a folder"),
        ((*BOTH, "--report", "junit=."), "is a folder"),
        ((*BOTH, "--report", "junit=gone/a.xml"), "there is no folder gone"),
        ((*BOTH, "--report", "junit=state.json/a.xml"), "there is no folder state.json"),
        (
            (*BOTH, "--report", "junit=a", "--report", "sarif=./a"),
            "--report junit=a and --report sarif=a have the same file",
        ),
        ((*BOTH, "--renamed", "a"), "--renamed is OLD=NEW"),
        ((*BOTH, "--renamed", "=b"), "--renamed is OLD=NEW"),
        ((*BOTH, "--renamed", "a=b", "--renamed", "a=c"), "a is renamed to both b and c"),
        ((*BOTH, "--ignore", CODE[:-1]), f"did you mean {CODE}"),
        ((*BOTH, "--ignore-file", "gone.toml"), "gone.toml does not exist; name an ignore file"),
        ((*BOTH, "--direction", "sideways"), "backward"),
        ((*BOTH, "--format", "xml"), "junit"),
        (("state.json",), "NEW"),
    ],
)
def test_wrong_usage_is_explained(ttlsnap: Ttlsnap, repository: Path, arguments: tuple[str, ...], said: str) -> None:
    (repository / "notes.txt").write_text("notes")
    done = ttlsnap(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said.lower() in re.sub(r"[\s│]+", " ", done.err).lower()
    assert "Traceback" not in done.err
    assert sorted(path.name for path in repository.iterdir()) == ["notes.txt", "state.json"]


# GitHub


def test_the_check_appends_to_the_job_summary(
    ttlsnap: Ttlsnap, finds: Finds, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(Verdict.INCOMPATIBLE)
    summary = repository / "summary.md"
    summary.write_text("# Other steps\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    ttlsnap(*BOTH)
    assert summary.read_text() == "# Other steps\n"
    ttlsnap(*BOTH, "--format", "github")
    once = summary.read_text()
    assert once.startswith("# Other steps\n## ttlsnap check: incompatible\n")
    ttlsnap(*BOTH, "--report", "github=annotations.txt")
    assert summary.read_text().count("## ttlsnap check: incompatible") == 2


def test_a_summary_that_is_nearly_full_stays_below_githubs_limit(
    ttlsnap: Ttlsnap, finds: Finds, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(*[Verdict.INCOMPATIBLE] * 100)
    summary = repository / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    summary.write_text("x" * ((1 << 20) - 2000))
    assert ttlsnap(*BOTH, "--format", "github").code == 1
    assert (1 << 20) - 2000 < summary.stat().st_size <= 1 << 20


def test_a_summary_that_cannot_be_written_does_not_hide_the_verdict(
    ttlsnap: Ttlsnap, finds: Finds, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(Verdict.INCOMPATIBLE)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository))
    done = ttlsnap(*BOTH, "--format", "github")
    assert (done.code, done.out.startswith("::error ")) == (1, True)
    assert "cannot write the job summary" in done.err


# The terminal


def test_the_output_on_a_terminal_is_coloured(
    ttlsnap: Ttlsnap, finds: Finds, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finds(Verdict.INCOMPATIBLE)
    plain = ttlsnap(*BOTH).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "20")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = ttlsnap(*BOTH).out
    assert "\x1b[" not in plain
    assert "\x1b[1;31m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_closed_stdout_does_not_change_the_exit_code(repository: Path) -> None:
    """``| head`` closes stdout early, and with pipefail the exit code of ``check`` still counts."""
    contract: dict[str, Any] = json.loads((repository / "state.json").read_text())
    del contract["operators"][0]["stores"][0]["states"][0]["key"][0]
    (repository / "new.json").write_text(json.dumps(contract))
    reader, writer = os.pipe()
    os.close(reader)
    code = "from ttlsnap.cli import main; main()"
    command = [sys.executable, "-c", code, "check", "state.json", "new.json", "--report", "json=a.json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert json.loads((repository / "a.json").read_text())["verdict"] == "incompatible"


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--help"]) == 0
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    for words in (
        "ttlsnap check state.json new.json",
        "--renamed cnt=visits",
        "--ignore value-added:0.default",
        'the page "checks"',
    ):
        assert words in shown, words


def test_a_script_is_named_with_the_command_that_makes_its_contract(ttlsnap: Ttlsnap, repository: Path) -> None:
    (repository / "job.py").write_text("print()\n")
    wrong = ttlsnap("state.json", "job.py")
    assert (wrong.code, "ttlsnap contract --script job.py" in wrong.err) == (2, True)


def test_a_contract_of_a_script_needs_its_option(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "job.py").write_text("print()\n")
    assert run(["contract", "job.py"]) == 2
    assert "ttlsnap contract --script job.py" in capsys.readouterr().err
