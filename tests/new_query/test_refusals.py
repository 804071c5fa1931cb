"""Refusals of schema migrations, and the answers that decide what two contracts leave open."""

from __future__ import annotations

import datetime
import gzip
import json
import linecache
import math
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import history, open_checkpoint, rollback
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.errors import UsageError
from ttlsnap.new_query.answers import Answers
from ttlsnap.new_query.plan import find_evolution
from ttlsnap.schema.literals import parse_literal
from ttlsnap.schema.types import DoubleType, StructField, StructType, TimestampType
from ttlsnap.storage.local import LocalDirectory

from ..check.quality import KEPT
from ..cli.running import Ttlsnap
from ..migration.entries import rows_of
from ..publishing.trees import tree
from ..samples import bytes_of, sample
from .contracts import JOIN, PLAIN, WITHIN, Change, Document, change_everything, column, contract, left, states


def add(document: Document, *, nullable: bool = True) -> None:
    left(document).insert(1, column("extra", "integer", nullable=nullable))


def rename(document: Document) -> None:
    left(document)[2]["name"] = "worth"


def retype(kind: Any) -> Change:
    def change(document: Document) -> None:
        left(document)[2]["type"] = kind

    return change


def reverse_operators(document: Document) -> None:
    document["operators"].append({**document["operators"][0], "id": 1, "name": "dedupe"})


def drop_key(document: Document) -> None:
    for state in states(document):
        del state["key"][0]


def widen_index(document: Document) -> None:
    for state in states(document):
        state["key"][0]["type"] = "binary"


def nothing(document: Document) -> None:
    pass


WRONG: list[tuple[str, Change, list[str], int, str]] = [
    (JOIN, reverse_operators, [], 3, "the operators were symmetricHashJoin, and are symmetricHashJoin, dedupe"),
    (JOIN, lambda d: add(d, nullable=False), [], 3, "it may not be null: add --fill value.extra=LITERAL"),
    (JOIN, lambda d: add(d, nullable=False), ["--fill", "value.extra=null"], 2, "does not allow null"),
    (JOIN, add, ["--fill", "value.extra=many"], 2, "--fill value.extra=many: this is not a int"),
    (JOIN, add, ["--fill", "value.extra=4294967296"], 2, "this is not a int"),
    (JOIN, add, ["--fill", "value.extra=true"], 2, "this is not a int"),
    (JOIN, add, ["--fill", "value.other=1"], 2, "value.other is not a field that differs between the two queries"),
    (JOIN, add, ["--drop", "value.nothing"], 2, "value.nothing is not a field that differs between the two queries"),
    (JOIN, add, ["--swap", "value.at,value.nothing"], 2, "is not a field that differs between the two queries"),
    (JOIN, add, ["--swap", "value.at"], 2, "--swap is FIELD,FIELD"),
    (JOIN, rename, [], 3, "left_value is gone, and worth is new: is it the same?"),
    (JOIN, retype("binary"), [], 3, "it was bigint and is binary, which not every old value is"),
    (JOIN, retype({"type": "struct", "fields": [column("x")]}), [], 3, "and is struct<x:string>"),
    (JOIN, retype("integer"), [], 3, "If all of its values fit, add --narrow"),
    (JOIN, drop_key, [], 3, "the join has other keys, which buffered rows do not have"),
    (WITHIN, widen_index, [], 3, "it was string and is binary"),
    (
        PLAIN,
        lambda d: states(d)[0]["value"].append(column("count", "long")),
        [],
        3,
        "ttlsnap contract CHECKPOINT --with",
    ),
    (JOIN, nothing, ["--from", "other.json"], 2, "other.json does not exist"),
]


@pytest.mark.parametrize(("name", "change", "words", "code", "message"), WRONG)
def test_what_is_not_decided_is_refused(
    ttlsnap: Ttlsnap,
    tmp_path: Path,
    name: str,
    change: Change,
    words: list[str],
    code: int,
    message: str,
) -> None:
    target = sample(name, tmp_path)
    (tmp_path / "new.json").write_text(json.dumps(contract(target, change)))
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--to", tmp_path / "new.json", "--stopped", "--yes", *words)
    assert (ended.code, message in " ".join(ended.err.split())) == (code, True), ended.err
    assert bytes_of(target) == before


