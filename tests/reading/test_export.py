"""``ttlsnap export``: its formats, its conditions, its columns, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap import TimeCharacteristic, export, import_state
from ttlsnap.cli.app import run
from ttlsnap.engines.progress import SilentWorkListener
from ttlsnap.errors import CorruptionError, StorageError, TtlsnapError, UnsupportedError, UsageError
from ttlsnap.operators.registry import Selection
from ttlsnap.reading.export_sinks import ParquetFolder
from ttlsnap.schema.ddl import parse_schemas

from ..matrix import narrow
from ..publishing.trees import tree
from ..samples import SAMPLES, sample
from .export_tables import Rows, rows_in

AGG, JOIN, JOIN4, ALARMS, GROUPS = (
    str(SAMPLES / name) for name in ("agg-deltas-lz4-4.2", "join-4.2", "join-format4-4.2", "alarms-4.2", "groups-3.1")
)


def lines(target: str, **options: Any) -> Rows:
    stream = io.BytesIO()
    export(target, stream, **options)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_state_is_a_table(tmp_path: Path) -> None:
    before = tree(Path(ALARMS))
    report = export(ALARMS, str(tmp_path / "state"))
    assert report.rows == {"0.eventTimers": 4, "0.all": 6, "0.counts": 6, "0.last": 4}
    assert {folder.name for folder in (tmp_path / "state").iterdir()} == set(report.rows)
    for name, count in report.rows.items():
        rows = rows_in(tmp_path / "state" / name)
        assert len(rows) == count
        assert (tmp_path / "state" / name / "_SUCCESS").exists()
        assert {row["batch"] for row in rows} == {2}
        assert {row["partition"] for row in rows} <= {0, 1}
    assert set(rows_in(tmp_path / "state/0.counts")[0]) == {"partition", "batch", "key", "map_key", "value"}
    assert set(rows_in(tmp_path / "state/0.eventTimers")[0]) == {"partition", "batch", "key", "time"}
    assert tree(Path(ALARMS)) == before


def test_parquet_and_lines_have_the_same_rows(tmp_path: Path) -> None:
    export(JOIN, str(tmp_path / "state"))
    found = lines(JOIN)
    for name in ("left", "right"):
        rows = rows_in(tmp_path / f"state/0.{name}")
        mine = [row for row in found if row["table"] == f"0.{name}"]
        assert [(row["partition"], row["key"], row["matched"]) for row in mine] == [
            (row["partition"], row["key"], row["matched"]) for row in rows
        ]
        assert {row["value"][f"{name}_value"] for row in mine} == {row["value"][f"{name}_value"] for row in rows}


def test_delta_tables_have_the_same_rows(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    report = export(JOIN, f"delta:{tmp_path / 'state'}")
    export(JOIN, str(tmp_path / "plain"))
    for name, count in report.rows.items():
        table = DeltaTable(str(tmp_path / "state" / name)).to_pyarrow_table().to_pylist()
        assert len(table) == count
        key = lambda row: repr(sorted(row.items()))  # noqa: E731
        assert sorted(table, key=key) == sorted(rows_in(tmp_path / "plain" / name), key=key)


def test_a_table_without_rows_has_its_schema(tmp_path: Path) -> None:
    report = export(AGG, str(tmp_path / "state"), where=["value.count > 1000000"])
    assert report.rows == {"0.state": 0}
    (file,) = (tmp_path / "state/0.state").glob("*.parquet")
    assert pq.read_schema(file).names == ["partition", "batch", "key", "value"]


CONDITIONS: list[tuple[list[str], Callable[[dict[str, Any]], bool]]] = [
    (["value.count >= 3"], lambda row: row["value"]["count"] >= 3),
    (["value.count=3"], lambda row: row["value"]["count"] == 3),
    (["value.count != 3", "value.sum < 100"], lambda row: row["value"]["count"] != 3 and row["value"]["sum"] < 100),
    (["key.key = user-0034"], lambda row: row["key"]["key"] == "user-0034"),
    (['key.key > "user-0400"'], lambda row: row["key"]["key"] > "user-0400"),
    (["value.max <= 2026-11-01T00:00:00Z"], lambda row: row["value"]["max"] <= "2026-11-01 00:00:00.000000"),
    (["age > 20d"], lambda row: row["age_seconds"] > 20 * 86_400),
    (["age >= 0s"], lambda row: row["age_seconds"] >= 0),
    (["age <= 20d"], lambda row: row["age_seconds"] <= 20 * 86_400),
]


@pytest.mark.parametrize(("where", "holds"), CONDITIONS)
def test_conditions_choose_entries(where: list[str], holds: Callable[[dict[str, Any]], bool]) -> None:
    everything = lines(AGG, timestamp="value.max", now="2026-11-21T09:00:00Z")
    found = lines(AGG, timestamp="value.max", now="2026-11-21T09:00:00Z", where=where)
    assert found == [row for row in everything if holds(row)]
    assert len(everything) == 480


def test_columns_are_chosen(tmp_path: Path) -> None:
    everything = lines(AGG)
    found = lines(AGG, columns=["value.count", "partition", "key.key"])
    assert found == [
        {
            "table": "0.state",
            "value.count": row["value"]["count"],
            "partition": row["partition"],
            "key.key": row["key"]["key"],
        }
        for row in everything
    ]
    with pytest.raises(
        UsageError, match=r"has no column batches \(did you mean batch\?\); it has partition, batch, key, value"
    ):
        lines(AGG, columns=["batches"])
    with pytest.raises(UsageError, match=r"has no column value.nothing"):
        lines(AGG, columns=["value.nothing"])


def test_csv_has_a_column_for_each_field(tmp_path: Path) -> None:
    file = tmp_path / "left.csv"
    export(JOIN, str(file), selection=Selection(store="left-keyWithIndexToValue"))
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    wanted = [row for row in lines(JOIN) if row["table"] == "0.left"]
    assert [
        (int(row["partition"]), row["key.field0"], row["value.at"], int(row["value.left_value"]), row["matched"])
        for row in rows
    ] == [
        (
            row["partition"],
            row["key"]["field0"],
            row["value"]["at"],
            row["value"]["left_value"],
            str(row["matched"]).lower(),
        )
        for row in wanted
    ]
    assert list(tmp_path.iterdir()) == [file]


def test_an_older_batch_is_exported() -> None:
    counts = [len(lines(AGG, batch=batch)) for batch in (3, 6)]
    assert 0 < counts[0] < counts[1] == 480
    with pytest.raises(UsageError, match="batch 99 is not retained"):
        lines(AGG, batch=99)


@pytest.mark.parametrize(
    ("target", "to", "options", "words"),
    [
        (JOIN, "x.csv", {}, "CSV can hold one state, and there are 2: 0.left, 0.right. Choose one with tables"),
        (AGG, "x.csv", {"file_format": "parquet"}, "Parquet needs a folder"),
        (AGG, "folder", {"file_format": "avro"}, "unknown file format avro; use one of parquet, ndjson, csv"),
        (AGG, "delta:x", {"file_format": "csv"}, "csv needs a local file"),
        (AGG, "folder", {"where": ["count"]}, "is not a condition, such as"),
        (AGG, "folder", {"where": ["value.nothing = 1"]}, "has no column value.nothing"),
        (AGG, "folder", {"where": ["value.count = many"]}, "where 'value.count = many': this is not a bigint"),
        (AGG, "folder", {"where": ["value.count = null"]}, "nothing can be compared with null"),
        (AGG, "folder", {"where": ["value.count < 1.5"]}, "this is not a bigint"),
        (AGG, "folder", {"where": ["value.count == 1"]}, "use = instead of =="),
        (AGG, "folder", {"where": ["value.count <> 1"]}, "use != instead of <>"),
        (AGG, "folder", {"where": ["value.count => 1"]}, "use >= instead of =>"),
        (AGG, "folder", {"where": ["key = a"]}, "key is a struct. Compare one of its fields"),
        (
            AGG,
            "folder",
            {"where": ["timestamp = 2026-10-24"]},
            "has no column timestamp; .* name a time with timestamp",
        ),
        (AGG, "folder", {"timestamp": "value.max", "where": ["age > soon"]}, "'soon' is not a duration"),
        (AGG, "folder", {"columns": []}, "a name is empty"),
        (AGG, "state.parquet", {}, "export writes a folder, or a file that ends with .csv"),
        (JOIN, "folder", {"tables": ["left"]}, r"has no table left \(did you mean 0.left\?\); it has 0.left, 0.right"),
        (GROUPS, "folder", {"where": ["age > 1d"]}, r"does not record the clock of its times.*Use time"),
        (
            AGG,
            "folder",
            {"where": ["age > 3d"]},
            "has no age: Spark stores no timestamp here. Name one with timestamp",
        ),
        (AGG, "folder", {"timestamp": "value.nothing"}, "no state has the field value.nothing"),
        (AGG, "folder", {"selection": Selection(operator=7)}, "nothing that matches"),
    ],
)
def test_mistakes_are_told_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, to: str, options: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        export(target, to, **options)
    assert not list(tmp_path.iterdir())


def test_only_a_new_place_is_written_to(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    (tmp_path / "file.csv").write_text("mine")
    (tmp_path / "link").symlink_to(target)
    before = tree(tmp_path)
    for place in ("full", "full/file", "file.csv", f"{target.name}/state/new", f"{target.name}/x.csv", "link/x.csv"):
        with pytest.raises(TtlsnapError):
            export(str(target), str(tmp_path / place))
    assert tree(tmp_path) == before


@pytest.mark.parametrize("to", ["state", "state.ndjson", "delta:state"])
def test_what_is_written_is_no_more_readable_than_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.chdir(tmp_path)
    target = sample("agg-deltas-lz4-4.2", tmp_path / "given")
    target.chmod(0o700)
    export(str(target), to)
    made = [tmp_path / to.removeprefix("delta:"), *(tmp_path / to.removeprefix("delta:")).rglob("*")]
    assert len(made) == 1 or len(made) > 4
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("to", ["state", "state.ndjson"])
def test_nothing_is_left_after_an_error(tmp_path: Path, to: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    damaged = target / "state/0/1/7.delta"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = tree(tmp_path)
    with pytest.raises(CorruptionError):
        export(str(target), str(tmp_path / to), parallelism=1)
    assert tree(tmp_path) == before


def test_names_in_a_checkpoint_lead_nowhere_else(tmp_path: Path) -> None:
    from dataclasses import replace

    from ttlsnap.checkpoint import open_checkpoint
    from ttlsnap.operators.registry import describe
    from ttlsnap.storage.local import LocalDirectory

    (state, *_) = describe(open_checkpoint(LocalDirectory(AGG)))
    names = [replace(state, state=name).table for name in ("../../x", "a/b", "..", "a b", "é")]
    assert names == ["0...%2F..%2Fx", "0.a%2Fb", "0...", "0.a b", "0.%C3%A9"]


def test_the_command_prints_tables_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", AGG, "--to", str(tmp_path / "a"), "--where", "value.count >= 3"]) == 0
    told = capsys.readouterr().out
    assert "0.state  operator 0 (stateStoreSave)   236" in told
    assert f"Wrote the state after batch 6 to {tmp_path / 'a'}" in told
    assert run(["export", AGG, "--to", str(tmp_path / "b"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tables"] == [{"name": "0.state", "state": "operator 0 (stateStoreSave)", "rows": 480}]
    assert run(["export", AGG, "--to", str(tmp_path / "b")]) == 2


def test_the_standard_output_has_only_the_entries() -> None:
    words = [sys.executable, "-m", "ttlsnap", "export", JOIN, "--to", "-"]
    done = subprocess.run(words, capture_output=True, check=True, env={**os.environ, "TERM": "dumb"})
    assert [json.loads(line)["table"] for line in done.stdout.splitlines()] == ["0.left"] * 9 + ["0.right"] * 9
    assert done.stderr == b""


def test_a_read_only_checkpoint_is_exported(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    target.chmod(0o500)
    export(str(target), str(tmp_path / "state"))
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state/0.state").stat().st_mode & 0o777 == 0o700


def test_each_side_of_a_join_has_its_own_time() -> None:
    rows = lines(JOIN, timestamp="value.at", now="2026-11-20T00:00:00Z")
    for row in rows:
        assert row["timestamp"] == row["value"]["at" if row["table"] == "0.left" else "then"]
    assert {row["table"] for row in rows} == {"0.left", "0.right"}
    assert {row["table"] for row in lines(JOIN, tables=["0.right"])} == {"0.right"}


def test_an_age_is_not_guessed() -> None:
    assert {row["age_seconds"] for row in lines(GROUPS)} == {None}
    assert {row["age_seconds"] for row in lines(GROUPS, time=TimeCharacteristic.EVENT)} != {None}


@pytest.mark.parametrize(
    ("target", "where", "holds"),
    [
        (JOIN, "matched = true", lambda row: row["matched"]),
        (JOIN4, "matched = false", lambda row: not row["matched"]),
        (JOIN, "partition = 1", lambda row: row["partition"] == 1),
        (JOIN, "timestamp >= 2026-11-20", lambda row: row["timestamp"] >= "2026-11-20"),
        (JOIN, "age_seconds < -180000", lambda row: row["age_seconds"] < -180000),
        (JOIN, "batch = 5", lambda row: True),
    ],
)
def test_conditions_know_the_columns_of_the_table(
    target: str, where: str, holds: Callable[[dict[str, Any]], bool]
) -> None:
    wanted = [row for row in lines(target) if holds(row)]
    assert lines(target, where=[where]) == wanted != []


def test_columns_within_a_stored_key_have_the_names_of_the_table() -> None:
    timers = [row for row in lines(ALARMS, tables=["0.eventTimers"]) if row["time"] < "2026-11-20"]
    assert lines(ALARMS, tables=["0.eventTimers"], where=["time < 2026-11-20"]) == timers != []
    rows = lines(ALARMS, tables=["0.counts"])
    at = rows[0]["map_key"]["seen"]
    found = lines(ALARMS, tables=["0.counts"], where=[f"map_key.seen = {at}", "key.key != nobody"])
    assert found == [row for row in rows if row["map_key"]["seen"] == at]
    (row, *_) = lines(ALARMS, tables=["0.counts"], columns=["key.key", "map_key.seen", "map_key"])
    assert row == {
        "table": "0.counts", "key.key": rows[0]["key"]["key"], "map_key.seen": at, "map_key": rows[0]["map_key"]
    }  # fmt: skip


def test_tables_without_a_column_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = export(JOIN, io.BytesIO(), where=["value.at >= 2026-11-20"])
    assert set(report.rows) == {"0.left"}
    (words,) = report.left_out
    assert words.startswith("table 0.right (operator 0") and words.endswith("has no value.at")
    report = export(JOIN, io.BytesIO(), columns=["key", "value.then"])
    assert (set(report.rows), len(report.left_out)) == ({"0.right"}, 1)
    with pytest.raises(UsageError, match=r"operator 0 .*left.* has no column value.nothing"):
        export(JOIN, io.BytesIO(), where=["value.nothing = 1"])
    with pytest.raises(UsageError, match=r"has no column value.then"):
        export(JOIN, io.BytesIO(), tables=["0.left"], columns=["value.then"])
    assert run(["export", JOIN, "--to", str(tmp_path / "a"), "--columns", "value.then"]) == 0
    assert "Warning: not exported: table 0.left (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "header"),
    [
        (["key"], "key.key,key.window"),
        (["key.window", "key.key"], "key.window,key.key"),
        (["key.window.end"], "key.window.end"),
    ],
)
def test_a_struct_is_one_column_of_csv_under_any_name(columns: list[str], header: str) -> None:
    stream = io.BytesIO()
    target = str(SAMPLES / "window-append-snappy-4.0")
    export(target, stream, file_format="csv", columns=columns)
    first, *rows = list(csv.reader(io.StringIO(stream.getvalue().decode())))
    assert sorted(first) == sorted(header.split(","))
    wanted = lines(target)
    assert len(rows) == len(wanted)
    for row, line in zip(rows, wanted, strict=True):
        found = dict(zip(first, row, strict=True))
        if "key.window" in found:
            assert json.loads(found["key.window"]) == line["key"]["window"]
        else:
            assert found["key.window.end"] == line["key"]["window"]["end"]


@pytest.mark.parametrize(
    ("name", "columns"),
    [("dedup-watermark-4.2", ["partition", "batch", "key"]), ("limit-3.1", ["partition", "batch", "value"])],
)
def test_columns_that_hold_nothing_are_not_exported(tmp_path: Path, name: str, columns: list[str]) -> None:
    export(str(SAMPLES / name), str(tmp_path / "state"))
    (file, *_) = (tmp_path / "state/0.state").glob("*.parquet")
    assert [column for column in pq.read_schema(file).names if column not in ("timestamp", "age_seconds")] == columns


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-01T00:00", "2026-11-01T02:00:00+02:00", "2026-11-01 00:00:00"])
def test_times_are_iso_8601_and_in_utc(text: str) -> None:
    wanted = lines(AGG, where=["value.max >= 2026-11-01T00:00:00Z"])
    assert lines(AGG, where=[f"value.max >= {text}"]) == wanted
    assert 0 < len(wanted) < 480


def test_lines_come_table_after_table() -> None:
    for name in ("alarms-4.2", "visits-4.2", "lists-4.2"):
        report = export(str(SAMPLES / name), io.BytesIO())
        names = [(row["partition"], list(report.rows).index(row["table"])) for row in lines(str(SAMPLES / name))]
        assert names == sorted(names)
        assert len(set(names)) > 1


def test_missing_folders_are_made_and_removed_after_an_error(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    for number, to in enumerate(("{}/x/y.csv", "file://{}/x/y.ndjson", "{}/x/y", "delta:{}/x/y")):
        folder = tmp_path / str(number)
        export(str(target), to.format(folder))
        assert len(list((folder / "x").iterdir())) == 1
    damaged = target / "state/0/1/7.delta"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = tree(tmp_path)
    for to in ("{}/x/y.csv", "file://{}/x/y.ndjson", "{}/x/y", "delta:{}/x/y"):
        with pytest.raises(CorruptionError):
            export(str(target), to.format(tmp_path / "new"))
        assert tree(tmp_path) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make the folder"):
        export(str(target), str(tmp_path / "file/y.csv"))


NO_SCHEMA = str(SAMPLES / "no-schema-3.0")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            "max TIMESTAMP, count BIGINT",
            "schemas 0.default: the value schema does not describe the bytes of partition",
        ),
        ("max STRING, count BIGINT, sum BIGINT", "schemas 0.default: the value schema does not describe the bytes"),
    ],
)
def test_a_wrong_schema_is_told(schema: str, words: str) -> None:
    given = parse_schemas([f"0.default='key STRING | {schema}'"])
    with pytest.raises(UsageError, match=words):
        lines(NO_SCHEMA, schemas=given)


def test_a_missing_schema_is_told() -> None:
    with pytest.raises(UnsupportedError, match=r"has no state schema .*schemas 0.default='key-ddl \| value-ddl'"):
        lines(NO_SCHEMA, selection=Selection(operator=0))
    given = parse_schemas(["0.default='key STRING | max TIMESTAMP, count BIGINT NOT NULL, sum BIGINT'"])
    assert len(lines(NO_SCHEMA, schemas=given)) == 29


def test_options_can_be_repeated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["export", ALARMS, "--to", str(tmp_path / "a"), "--format", "json", "--state", "last", "--state", "counts"]
    assert run(words) == 0
    tables = [table["name"] for table in json.loads(capsys.readouterr().out)["tables"]]
    assert tables == ["0.counts", "0.last"]
    words = ["export", AGG, "--to", str(tmp_path / "b.csv"), "--columns", "key.key,batch", "--columns", "partition"]
    assert run(words) == 0
    assert (tmp_path / "b.csv").read_text().startswith('"key.key","batch","partition"\n')
    capsys.readouterr()
    for columns in (",", "key,", "", "key,key"):
        assert run(["export", AGG, "--to", str(tmp_path / "c"), "--columns", columns]) == 2, columns
    assert "is given twice" in capsys.readouterr().err


COMMANDS = [["export", AGG, "--to", "-"], ["diff", AGG, "--old-batch", "3"], ["inspect", AGG, "--entries", "100"]]


def ends(shell: str, **environment: str) -> tuple[int, str]:
    """Return the exit code and the messages of a command line of the shell; its output is buffered as by default."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = ["bash", "-o", "pipefail", "-c", shell.replace("TTLSNAP", f"{sys.executable} -m ttlsnap")]
    done = subprocess.run(words, capture_output=True, text=True, env={**plain, **environment})
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", narrow(COMMANDS), ids=lambda words: words[0])
def test_a_standard_output_can_end_early_or_be_full(words: list[str]) -> None:
    command = f"TTLSNAP {shlex.join(words)}"
    assert ends(f"{command} | true") == (141, "")
    code, told = ends(f"{command} > /dev/full")
    assert code == 5
    assert re.fullmatch(r"Error: cannot write to (-|the standard output): No space left on device\n", told)


