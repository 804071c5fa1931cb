"""One report in five formats, for people and for build servers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fastjsonschema
import pytest

from ttlsnap.check import report_github as github
from ttlsnap.check import report_sarif as sarif
from ttlsnap.check.findings import CheckReport, Finding, Ignored, Verdict
from ttlsnap.check.report_files import contract_file
from ttlsnap.check.report_levels import fails
from ttlsnap.check.report_text import lines
from ttlsnap.check.reports import REPORTS
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.entries.place import Place

from ..samples import SAMPLES

REFUSED = "refuses at the start: STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"
COUNT = Place(0, "default", "default", "value.count", "stateStoreSave")
REMOVED = Finding(
    "value-removed", Verdict.INCOMPATIBLE, COUNT, "count bigint", None, "count is no longer kept", REFUSED, "keep it"
)
UNKNOWN = Finding("function-changed", Verdict.UNKNOWN, Place(1), "a", "b", "reads it in another way", "silent")
SETTING = Finding(
    "changelog", Verdict.RECONFIGURATION, Place(), "true", "false", "it was on", "silent", "set it to true"
)
FINE = Finding(
    "value-added", Verdict.AS_IS, Place(2, "left-keyToNumValues"), None, "x int", "it begins as null", "silent"
)
MIGRATE = Finding(
    "partitions-ignored", Verdict.AFTER_MIGRATION, Place(0), "4", "8", "8 are wanted", "silent", "rewrite"
)
# A malicious name: a terminal colour, a command of a build server, markup, half a character.
EVIL = "a\x1b[31m\r\n::error::b\0\ud800<script>|*]]>&%,"


def report(*findings: Finding, **more: Any) -> CheckReport:
    return CheckReport("old.json", "new.json", "backward", findings, **more)


FULL = report(
    FINE,
    SETTING,
    UNKNOWN,
    REMOVED,
    MIGRATE,
    unseen=("operator 1 has no schema",),
    ignored=(Ignored(SETTING, "known since May"),),
    unused=("value-added:3 (--ignore): matches nothing",),
)
HARMFUL = report(
    Finding(EVIL, Verdict.INCOMPATIBLE, Place(0, EVIL, EVIL, EVIL, EVIL), EVIL, EVIL, EVIL, EVIL, EVIL),
    unseen=(EVIL,),
    ignored=(Ignored(REMOVED, EVIL),),
    unused=(EVIL,),
)
ODD = {"nothing": report(), "full": FULL, "harmful": HARMFUL, "twice": report(REMOVED, REMOVED)}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a repository, outside any build server."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def contract(root: Path) -> str:
    """Return the text of a contract that is committed as new.json."""
    text = contract_of_checkpoint(str(SAMPLES / "agg-deltas-lz4-4.2")).dumps()
    (root / "new.json").write_text(text)
    return text


def test_the_text_says_what_where_why_and_what_to_do() -> None:
    assert REPORTS["text"](report(REMOVED)).splitlines() == [
        "incompatible[value-removed]: count is no longer kept",
        "  --> operator 0 (stateStoreSave), store default, state default, value.count",
        "   | old: count bigint",
        "   = spark: refuses at the start: STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        *(line for line in REPORTS["text"](report(REMOVED)).splitlines() if line.startswith("   = why: ")),
        "   = help: keep it",
        "",
        "verdict: incompatible (1 incompatible), old.json -> new.json, backward",
    ]
    assert "   = why: " in REPORTS["text"](report(REMOVED))


def test_the_text_has_the_worst_first_and_the_rest_at_the_end() -> None:
    shown = REPORTS["text"](FULL).splitlines()
    heads = [line.partition("[")[0] for line in shown if re.match(r"\w+\[", line)]
    assert heads == ["incompatible", "unknown", "after_migration", "reconfiguration", "as_is"]
    assert shown[-5:] == [
        "not compared: operator 1 has no schema",
        "ignored: changelog at query: it was on (reason: known since May)",
        "unused ignore: value-added:3 (--ignore): matches nothing",
        "",
        "verdict: incompatible (1 incompatible, 1 unknown, 1 after_migration, 1 reconfiguration, 1 as_is, 1 ignored, "
        "1 not compared), old.json -> new.json, backward",
    ]


def test_the_text_explains_each_rule_once() -> None:
    assert REPORTS["text"](report(REMOVED, REMOVED, MIGRATE)).count("= why: ") == 2


def test_lines_of_a_long_text_are_aligned() -> None:
    several = Finding("value-added", Verdict.UNKNOWN, COUNT, "a\nb", "c", "m", "silent", "first\nthen")
    shown = REPORTS["text"](report(several))
    assert "   | old: a\n   |      b\n   | new: c\n" in shown
    assert "   = help: first\n           then\n" in shown


def test_an_empty_report_has_only_its_verdict() -> None:
    assert REPORTS["text"](report()) == "verdict: as_is (no findings), old.json -> new.json, backward\n"


def test_the_verdict_counts_what_was_not_compared() -> None:
    shown = REPORTS["text"](report(unseen=("a", "b")))
    assert shown.splitlines()[-1].startswith("verdict: as_is (no findings, 2 not compared), ")


def test_a_passing_report_with_findings_says_why_it_passes() -> None:
    shown = REPORTS["text"](report(SETTING), Verdict.INCOMPATIBLE)
    assert shown.endswith("backward; passes: only incompatible or worse fails\n")


@pytest.mark.parametrize(
    ("fail_on", "failing"),
    [
        (Verdict.AS_IS, "reconfiguration after_migration unknown incompatible"),
        (Verdict.RECONFIGURATION, "reconfiguration after_migration unknown incompatible"),
        (Verdict.AFTER_MIGRATION, "after_migration unknown incompatible"),
        (Verdict.INCOMPATIBLE, "unknown incompatible"),
    ],
)
def test_unknown_fails_at_every_threshold(fail_on: Verdict, failing: str) -> None:
    assert [str(verdict) for verdict in Verdict if fails(verdict, fail_on)] == failing.split()


@pytest.mark.parametrize("form", REPORTS)
def test_malicious_names_are_escaped(form: str) -> None:
    shown = REPORTS[form](HARMFUL)
    shown.encode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\x85\ud800]", shown)
    commands = [line for line in shown.splitlines() if line.startswith("::")]
    assert len(commands) == (3 if form == "github" else 0)


def test_styled_lines_have_valid_styles_and_the_same_text() -> None:
    from rich.style import Style

    styled = list(lines(FULL))
    for line in styled:
        for _, style in line:
            Style.parse(style)
    assert "\n".join("".join(text for text, _ in line) for line in styled) + "\n" == REPORTS["text"](FULL)


def test_json_is_the_document_of_the_report() -> None:
    assert json.loads(REPORTS["json"](FULL)) == FULL.to_json()


# JUnit


def cases(shown: str) -> dict[str, ElementTree.Element]:
    suites = ElementTree.fromstring(shown.encode())
    found = {f"{case.get('classname')} {case.get('name')}": case for case in suites.iter("testcase")}
    assert len(found) == len(suites.findall("testsuite/testcase")), "GitLab ignores names that occurred before"
    for element in (suites, suites[0]):
        assert int(element.attrib["tests"]) == len(found)
        for kind, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.attrib[kind]) == len(suites.findall(f"testsuite/testcase/{name}"))
    return found


def test_junit_fails_the_findings_that_fail() -> None:
    found = {name: [child.tag for child in case] for name, case in cases(REPORTS["junit"](FULL)).items()}
    assert found == {
        "ttlsnap.check.value-removed 0.default.default.value.count": ["failure"],
        "ttlsnap.check.function-changed 1": ["error"],
        "ttlsnap.check.partitions-ignored 0": ["failure"],
        "ttlsnap.check.changelog query": ["failure"],
        "ttlsnap.check.value-added 2.left-keyToNumValues": ["system-out"],
        "ttlsnap.check.changelog query #2": ["skipped"],
        "ttlsnap.check.not-compared operator 1 has no schema": ["skipped"],
        "ttlsnap.check.unused-ignore value-added:3 (--ignore): matches nothing": ["skipped"],
    }


def test_junit_shows_the_whole_finding_where_gitlab_looks_for_it() -> None:
    (case,) = cases(REPORTS["junit"](report(REMOVED))).values()
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("incompatible", "count is no longer kept")
    assert failure.text is not None
    assert REPORTS["text"](report(REMOVED)).startswith(failure.text)


def test_junit_follows_the_threshold() -> None:
    tags = [case[0].tag for case in cases(REPORTS["junit"](FULL, Verdict.INCOMPATIBLE)).values()]
    assert tags[:5] == ["failure", "error", "system-out", "system-out", "system-out"]


@pytest.mark.parametrize("name", ODD)
def test_junit_is_never_empty_and_its_names_are_distinct(name: str) -> None:
    assert cases(REPORTS["junit"](ODD[name]))


def test_junit_names_the_contract(contract: str) -> None:
    assert {case.get("file") for case in cases(REPORTS["junit"](FULL)).values()} == {"new.json"}


# SARIF


def schemas() -> list[Any]:
    """Return our schema, and the standard's own if ``TTLSNAP_SARIF_SCHEMA`` names it (no project may copy that one)."""
    names = [str(Path(__file__).with_name("sarif.schema.json")), os.environ.get("TTLSNAP_SARIF_SCHEMA")]
    paths = [Path(name) for name in names if name]
    return [pytest.param(fastjsonschema.compile(json.loads(path.read_text())), id=path.name) for path in paths]


