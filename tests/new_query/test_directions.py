"""``check`` in Python and pytest: the verdicts and the commands of the command line, also for the way back."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from ttlsnap import NewQuery, migrate
from ttlsnap.check import Verdict, check
from ttlsnap.check.ignores import parse_ignore
from ttlsnap.check.report_github import job_summary
from ttlsnap.check.reports import REPORTS
from ttlsnap.check.targets import load_contract
from ttlsnap.cli.app import run
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.errors import UnsupportedError
from ttlsnap.testing import assert_restorable

from ..samples import SAMPLES
from .aggregating import aggregation
from .contracts import JOIN, PLAIN, Document, column, contract, left, states

USER = ("user", "user", "string")
SUM, LEAST, MOST = ("sum(amount)", "sum", "long"), ("min(price)", "min", "double"), ("max(price)", "max", "double")
OLD, NEW = aggregation([USER], [SUM]), aggregation([USER], [SUM, MOST])


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with the contracts ``old.json`` and ``new.json``."""
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(OLD.dumps())
    Path("new.json").write_text(NEW.dumps())
    return tmp_path


@pytest.mark.parametrize("new", [NEW, aggregation([USER], [LEAST])])
def test_python_and_pytest_have_the_verdict_of_the_command(
    repository: Path, new: Contract, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.json").write_text(new.dumps())
    old = aggregation([USER], [SUM if new is NEW else MOST])
    Path("old.json").write_text(old.dumps())
    assert run(["check", "old.json", "new.json"]) == 1
    printed = capsys.readouterr().out
    assert "after_migration[" in printed
    assert ("The migration can drop values: drop 0.default.default.value: max(price)" in printed) == (new is not NEW)
    report = check(old, new, names=("old.json", "new.json"))
    assert REPORTS["text"](report) == printed
    with pytest.raises(AssertionError) as raised:
        assert_restorable("old.json", "new.json")
    assert str(raised.value) == f"old.json to new.json, backward: after_migration\n{printed}"


def test_pytest_ignores_what_the_file_of_the_command_has(repository: Path) -> None:
    codes = sorted({finding.code for finding in check(OLD, NEW).findings})
    text = "".join(f"[[ignore]]\ncode = {code!r}\nreason = 'why'\n" for code in codes)
    Path("other.toml").write_text(text)
    assert_restorable("old.json", "new.json", ignore_file="other.toml")
    with pytest.raises(AssertionError):
        assert_restorable("old.json", "new.json")
    Path(".ttlsnap-ignore.toml").write_text(text)
    assert_restorable("old.json", "new.json")
    with pytest.raises(AssertionError):
        Path("empty.toml").write_text("")
        assert_restorable("old.json", "new.json", ignore_file="empty.toml")


def test_pytest_fails_for_what_could_not_be_compared_if_it_is_strict(repository: Path) -> None:
    assert_restorable("old.json", "old.json", strict=True)
    assert_restorable("old.json", "old.json", renamed={"nowhere": "anywhere"})
    with pytest.raises(AssertionError, match=r"not compared: .*nowhere"):
        assert_restorable("old.json", "old.json", renamed={"nowhere": "anywhere"}, strict=True)


def test_pytest_says_that_its_call_ignores_a_finding(repository: Path) -> None:
    code, *others = sorted({finding.code for finding in check(OLD, NEW, direction="full").findings})
    assert others
    with pytest.raises(AssertionError) as raised:
        assert_restorable("old.json", "new.json", ignore=code, direction="full")
    assert "(reason: ignored by the call)" in str(raised.value)


@pytest.mark.parametrize(
    ("direction", "forth", "back"), [("backward", True, False), ("forward", False, True), ("full", True, True)]
)
def test_each_way_has_its_own_command(direction: str, forth: bool, back: bool) -> None:
    report = check(OLD, NEW, direction=direction, names=("old.json", "new.json"))
    names = (("old", "new"), ("new", "old"))
    commands = [f"ttlsnap migrate CHECKPOINT --from {old}.json --to {new}.json" for old, new in names]
    assert (report.next, report.next_back) == (commands[0] if forth else None, commands[1] if back else None)
    for finding in report.findings:
        assert (finding.verdict, finding.fix) == (Verdict.AFTER_MIGRATION, commands[finding.back])
        assert finding.message.startswith("going back: ") == finding.back
    text = REPORTS["text"](report)
    assert (f"\nnext: {commands[0]}\n" in text, f"\nnext, to go back: {commands[1]}\n" in text) == (forth, back)


def test_the_way_back_has_the_renames_and_ignores_of_its_own_findings() -> None:
    source = "name string, other string, amount bigint, price double, ts timestamp"
    new = aggregation([("name", "name", "string")], [SUM, MOST], source=source)
    ignores = [parse_ignore("value-removed")]
    report = check(OLD, new, direction="full", renamed={"user": "name"}, ignores=ignores)
    assert report.next == "ttlsnap migrate CHECKPOINT --from old --to new --rename user=name"
    (ignored,) = report.ignored
    assert ignored.finding.back and report.next_back is None  # what is left of the way back needs no migration


def test_the_help_of_a_finding_is_a_command_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    target = Path(shutil.copytree(SAMPLES / JOIN, "target"))
    Path("old.json").write_text(contract_of_checkpoint(str(target)).dumps())
    changed = contract(target, lambda document: left(document).append(column("extra", "integer", nullable=False)))
    Path("new.json").write_text(json.dumps(changed))
    (finding,) = check(load_contract("old.json"), load_contract("new.json"), names=("old.json", "new.json")).findings
    command = finding.fix.replace("CHECKPOINT", "target").replace("LITERAL", "0")
    assert "--from old.json --to new.json" in command
    assert run([*shlex.split(command)[1:], "--dry-run", "--stopped"]) == 0, capsys.readouterr().err
    (finding,) = check(load_contract("target"), load_contract("new.json"), names=("target", "new.json")).findings
    assert finding.fix.startswith("ttlsnap migrate target --to new.json --fill")


def test_a_command_accepts_what_the_report_ignores_and_migrate_names_the_same_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finding beside it is unknown, so that the report has no other command."""
    monkeypatch.chdir(tmp_path)
    target = Path(shutil.copytree(SAMPLES / JOIN, "target"))
    for name, digest in (("old", "1"), ("new", "2")):

        def change(document: Document, digest: str = digest) -> None:
            operator = document["operators"][0]
            document["planned_by"] = "4.2.0"
            operator["plan"] = ["join Inner", "on user = user", "left: from user string", "right: from user string"]
            operator["functions"] = {function: {"body": digest * 16} for function in ("clean", "it's")}
            if digest == "2":
                left(document).append(column("extra", "integer", nullable=False))

        Path(f"{name}.json").write_text(json.dumps(contract(target, change)))
    option, other = "--ignore function-changed:0.clean", """--ignore 'function-changed:0.it'"'"'s'"""
    contracts = [load_contract(f"{name}.json") for name in ("old", "new")]
    report = check(*contracts, names=("old.json", "new.json"), ignores=[parse_ignore("function-changed:0.clean")])
    assert report.verdict is Verdict.UNKNOWN and report.next is None
    (finding,) = (finding for finding in report.findings if finding.verdict is Verdict.AFTER_MIGRATION)
    command = f"ttlsnap migrate CHECKPOINT --from old.json --to new.json --fill value.extra=LITERAL {option}"
    assert finding.fix == command
    assert command in REPORTS["github"](report)
    words = shlex.split(command.replace("CHECKPOINT", "target").replace("LITERAL", "0"))[1:]
    assert run([*words, "--dry-run", "--stopped"]) == 3
    error = capsys.readouterr().err
    assert f"To accept it all the same, add {other}\n" in error
    assert "correctly?\n    What to do: if it does, ignore this finding\n" in error
    assert run([*words, *shlex.split(other), "--dry-run", "--stopped"]) == 0


def test_annotations_and_the_summary_show_the_next_command() -> None:
    report = check(OLD, NEW, direction="full", names=("old.json", "new.json"))
    annotations = REPORTS["github"](report)
    assert "::next: ttlsnap migrate CHECKPOINT --from old.json --to new.json\n" in annotations
    assert "::next, to go back: ttlsnap migrate CHECKPOINT --from new.json --to old.json\n" in annotations
    summary = job_summary(report)
    assert "\n\nNext:\n\n    ttlsnap migrate CHECKPOINT --from old.json --to new.json\n" in summary
    assert "\n\nNext, to go back:\n\n    ttlsnap migrate CHECKPOINT --from new.json --to old.json\n" in summary


def test_an_error_in_python_says_where_the_old_contract_belongs(tmp_path: Path) -> None:
    target = shutil.copytree(SAMPLES / PLAIN, tmp_path / "ck")

    def repeat(document: Document) -> None:
        fields = states(document)[0]["value"]
        fields.append(dict(fields[-1]))

    new = parse_contract(json.dumps(contract(target, repeat)), "new")
    assert isinstance(new, Contract)
    with pytest.raises(UnsupportedError) as raised:
        migrate(str(target), new_query=NewQuery(new), dry_run=True)
    message = str(raised.value)
    assert "--with MODULE:FUNCTION --schema FILE --output old.json" in message
    assert "and to NewQuery as old (both take what load_contract returns)" in message
    assert "with source" not in message


def test_the_page_has_the_command_of_each_way(repository: Path) -> None:
    assert run(["check", "old.json", "new.json", "--direction", "full", "--report", "html=check.html"]) == 1
    page = Path("check.html").read_text()
    for old, new in (("old", "new"), ("new", "old")):
        assert f"ttlsnap migrate CHECKPOINT --from {old}.json --to {new}.json" in page
    assert "This command makes the state fit the old query again:" in page
