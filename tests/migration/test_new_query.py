"""A migration to the schema of a new query: keys are where Spark looks for them, and no value is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ttlsnap import doctor, inspect

from ..cli.running import Ttlsnap
from ..new_query.aggregating import aggregation
from ..new_query.contracts import JOIN, PLAIN, Change, Document, column, contract, left, states
from ..samples import bytes_of, sample


def write_contract(target: Path, change: Change) -> Path:
    """Write the contract of a checkpoint beside it, changed as if another query had made it."""
    path = target.parent / "new.json"
    path.write_text(json.dumps(contract(target, change)))
    return path


def values_of(target: Path, *left_out: str) -> Counter[str]:
    """Return the values of all entries with their keys, without some columns."""
    found = inspect(str(target), entries=10_000).samples or ()
    rows = ({**entry["key"], **entry["value"]} for entry in found)
    return Counter(json.dumps({name: row[name] for name in row if name not in left_out}) for row in rows)


@pytest.mark.parametrize("partitions", [[], ["--partitions", "5"]])
def test_a_key_with_a_new_column_is_in_the_partition_of_its_new_hash(
    ttlsnap: Ttlsnap, tmp_path: Path, partitions: list[str]
) -> None:
    target = sample(PLAIN, tmp_path)
    before = values_of(target)
    new = write_contract(target, lambda document: states(document)[0]["key"].append(column("zone")))
    words = ["migrate", target, "--to", new, "--fill", "key.zone=eu", *partitions, "--stopped", "--yes"]
    ended = ttlsnap(*words)
    assert ended.code == 0, ended.err
    assert values_of(target, "zone") == before
    assert {entry["key"]["zone"] for entry in inspect(str(target), entries=10_000).samples or ()} == {"eu"}
    assert [problem.code for problem in doctor(str(target)).problems if "misplaced" in problem.code] == []


def test_a_field_that_gets_a_number_is_a_warning(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    """A policy with ``value.max`` would be refused in the next night."""
    target = sample(PLAIN, tmp_path)
    aggregates = [("max(at)", "max", "timestamp"), ("count(1)", "count", "long"), ("sum(n)", "sum", "long")]
    for name, added in ("old", []), ("new", [("max(price)", "max", "double")]):
        made = aggregation([("key", "key", "string")], added + aggregates)
        (tmp_path / f"{name}.json").write_text(json.dumps(made.to_json()))
    words = ["--from", tmp_path / "old.json", "--to", tmp_path / "new.json", "--stopped", "--yes"]
    ended = ttlsnap("migrate", target, *words)
    assert ended.code == 0, ended.err
    assert "value.max is now value.max#2. Change policies and commands that name it" in " ".join(ended.err.split())


def test_a_value_that_does_not_fit_its_new_type_stops_the_migration(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    before = bytes_of(target)
    rows = sum(entry["side"] == "left" for entry in inspect(str(target), entries=10_000).samples or ())

    def narrow(document: Document) -> None:
        left(document)[0]["type"] = "integer"  # texts such as key-24 are not numbers

    ended = ttlsnap("migrate", target, "--to", write_contract(target, narrow), "--narrow", "--stopped")
    assert ended.code == 4, ended.err
    assert f"some values do not fit the new schema: {rows} of" in " ".join(ended.err.split())
    assert bytes_of(target) == before