@pytest.mark.parametrize("valid", schemas())
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("committed", [True, False])
def test_sarif_is_valid(
    valid: Callable[[Any], Any], name: str, committed: bool, request: pytest.FixtureRequest
) -> None:
    if committed:
        request.getfixturevalue("contract")
    document = json.loads(REPORTS["sarif"](ODD[name]))
    valid(document)
    rules = document["runs"][0]["tool"]["driver"]["rules"]
    assert "helpUri" not in json.dumps(rules)
    for result in document["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert ("physicalLocation" in result["locations"][0]) is committed


@pytest.mark.parametrize("valid", schemas())
def test_an_invalid_level_violates_the_sarif_schema(valid: Callable[[Any], Any]) -> None:
    document = sarif.document(FULL)
    document["runs"][0]["results"][0]["level"] = "incompatible"
    with pytest.raises(fastjsonschema.JsonSchemaException):
        valid(document)


def test_sarif_has_levels_places_and_suppressions() -> None:
    results = json.loads(REPORTS["sarif"](FULL))["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "warning", "warning", "warning", "note", "warning"]
    assert [result["locations"][0]["logicalLocations"][0] for result in results[:2]] == [
        {"name": "value.count", "fullyQualifiedName": "0.default.default.value.count", "kind": "field"},
        {"name": "1", "fullyQualifiedName": "1", "kind": "operator"},
    ]
    assert [result.get("suppressions") for result in results][-2:] == [
        None,
        [{"kind": "external", "justification": "known since May"}],
    ]


def test_fingerprints_depend_on_the_rule_and_the_place(contract: str, root: Path) -> None:
    def fingerprints(*findings: Finding) -> list[str]:
        results = sarif.document(report(*findings))["runs"][0]["results"]
        return [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]

    before = fingerprints(REMOVED, MIGRATE, REMOVED)
    assert len(set(before)) == 3
    (root / "new.json").write_text("\n\n" + contract)
    reworded = Finding("value-removed", Verdict.UNKNOWN, COUNT, "x", "y", "said in another way", "silent")
    assert fingerprints(reworded) == before[:1]


def test_places_have_their_lines_in_the_contract(contract: str) -> None:
    file = contract_file(report())
    assert file is not None
    shown = contract.splitlines()
    for place, line in [
        (Place(), None),
        (Place(0), '"id": 0,'),
        (Place(7), None),
        (Place(0, "default"), '"name": "default",'),
        (Place(0, "default", "default"), '"name": "default",'),
        (COUNT, '"name": "count",'),
        (COUNT.at(field="key.key"), '"name": "key",'),
        (COUNT.at(field="value.max.more"), '"name": "max",'),
        (COUNT.at(field="value.key"), '"value": ['),
        (COUNT.at(state="gone"), '"name": "default",'),
    ]:
        number = file.line(place)
        assert (number == 1) if line is None else (shown[number - 1].strip() == line), place
    found = [file.line(place) for place in (Place(0), Place(0, "default"), COUNT.at(field=None), COUNT)]
    assert found == sorted(set(found))


def test_lines_are_found_only_within_their_operator(root: Path) -> None:
    made = contract_of_checkpoint(str(SAMPLES / "agg-deltas-lz4-4.2"))
    (operator,) = made.operators
    others = (replace(operator.stores[0], name="other"),)
    (root / "new.json").write_text(replace(made, operators=(operator, replace(operator, id=1, stores=others))).dumps())
    file = contract_file(report())
    assert file is not None
    assert file.line(Place(0)) == file.line(Place(0, "other")) < file.line(Place(0, "default"))
    assert file.line(Place(1)) == file.line(Place(1, "default")) < file.line(Place(1, "other"))


def test_a_contract_outside_the_repository_is_not_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, contract: str
) -> None:
    (root / "repository").mkdir()
    (root / "repository" / "old.json").write_text(contract)
    monkeypatch.chdir(root / "repository")
    file = contract_file(CheckReport("old.json", "../new.json", "backward", ()))
    assert file is not None
    assert file.path == "old.json"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(root))
    file = contract_file(CheckReport("old.json", "../new.json", "backward", ()))
    assert file is not None
    assert file.path == "new.json"
    assert contract_file(CheckReport(str(root), "s3://bucket/ck", "backward", ())) is None


