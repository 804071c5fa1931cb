"""``ttlsnap import``: its modes, what it refuses, and the tables that it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap import (
    EntryTransformerFactory,
    Keep,
    LocalEngine,
    SparkEngine,
    compact,
    export,
    history,
    import_state,
    rollback,
)
from ttlsnap.errors import RefusedError, UnsupportedError, UsageError
from ttlsnap.imports.partition import Mode

from ..cli.running import Ttlsnap
from ..migration.entries import entries_of
from ..reading.export_tables import rows_in
from ..samples import bytes_of, sample, without_own

AGG, JOIN, TIMED_JOIN, LISTS, VISITS, ALARMS = (
    *("agg-deltas-lz4-4.2", "join-4.2", "join-format4-4.2", "lists-4.2", "visits-4.2", "alarms-4.2"),
)
Change = Callable[[pa.Table], pa.Table]


def exported(target: Path, folder: Path, table: str) -> pa.Table:
    if not folder.exists():
        export(str(target), str(folder))
    return pa.concat_tables([pq.read_table(file) for file in sorted((folder / table).glob("*.parquet"))])


def written(table: pa.Table, path: Path) -> str:
    pq.write_table(table, path)
    return str(path)


def rows_of(target: Path, table: str, folder: Path) -> list[dict[str, Any]]:
    export(str(target), str(folder))
    found = [{name: row[name] for name in row if name != "batch"} for row in rows_in(folder / table)]
    return sorted(found, key=json_of)


def json_of(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


def with_value(table: pa.Table, column: str, name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    """Return the table with another field in a struct."""
    place, struct = table.schema.get_field_index(column), table.column(column).combine_chunks()
    children = {field.name: struct.field(n) for n, field in enumerate(struct.type)}
    children[name] = pa.array(values, kind or children[name].type)
    made = pa.StructArray.from_arrays(list(children.values()), names=list(children))
    return table.set_column(place, column, made)


@pytest.mark.parametrize(
    ("name", "table"),
    [(AGG, "0.state"), (JOIN, "0.left"), (TIMED_JOIN, "0.right"), (LISTS, "0.recent"), (VISITS, "0.last")],
)
def test_merge_replaces_everything_of_a_key_and_nothing_else(tmp_path: Path, name: str, table: str) -> None:
    target, twin = sample(name, tmp_path), sample(name, tmp_path / "twin")
    rows = exported(target, tmp_path / "state", table)
    keys = rows.column("key").to_pylist()
    chosen = rows.filter(pa.array([key == keys[0] for key in keys]))
    others = [row for row in rows_of(twin, table, tmp_path / "old") if row["key"] != keys[0]]
    # The key's rows once more: as a list that is twice as long, or one row with another key.
    new = pa.concat_tables([chosen, chosen]) if name in (JOIN, TIMED_JOIN, LISTS) else chosen
    report = import_state(
        str(target), written(new, tmp_path / "new.parquet"), tables=[table], mode="merge", stopped=True
    )
    assert (report.rows, report.replaced > 0) == (len(new), True)
    found = rows_of(target, table, tmp_path / "new")
    assert [row for row in found if row["key"] != keys[0]] == others
    assert len([row for row in found if row["key"] == keys[0]]) == len(new)
    # Every scan compares indexes and counts with the entries.
    factory = EntryTransformerFactory(lambda key, value: Keep())
    assert compact(str(target), [factory], dry_run=True).totals.dropped == 0


@pytest.mark.parametrize("mode", ["merge", "replace"])
@pytest.mark.parametrize(
    ("name", "table"), [(AGG, "0.state"), (JOIN, "0.left"), (TIMED_JOIN, "0.right"), (LISTS, "0.recent")]
)
def test_replaced_keys_are_counted_and_not_their_entries(tmp_path: Path, mode: Mode, name: str, table: str) -> None:
    target = sample(name, tmp_path)
    rows = exported(target, tmp_path / "state", table)
    keys = {json_of(row["key"]) for row in rows.select(["key"]).to_pylist()}
    new = written(pa.concat_tables([rows, rows]) if name == JOIN else rows, tmp_path / "new.parquet")
    if name == JOIN:
        import_state(str(target), new, tables=[table], mode="replace", stopped=True)
    report = import_state(str(target), new, tables=[table], mode=mode, dry_run=True)
    assert (report.replaced, report.tables[0].replaced) == (len(keys), len(keys))
    assert (len(keys) < report.rows) == (name != AGG)


def test_an_insert_adds_and_a_rollback_takes_it_back(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    before, old = bytes_of(target), entries_of(target)
    rows = exported(target, tmp_path / "state", "0.state")
    names = [f"new-{n}" for n in range(len(rows))]
    new = with_value(rows, "key", rows.schema.field("key").type[0].name, names)
    report = import_state(str(target), written(new, tmp_path / "new.parquet"), stopped=True)
    assert (report.rows, report.replaced, report.published) == (len(rows), 0, True)
    after = entries_of(target)
    assert old <= after and sum(after.values()) == 2 * sum(old.values())
    assert [run.kind for run in history(str(target))] == ["import"]
    rollback(str(target), stopped=True)
    assert without_own(bytes_of(target)) == before


def test_a_copy_has_the_rows_and_the_source_stays(tmp_path: Path) -> None:
    for name, table in ((AGG, "0.state"), (VISITS, "0.last")):
        target, to = sample(name, tmp_path), tmp_path / f"copy-{name}"
        rows = exported(target, tmp_path / f"state-{name}", table)
        before = bytes_of(target)
        half = rows.slice(0, len(rows) // 2)
        source = written(half, tmp_path / f"{name}.parquet")
        import_state(str(target), source, tables=[table], mode="replace", output=str(to), stopped=True)
        assert without_own(bytes_of(target)) == before
        assert len(rows_of(to, table, tmp_path / f"new-{name}")) == len(half)
        assert [(run.kind, run.status) for run in history(str(to))] == [("import", "copy")]


def drop(*columns: str) -> Change:
    return lambda table: table.drop_columns(list(columns))


def times(*hours: int) -> list[datetime]:
    return [datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in hours]


REFUSED: list[tuple[str, str, Change, type[Exception], str]] = [
    (AGG, "0.state", drop("value"), UsageError, "has no column value"),
    (AGG, "0.state", lambda t: t.append_column("extra", pa.array([1] * len(t))), UsageError, "no place for the column"),
    (
        AGG,
        "0.state",
        lambda t: with_value(t, "value", "count", ["x"] * len(t), pa.string()),
        UsageError,
        "value.count is string in the table, and bigint in the state",
    ),
    (
        AGG,
        "0.state",
        lambda t: with_value(t, "value", "more", [1] * len(t), pa.int64()),
        UsageError,
        "value has a field more",
    ),
    (
        AGG,
        "0.state",
        lambda t: with_value(t, "value", "count", [2**63 + n for n in range(len(t))], pa.uint64()),
        RefusedError,
        "value.count does not fit bigint (480 rows)",
    ),
    (
        AGG,
        "0.state",
        lambda t: with_value(t, "value", "count", [n / 2 for n in range(len(t))], pa.float64()),
        RefusedError,
        "value.count does not fit bigint (240 rows)",
    ),
    (AGG, "0.state", lambda t: pa.concat_tables([t, t.slice(0, 3)]), RefusedError, "the key occurs more than once"),
    (AGG, "0.state", lambda t: t, RefusedError, "the state already has the key (480 rows)"),
    (
        ALARMS,
        "0.eventTimers",
        lambda t: t.set_column(t.schema.get_field_index("time"), "time", pa.array(times(*range(len(t))))),
        RefusedError,
        "the timer is due before the next batch",
    ),
    (
        ALARMS,
        "0.eventTimers",
        lambda t: t.set_column(t.schema.get_field_index("time"), "time", pa.nulls(len(t), pa.timestamp("us", "UTC"))),
        RefusedError,
        "time is null (4 rows)",
    ),
    (JOIN, "0.left", drop("matched"), UsageError, "has no column matched"),
]


@pytest.mark.parametrize(
    ("name", "table", "change", "error", "words"), REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, name: str, table: str, change: Change, error: type[Exception], words: str
) -> None:
    target = sample(name, tmp_path)
    before = bytes_of(target)
    source = written(change(exported(target, tmp_path / "state", table)), tmp_path / "new.parquet")
    with pytest.raises(error) as raised:
        import_state(str(target), source, tables=[table], stopped=True)
    assert words in str(raised.value)
    assert ("mode merge or replace" in str(raised.value)) is ("already has the key" in str(raised.value))
    assert bytes_of(target) == before


def test_nulls_are_refused_where_the_state_has_none(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    rows = exported(target, tmp_path / "state", "0.state")
    none = with_value(rows, "value", "count", [None] * 2 + [1] * (len(rows) - 2))
    with pytest.raises(RefusedError) as raised:
        import_state(str(target), written(none, tmp_path / "new.parquet"), mode="replace", stopped=True)
    lines = str(raised.value).splitlines()
    assert "value.count is null (2 rows). For example:" in lines[0]
    assert len(lines) == 3 and all('key {"' in line for line in lines[1:])
    lost = rows.set_column(
        rows.schema.get_field_index("key"), "key", pa.nulls(len(rows), rows.schema.field("key").type)
    )
    with pytest.raises(RefusedError, match=r"key is null \(480 rows\)"):
        import_state(str(target), written(lost, tmp_path / "lost.parquet"), mode="replace", stopped=True)


def test_expired_rows_are_left_out(tmp_path: Path) -> None:
    target = sample(LISTS, tmp_path)
    rows = exported(target, tmp_path / "state", "0.recent")
    some = [1 if n % 2 else 4_000_000_000_000 for n in range(len(rows))]
    early = with_value(rows, "value", "ttlExpirationMs", some)
    source = written(early, tmp_path / "new.parquet")
    report = import_state(str(target), source, tables=["0.recent"], mode="replace", stopped=True)
    assert (report.rows, report.tables[0].expired) == (len(rows) - len(rows) // 2, len(rows) // 2)
    assert len(rows_of(target, "0.recent", tmp_path / "after")) == report.rows


@pytest.mark.parametrize("kind", ["dotted", "wider", "delta", "nanoseconds"])
def test_tables_of_other_forms(tmp_path: Path, kind: str) -> None:
    target, twin = sample(AGG, tmp_path), sample(AGG, tmp_path / "twin")
    rows = exported(target, tmp_path / "state", "0.state").select(["key", "value"])
    source = str(tmp_path / "new.parquet")
    if kind == "dotted":
        pq.write_table(rows.flatten(), source)
        assert all("." in name for name in rows.flatten().column_names)
    elif kind == "wider":
        counts = rows.column("value").combine_chunks().field("count").to_pylist()
        pq.write_table(with_value(rows, "value", "count", counts, pa.decimal128(30, 0)), source)
    elif kind == "nanoseconds":  # as Spark writes them: without a zone
        moments = rows.column("value").combine_chunks().field("max").cast(pa.timestamp("ns"))
        pq.write_table(with_value(rows, "value", "max", moments.to_pylist(), pa.timestamp("ns")), source)
    else:
        export(str(twin), f"delta:{tmp_path / 'delta'}")
        source = f"delta:{tmp_path / 'delta'}"
    import_state(str(target), source, mode="replace", stopped=True)
    assert entries_of(target) == entries_of(twin)


def test_places_that_are_no_table(tmp_path: Path) -> None:
    target = sample(ALARMS, tmp_path)
    export(str(target), str(tmp_path / "state"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.csv").write_text("a,b\n")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing")
    (half := tmp_path / "half").mkdir()
    (half / "_temporary").mkdir()
    pq.write_table(pa.table({"key": [1]}), half / "a.parquet")
    cases: list[tuple[str, list[str], type[Exception], str]] = [
        ("empty", ["0.all"], UsageError, "there are no Parquet files"),
        ("missing", ["0.all"], UsageError, "does not exist"),
        ("text.csv", ["0.all"], UsageError, "a table is a Parquet file"),
        ("bad.parquet", ["0.all"], UsageError, "is not a Parquet file that can be read"),
        ("half", ["0.all"], UsageError, "still being written"),
        ("state/0.all", [], UsageError, "Choose its state with tables: 0.eventTimers, 0.all"),
        ("state", ["0.nothing"], UsageError, "has no state for the table 0.nothing"),
    ]
    before = bytes_of(target)
    for place, names, error, words in cases:
        with pytest.raises(error) as raised:
            import_state(str(target), str(tmp_path / place), tables=names, stopped=True)
        assert words in str(raised.value)
    (tmp_path / "state/0.all").rename(tmp_path / "state/0.other")
    with pytest.raises(UsageError, match=r"has the table 0.other, but .* has no such state"):
        import_state(str(target), str(tmp_path / "state"), stopped=True)
    assert bytes_of(target) == before


def test_the_command_asks_before_it_replaces(ttlsnap: Ttlsnap, tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    before = bytes_of(target)
    export(str(target), str(tmp_path / "state"))
    words = ["import", target, "--from", tmp_path / "state", "--stopped"]
    ended = ttlsnap(*words, "--mode", "replace")
    assert (ended.code, "would replace the entries of 480 keys" in ended.err) == (4, True), ended.err
    assert bytes_of(target) == before
    ended = ttlsnap(*words, "--mode", "replace", "--dry-run", "--format", "json")
    document = json.loads(ended.out)
    assert (document["kind"], document["published"], document["totals"]["imported"]) == ("import", False, 480)
    assert document["sources"] == [{"logOffset": 5}], document["sources"]
    assert bytes_of(target) == before
    ended = ttlsnap(*words, "--mode", "replace", "--yes")
    assert ended.code == 0, ended.err
    assert 'source 0: {"logOffset": 5}' in ended.out
    assert "import" in ttlsnap("history", target).out


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (["_spark_metadata/"], "its _spark_metadata says which of the files count"),
        ([".hoodie/"], "its .hoodie says"),
        (["_started_1"], "a job has not ended"),
        (["_started_1", "_committed_1", "_started_2", "_committed_2"], "several jobs have written here"),
        (["b.PARQUET"], "b.PARQUET is not a Parquet file"),
        (["day=1/"], "it has Parquet files and the folder day=1"),
    ],
)
def test_folders_of_which_only_some_files_count(tmp_path: Path, made: list[str], words: str) -> None:
    target = sample(AGG, tmp_path)
    rows = exported(target, tmp_path / "state", "0.state")
    (folder := tmp_path / "table").mkdir()
    written(rows, folder / "a.parquet")
    (folder / "_SUCCESS").touch()
    import_state(str(target), str(folder), mode="replace", dry_run=True)
    for name in made:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).touch()
    with pytest.raises(UsageError, match=words):
        import_state(str(target), str(folder), mode="replace", stopped=True)


def test_a_part_that_is_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    exported(target, tmp_path / "state", "0.state")
    (tmp_path / "state/0.state/part-00009.parquet").symlink_to("gone.parquet")
    with pytest.raises(UsageError, match=r"part-00009.parquet is a symbolic link to a file that does not exist"):
        import_state(str(target), str(tmp_path / "state"), mode="replace", dry_run=True)


def test_a_type_of_arrow_is_named(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    rows = exported(target, tmp_path / "state", "0.state")
    key = pa.ExtensionArray.from_storage(pa.json_(pa.large_string()), rows.column("key").combine_chunks().field("key"))
    keys = pa.StructArray.from_arrays([key], names=["key"])
    written(rows.set_column(rows.schema.get_field_index("key"), "key", keys), tmp_path / "odd.parquet")
    with pytest.raises(UsageError, match=r"the column key.key has the type arrow.json of Arrow"):
        import_state(str(target), str(tmp_path / "odd.parquet"), mode="replace", dry_run=True)


def test_a_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    export(str(target), str(tmp_path / "state"), where=["key.key = user-0001"])
    (file,) = (tmp_path / "state/0.state").glob("*.parquet")
    table = pq.read_table(file)
    buffers = [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    keys = pa.StructArray.from_arrays([pa.Array.from_buffers(pa.string(), 1, buffers)], ["key"])
    place = table.schema.get_field_index("key")
    pq.write_table(table.set_column(place, "key", keys), file)
    with pytest.raises(UsageError, match=rf"{file.name}.*: key\.key has a text that is not UTF-8"):
        import_state(str(target), str(tmp_path / "state"), mode="merge", stopped=True)


def test_partitions_of_a_table_are_not_tables(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    rows = exported(target, tmp_path / "state", "0.state")
    (tmp_path / "table/day=1").mkdir(parents=True)
    written(rows, tmp_path / "table/day=1/a.parquet")
    with pytest.raises(UsageError, match="Write the table without partitionBy"):
        import_state(str(target), str(tmp_path / "table"), mode="replace", stopped=True)


def test_a_folder_with_a_table_that_is_not_complete(tmp_path: Path) -> None:
    target = sample(JOIN, tmp_path)
    export(str(target), str(tmp_path / "state"))
    for file in (tmp_path / "state/0.right").iterdir():
        file.unlink()
    (tmp_path / "state/0.right/_temporary").mkdir()
    with pytest.raises(UsageError, match=r"0\.right has no Parquet files"):
        import_state(str(target), str(tmp_path / "state"), mode="replace", stopped=True)


def test_old_calendars_are_refused_at_any_depth(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    rows = exported(target, tmp_path / "state", "0.state")
    old = with_value(rows, "value", "max", [datetime(1500, 1, 1, tzinfo=UTC)] * len(rows))
    marked = old.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})
    with pytest.raises(UnsupportedError, match=r"new.parquet: it has a time before 1900"):
        import_state(str(target), written(marked, tmp_path / "new.parquet"), mode="replace", stopped=True)
    import_state(str(target), written(old, tmp_path / "new.parquet"), mode="replace", dry_run=True)


@pytest.mark.parametrize("sources", [64, 5, 1])
@pytest.mark.parametrize("engine", ["threads", "spark"])
def test_lists_keep_the_order_of_numbered_files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, sources: int
) -> None:
    """Also if a source has several files, and if Spark brings the rows to their partitions in another order."""
    monkeypatch.setattr("ttlsnap.imports.run.SOURCES", sources)
    monkeypatch.setattr("ttlsnap.engines.shuffle.PIECE_BYTES", 1)
    runs_on = LocalEngine(2) if engine == "threads" else SparkEngine(session=request.getfixturevalue("spark"))
    target = sample(LISTS, tmp_path)
    rows = exported(target, tmp_path / "state", "0.recent")
    (folder := tmp_path / "table").mkdir()
    for n in range(12):
        one = with_value(rows.slice(0, 1), "value", "ttlExpirationMs", [4_000_000_000_000 + n])
        written(one, folder / f"part-{n}.parquet")
    report = import_state(str(target), str(folder), tables=["0.recent"], mode="replace", stopped=True, engine=runs_on)
    assert report.engine == runs_on.name
    export(str(target), str(tmp_path / "after"), tables=["0.recent"])
    found = [row["value"]["ttlExpirationMs"] for row in rows_in(tmp_path / "after/0.recent")]
    assert found == [4_000_000_000_000 + n for n in range(12)]


def test_an_empty_table_changes_nothing_or_warns(tmp_path: Path) -> None:
    target = sample(AGG, tmp_path)
    before = bytes_of(target)
    none = exported(target, tmp_path / "state", "0.state").slice(0, 0)
    source = written(none, tmp_path / "none.parquet")
    report = import_state(str(target), source, stopped=True)
    assert (report.published, report.warnings) == (False, ("0.state: the table has no rows",))
    assert bytes_of(target) == before
    report = import_state(str(target), source, mode="replace", dry_run=True)
    assert report.warnings == ("0.state: the table has no rows, so the state is empty afterwards",)