def test_an_aggregate_cannot_be_filled() -> None:
    kept = json.loads(gzip.decompress(KEPT.read_bytes()))["contracts"]
    old, new = (parse_contract(json.dumps(kept[f"agg-avg-to-sum-and-count.{side}"]), "it") for side in ("old", "new"))
    assert isinstance(old, Contract) and isinstance(new, Contract)
    told = "These differ: sum(price), count(1), avg(price). --fill is only for columns. A new aggregate begins without "
    for name in ("value.sum", "sum(price)", "0.default.default.value"):
        with pytest.raises(UsageError, match=re.escape(told)):
            find_evolution(old, new, Answers(fills={name: "0"}))


def test_an_answer_needs_a_new_query(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    for words in (["--narrow"], ["--fill", "value.x=1"], ["--rename", "a=b"], ["--from", "old.json"]):
        ended = ttlsnap("migrate", target, "--partitions", "3", *words)
        assert ended.code == 2 and f"{words[0]} needs --to" in ended.err


def test_the_same_schema_changes_nothing(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    (tmp_path / "new.json").write_text(json.dumps(contract(target, nothing)))
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--to", tmp_path / "new.json", "--stopped")
    assert ended.code == 0 and "Nothing was changed" in ended.out
    assert bytes_of(target) == before


def test_values_that_are_dropped_need_a_yes(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    (tmp_path / "new.json").write_text(json.dumps(contract(target, lambda d: left(d).pop(2))))
    before = bytes_of(target)
    words = ["migrate", target, "--to", tmp_path / "new.json", "--stopped"]
    ended = ttlsnap(*words)
    assert (
        ended.code == 4
        and "drop 0.left-keyWithIndexToValue.default.value.left_value: bigint To agree, add --yes"
        in " ".join(ended.err.split())
    )
    dry, agreed = ttlsnap(*words, "--dry-run"), ttlsnap(*words, "--dry-run", "--yes")
    assert (dry.code, agreed.code) == (0, 0)
    assert "A run asks before that. If nobody can be asked, add --yes" in dry.err
    assert "Without --dry-run, ttlsnap publishes this" not in dry.out
    assert "this can drop values" not in agreed.err
    assert bytes_of(target) == before
    assert ttlsnap(*words, "--yes").code == 0


ANSWERS = ["--rename", "left_value=worth", "--fill", "value.extra=7", "--narrow"]


def test_a_migrated_state_has_the_new_schema_and_comes_back(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    new = contract(target, change_everything)
    (tmp_path / "new.json").write_text(json.dumps(new))
    before, rows = tree(target), rows_of(target)
    words = ["migrate", target, "--to", tmp_path / "new.json", "--stopped", *ANSWERS]
    document = json.loads(ttlsnap(*words, "--format", "json").out)
    assert [(step["change"], step["field"], step["old"], step["new"]) for step in document["plan"]] == [
        ("add", "value.extra", None, "int = 7"),
        ("rename", "value.worth", "left_value", "worth"),
        ("narrow", "value.worth", "bigint", "int"),
        ("reorder", "value", "key, at, left_value, matched", "at, key, left_value, matched"),
    ]
    assert {
        state["name"]: state["value"]
        for state in contract_of_checkpoint(str(target)).to_json()["operators"][0]["stores"][1]["states"]
    } == {"default": left(new)}
    after = rows_of(target)
    changed = {entry for entry in after if entry[0] == "left-keyWithIndexToValue"}
    assert {entry for entry in after if entry not in changed} == {
        entry for entry in rows if entry[0] != "left-keyWithIndexToValue"
    }
    assert {entry[2] for entry in changed} == {entry[2] for entry in rows if entry[0] == "left-keyWithIndexToValue"}
    assert (
        open_checkpoint(LocalDirectory(str(target))).batch.id
        == json.loads(ttlsnap("inspect", target, "--format", "json").out)["batch"]
    )
    rollback(str(target), stopped=True)
    assert tree(target) == before


def test_a_plan_is_applied_only_as_it_was_reviewed(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target, other = sample(JOIN, tmp_path), sample(JOIN, tmp_path / "other")
    (tmp_path / "new.json").write_text(json.dumps(contract(target, change_everything)))
    before, plan = bytes_of(target), tmp_path / "plan.json"
    words = ["--to", tmp_path / "new.json", "--stopped", "--rename", "left_value=worth", "--narrow"]
    filled = [*words, "--fill", "value.extra=7"]
    assert "The plan is in" in ttlsnap("migrate", target, *filled, "--plan-out", plan).out
    assert bytes_of(target) == before
    wrong = ttlsnap("migrate", other, *filled, "--apply", plan)
    assert wrong.code == 2 and "the plan is for" in wrong.err
    changed = ttlsnap("migrate", target, *words, "--fill", "value.extra=8", "--apply", plan)
    assert changed.code == 4 and "its steps differ from the plan" in " ".join(changed.err.split())
    more = ttlsnap("migrate", target, *filled, "--partitions", "3", "--apply", plan)
    assert more.code == 4
    for text in ("{}", '{"version": 2}', "no plan", '{"version": 1, "kind": "compact"}'):
        (tmp_path / "wrong.json").write_text(text)
        assert ttlsnap("migrate", target, *filled, "--apply", tmp_path / "wrong.json").code in (2, 3)
    assert ttlsnap("migrate", target, *filled, "--apply", plan, "--dry-run").code == 2
    assert bytes_of(target) == before
    document = json.loads(plan.read_text())
    (tmp_path / "older.json").write_text(json.dumps({**document, "command": None}))
    alone = ttlsnap("migrate", target, "--apply", tmp_path / "older.json")
    assert alone.code == 2 and "Repeat that command, with --apply for --plan-out" in " ".join(alone.err.split())
    assert ttlsnap("migrate", target, *filled, "--apply", plan).code == 0
    again = ttlsnap("migrate", target, *filled, "--apply", plan)
    run = history(str(target))[-1].run
    assert again.code != 0
    assert f"this plan was already published, as run {run}. There is nothing to do" in " ".join(again.err.split())


def test_a_plan_is_applied_only_with_its_transformers(
    ttlsnap: Ttlsnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    before, plan, code = bytes_of(target), tmp_path / "plan.json", tmp_path / "halves.py"
    monkeypatch.syspath_prepend(tmp_path)
    words = ["migrate", target, "--partitions", "3", "--stopped", "--max-drop", "100%"]

    def write(number: int, kept: str) -> None:
        code.write_text(f"from ttlsnap import Drop, Keep\ndef f(key, value):\n    return {kept}\n")
        sys.modules.pop("halves", None)
        linecache.clearcache()
        os.utime(code, (number, number))  # otherwise Python would reuse the compiled file

    # Both keep every second key, so the numbers are the same.
    write(1, "Keep() if int(key['key'][-1]) % 2 else Drop()")
    ended = ttlsnap(*words, "--transformer", "halves:f", "--plan-out", plan)
    assert ended.code == 0, ended.err
    write(2, "Drop() if int(key['key'][-1]) % 2 else Keep()")
    ended = ttlsnap(*words, "--transformer", "halves:f", "--apply", plan)
    assert (ended.code, bytes_of(target)) == (4, before)
    assert "their options or their code have changed" in " ".join(ended.err.split())
    assert ttlsnap(*words, "--ttl", "1000d", "--timestamp", "value.max", "--plan-out", plan).code == 0
    assert ttlsnap(*words, "--ttl", "1001d", "--timestamp", "value.max", "--apply", plan).code == 4
    for option in (["--no-planned-batch"], ["--output", str(tmp_path / "copy")], ["--operator", "0"]):
        ended = ttlsnap(*words, "--ttl", "1000d", "--timestamp", "value.max", *option, "--apply", plan)
        assert ended.code == 4 and f"another value of {option[0]}" in " ".join(ended.err.split()), ended
    assert bytes_of(target) == before
    ended = ttlsnap(*words, "--ttl", "1000d", "--timestamp", "value.max", "--apply", plan)
    assert ended.code == 0, ended.err


def test_values_that_do_not_fit_are_counted(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(WITHIN, tmp_path)
    (tmp_path / "new.json").write_text(
        json.dumps(contract(target, lambda d: states(d)[0]["value"][0].update(type="short")))
    )
    number = rows_of(target).total()
    before = bytes_of(target)
    for more in ([], ["--partitions", "3"]):
        ended = ttlsnap("migrate", target, "--to", tmp_path / "new.json", "--stopped", "--narrow", *more)
        assert ended.code == 4
        told = f"{number} of 0.default.default.value.expiresAtMicros. Nothing was changed"
        assert told in " ".join(ended.err.split())
        assert bytes_of(target) == before


def test_one_run_changes_schema_partitions_and_store(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    one, two = sample(JOIN, tmp_path), sample(JOIN, tmp_path / "two")
    (tmp_path / "new.json").write_text(json.dumps(contract(one, change_everything)))
    to = ["--to", tmp_path / "new.json", "--stopped", *ANSWERS]
    others = ["--partitions", "3", "--provider", "rocksdb", "--stopped"]
    assert ttlsnap("migrate", one, *to, *others).code == 0
    assert ttlsnap("migrate", two, *to).code == 0
    assert ttlsnap("migrate", two, *others).code == 0
    assert rows_of(one) == rows_of(two)
    assert contract_of_checkpoint(str(one)) == contract_of_checkpoint(str(two))


def test_the_command_of_check_makes_the_state_fit(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    (tmp_path / "new.json").write_text(json.dumps(contract(target, lambda d: add(d, nullable=False))))
    found = ttlsnap("check", target, tmp_path / "new.json", "--format", "json")
    document = json.loads(found.out)
    assert (found.code, document["verdict"]) == (1, "after_migration")
    assert document["next"] == f"ttlsnap migrate {target} --to {tmp_path}/new.json --fill value.extra=LITERAL"
    (finding,) = (one for one in document["findings"] if one["verdict"] == "after_migration")
    step = {"operator": 0, "store": "left-keyWithIndexToValue", "state": "default", "field": "value.extra"}
    assert finding["migration"] == {"change": "add", **step, "old": None, "new": "int = LITERAL"}
    words = shlex.split(document["next"].replace("LITERAL", "0"))[1:]
    assert ttlsnap(*words, "--stopped").code == 0
    again = ttlsnap("check", target, tmp_path / "new.json", "--format", "json")
    assert (again.code, json.loads(again.out)["verdict"], json.loads(again.out)["next"]) == (0, "as_is", None)


def test_check_names_no_command_for_what_nothing_repairs(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    for change in (drop_key, rename, retype("binary")):
        (tmp_path / "new.json").write_text(json.dumps(contract(target, change)))
        found = ttlsnap("check", target, tmp_path / "new.json", "--format", "json")
        assert found.code in (1, 3) and json.loads(found.out)["next"] is None


def test_a_migration_before_an_uncommitted_batch_comes_back(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("uncommitted-batch-4.2", tmp_path)
    new = contract(target, lambda d: states(d)[0]["key"].append(column("extra")))
    (tmp_path / "new.json").write_text(json.dumps(new))
    before = tree(target)
    assert ttlsnap("migrate", target, "--to", tmp_path / "new.json", "--stopped", "--fill", "key.extra=x").code == 0
    assert tree(target) != before
    assert ttlsnap("rollback", target, "--stopped").code == 0
    assert tree(target) == before


@pytest.mark.parametrize(("text", "value"), [("-0.0", 0.0), ("1e300", 1e300), ("2", 2.0)])
def test_a_number_is_filled_as_spark_has_it_in_keys(text: str, value: float) -> None:
    found = parse_literal(text, DoubleType(), "key.x")
    assert (found, math.copysign(1, found)) == (value, 1)


def test_a_timestamp_without_a_zone_is_not_guessed() -> None:
    for text in ("2026-10-24", "2026-10-24T12:00"):
        with pytest.raises(UsageError, match=r"this is not a timestamp, such as 2026-01-31T00:00:00Z"):
            parse_literal(text, TimestampType(), "--fill key.x")
        assert parse_literal(text, TimestampType(), "--where", assume_utc=True).tzinfo is not None


def test_any_now_is_accepted_if_no_ttl_changes(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    (tmp_path / "new.json").write_text(json.dumps(contract(target, lambda d: add(d, nullable=True))))
    ended = ttlsnap("migrate", target, "--to", tmp_path / "new.json", "--dry-run", "--now", "2000-01-01")
    assert ended.code == 0, ended.err


def test_a_struct_is_an_object_of_literals() -> None:
    window = StructType((StructField("start", TimestampType(), False), StructField("end", TimestampType(), False)))
    found = parse_literal(
        '{"start": "2026-01-31T00:00:00Z", "end": "2026-02-01T00:00:00Z"}', window, "--fill key.window"
    )
    assert found["end"] - found["start"] == datetime.timedelta(days=1)
    for wrong in ("2026-01-31", '{"start": "2026-01-31T00:00:00Z"}', '{"start": 1, "end": 2, "more": 3}', "[1, 2]"):
        with pytest.raises(UsageError, match=r'such as \{"start": "2026-01-31T00:00:00Z", "end": "2026-'):
            parse_literal(wrong, window, "--fill key.window")
    with pytest.raises(UsageError, match=r"--fill key.window, field end: this is not a timestamp, such as 2026-01-31T"):
        parse_literal('{"start": "2026-01-31T00:00:00Z", "end": "soon"}', window, "--fill key.window")
