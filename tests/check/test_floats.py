"""Deduplications by floats: before 4.2, -0.0 and 0.0 were two keys, and each NaN with other bits was one, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ttlsnap import migrate, rollback
from ttlsnap.check import CheckReport, Verdict, check
from ttlsnap.check.state import examine_state
from ttlsnap.cli.app import run
from ttlsnap.contract import contract_of_checkpoint
from ttlsnap.errors import NothingToMigrateError, UsageError

from ..compaction.stories import T, digest, settled
from ..judge.queries import Event, Query
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import narrow
from ..samples import sample

MINUS, ZERO, NAN = 0, 1, 2
FLOATS = Query("dedup_floats")
SET = {"float-keys": "normalized"}


def batch(name: str, *values: int) -> Events:
    return [Event(f"{name}{value}", T, value) for value in values]


def written(judge: Judge, *values: int, version: str = "4.1") -> Checkpoint:
    made = judge.write(FLOATS, [batch("old", *values)], version=version)
    settled(made.path)
    return made


def compared(old: Checkpoint, new: Checkpoint) -> CheckReport:
    contracts = (contract_of_checkpoint(str(one.path)) for one in (old, new))
    return check(*contracts, state=examine_state(str(old.path)))


@pytest.mark.parametrize(
    ("values", "keys", "both"), narrow([((MINUS, NAN, 5), 1, 0), ((MINUS, ZERO, 5), 1, 1), ((ZERO, NAN, 5), 0, 0)])
)
def test_spark_finds_the_keys_after_the_migration(judge: Judge, values: tuple[int, ...], keys: int, both: int) -> None:
    old, new = written(judge, *values), written(judge, 5, version="4.2")
    again = batch("new", *values, 7)
    report = compared(old, new)
    assert [finding.code for finding in report.findings] == (["key-floats"] if keys else [])
    unchanged = judge.copy(old)
    (shown,) = judge.restart(unchanged, [again], version="4.2")
    assert len(shown.rows) == 1 + keys - both  # a new key, and those that Spark does not find
    if not keys:
        return
    assert report.verdict is Verdict.AFTER_MIGRATION
    assert f"does not find {keys} of the keys" in report.findings[0].message
    assert ("has the other form, too" in report.findings[0].message) is bool(both)
    before = digest(old.path)
    migrate(str(old.path), settings=SET, stopped=True)
    assert compared(old, new).findings == ()
    back = judge.copy(old)
    *_, shown = judge.restart(old, [again], version="4.2")
    assert [json.loads(row)["key"] for row in shown.rows] == ["new7"]
    rollback(str(back.path), stopped=True)
    assert {path: found for path, found in digest(back.path).items() if path in before} == before


def test_a_migration_to_a_new_query_normalizes_keys(inputs: Judge, tmp_path: Path) -> None:
    old, new = written(inputs, MINUS, ZERO, 5), written(inputs, 5, version="4.2")
    contract = tmp_path / "new.json"
    contract.write_text(contract_of_checkpoint(str(new.path)).dumps())
    report = compared(old, new)
    assert report.findings[0].migration is not None
    assert run(["migrate", str(old.path), "--to", str(contract), "--stopped"]) == 0
    assert compared(old, new).findings == ()


def test_without_the_state_it_is_unknown_in_both_directions(inputs: Judge) -> None:
    old = contract_of_checkpoint(str(written(inputs, ZERO, NAN, 5).path))
    new = contract_of_checkpoint(str(written(inputs, 5, version="4.2").path))
    for contracts in ((old, new), (new, old)):
        found = [f for f in check(*contracts).findings if f.code == "key-floats"]
        assert [finding.verdict for finding in found] == [Verdict.UNKNOWN]
    assert check(old, old).findings == ()
    state = examine_state(str(written(inputs, 5, version="4.2").path))
    back = check(new, old, state=state).findings
    assert "key-floats" in [finding.code for finding in back]


def test_only_deduplications_by_floats_have_such_keys(tmp_path: Path) -> None:
    target = str(sample("dedup-watermark-4.2", tmp_path))
    with pytest.raises(NothingToMigrateError, match="no deduplication of this query has a float or double in its key"):
        migrate(target, settings=SET, stopped=True)
    with pytest.raises(UsageError, match="float-keys is 'as-they-are'; it must be one of normalized"):
        migrate(target, settings={"float-keys": "as-they-are"}, stopped=True)
