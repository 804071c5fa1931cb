"""Findings of ``check`` that no pair covers: settings, versions, checkpoints, renames."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ttlsnap.check import CheckReport, Verdict, check, compare
from ttlsnap.check.comparison import parse_version
from ttlsnap.check.rules import RULES
from ttlsnap.errors import UsageError

from ..samples import SAMPLES
from .contracts import Edit, contract
from .quality import judged

ALL = sorted(path.name for path in SAMPLES.iterdir() if (path / "state").is_dir() and path.name != "no-schema-3.0")


def found(name: str, edit: Edit, **options: Any) -> CheckReport:
    return compare(contract(name), contract(name, edit), **options)


def codes(report: CheckReport) -> dict[str, str]:
    return {finding.code: finding.verdict.value for finding in report.findings}


def state(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = document["operators"][0]["stores"][0]["states"][number]
    return made


def named(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(s for store in document["operators"][0]["stores"] for s in store["states"] if s["name"] == name)


def test_an_added_column_with_the_name_of_another_one_has_its_own_type() -> None:
    def add(document: dict[str, Any]) -> None:
        column = state(document)["value"][0]
        state(document)["value"].insert(0, {**column, "type": "decimal(10,2)"})

    fewer, more = contract("rocksdb-4.2"), contract("rocksdb-4.2", add)
    text = f"{state(fewer.to_json())['value'][0]['name']} decimal(10,2)"
    for old, new, sides in ((fewer, more, (None, text)), (more, fewer, (text, None))):
        (finding,) = [one for one in compare(old, new).findings if one.code in ("value-added", "value-removed")]
        assert (finding.old, finding.new) == sides


@pytest.mark.parametrize("name", ALL)
def test_a_checkpoint_is_compatible_with_itself(name: str) -> None:
    report = compare(contract(name), contract(name), direction="full")
    assert report.findings == ()
    assert report.verdict is Verdict.AS_IS
    assert any("computes" in line for line in report.unseen)


CONF = "spark.sql.streaming.stateStore."


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (lambda d: d["conf"].update({"spark.sql.shuffle.partitions": "9"}), {"partitions-ignored": "as_is"}),
        (lambda d: d["conf"].update({CONF + "providerClass": "x"}), {"provider-ignored": "as_is"}),
        (lambda d: d["conf"].update({CONF + "compression.codec": "x"}), {"setting-ignored": "as_is"}),
        (lambda d: d["conf"].update({"spark.sql.function.protobufExtensions.enabled": "true"}), {}),
        (lambda d: d["conf"].pop(CONF + "compression.codec"), {}),
        (lambda d: d.update(checkpoint_format=2), {"checkpoint-format": "reconfiguration"}),
        (lambda d: d.update(offset_log=2), {"offset-log": "reconfiguration"}),
        (lambda d: d.update(changelog=True), {"changelog": "as_is"}),
        (lambda d: d.update(changelog=None), {}),
        (lambda d: d.update(sources=2), {"sources": "incompatible"}),
        (lambda d: d.update(sources=0), {}),
        (lambda d: d.update(spark="4.1.1"), {"spark-downgraded": "as_is"}),
        (lambda d: d.update(spark="4.3.0"), {}),
        (lambda d: d["operators"].append(d["operators"][0]), {"operator-added": "incompatible"}),
        (lambda d: d["operators"].clear(), {"operator-removed": "incompatible"}),
        (lambda d: d["operators"][0].update(name="dedupe"), {"operator-replaced": "incompatible"}),
        (lambda d: d["operators"][0]["stores"][0].update(name="other"), {"stores-changed": "incompatible"}),
        (lambda d: d["operators"][0]["stores"][0].update(states=None), {"state-schema-missing": "unknown"}),
        (lambda d: state(d)["key"][0].update(name="other"), {"key-renamed": "unknown"}),
        (lambda d: state(d)["value"][0].update(name="other"), {"aggregate-changed": "incompatible"}),
        (lambda d: state(d)["value"].append(dict(state(d)["value"][0], name="more")), {"value-added": "incompatible"}),
        (lambda d: state(d)["key"][0].update(nullable=False), {"key-nullability": "unknown"}),
    ],
)
def test_each_change_of_an_aggregation_has_its_finding(edit: Edit, wanted: dict[str, str]) -> None:
    report = found("rocksdb-4.2", edit)
    assert codes(report) == wanted
    for finding in report.findings:
        assert finding.message
        assert finding.spark
        assert finding.fix or finding.verdict is Verdict.AS_IS
        assert finding.code in RULES


def test_another_type_is_found_beside_another_number_of_columns() -> None:
    def edit(document: dict[str, Any]) -> None:
        made = state(document)
        for side in ("key", "value"):
            made[side][0]["type"] = "binary"
            made[side].append(dict(made[side][0], name="more"))

    report = found("rocksdb-4.2", edit)
    assert codes(report) == dict.fromkeys(["key-added", "key-retyped", "value-added", "value-retyped"], "incompatible")


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (lambda d: named(d, "last").update(name="latest"), {"variable-renamed": "unknown"}),
        (lambda d: d["operators"][0]["stores"][0]["states"].remove(named(d, "last")), {"variable-removed": "as_is"}),
        (
            lambda d: d["operators"][0]["stores"][0]["states"].append(dict(named(d, "last"), name="more")),
            {"variable-added": "as_is"},
        ),
        (lambda d: named(d, "last").update(kind="map"), {"variable-kind": "incompatible"}),
        (lambda d: named(d, "last").update(ttl=True), {"ttl-on": "incompatible"}),
        (lambda d: named(d, "last")["value"][0].update(name="seen2"), {"value-renamed": "unknown"}),
        (lambda d: d["operators"][0].update(time_mode="EventTime"), {"time-mode": "incompatible"}),
        (lambda d: d["operators"][0].update(output_mode="Append"), {"output-mode": "incompatible"}),
    ],
)
def test_each_change_of_a_processor_has_its_finding(edit: Edit, wanted: dict[str, str]) -> None:
    assert codes(found("visits-4.2", edit)) == wanted


def test_a_declared_rename_of_a_key_is_not_a_finding() -> None:
    def edit(document: dict[str, Any]) -> None:
        state(document)["key"][0]["name"] = "user"

    old = state(json.loads(contract("rocksdb-4.2").dumps()))["key"][0]["name"]
    assert codes(found("rocksdb-4.2", edit)) == {"key-renamed": "unknown"}
    assert codes(found("rocksdb-4.2", edit, renamed={old: "user"})) == {}
    assert codes(found("rocksdb-4.2", edit, renamed={old: "other"})) == {"key-renamed": "unknown"}


def test_a_question_about_a_name_does_not_make_other_changes_incompatible() -> None:
    """Else, the advice for the added value would be to start a new checkpoint."""

    def edit(document: dict[str, Any]) -> None:
        state(document)["key"][0]["name"] = "user"
        state(document)["value"].append(dict(state(document)["value"][0], name="more"))

    contracts = contract("agg-deltas-lz4-4.2"), contract("agg-deltas-lz4-4.2", edit)
    checkpoint = str(SAMPLES / "agg-deltas-lz4-4.2")
    report = check(*contracts, names=(checkpoint, "new.json"))
    assert codes(report) == {"key-renamed": "unknown", "value-added": "unknown"}
    advice = {finding.code: finding.fix or "" for finding in report.findings}
    assert "--renamed key=user" in advice["key-renamed"]
    assert "First decide if key only has another name, such as user" in advice["value-added"]
    assert "; if not, put the new column into a separate state" in advice["value-added"]
    report = check(*contracts, names=(checkpoint, "new.json"), renamed={"key": "user"})
    assert codes(report) == {"value-added": "unknown"}
    assert f"run: ttlsnap contract {checkpoint} --with" in report.findings[0].fix
    back = [finding for finding in check(*contracts, direction="full").findings if finding.back]
    assert back and all("--renamed key=user" in finding.fix for finding in back), "as the option has to be"


def test_each_direction_has_its_own_findings() -> None:
    def edit(document: dict[str, Any]) -> None:
        state(document)["value"].append(dict(state(document)["value"][0], name="more"))

    assert codes(found("rocksdb-4.2", edit)) == {"value-added": "incompatible"}
    assert codes(found("rocksdb-4.2", edit, direction="forward")) == {"value-removed": "incompatible"}
    both = found("rocksdb-4.2", edit, direction="full")
    assert [finding.code for finding in both.findings] == ["value-added", "value-removed"]
    assert both.findings[1].message.startswith("going back: ")
    with pytest.raises(UsageError, match="unknown direction"):
        check(contract("rocksdb-4.2"), contract("rocksdb-4.2"), direction="sideways")


def test_a_downgrade_from_row_checksums_is_incompatible() -> None:
    old = contract("agg-rowchecksum-deletes-4.2")
    report = compare(old, contract("agg-rowchecksum-deletes-4.2", lambda d: d.update(spark="4.1.1")))
    assert codes(report) == {"spark-downgraded": "incompatible"}
    assert "row checksums" in report.findings[0].message


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4.2.0", (4, 2)), (">=4.0,<4.2", (4, 0)), (">=4.2", (4, 2)), ("<4.0", (3, 5))],
)
def test_version_of_a_range_is_its_lowest(text: str, wanted: tuple[int, int]) -> None:
    assert parse_version(text) == wanted


def test_two_contracts_of_queries_leave_nothing_unseen() -> None:
    one = next(one for one in judged() if one.name == "nothing-agg")
    assert one.report is not None
    assert one.report.unseen == ()


def test_the_verdict_is_the_worst_of_the_findings() -> None:
    def edit(document: dict[str, Any]) -> None:
        document["sources"] = 2
        document["changelog"] = True
        document["checkpoint_format"] = 2

    report = found("rocksdb-4.2", edit)
    assert report.verdict is Verdict.INCOMPATIBLE
    assert [f.verdict for f in report.findings] == [Verdict.INCOMPATIBLE, Verdict.RECONFIGURATION, Verdict.AS_IS]
    assert report.to_json()["verdict"] == "incompatible"