def test_a_standard_output_that_is_not_buffered_can_be_full_and_one_can_be_closed() -> None:
    code, told = ends(f"TTLSNAP inspect {AGG} > /dev/full", PYTHONUNBUFFERED="1")
    assert (code, told) == (5, "Error: cannot write to the standard output: No space left on device\n")
    code, told = ends(f"TTLSNAP diff {AGG} >&-")
    assert (code, told.startswith("Error: the standard output is closed")) == (2, True)


def test_sigterm_says_nothing_about_runs() -> None:
    words = [sys.executable, "-m", "ttlsnap", "export", AGG, "--to", "-"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)  # the rest does not fit into the pipe
        process.terminate()
        _, told = process.communicate()
    assert (process.returncode, told) == (143, "Stopped by SIGTERM. Nothing was changed.\n")


@pytest.mark.parametrize("was_there", [True, False])
def test_a_failed_export_removes_only_its_own_files(
    tmp_path: Path, was_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out"
    if was_there:
        place.mkdir()

    def fail(sink: Any, tables: Any) -> None:
        (place / "notes.txt").write_text("somebody's own")
        (place / "0.state/other.parquet").write_text("somebody's own")
        raise StorageError("no more")

    monkeypatch.setattr(ParquetFolder, "finish", fail)
    with pytest.raises(StorageError, match="no more"):
        export(str(SAMPLES / "agg-deltas-lz4-4.2"), str(place))
    left = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "0.state/other.parquet"}


