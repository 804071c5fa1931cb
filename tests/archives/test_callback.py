"""A callback gets each dropped entry once, after publishing, and only if the command names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap import compact, recover, rollback
from ttlsnap.archives.receivers import ExpiredCallback
from ttlsnap.archives.writing import folder_of
from ttlsnap.cli.app import run
from ttlsnap.compaction.report import CompactionReport
from ttlsnap.errors import StorageError, TransformerError
from ttlsnap.publishing import moves
from ttlsnap.storage.local import LocalDirectory
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory, parse_duration

from ..samples import bytes_of, sample
from .archives import archived
from .archives import run as with_folder

# A user's module. Its functions write down what they get, and its number is not callable.
MODULE = """
import json
from pathlib import Path

here = Path(__file__).parent

def note(key, value, run, partition, timestamp):
    with (here / "told").open("a") as file:
        print(json.dumps([run, partition, key, value, timestamp.isoformat()]), file=file)

def short(key, value):
    (here / "short").open("a").write(key["key"] + " ")

number = 3
"""


def told_to(function: Any, target: Path, name: str = "callbacks:told") -> CompactionReport:
    ttl = TtlTransformerFactory(StateTtlConfig(parse_duration("7d")), "value.max")
    return compact(str(target), [ttl], stopped=True, max_drop=1.0, expired_to=ExpiredCallback(name, function))


def test_callback_gets_the_same_entries_as_a_folder(tmp_path: Path) -> None:
    target, other = sample("agg-deltas-lz4-4.2", tmp_path), sample("agg-deltas-lz4-4.2", tmp_path / "other")
    found: list[dict[str, Any]] = []

    def told(key: Any, value: Any, **facts: Any) -> None:
        assert (target / "_ttlsnap/runs" / facts["run"] / "journal.json").exists(), "it is published by now"
        found.append({"key": key, "value": value, **facts})

    report = told_to(told, target)
    assert report.expired_to == "callbacks:told"
    with_folder(other, tmp_path / "archive")
    rows = archived(tmp_path / "archive")
    wanted = [
        {**row, "run": report.run, "key": json.loads(row["key"]), "value": json.loads(row["value"])} for row in rows
    ]
    assert sorted(found, key=lambda row: str(row["key"])) == sorted(wanted, key=lambda row: str(row["key"]))
    assert not (target / folder_of(report.run)).exists()
    assert bytes_of(target / "state") == bytes_of(other / "state")


def test_a_callback_that_raised_gets_all_entries_at_the_next_run(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    keys: list[Any] = []

    def fails(key: Any, value: Any) -> None:
        keys.append(key)
        raise ConnectionError("the other side is away")

    report = told_to(fails, target)
    (warning,) = report.warnings
    assert "callbacks:told, key " in warning
    assert "ConnectionError: the other side is away" in warning
    assert len(keys) == 1
    assert recover(str(target)).outcome == "nothing"
    heard: list[Any] = []
    told_to(lambda key, value: heard.append(key), target, "another:function")
    assert heard == []
    again = told_to(lambda key, value: heard.append(key), target)
    assert again.totals.dropped == 0
    assert len(heard) == report.totals.dropped
    assert keys[0] in heard
    heard.clear()
    told_to(lambda key, value: heard.append(key), target)
    assert heard == []


def test_callback_gets_nothing_from_an_undone_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, heard = sample("agg-deltas-lz4-4.2", tmp_path), []

    def apply_and_fail(files: Any, journal: Any) -> None:
        moves.apply(files, journal)
        raise StorageError("no")

    with monkeypatch.context() as patched:
        patched.setattr("ttlsnap.publishing.swap.apply", apply_and_fail)
        with pytest.raises(StorageError, match="The run was undone, so the checkpoint is as it was before"):
            told_to(lambda key, value: heard.append(key), target)
    assert heard == []
    report = told_to(lambda key, value: heard.append(key), target)
    assert len(heard) == report.totals.dropped
    rollback(str(target), stopped=True)


def test_callback_gets_none_for_timestamps_outside_pythons_range(tmp_path: Path) -> None:
    from ttlsnap.archives.writing import SCHEMA

    moments = pa.array([-(2**62), 0, 2**62]).cast(SCHEMA.field("timestamp").type)
    row = {"run": "r", "operator": 0, "store": "s", "state": "s", "partition": 0, "key": "{}", "value": "{}"}
    rows = pa.Table.from_pylist([row] * 3, SCHEMA).set_column(7, SCHEMA.field("timestamp"), moments)
    pq.write_table(rows, tmp_path / "x.parquet")
    heard: list[Any] = []
    callback = ExpiredCallback("x:y", lambda key, value, timestamp: heard.append(timestamp and timestamp.year))
    callback.take(LocalDirectory(str(tmp_path)), ["x.parquet"], "r")
    assert heard == [None, 1970, None]


def test_the_error_names_function_and_key() -> None:
    def wrong(key: Any, value: Any) -> None:
        raise KeyError("x")

    with pytest.raises(TransformerError, match=r'^mine:wrong, key {"a": 1}: KeyError'):
        ExpiredCallback("mine:wrong", wrong)([{"key": '{"a": 1}', "value": "{}"}])


@pytest.mark.parametrize("command", ["compact", "maintain"])
def test_commands_load_the_callback_and_report_bad_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    module = f"callbacks_of_{command}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "nowhere"))  # restores sys.path afterwards

    def call(function: str) -> tuple[int, str, str]:
        if command == "compact":
            words = ["compact", str(target), "--ttl", "7d", "--timestamp", "value.max", "--stopped", "--yes"]
            words += ["--expired-to", f"{module}:{function}"]
        else:
            rule = '[[target.rule]]\nttl = "7d"\ntimestamp = "value.max"\n'
            head = f'[[target]]\npath = "{target.name}"\nstopped = true\nexpired_to = "{module}:{function}"\n'
            (tmp_path / "policy.toml").write_text(head + rule)
            words = ["maintain", "policy.toml"]
        code = run([*words, "--engine", "local", "--format", "json"])
        return code, *capsys.readouterr()

    code, _, said = call("nothing")
    assert code == 2
    assert "cannot be loaded: AttributeError" in said
    code, _, said = call("number")
    assert code == 2
    assert "is int, which cannot be called" in said
    code, out, _ = call("note")
    assert code == 0
    document = json.loads(out) if command == "compact" else json.loads(out)["targets"][0]
    lines = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert len(lines) == document["totals"]["dropped"] > 0
    assert {line[0] for line in lines} == {document["run"]}
    assert document["expired_to"] == f"{module}:note"