# GitHub


def test_annotations_are_escaped_for_the_runner(root: Path) -> None:
    (root / "a,b:c.json").write_text("{}")
    message = Finding("value-added", Verdict.INCOMPATIBLE, Place(0), None, "50%", "a: b, c", "silent", "d\ne")
    first, _ = REPORTS["github"](CheckReport("old", "a,b:c.json", "backward", (message,))).splitlines()
    assert first == (
        "::error file=a%2Cb%3Ac.json,line=1,title=incompatible[value-added]::"
        "operator 0: a: b, c%0Anew: 50%25%0ASpark: silent: it starts without a message%0AWhat to do: d\\ne"
    )


def test_annotations_keep_to_the_limits_and_have_the_worst_first() -> None:
    many = [REMOVED] * 11 + [MIGRATE] * 9 + [UNKNOWN] * 2 + [FINE] * 10
    shown = REPORTS["github"](report(*many)).splitlines()
    levels = [line.partition(" ")[0] for line in shown[:-1]]
    assert levels == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"] * 10
    assert (
        shown[9]
        == "::error title=ttlsnap check::2 more of this kind: the job's summary and the other reports have them all"
    )
    assert [line[:30] for line in shown[10:13]] == ["::warning title=unknown[functi"] * 2 + [
        "::warning title=after_migratio"
    ]
    assert shown[-1].startswith("verdict: incompatible")