def test_a_failed_export_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sink: Any, tables: Any) -> None:
        raise StorageError("no more")

    monkeypatch.setattr(ParquetFolder, "finish", fail)
    with pytest.raises(StorageError, match="no more"):
        export(str(SAMPLES / "agg-deltas-lz4-4.2"), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


FIRST_COMMIT = "_delta_log/00000000000000000000.json"


class Meanwhile(SilentWorkListener):
    """Somebody else, who writes files after the first partition of an export."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths

    def partition_done(self) -> None:
        for path in self.paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("theirs")


@pytest.mark.parametrize(
    ("to", "is_damaged", "theirs"),
    [
        (
            "new",
            True,
            ["part-00000.parquet", ".part-00001.parquet", "_SUCCESS", FIRST_COMMIT],
        ),
        ("delta:new", True, ["part-00000.parquet", FIRST_COMMIT, "_delta_log/log"]),
        ("delta:new", False, [FIRST_COMMIT]),
        ("new", False, ["part-00009.parquet"]),
        ("new.csv", False, ["../../new.csv"]),
        ("new.csv", True, ["../../new.csv"]),
    ],
)
def test_files_that_others_write_meanwhile_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, is_damaged: bool, theirs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    if is_damaged:
        damaged = target / "state/0/1/7.delta"
        damaged.write_bytes(damaged.read_bytes()[:-20])
    paths = [tmp_path / os.path.normpath(f"new/0.state/{name}") for name in theirs]
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises((CorruptionError, StorageError, UsageError)):
        export(str(target), to, parallelism=1, listener=Meanwhile(*paths))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - before == set(paths)
    assert {path.read_text() for path in paths} == {"theirs"}


def test_a_spreadsheet_takes_no_text_of_a_csv_for_a_formula(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    export(str(target), str(tmp_path / "state"), where=["key.key = user-0001"])
    (file,) = (tmp_path / "state/0.state").glob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    texts = ["=1+1", "@SUM(1)", "+1", "-1", "\t=1", "\r=1", "1=1", "", "'=1"]
    given = [{**row, "key": {"key": text}, "value": {**row["value"], "sum": -5}} for text in texts]
    pq.write_table(pa.Table.from_pylist(given, pq.read_schema(file)), file)
    import_state(str(target), str(tmp_path / "state"), mode="replace", stopped=True)
    shown = {}
    for name, options in (("plain", []), ("safe", ["--escape-formulas"])):
        path = tmp_path / f"{name}.csv"
        assert run(["export", str(target), "--to", str(path), *options]) == 0
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert {row["value.sum"] for row in rows} == {"-5"}
        shown[name] = {row["key.key"] for row in rows}
    assert shown["plain"] == set(texts)
    assert shown["safe"] == {f"'{text}" for text in texts[:6]} | set(texts[6:])
    assert run(["export", str(target), "--to", str(tmp_path / "x"), "--escape-formulas"]) == 2
