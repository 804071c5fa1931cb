"""A deduplication with a column less: entries of one key become one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..cli.running import Ttlsnap
from ..migration.entries import entries_of, field_of
from ..publishing.trees import tree
from ..samples import bytes_of, sample
from .contracts import column, contract, states

WITHIN, COLUMNS = "dedup-within-4.2", "dedup-columns-3.1"
LATEST = "expiresAtMicros"


@pytest.mark.parametrize("name", [WITHIN, "rocksdb"])
def test_a_column_that_is_replaced_merges_entries_too(ttlsnap: Ttlsnap, tmp_path: Path, name: str) -> None:
    target = sample(WITHIN, tmp_path)
    if name == "rocksdb":
        assert ttlsnap("migrate", target, "--provider", "rocksdb", "--stopped").code == 0
    moments = field_of(target, "default", LATEST)
    new = contract(target, lambda document: states(document)[0].update(key=[column("zzz", "integer")]))
    (tmp_path / "new.json").write_text(json.dumps(new))
    words = ["migrate", target, "--to", tmp_path / "new.json", "--fill", "key.zzz=1", "--stopped", "--yes"]
    assert ttlsnap(*words).code == 0
    latest = max(moment for found in moments.values() for moment in found)
    assert field_of(target, "default", LATEST) == {'{"zzz": 1}': [latest]}


@pytest.mark.parametrize("name", ["hdfs", "rocksdb"])
def test_equal_keys_are_refused_where_nothing_merges_them(
    ttlsnap: Ttlsnap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    target = sample(WITHIN, tmp_path)
    if name == "rocksdb":
        assert ttlsnap("migrate", target, "--provider", "rocksdb", "--stopped").code == 0
    new = contract(target, lambda document: states(document)[0].update(key=[column("zzz", "integer")]))
    (tmp_path / "new.json").write_text(json.dumps(new))
    before = bytes_of(target)
    monkeypatch.setattr("ttlsnap.migration.plan.StoreMigration.merged", None)
    words = ["migrate", target, "--to", tmp_path / "new.json", "--fill", "key.zzz=1", "--stopped", "--yes"]
    ended = ttlsnap(*words)
    assert (ended.code, "several entries would have the same key" in ended.err) == (4, True), ended.err
    assert bytes_of(target) == before


@pytest.mark.parametrize(
    "partitions", [[], ["--partitions", "5"], ["--provider", "rocksdb", "--set", "row-checksums=true"]]
)
def test_the_latest_time_wins(ttlsnap: Ttlsnap, tmp_path: Path, partitions: list[str]) -> None:
    target = sample(WITHIN, tmp_path)
    (state,) = states(contract(target, lambda document: None))
    keys = [field["name"] for field in state["key"]]
    before = tree(target)
    # First, each key gets a second column, so that two states can be joined to one with several entries for a key.
    wide = contract(target, lambda document: states(document)[0]["key"].append(column("extra")))
    (tmp_path / "wide.json").write_text(json.dumps(wide))
    assert ttlsnap("migrate", target, "--to", tmp_path / "wide.json", "--fill", "key.extra=x", "--stopped").code == 0
    one = contract(target, lambda document: states(document)[0].update(key=[column("extra")]))
    (tmp_path / "one.json").write_text(json.dumps(one))
    moments = field_of(target, "default", LATEST)
    words = ["migrate", target, "--to", tmp_path / "one.json", "--stopped", "--format", "json", *partitions]
    assert ttlsnap(*words).code == 4  # nobody agreed
    words += [word for name in keys for word in ("--drop", f"key.{name}")]  # allowed, but not needed
    document = json.loads(ttlsnap(*words, "--yes").out)
    assert [(step["change"], step["field"]) for step in document["plan"]] == [("drop", f"key.{name}") for name in keys]
    assert document["merged"] == {"0.default.default": len(moments) - 1}
    assert document["totals"]["kept"] == sum(entries_of(target).values()) == 1
    latest = max(moment for found in moments.values() for moment in found)
    assert field_of(target, "default", LATEST) == {'{"extra": "x"}': [latest]}
    assert ttlsnap("rollback", target, "--stopped").code == 0
    assert len(field_of(target, "default", LATEST)) == len(moments)
    assert tree(target) != before
