"""Others change a table while a run is on it, or after it: the archive and the rollback are still right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ttlsnap.cli.app import run

from ..judge.processes import Server, SparkFailed
from .archives import archived, users
from .tables import ALL, NOW, Table, expired

RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"


def change(table: Table) -> list[str]:
    """Return statements that add a column, and a row with the key of a row that is about to be dropped."""
    name, key, now = f"delta.`{table.path}`", min(expired()), NOW.isoformat()
    return [
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"INSERT INTO {name} (user, visits, part, at, more) VALUES ('{key}', 77, '0', TIMESTAMP '{now}', 5)",
    ]


@pytest.mark.wide
def test_rows_are_archived_if_the_table_changes_before_the_commit(delta_server: Server, tmp_path: Path) -> None:
    table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
    before = dict(table.rows("user, visits"))
    report = table.compact(expired_to=place, others=change(table))
    assert report["warnings"] == [], report["warnings"]
    rows = archived(place)
    assert set(users(rows)) == expired() and len(rows) == report["totals"]["dropped"] == len(expired())
    visits = {user: json.loads(row["value"])["visits"] for user, row in zip(users(rows), rows, strict=True)}
    assert visits == {user: before[user] for user in expired()}
    assert all(row["timestamp"] is not None for row in rows)
    assert sorted(table.users()) == sorted([*(ALL - expired()), min(expired())])
    assert not (Path(table.path) / "_ttlsnap").exists()


@pytest.mark.wide
def test_rows_wait_for_the_next_run_if_the_table_changes_after_the_commit_too(
    delta_server: Server, tmp_path: Path
) -> None:
    table, place = Table(delta_server, tmp_path), str(tmp_path / "archive")
    order = table.order(expired_to=place, others=change(table))
    table.call("killed", path=table.path, at="archiving.TableArchive.deliver", **order)
    # What cannot be computed now must not cost the rows that are staged.
    table.call("killed", path=table.path, at="archiving.comparable", **table.order(expired_to=place))
    staged = list((Path(table.path) / "_ttlsnap/runs").glob("*/staged/*.parquet"))
    assert sum(len(pq.read_table(path)) for path in staged) == len(expired())
    table.sql(f"ALTER TABLE delta.`{table.path}` ADD COLUMN another INT")
    assert table.compact(expired_to=place)["warnings"] == []
    assert sorted(users(archived(place))) == sorted(expired())
    assert not (Path(table.path) / "_ttlsnap").exists()


@pytest.mark.wide
def test_a_rollback_after_vacuum_succeeds_or_says_what_is_gone(delta_server: Server, tmp_path: Path) -> None:
    table = Table(delta_server, tmp_path)
    table.compact()
    name = f"delta.`{table.path}`"
    table.sql(f"VACUUM {name}")  # nothing is old enough
    assert "VACUUM END" in {table.commit(version)["operation"] for version in range(table.version() + 1)}
    table.call("rollback", path=table.path)
    assert set(table.users()) == ALL
    table.compact()
    table.sql(f"SET {RETENTION} = false", f"VACUUM {name} RETAIN 0 HOURS", f"RESET {RETENTION}")
    with pytest.raises(SparkFailed, match=r"can no longer be rolled back: version .* needs files that") as failed:
        table.call("rollback", path=table.path)
    assert "RESTORE TABLE" not in str(failed.value)
    table.put([1], at=NOW)
    table.merge()
    with pytest.raises(SparkFailed, match="can no longer be rolled back"):
        table.call("rollback", path=table.path)


@pytest.mark.wide
def test_ids_of_another_program_in_a_file_do_not_count(
    delta_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table"
    path.mkdir()
    old = pa.array([0, 1, 2], pa.timestamp("us", "UTC"))
    numbers = {"user": 9, "stamp": 3}  # Delta will give 3 to the new column
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(numbers[name])})
        for name, kind in (("user", pa.string()), ("stamp", old.type))
    ]
    pq.write_table(pa.table([pa.array(["a", "b", "c"]), old], schema=pa.schema(fields)), path / "a.parquet")
    name = f"delta.`{path}`"

    def ask(function: str, **order: Any) -> Any:
        return delta_server.ask("call", package=str(Path(__file__).parent), function=f"stream.{function}", order=order)

    mapped = f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    added = f"ALTER TABLE {name} ADD COLUMN seen TIMESTAMP"
    ask("sql", statements=[f"CONVERT TO DELTA parquet.`{path}`", mapped, added])
    assert ask("sql", statements=[f"SELECT count(seen) FROM {name}"]) == [[0]]
    order = {"ttl": "7d", "timestamp": "seen", "now": NOW.isoformat()}
    words = [word for option, value in order.items() for word in (f"--{option}", value)]
    assert run(["compact", str(path), "--key", "user", *words, "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["dropped"] == 0
    assert ask("compact", path=str(path), key=["user"], **order)["totals"]["dropped"] == 0
