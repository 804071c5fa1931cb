"""Transformers other than a TTL, on tables: kept, rewritten and dropped rows, and writes of the stream during a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..judge.processes import Server, SparkFailed
from ..matrix import FULL
from .tables import ALL, KINDS, NOW, USERS, Table, expired

pytestmark = pytest.mark.wide  # more of what test_tables.py begins

CAPPED = {f"u{user:03d}": min(user, 40) for user in range(USERS) if user != 3}


def ask(server: Server, function: str, **order: Any) -> Any:
    return server.ask("call", package=str(Path(__file__).parent), function=f"stream.{function}", order=order)


def visits(table: Table) -> dict[str, int]:
    return dict(table.rows("user, visits"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if FULL or kind == "ids"])
def test_each_row_is_kept_rewritten_or_dropped(delta_server: Server, tmp_path: Path, kind: str) -> None:
    table = Table(delta_server, tmp_path, kind=kind, rich=True)
    before, files, version = table.rows(), table.files(), table.version()
    dry = table.compact(rule="cap", dry_run=True)
    counted = {"entries": USERS, "kept": 40, "dropped": 1, "rewritten": 19}
    assert {name: dry["totals"][name] for name in counted} == counted
    assert (table.files(), table.version()) == (files, version)  # a dry run writes nothing anywhere
    report = table.compact(rule="cap")
    assert {name: report["totals"][name] for name in counted} == counted
    (made,) = report["versions"]
    assert made == version + 2  # one more version records the key
    assert table.commit(made)["operation"] == "MERGE"
    assert f'"run": "{report["run"]}"' in table.commit(made)["userMetadata"]
    assert '"dropped": 1, "rewritten": 19' in table.commit(made)["userMetadata"]
    # The remaining rows differ only in the visits, and in the column that is generated from them.
    wanted = []
    for user, _, *rest, _ in before:
        if user in CAPPED:
            wanted.append([user, CAPPED[user], *rest, 2 * CAPPED[user]])
    assert table.rows() == wanted
    assert table.rows(version=made - 1) == before
    assert table.compact(rule="cap")["published"] is False
    # A dropped key starts afresh, and a rewritten key continues.
    table.put([3, 50], at=NOW, visits=2)
    table.merge()
    assert visits(table) == {**CAPPED, "u003": 6, "u050": 100}


if FULL:  # takes a while

    def test_a_batch_transformer_and_a_ttl_apply_together(delta_server: Server, tmp_path: Path) -> None:
        table = Table(delta_server, tmp_path, kind="vectors")
        report = table.compact(rule="Double", ttl="7d", timestamp="at")
        kept = {user: 2 * int(user[1:]) for user in ALL - expired() if int(user[1:]) % 2 == 0}
        assert visits(table) == kept
        assert (report["totals"]["rewritten"], report["totals"]["dropped"]) == (len(kept), USERS - len(kept))


def test_rows_that_the_stream_writes_meanwhile_are_unchanged(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path)
    # Without the stream, these three users would be dropped, rewritten and kept.
    table.put([3, 50, 10], at=NOW, visits=7)
    report = table.compact(rule="cap", meanwhile=table.stream())
    assert visits(table) == {**CAPPED, "u003": 21, "u050": 350, "u010": 70}
    assert (report["overtaken"], report["totals"]["dropped"], report["totals"]["rewritten"]) == (2, 0, 18)


def test_a_key_may_have_nulls_and_several_columns(delta_server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    ask(
        delta_server,
        "sql",
        statements=[
            f"CREATE TABLE delta.`{path}` (user STRING, `a.b` INT, visits BIGINT) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            f"INSERT INTO delta.`{path}` VALUES (NULL, 1, 50), (NULL, NULL, 60), ('x', NULL, 3), ('x', 1, 5)",
        ],
    )
    told, public = ask(delta_server, "refused", path=path, rule="cap", key=["user"])
    assert "user is not a key: several rows have user=" in told and "user='x'" in told
    assert "user is not a key: several rows have [not shown]. Nothing was changed. Name the columns" in public
    assert len(list((tmp_path / "table/_delta_log").glob("*.json"))) == 2
    report = ask(delta_server, "compact", path=path, rule="cap", key=["USER", "a.b"])
    assert report["key"] == ["user", "a.b"]
    rows = ask(delta_server, "sql", statements=[f"SELECT * FROM delta.`{path}` ORDER BY visits, `a.b`"])
    assert rows == [["x", 1, 5], [None, None, 40], [None, 1, 40]]


def test_a_transformer_that_raises_changes_nothing(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path)
    files = table.files()
    with pytest.raises(SparkFailed, match=r"key {'user': 'u007'}: ValueError at rules.py:\d+: who is this\?"):
        table.compact(rule="wrong")
    assert table.files() == files
    _, public = ask(delta_server, "refused", path=str(table.path), rule="wrong", key=["user"])
    assert "key [not shown]: ValueError at rules.py:27: [not shown]" in public
    assert set(table.users()) == ALL


@pytest.mark.parametrize("year", [1500, 2000] if FULL else [1500])
def test_files_in_the_old_calendar_are_read_as_spark_reads_them(
    delta_server: Server, tmp_path: Path, year: int
) -> None:
    # Before 1582, days of the Julian calendar differ. The staged rows must be those that Spark reads.
    path = str(tmp_path / "table")
    ask(
        delta_server,
        "sql",
        statements=[
            "SET spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY",
            f"CREATE TABLE delta.`{path}` (user STRING, born DATE, days ARRAY<DATE>, visits BIGINT) USING delta",
            f"INSERT INTO delta.`{path}` VALUES "
            f"('u3', DATE'{year}-01-01', NULL, 3), ('u50', DATE'2000-01-01', array(DATE'{year}-02-02'), 50)",
            "SET spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED",
        ],
    )
    report = ask(delta_server, "compact", path=path, rule="cap", key=["user"])
    assert (report["totals"]["rewritten"], report["overtaken"]) == (1, 0)
    query = f"SELECT user, CAST(born AS STRING), visits FROM delta.`{path}` ORDER BY user"
    rows = ask(delta_server, "sql", statements=[query])
    assert [row[-1] for row in rows] == [int(row[0][1:]) if int(row[0][1:]) < 40 else 40 for row in rows]