@pytest.mark.parametrize("findings", [[UNKNOWN, MIGRATE], [UNKNOWN], [MIGRATE]])
def test_the_text_says_what_comes_before_a_migration(findings: list[Finding]) -> None:
    assert ("Settle what is unknown before you migrate" in REPORTS["text"](report(*findings))) == (len(findings) == 2)


@pytest.mark.parametrize(
    ("fail_on", "levels"),
    [(Verdict.RECONFIGURATION, ["error", "error", "notice"]), (Verdict.INCOMPATIBLE, ["error", "warning", "notice"])],
)
def test_an_annotation_of_what_makes_the_check_fail_is_an_error(fail_on: Verdict, levels: list[str]) -> None:
    shown = github.render(report(MIGRATE, UNKNOWN, FINE), fail_on).splitlines()
    assert [line.partition(" ")[0] for line in shown[:-1]] == [f"::{name}" for name in levels]


def test_a_long_message_is_cut_at_the_runners_limit() -> None:
    long = Finding("value-added", Verdict.INCOMPATIBLE, Place(0), None, None, "%" * 9000, "silent")
    first, _ = REPORTS["github"](report(long)).splitlines()
    message = first.rpartition("::")[2].replace("%25", "%")
    assert len(message) == 4096
    assert message.endswith("...")


def test_the_summary_has_a_table_and_its_sections() -> None:
    shown = github.job_summary(FULL).splitlines()
    assert shown[0] == "## ttlsnap check: incompatible"
    rows = [line for line in shown if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| incompatible", "| unknown", "| after_migration", "| reconfiguration", "| as_is",
    ]  # fmt: skip
    assert all(row.count(" | ") == 5 for row in rows)
    assert [line for line in shown if line.startswith("#")][1:] == [
        "### Not compared",
        "### Ignored",
        "### Unused ignores",
    ]


def test_the_summary_escapes_names() -> None:
    shown = github.job_summary(HARMFUL)
    assert "<script" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("| incompatible")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


@pytest.mark.parametrize("limit", [50, 1000, 20_000, github.MAX_SUMMARY])
def test_the_summary_ends_before_githubs_limit(limit: int) -> None:
    shown = github.job_summary(report(*[REMOVED] * 20_000), limit=limit)
    assert len(shown.encode()) <= limit
    left = re.search(r"\n([\d,]+) more lines? do(?:es)? not fit", shown)
    if limit > 100:
        assert left is not None
        assert int(left[1].replace(",", "")) + shown.count("\n") - 2 == 20_000 + 6
