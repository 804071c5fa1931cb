"""Changes that look harmless and are not. None of them may be ``as_is``.

The contracts are those of real queries. The second one has one change, as another query or schema would have it.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from ttlsnap.check import CheckReport, Verdict, compare
from ttlsnap.contract import Contract, parse_contract
from ttlsnap.errors import UsageError

from .observe_tables import read_observed
from .quality import KEPT

Edit = Callable[[dict[str, Any]], object]
BASE = "agg-argument-now-nullable.old"  # group by user, sum(amount)


HASHED = ["group by hash(user, 42)", "aggregate sum(amount)", "from user string, amount bigint, d decimal(8,2)"]


def test_an_argument_of_a_key_with_another_type_is_not_as_is() -> None:
    for name, kind, retyped in (("user", "string", "bigint"), ("d", "decimal(8,2)", "decimal(9,2)")):
        plan = [line.replace("hash(user, 42)", f"hash({name}, 42)") for line in HASHED]
        old = document(plan=plan)
        changed = [line.replace(f"{name} {kind}", f"{name} {retyped}") for line in plan]
        report = compared(old, lambda d, changed=changed: d["operators"][0].update(plan=changed))  # type: ignore[misc]
        assert [(one.code, one.verdict) for one in report.findings] == [("key-changed", Verdict.UNKNOWN)]
    plain = [line.replace("hash(user, 42)", "user") for line in HASHED]
    other = [line.replace("amount bigint", "amount int") for line in plain]
    assert not compared(document(plan=plain), lambda d: d["operators"][0].update(plan=other)).findings


def test_an_equation_in_another_order_hides_no_argument_of_another_type() -> None:
    plan = ["group by hash((user = name), d)", "aggregate sum(amount)", "from user string, name string, d decimal(8,2)"]
    turned = [plan[0].replace("user = name", "name = user"), *plan[1:]]
    assert not compared(document(plan=plan), planned(*turned)).findings
    retyped = [*turned[:2], plan[2].replace("(8,2)", "(9,2)")]
    report = compared(document(plan=plan), planned(*retyped))
    assert [(one.code, one.verdict) for one in report.findings] == [("key-changed", Verdict.UNKNOWN)]


def test_an_equation_in_another_order_hides_no_buffer_with_another_content() -> None:
    def set_of(value: str, kind: str) -> Edit:
        def edit(contract: dict[str, Any]) -> None:
            (operator,) = contract["operators"]
            operator["plan"] = ["group by user", f"aggregate collect_set({value})", FROM]
            operator["buffers"][0].update(aggregate=f"collect_set({value})", inputs=[kind])

        return edit

    one, other = "named_struct('x', (user = ts), 'y', price)", "named_struct('x', (ts = user), 'y', price)"
    old = edited("agg-list-to-set.new", set_of(one, "struct<x:boolean,y:int>"))
    assert not compared(old, set_of(other, "struct<x:boolean,y:int>")).findings
    report = compared(old, set_of(other, "struct<x:boolean,y:bigint>"))
    assert [found.code for found in report.findings] == ["aggregate-changed"]


@pytest.mark.parametrize(
    ("old", "new", "renamed", "codes"),
    [
        ("filter (other = 'user')", "filter (other = 'user')", {"user": "client"}, []),
        ("filter (other = 'user')", "filter (other = 'client')", {"user": "client"}, ["filter-changed"]),
        ("filter (upper(a) = b)", "filter (b = upper(a))", {}, []),
        ("filter (x = '(a = b)')", "filter (x = '(b = a)')", {}, ["filter-changed"]),
    ],
)
def test_a_filter_is_compared_by_its_meaning(old: str, new: str, renamed: dict[str, str], codes: list[str]) -> None:
    plan = ["group by amount", "aggregate sum(amount)"]
    source = ["from user string, other string", "from client string, other string"]
    after = planned(*plan, new, source[bool(renamed)])
    report = compared(document(plan=[*plan, old, source[0]]), after, renamed=renamed)
    assert [finding.code for finding in report.findings] == codes


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("(left.user = right.user)", "(right.user = left.user)", Verdict.AS_IS),
        ("(left.user = right.user)", "(right.user = left.other)", Verdict.UNKNOWN),
    ],
)
def test_the_condition_of_a_join_is_compared_by_its_meaning(old: str, new: str, verdict: Verdict) -> None:
    plan = ["join Inner", "on user = user", "left: from user string", "right: from user string"]
    assert compared(document(JOIN, [*plan, f"where {old}"]), planned(*plan, f"where {new}")).verdict is verdict


@pytest.mark.parametrize(
    ("new", "source", "codes"),
    [
        ("window(seen, 1 hour)", "seen timestamp", {"key-renamed": Verdict.UNKNOWN}),
        ("window(seen, 2 hours)", "seen timestamp", {"window-changed": Verdict.INCOMPATIBLE}),
        ("window(seen, 1 hour)", "ts timestamp, seen timestamp", {"window-changed": Verdict.INCOMPATIBLE}),
    ],
)
def test_a_window_over_a_renamed_column_is_unknown(new: str, source: str, codes: dict[str, Verdict]) -> None:
    plan = ["group by window(ts, 1 hour)", "aggregate sum(amount)", "from ts timestamp"]
    report = compared(document(plan=plan), planned(f"group by {new}", plan[1], f"from {source}"))
    assert {finding.code: finding.verdict for finding in report.findings} == codes


def test_a_buffer_whose_content_depends_on_its_arguments_is_not_as_is() -> None:
    old = document("agg-list-to-set.new")
    (buffer,) = old["operators"][0]["buffers"]
    assert (buffer["function"], buffer["columns"], buffer["reads"]) == ("CollectSet", ["buf"], ["int"])
    report = compared(old, lambda d: d["operators"][0]["buffers"][0].update(inputs=["bigint"], reads=["bigint"]))
    assert [(one.code, one.verdict) for one in report.findings] == [("aggregate-changed", Verdict.INCOMPATIBLE)]
    digits = document()  # the sum of a short decimal adds its digits
    digits["operators"][0]["buffers"][0].update(inputs=["decimal(6,2)"])
    report = compared(digits, lambda d: d["operators"][0]["buffers"][0].update(inputs=["decimal(6,3)"]))
    assert [one.code for one in report.findings] == ["aggregate-changed"]
    plain = document()
    assert not compared(plain, lambda d: d["operators"][0]["buffers"][0].update(inputs=["int"], reads=["int"])).findings


@cache
def kept() -> dict[str, Any]:
    contracts: dict[str, Any] = json.loads(gzip.decompress(KEPT.read_bytes()))["contracts"]
    return contracts


def compared(old: dict[str, Any], edit: Edit, **options: Any) -> CheckReport:
    new = copy.deepcopy(old)
    edit(new)
    return compare(*(parse_contract(json.dumps(document), "it") for document in (old, new)), **options)


def document(name: str = BASE, plan: list[str] | None = None, value: Any = None, key: Any = None) -> dict[str, Any]:
    """Return a contract with another plan, or with another type for the first column of its value or key."""
    found: dict[str, Any] = copy.deepcopy(kept()[name])
    operator = found["operators"][0]
    if plan is not None:
        operator["plan"] = plan
    (state,) = operator["stores"][0]["states"]
    for side, kind in (("value", value), ("key", key)):
        if kind is not None:
            state[side][0]["type"] = kind
    return found


def state_of(contract: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = contract["operators"][0]["stores"][0]["states"][0]
    return found


def typed(side: str, kind: Any) -> Edit:
    return lambda d: state_of(d)[side][0].update(type=kind)


def planned(*lines: str) -> Edit:
    return lambda d: d["operators"][0].update(plan=list(lines))


def array(element: Any, nulls: bool = False) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapped(value: Any, nulls: bool = False) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": nulls}


def struct(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return {"type": "struct", "fields": fields}


@pytest.mark.parametrize(
    ("side", "old", "new"),
    [
        ("value", array("long"), array("long", nulls=True)),
        ("value", mapped("long"), mapped("long", nulls=True)),
        ("value", array(struct("a", "b")), array(struct("b", "a"))),
        ("value", mapped(struct("a", "b")), mapped(struct("b", "a"))),
        ("value", array(struct("a")), array(struct("a", "b"))),
        ("value", array("long"), array("string")),
        ("key", struct("a", "b"), struct("b", "a")),
    ],
)
def test_a_change_within_a_nested_type_is_not_as_is(side: str, old: Any, new: Any) -> None:
    report = compared(document(**{side: old}), typed(side, new))
    assert report.verdict.rank > Verdict.AS_IS.rank


FROM = "from user string, amount bigint, price double, tax double, errors bigint, logins bigint, ts timestamp"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("aggregate avg(price)", FROM), ("aggregate sum(tax)", "aggregate count(1)", FROM)),
        (("aggregate stddev_samp(price)", FROM), ("aggregate sum(price)", "aggregate sum(tax)", FROM)),
        (("group by ts", FROM), ("group by cast(cast(ts as date) as timestamp)", FROM)),
        (("aggregate sum(price)", FROM), ("aggregate sum(cast(cast(price as int) as double))", FROM)),
        (("aggregate sum(amount)", FROM), ("aggregate sum(cast(amount as int))", FROM)),
        (("aggregate count(errors)", FROM), ("aggregate count(logins)", FROM)),
        (("aggregate count(1)", FROM), ("aggregate count(1) FILTER (WHERE (amount > 3))", FROM)),
        (("group by user", FROM), ("group by user", "group by amount", FROM)),
    ],
)  # fmt: skip
def test_a_change_of_the_plan_is_not_as_is(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert compared(document(plan=list(old)), planned(*new)).verdict.rank > Verdict.AS_IS.rank


def test_a_renamed_field_of_a_struct_is_incompatible_in_avro() -> None:
    old = kept()["tws-ttl-off-avro.old"]

    def rename(d: dict[str, Any]) -> None:
        (state,) = (s for o in d["operators"] for st in o["stores"] for s in st["states"] if s["name"] == "kept")
        state["value"][0]["type"]["fields"][0]["name"] = "sum"

    for told in ({}, {"total": "sum"}):
        report = compared(old, rename, renamed=told)
        assert report.verdict is Verdict.INCOMPATIBLE, report.findings


def test_a_changed_key_with_changed_nullability_is_at_least_unknown() -> None:
    old = document()

    def edit(d: dict[str, Any]) -> None:
        state = state_of(d)
        state["key"][0]["nullable"] = False
        d["operators"][0]["plan"] = ["group by coalesce(user, none)", *d["operators"][0]["plan"][1:]]

    assert compared(old, edit).verdict.rank >= Verdict.UNKNOWN.rank


def test_a_changed_state_format_without_a_plan_is_unknown() -> None:
    name = "spark.sql.streaming.aggregation.stateFormatVersion"
    old = document()
    old["operators"][0].update(plan=None, functions=None)
    assert compared(old, lambda d: d["conf"].update({name: "1"})).verdict is Verdict.UNKNOWN
    # The setting is for another kind of operator, so the changed key decides.
    other = "spark.sql.streaming.join.stateFormatVersion"

    def edit(d: dict[str, Any]) -> None:
        d["conf"][other] = "3"
        state_of(d)["key"][0]["type"] = "long"

    assert compared(old, edit).verdict is Verdict.INCOMPATIBLE


@pytest.mark.parametrize(("join_format", "spark_version"), [("3", "4.0.1"), ("4", "4.1.0")])
def test_a_downgrade_below_a_join_format_is_incompatible(join_format: str, spark_version: str) -> None:
    old = copy.deepcopy(kept()["join-range-narrower.new"])
    old["conf"]["spark.sql.streaming.join.stateFormatVersion"] = join_format
    report = compared(old, lambda d: d.update(spark=spark_version, planned_by=spark_version))
    assert "spark-downgraded" in {f.code for f in report.findings if f.verdict is Verdict.INCOMPATIBLE}


def test_a_contract_with_an_invalid_version_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a contract"):
        compared(document(), lambda d: d.update(spark="yesterday"))


@pytest.mark.parametrize("told", [{"max": "min"}, {"amount": "price"}])
def test_a_declared_rename_does_not_excuse_a_replaced_function(told: dict[str, str]) -> None:
    old = document(plan=["group by user", "aggregate max(errors)", FROM])
    assert compared(old, planned("group by user", "aggregate min(errors)", FROM), renamed=told).verdict.rank > 0


def test_renaming_two_columns_to_one_name_is_refused() -> None:
    with pytest.raises(UsageError, match="maps two columns to one name"):
        compared(document(), lambda d: None, renamed={"a": "c", "b": "c"})


def test_an_unused_rename_is_reported() -> None:
    report = compared(document(), lambda d: None, renamed={"nosuch": "user"})
    assert any("--renamed nosuch=user" in line for line in report.unseen)


def test_a_declared_rename_does_not_excuse_another_name_of_a_variable() -> None:
    old = kept()["tws-ttl-off-avro.old"]

    def edit(d: dict[str, Any]) -> None:
        for operator in d["operators"]:
            for store in operator["stores"]:
                for state in store["states"]:
                    if state["name"] == "kept":
                        state["name"] = "other"

    assert compared(old, edit, renamed={"kept": "cnt"}).verdict.rank >= Verdict.UNKNOWN.rank


def test_complete_mode_after_append_mode_is_not_as_is() -> None:
    old = document()
    old["output_mode"] = "append"
    old["operators"][0]["plan"] = None
    assert compared(old, lambda d: d.update(output_mode="complete")).verdict is Verdict.UNKNOWN
    old["operators"][0]["plan"] = ["group by user", "left: watermark ts, 1 hours", FROM]
    assert compared(old, lambda d: d.update(output_mode="complete")).verdict is Verdict.INCOMPATIBLE


def test_data_missing_from_one_contract_is_reported_as_not_compared() -> None:
    old = kept()["tws-ttl-longer.old"]

    def forget(d: dict[str, Any]) -> None:
        for operator in d["operators"]:
            operator["functions"] = None
            for store in operator["stores"]:
                for state in store["states"]:
                    state["ttl_ms"] = None

    unseen = "\n".join(compared(old, forget).unseen)
    assert "the TTLs of kept" in unseen
    assert "Python functions: one of the contracts" in unseen


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d["operators"][0]["stores"][0].update(states=[]),
        lambda d: state_of(d).update(name="other"),
        lambda d: d["operators"][0]["stores"][0].update(prefix_key_columns=1),
    ],
)
def test_changes_outside_the_settings_are_not_as_is(edit: Edit) -> None:
    assert compared(document(), edit).verdict.rank > Verdict.AS_IS.rank


@pytest.mark.parametrize(
    ("edit", "option"),
    [
        (lambda d: d.update(codec="zstd"), "--set codec=zstd"),
        (lambda d: d.update(provider="rocksdb"), "--provider rocksdb"),
        (lambda d: d["operators"][0].update(partitions=9), "--partitions 9"),
    ],
)
def test_a_setting_without_effect_is_a_note_with_the_command_that_changes_it(edit: Edit, option: str) -> None:
    (finding,) = compared(document(), lambda d: (d["conf"].clear(), edit(d))).findings
    assert finding.verdict is Verdict.AS_IS
    assert finding.fix.endswith(f"ttlsnap migrate CHECKPOINT {option}")


def test_the_longest_possible_ttl_is_reported() -> None:
    old = kept()["tws-ttl-longer.old"]

    def edit(d: dict[str, Any]) -> None:
        for operator in d["operators"]:
            for store in operator["stores"]:
                for state in store["states"]:
                    if state["ttl_ms"] is not None:
                        state["ttl_ms"] = (1 << 63) - 1

    (finding,) = (f for f in compared(old, edit).findings if f.code == "ttl-longer")
    assert finding.new == "9223372036854775807ms"


@pytest.mark.parametrize("kind", [{"type": "array"}, {"type": "map", "keyType": "string"}])
def test_a_contract_with_an_incomplete_type_is_refused(kind: Any) -> None:
    with pytest.raises(UsageError, match="is not a contract"):
        compared(document(), typed("value", kind))


TABLE = {"name": "amount", "type": "long", "nullable": True, "metadata": {}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "double"}, {"type": "long"}),
        ({"type": "float"}, {"type": "integer"}),
        ({"type": "string"}, {"type": struct("a")}),
        ({"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}}, {}),
        ({"metadata": {"delta.generationExpression": "other"}}, {}),
        ({"name": "straße"}, {"name": "strasse"}),
    ],
)
def test_a_changed_column_of_a_table_is_not_as_is(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy.deepcopy(read_observed()["table-same"]["contracts"][0])
    before["columns"].append({**TABLE, "name": "extra", **old})
    after = {**before, "columns": [*before["columns"][:-1], {**TABLE, "name": "extra", **new}]}
    report = compare(*(parse_contract(json.dumps(d), "it") for d in (before, after)))
    assert report.verdict.rank > Verdict.AS_IS.rank, report.findings


def test_append_only_is_found_in_any_letter_case() -> None:
    before = copy.deepcopy(read_observed()["table-same"]["contracts"][0])
    before["properties"]["delta.appendOnly"] = "TRUE"
    after = read_observed()["table-same"]["contracts"][1]
    report = compare(*(parse_contract(json.dumps(d), "it") for d in (before, after)))
    assert [finding.code for finding in report.findings] == ["table-append-only"]


def test_the_contract_of_a_query_is_parsed_as_one() -> None:
    assert isinstance(parse_contract(json.dumps(document()), "it"), Contract)


JOIN = "join-sides-same-types-rocksdb.old"


def test_a_semi_join_that_becomes_an_inner_join_is_incompatible() -> None:
    old = copy.deepcopy(kept()[JOIN])
    plan = old["operators"][0]["plan"]
    plan[plan.index("join Inner")] = "join LeftSemi"
    report = compared(old, lambda d: d["operators"][0].update(plan=kept()[JOIN]["operators"][0]["plan"]))
    assert report.verdict is Verdict.INCOMPATIBLE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("aggregate sum(price)", FROM), ("aggregate sum(price)", "through MapInPandas", FROM)),
        (("aggregate sum(price)", "through Join", FROM), ("aggregate sum(price)", FROM)),
        (("group by ts", FROM), ("group by cast(cast(ts as bigint) as timestamp)", FROM)),
        (("group by user", FROM), ("group by cast(cast(user as bigint) as string)", FROM)),
        (("aggregate max(price)", FROM), ("aggregate max(cast(cast(price as bigint) as double))", FROM)),
        (("watermark ts, 1 minutes", FROM), ("watermark other, 1 minutes", FROM)),
        (("group by window(ts, 1 hours)", FROM), ("group by window(ts, 1 minutes)", FROM)),
    ],
)
def test_a_change_deeper_in_the_plan_is_not_as_is(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    document_of = document(plan=["group by user", *old])
    assert compared(document_of, planned("group by user", *new)).verdict.rank > Verdict.AS_IS.rank
    # A rename of a column must not match a unit of time.
    renamed = {"hours": "minutes"}
    assert compared(document_of, planned("group by user", *new), renamed=renamed).verdict.rank > Verdict.AS_IS.rank


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("input a = amount", "input b = price"), ("input b = price", "input a = amount")),
        (("input a", "input b"), ("input a",)),
        (("input a", "input b"), ("input c", "input a")),
        (("input v = cast(amount as bigint)",), ("input v = amount",)),
        (("input v = amount",), ("input v = cast(amount as string)",)),
        (("input amount", FROM), ("input amount", FROM.replace("amount bigint", "amount double"))),
    ],
)
def test_other_inputs_of_functions_are_unknown(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    report = compared(document(plan=["group by user", *old, FROM]), planned("group by user", *new, FROM))
    assert report.verdict is Verdict.UNKNOWN


def test_a_removed_function_is_unknown() -> None:
    old = copy.deepcopy(kept()["pandas-body.new"])
    assert old["operators"][0]["functions"]
    report = compared(old, lambda d: d["operators"][0].update(functions={}))
    assert [f.code for f in report.findings if f.verdict is Verdict.UNKNOWN] == ["function-changed"]


def test_an_operator_without_a_name_takes_its_kind_from_the_new_contract() -> None:
    old = copy.deepcopy(kept()["within-delay-longer.new"])
    old["operators"][0]["name"] = None

    def edit(d: dict[str, Any]) -> None:
        plan = d["operators"][0]["plan"]
        d["operators"][0]["name"] = "dedupeWithinWatermark"
        place = next(place for place, line in enumerate(plan) if line.startswith("watermark "))
        plan[place] = plan[place].rpartition(", ")[0] + ", 7 days"

    assert compared(old, edit).verdict is Verdict.UNKNOWN


def tables(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> CheckReport:
    """Compare two tables with the key ``id`` and these columns."""
    made = {**read_observed()["table-same"]["contracts"][0], "key": ["id"], "partition_columns": [], "properties": {}}
    contracts = [{**made, "columns": [{**TABLE, **column} for column in columns]} for columns in (old, new)]
    return compare(*(parse_contract(json.dumps(contract), "it") for contract in contracts))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string"}, {"type": "long"}),
        ({"type": "string"}, {"type": "string", "metadata": {"__COLLATIONS": {"id": "spark.UTF8_LCASE"}}}),
    ],
)
def test_a_retyped_key_of_a_table_is_unknown(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert tables([{"name": "id", **old}], [{"name": "id", **new}]).verdict is Verdict.UNKNOWN


def test_added_and_removed_columns_of_a_table_need_a_migration() -> None:
    ids = {"name": "id"}
    one = tables([ids, {"name": "a"}], [ids, {"name": "b"}, {"name": "c"}])
    two = tables([ids, {"name": "a"}, {"name": "b"}], [ids, {"name": "c"}, {"name": "d"}])
    assert one.verdict is two.verdict is Verdict.AFTER_MIGRATION


def test_removing_a_required_column_of_a_table_needs_a_migration() -> None:
    report = tables([{"name": "id"}, {"name": "a", "nullable": False}], [{"name": "id"}])
    (found,) = report.findings
    assert (found.verdict, "DROP NOT NULL" in found.fix) == (Verdict.AFTER_MIGRATION, True)


def edited(name: str, edit: Edit) -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(kept()[name])
    edit(found)
    return found


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (["clicks: a string", "views: a string"], ["views: a string", "clicks: a string"], Verdict.INCOMPATIBLE),
        (["clicks: a string"], ["other_topic: a string"], Verdict.UNKNOWN),
        (["clicks: a string"], ["a string"], Verdict.UNKNOWN),
        (["clicks: a string"], ["clicks: a string, b int"], Verdict.AS_IS),
    ],
)
def test_a_change_of_the_sources_has_its_verdict(old: list[str], new: list[str], verdict: Verdict) -> None:
    before = edited(BASE, lambda d: d.update(reads=old, sources=len(old)))
    assert compared(before, lambda d: d.update(reads=new)).verdict is verdict


@pytest.mark.parametrize(("old", "new"), [("a string", "in: a string"), ("in: a string", "a string")])
def test_a_source_with_a_name_on_one_side_only_asks_for_the_name(old: str, new: str) -> None:
    (found,) = compared(edited(BASE, lambda d: d.update(reads=[old])), lambda d: d.update(reads=[new])).findings
    assert (found.code, found.verdict, "--schema NAME=SCHEMA" in found.fix) == ("sources", Verdict.UNKNOWN, True)


def test_sources_missing_from_one_contract_are_reported_as_not_compared() -> None:
    assert any("the sources and their order" in line for line in compared(document(), lambda d: d.pop("reads")).unseen)


SUM, UNION = ("group by user", "aggregate sum(amount)"), "through Union"


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((UNION, "union amount = price"), (UNION, "union amount = tax"), Verdict.INCOMPATIBLE),
        ((UNION, "union amount = price"), (UNION,), Verdict.INCOMPATIBLE),
        ((UNION,), (UNION, "union amount = price"), Verdict.INCOMPATIBLE),
        ((), (UNION, "union amount = price"), Verdict.UNKNOWN),
        ((UNION, "union price = tax"), (UNION, "union price = errors"), Verdict.AS_IS),
        (("through MapInPandas of user, price",), ("through MapInPandas of user, tax",), Verdict.UNKNOWN),
        (("through MapInPandas of user, price",), ("through MapInPandas of user",), Verdict.UNKNOWN),
        (("through MapInPandas of user",), ("through MapInPandas of user, price",), Verdict.AS_IS),
        (("through Join Inner where (user = name)",), ("through Join LeftOuter where (user = name)",), Verdict.UNKNOWN),
        (("through Join Inner where (user = name)",), ("through Join Inner where (user = other)",), Verdict.UNKNOWN),
    ],
)
def test_a_change_on_the_way_to_the_state_has_its_verdict(
    old: tuple[str, ...], new: tuple[str, ...], verdict: Verdict
) -> None:
    assert compared(document(plan=[*SUM, *old, FROM]), planned(*SUM, *new, FROM)).verdict is verdict


@pytest.mark.parametrize(
    ("old", "new", "mode", "verdict"),
    [
        ("first(amount, false)", "last(amount, false)", "update", Verdict.AS_IS),
        ("first(amount, false)", "last(amount, false)", "append", Verdict.INCOMPATIBLE),
        ("first(amount, false)", "last(amount, false)", "complete", Verdict.INCOMPATIBLE),
        ("first(amount, true)", "last(amount, true)", "update", Verdict.INCOMPATIBLE),
        ("last(amount, false)", "first(amount, false)", "update", Verdict.INCOMPATIBLE),
        ("sum(amount)", "sum(coalesce(amount, 0))", "update", Verdict.AS_IS),
        ("sum(amount)", "sum(coalesce(amount, 0))", "complete", Verdict.UNKNOWN),
        ("sum(amount)", "sum(coalesce(amount, 1))", "update", Verdict.UNKNOWN),
        ("sum(coalesce(amount, 0))", "sum(amount)", "update", Verdict.UNKNOWN),
        ("count(1)", "count(amount)", "update", Verdict.UNKNOWN),
        ("count(amount)", "count(1)", "update", Verdict.UNKNOWN),
    ],
)
def test_an_aggregate_that_reuses_a_buffer_has_its_verdict(old: str, new: str, mode: str, verdict: Verdict) -> None:
    before = document(plan=["group by user", f"aggregate {old}", FROM])
    before["output_mode"] = mode
    assert compared(before, planned("group by user", f"aggregate {new}", FROM)).verdict is verdict


def test_swapped_operators_are_found_beside_another_change() -> None:
    old = kept()["way-firsts-filtered.old"]

    def swap(d: dict[str, Any]) -> None:
        one, two = d["operators"]
        one["plan"], two["plan"] = [*two["plan"], "filter (amount > 3)"], one["plan"]

    (found,) = (f for f in compared(old, swap).findings if f.code == "operators-reordered")
    assert found.verdict is Verdict.UNKNOWN
    assert compared(old, lambda d: d["operators"][0]["plan"].append("filter (amount > 3)")).verdict is Verdict.AS_IS


def test_swapped_sides_are_found_beside_another_change() -> None:
    old = kept()[JOIN]

    def turn(d: dict[str, Any]) -> None:
        turned = {"left: ": "right: ", "right: ": "left: "}
        plan = [line.replace(head, turned[head], 1) for line in d["operators"][0]["plan"]
                for head in [next((h for h in turned if line.startswith(h)), "left: ")]]  # fmt: skip
        d["operators"][0]["plan"] = [*plan, "left: filter (l_amount > 3)"]

    assert "join-sides" in {f.code for f in compared(old, turn).findings if f.verdict is Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("key", "verdict"), [("cast(ts as date)", Verdict.INCOMPATIBLE), ("user", Verdict.UNKNOWN)]
)  # fmt: skip
def test_another_time_zone_is_incompatible_if_the_key_depends_on_it(key: str, verdict: Verdict) -> None:
    zone = "spark.sql.session.timeZone"
    old = document(plan=[f"group by {key}", "aggregate sum(amount)", FROM])
    old["conf"][zone] = "UTC"
    report = compared(old, lambda d: d["conf"].update({zone: "Europe/Rome"}))
    assert (report.verdict, [f.code for f in report.findings]) == (verdict, ["time-zone"])


def test_swapped_field_names_with_the_same_code_are_unknown() -> None:
    report = compare(
        *(parse_contract(json.dumps(kept()[f"tws-field-names-swapped.{side}"]), "it") for side in ("old", "new"))
    )
    assert [(f.code, f.verdict) for f in report.findings] == [("values-swapped", Verdict.UNKNOWN)]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("float", "double", Verdict.AS_IS),
        ("integer", "double", Verdict.AS_IS),
        ("integer", "float", Verdict.UNKNOWN),
        ("long", "double", Verdict.UNKNOWN),
        ("long", "integer", Verdict.INCOMPATIBLE),
        (array("integer"), array("long"), Verdict.AS_IS),
        (array("long"), array("integer"), Verdict.INCOMPATIBLE),
        (mapped("float"), mapped("double"), Verdict.AS_IS),
        (array("long"), array("double"), Verdict.UNKNOWN),
    ],
)
def test_widened_numbers_in_avro_have_their_verdicts(old: Any, new: Any, verdict: Verdict) -> None:
    def of(kind: Any) -> Edit:
        def edit(d: dict[str, Any]) -> None:
            (state,) = (s for o in d["operators"] for st in o["stores"] for s in st["states"] if s["name"] == "kept")
            state["value"][0].update(type=kind)

        return edit

    assert compared(edited("tws-field-narrowed-avro.old", of(old)), of(new)).verdict is verdict


def test_an_incomplete_digest_is_reported_as_not_compared() -> None:
    old = edited("pandas-body.new", lambda d: d["operators"][0].update(functions={"step": {"body": "0123?"}}))
    report = compared(old, lambda d: None)
    assert (report.verdict, ["all of step" in line for line in report.unseen]) == (Verdict.AS_IS, [True])


def test_a_column_renamed_in_one_of_two_sources_is_as_is() -> None:
    sources = ["from clicks: user string", "from views: user string"]
    old = document(plan=["group by user", "left user", "right user", *sources])
    renamed = ["group by client", "left client", "right user", "from clicks: client string", sources[1]]
    assert compared(old, planned(*renamed), renamed={"user": "client"}).verdict is Verdict.AS_IS


@pytest.mark.parametrize(
    ("key", "value", "source"),
    [
        (("hash(amount, 42)", "hash(cast(amount as string), 42)"), None, "user string, amount bigint"),
        (("lower(user)", "lower(cast(user as string))"), None, "user binary, amount bigint"),
        (None, ("sum(length(value))", "sum(length(cast(value as string)))"), "value binary"),
        (None, ("sum((price > n))", "sum((cast(price as bigint) > n))"), "price double, n bigint"),
        (None, ("count(s)", "count(cast(s as double))"), "s string"),
    ],
)
def test_an_inner_cast_is_unknown(key: tuple[str, str] | None, value: tuple[str, str] | None, source: str) -> None:
    plans = [
        (f"group by {key[n] if key else 'user'}", f"aggregate {value[n] if value else 'sum(amount)'}", f"from {source}")
        for n in (0, 1)
    ]
    report = compared(document(plan=list(plans[0])), planned(*plans[1]))
    (finding,) = report.findings
    more = compared(document(plan=list(plans[0])), planned(*plans[1][:-1], f"{plans[1][-1]}, more string"))
    assert more.findings == report.findings
    assert (finding.code, report.verdict) == ("key-changed" if key else "aggregate-changed", Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("cast(user as string)", "user"),
        ("max(cast(amount as double))", "max(amount)"),
    ],
)
def test_an_outer_cast_is_as_is(was: str, now: str) -> None:
    def lines(text: str) -> list[str]:
        return ["group by user" if "(" in text[:4] else f"group by {text}", f"aggregate {text}", "from user string"]

    assert compared(document(plan=lines(was)), planned(*lines(now))).verdict is Verdict.AS_IS


@pytest.mark.parametrize(
    ("old", "new"),
    [("filter (amount >= 100)", "filter (amount < 100)"), ("through Sample 0.5", "through Sample 0.25")],
)
def test_swapped_sides_that_differ_only_in_a_sign_are_incompatible(old: str, new: str) -> None:
    def lines(left: str, right: str) -> list[str]:
        source = "from user string, amount bigint"
        sides = [f"left: {left}", f"left: {source}", f"right: {right}", f"right: {source}"]
        return ["join Inner", "on user = user", *sides]

    join = document("join-full-to-inner.old")
    join["operators"][0]["plan"] = lines(old, new)
    report = compared(join, planned(*lines(new, old)))
    assert ("join-sides", Verdict.INCOMPATIBLE) in {(finding.code, finding.verdict) for finding in report.findings}


@pytest.mark.parametrize(
    "renamed", [{"amount": "gross"}, {"amount": "price", "price": "amount"}], ids=["to what came", "exchanged"]
)
def test_an_old_column_name_after_its_rename_is_incompatible(renamed: dict[str, str]) -> None:
    plan = ["group by user", "aggregate sum(amount)", "from user string, amount bigint, price bigint"]
    new = [*plan[:2], f"{plan[2]}, gross bigint"]
    assert compared(document(plan=plan), planned(*new), renamed=renamed).verdict is Verdict.INCOMPATIBLE


def test_reordered_functions_are_unknown() -> None:
    through = [f"through MapInPandas {name} of user, amount" for name in ("f", "g")]
    plan = ["group by user", "aggregate sum(amount)", *through, "from user string, amount bigint"]
    report = compared(document(plan=plan), planned(*plan[:2], *through[::-1], plan[-1]))
    assert [(finding.code, finding.verdict) for finding in report.findings] == [("upstream-changed", Verdict.UNKNOWN)]


def test_a_renamed_function_is_as_is_in_the_plan_too() -> None:
    def lines(name: str) -> list[str]:
        through = [f"through MapInPandas {name} of user, amount"]
        return [f"group by {name}(user)", "aggregate sum(amount)", *through, "from user string, amount bigint"]

    old = document(plan=lines("f"))
    old["operators"][0]["functions"] = {"f": {"body": "0123456789abcdef"}}

    def rename(contract: dict[str, Any]) -> None:
        contract["operators"][0].update(plan=lines("clean"), functions={"clean": {"body": "0123456789abcdef"}})

    report = compared(old, rename)
    assert [(finding.code, finding.verdict) for finding in report.findings] == [("function-renamed", Verdict.AS_IS)]
