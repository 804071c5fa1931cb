"""Contracts of checkpoints: ttlsnap reads back the documents that it writes, and refuses invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import history
from ttlsnap.check.targets import load_contract
from ttlsnap.cli.app import run
from ttlsnap.contract import contract_of_checkpoint, parse_contract
from ttlsnap.errors import TtlsnapError, UnsupportedError, UsageError
from ttlsnap.versions import VERSION

from ..compaction.stories import copy_all
from ..samples import SAMPLES, bytes_of, sample

ALL = sorted(path.name for path in SAMPLES.iterdir() if (path / "state").is_dir())


@pytest.mark.parametrize("name", ALL)
def test_a_checkpoints_contract_is_read_back_unchanged(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    made = contract_of_checkpoint(str(target))
    assert parse_contract(made.dumps(), "here") == made == load_contract(str(target))
    assert made.dumps() == parse_contract(made.dumps(), "here").dumps()
    assert bytes_of(target) == before


def test_a_checkpoints_contract_has_its_operators_and_states() -> None:
    made = contract_of_checkpoint(str(SAMPLES / "lists-4.2"))
    (operator,) = made.operators
    (store,) = operator.stores
    assert (made.provider, made.spark, made.sources, made.changelog) == ("rocksdb", ">=4.2", 1, False)
    assert (operator.time_mode, operator.output_mode, operator.plan) == ("ProcessingTime", "Update", None)
    kinds = {state.name: (state.kind, state.role, state.ttl) for state in store.states or ()}
    assert kinds["recent"] == ("list", "primary", True)
    assert kinds["all"] == ("list", "primary", False)
    assert kinds["$ttl_recent"] == ("index", "derived", None)


def test_a_contract_records_changelogs() -> None:
    assert contract_of_checkpoint(str(SAMPLES / "rocksdb-changelog-3.5")).changelog is True
    assert contract_of_checkpoint(str(SAMPLES / "join-4.2")).changelog is None


@pytest.mark.parametrize(
    "name", ["agg-deltas-lz4-4.2", "rocksdb-4.2", "rocksdb-changelog-3.5", "rocksdb-ids-4.2", "join-4.2", "lists-4.2"]
)
def test_a_planned_batch_does_not_change_the_contract(tmp_path: Path, name: str) -> None:
    target = sample(name, tmp_path)
    made = contract_of_checkpoint(str(target))
    assert copy_all(target).published
    (entry,) = history(str(target))
    assert (target / "offsets" / str(entry.planned)).exists()
    assert contract_of_checkpoint(str(target)) == made


def test_a_contract_without_schemas_has_no_states() -> None:
    made = contract_of_checkpoint(str(SAMPLES / "no-schema-3.0"))
    assert [store.states for operator in made.operators for store in operator.stores] == [None]


def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(contract_of_checkpoint(str(SAMPLES / "rocksdb-4.2")).dumps())
    return made


@pytest.mark.parametrize(
    ("edit", "kind", "match"),
    [
        (lambda d: d.update(version=2), UnsupportedError, "version 2.*newer ttlsnap"),
        (lambda d: d.pop("operators"), UsageError, "is not a contract"),
        (lambda d: d.update(operators={}), UsageError, r"operators must be array"),
        (lambda d: d.update(surprise=1), UsageError, "surprise"),
        (lambda d: d["operators"][0].update(id=-1), UsageError, r"operators\[0\].id"),
        (
            lambda d: d["operators"][0]["stores"][0]["states"][0]["key"][0].update(type="nosuch"),
            UnsupportedError,
            "nosuch",
        ),
        (lambda d: d["operators"][0]["stores"][0]["states"][0].update(role="odd"), UsageError, "role"),
        (lambda d: d["conf"].update(a=1), UsageError, "conf"),
    ],
)
def test_an_invalid_contract_is_refused(edit: Any, kind: type[TtlsnapError], match: str) -> None:
    found = document()
    edit(found)
    with pytest.raises(kind, match=match) as raised:
        parse_contract(json.dumps(found), "old.json")
    assert "old.json" in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"version": 1, "version": 1}', "\0", '{"version": true}', "null"]
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a contract"):
        parse_contract(text, "here")


def test_the_command_prints_and_writes_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(SAMPLES / "rocksdb-4.2")
    assert run(["contract", target]) == 0
    printed = capsys.readouterr().out
    assert run(["contract", target, "--output", str(tmp_path / "c.json")]) == 0
    told = capsys.readouterr()
    assert not told.out
    assert "the state contract of stateStoreSave, made from checkpoint" in told.err
    assert (tmp_path / "c.json").read_text() == printed


def test_a_file_that_another_version_wrote_stays_if_the_contract_is_the_same(tmp_path: Path) -> None:
    words = ["contract", str(SAMPLES / "rocksdb-4.2"), "--output", str(tmp_path / "c.json")]
    assert run(words) == 0
    written = (tmp_path / "c.json").read_text()
    version_line = next(line for line in written.splitlines(keepends=True) if '"ttlsnap"' in line)
    for others_line in ("", version_line.replace(VERSION, "0.2.9")):
        same, changed = (text.replace(version_line, others_line) for text in (written, written.replace("lz4", "zstd")))
        assert changed != same != written
        for text, after in ((same, same), (changed, written), ("", written)):
            (tmp_path / "c.json").write_text(text)
            assert run(words) == 0
            assert (tmp_path / "c.json").read_text() == after


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ([], "name one of these"),
        (["CK", "--script", "x.py"], "the script x.py does not exist"),
        (["jobs:build", "--script", "x.py"], "a contract is of one query"),
        (["CK", "--with", "jobs:build", "--script", "x.py"], "a contract is of one query"),
        (["CK", "--schema", "a int"], "are for a query"),
        (["CK", "--conf", "novalue"], "NAME=VALUE"),
        (["/nowhere/at/all"], "does not exist"),
        (["CK", "--batch", "99"], "not retained"),
        (["CK", "--output", "/nowhere/at/all/c.json"], "there is no folder"),
        (["jobs:build", "--schema", "nosuch.ddl"], "nosuch.ddl is neither a file nor DDL"),
        (["CK", "--properties-file", "/nowhere/conf"], "properties-file"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], match: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # a script adds its folder to it
    target = str(SAMPLES / "rocksdb-4.2")
    assert run(["contract", *(target if a == "CK" else a for a in arguments)]) == 2
    assert match in capsys.readouterr().err
