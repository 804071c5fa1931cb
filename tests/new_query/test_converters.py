"""A user's own code gives values in the schema of the new query."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from ttlsnap import SparkEngine, migrate
from ttlsnap.contract import Contract, contract_of_checkpoint, parse_contract
from ttlsnap.new_query.query import NewQuery

from ..check.observe import normal
from ..check.quality import contracts_of
from ..cli.running import Ttlsnap
from ..judge.spark import Judge
from ..migration.entries import field_of, rows_of
from ..samples import bytes_of, sample
from . import conversions
from .contracts import JOIN, Document, column, contract, left, named, states
from .conversions import Batches, as_texts
from .migrating import Migrator, case

PLACE = "tests.new_query.conversions"


def other_fields(document: Document) -> None:
    left(document)[1:3] = [column("hour", "integer", nullable=False), column("worth")]


def test_the_values_are_those_of_the_function(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    found = []
    for name in ("shortened", "Batches"):
        target = sample(JOIN, tmp_path / name)
        (new := tmp_path / "new.json").write_text(json.dumps(contract(target, other_fields)))
        assert ttlsnap("migrate", target, "--to", new, "--stopped").code == 3
        words = ["migrate", target, "--to", new, "--transformer", f"{PLACE}:{name}", "--stopped", "--format", "json"]
        document = json.loads(ttlsnap(*words).out)
        assert [(step["change"], step["field"]) for step in document["plan"]] == [("transform", "value")]
        assert states(contract_of_checkpoint(str(target)).to_json(), "left-keyWithIndex")[0]["value"] == left(
            json.loads(new.read_text())
        )
        found.append(rows_of(target))
        assert ttlsnap("check", target, new).code == 0
    assert found[0] == found[1]


def test_dropping_and_converting_run_in_one_pass(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    one, two = (sample(JOIN, tmp_path / name) for name in ("one", "two"))
    (new := tmp_path / "new.json").write_text(json.dumps(contract(one, other_fields)))
    drop, convert = ["--ttl", "1h"], ["--to", new, "--transformer", f"{PLACE}:Batches"]
    assert ttlsnap("migrate", one, *drop, *convert, "--stopped").code == 0
    assert ttlsnap("compact", two, *drop, "--yes", "--stopped").code == 0
    assert ttlsnap("migrate", two, *convert, "--stopped").code == 0
    assert rows_of(one) == rows_of(two)


def test_expiry_times_are_not_the_functions(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample("lists-4.2", tmp_path)
    moments = field_of(target, "recent", "ttlExpirationMs")
    new = contract(
        target, lambda document: named(document, "recent")["value"][0]["type"]["fields"].append(column("note"))
    )
    (tmp_path / "new.json").write_text(json.dumps(new))
    words = ["--to", tmp_path / "new.json", "--transformer", f"{PLACE}:with_note", "--stopped"]
    ended = ttlsnap("migrate", target, *words)
    assert ended.code == 0, ended.err
    assert field_of(target, "recent", "ttlExpirationMs") == moments
    assert {each["note"] for found in field_of(target, "recent", "value").values() for each in found} == {"-"}
    assert ttlsnap("compact", target, "--ttl", "1ms", "--dry-run").code == 0


WRONG = [
    ("incomplete", [], 2, "the new value lacks value.hour"),
    ("of_another_type", [], 2, "does not fit"),
    ("null", [], 4, "some values do not fit the new schema"),
    ("failing", [], 2, "KeyError"),
    ("Batches", ["--set", "short=true"], 2, "return "),
]


@pytest.mark.parametrize(("name", "words", "code", "message"), WRONG)
def test_wrong_values_change_nothing(
    ttlsnap: Ttlsnap,
    tmp_path: Path,
    name: str,
    words: list[str],
    code: int,
    message: str,
) -> None:
    target = sample(JOIN, tmp_path)
    (new := tmp_path / "new.json").write_text(json.dumps(contract(target, other_fields)))
    before = bytes_of(target)
    ended = ttlsnap("migrate", target, "--to", new, "--transformer", f"{PLACE}:{name}", *words, "--stopped")
    assert (ended.code, message in " ".join(ended.err.split())) == (code, True), ended.err
    assert bytes_of(target) == before


def test_a_converter_needs_a_new_query(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    words = ["--transformer", f"{PLACE}:Batches", "--stopped"]
    assert "needs --to" in ttlsnap("migrate", target, "--partitions", "3", *words).err
    assert "use it with ttlsnap migrate --to" in ttlsnap("compact", target, *words).err


def test_spark_converts_as_the_local_engine_does(spark: object, tmp_path: Path) -> None:
    one, two = (sample(JOIN, tmp_path / name) for name in ("one", "two"))
    made = parse_contract(json.dumps(contract(one, other_fields)), "new")
    assert isinstance(made, Contract)
    new = NewQuery(made, converters=[Batches()])
    register_pickle_by_value(conversions)  # Spark's workers do not find this package
    migrate(str(one), new_query=new, stopped=True)
    migrate(str(two), new_query=new, stopped=True, engine=SparkEngine())
    assert rows_of(one) == rows_of(two)


@pytest.mark.wide
def test_the_new_query_continues_with_converted_values(judge: Judge, tmp_path: Path) -> None:
    from ttlsnap.transform.converters import EntryConverter

    one = case("tws-field-to-string", "transform", ignored=("function-changed",))
    migrator = Migrator(tmp_path, judge)
    checkpoint = migrator.checkpoint_of(one.pair, 0)
    old, new = contracts_of(one.name)
    assert isinstance(old, Contract) and isinstance(new, Contract)
    report = migrator.migrate(str(checkpoint), one, converters=[EntryConverter(as_texts)])
    assert [step["change"] for step in report.plan] == ["transform"]
    assert normal(migrator.resume(one, checkpoint)["rows"]) == one.right()
