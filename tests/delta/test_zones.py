"""A partition by a timestamp may not say in which time zone it is. What the error proposes is tried."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run
from ttlsnap.delta.cutoff import ColumnPath, TableCutoff
from ttlsnap.delta.log import DataFile
from ttlsnap.errors import UnsupportedError
from ttlsnap.schema.types import TimestampType

from ..judge.processes import Server, SparkFailed
from ..samples import bytes_of
from .tables import NOW, TTL

AT = ColumnPath(("at",), ("c1",), TimestampType())
NOON = 1_767_268_800_000_000  # 2026-01-01 12:00 UTC
SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.databricks.delta.write.utcTimestampPartitionValues",
    "spark.sql.sources.partitionOverwriteMode",
)
ZONE = "America/Lima"  # always five hours behind UTC


@pytest.mark.parametrize(
    ("value", "dropped"),
    [("2026-01-01T12:00:00.000000Z", True), ("2026-01-01 07:00:00-05:00", True), ("", None), (None, False)],
)
def test_a_partition_with_a_zone_is_decided(value: str | None, dropped: bool | None) -> None:
    assert TableCutoff(AT, NOON).decide(DataFile("a.parquet", 1, {"c1": value}, {})) is dropped


def test_a_partition_without_a_zone_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"partitioned by the timestamp at, and its value .* has no time zone"):
        TableCutoff(AT, NOON).decide(DataFile("a.parquet", 1, {"c1": "2026-01-01 12:00:00"}, {}))


@pytest.mark.wide
def test_values_that_are_written_again_have_a_zone(
    delta_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table"

    def ask(function: str, **order: Any) -> Any:
        return delta_server.ask("call", package=str(Path(__file__).parent), function=f"stream.{function}", order=order)

    # Read in UTC, the row of three hours ago would be five hours older.
    ages = {"old": TTL + timedelta(hours=1), "new": TTL - timedelta(hours=3), "newest": timedelta()}
    rows = ", ".join(f"('{user}', TIMESTAMP '{(NOW - age).isoformat()}')" for user, age in ages.items())
    name = f"delta.`{path}`"
    try:
        ask(
            "sql",
            statements=[
                f"SET {SETTINGS[0]} = {ZONE}",
                f"SET {SETTINGS[1]} = false",
                f"CREATE TABLE {name} (user STRING, at TIMESTAMP) USING delta PARTITIONED BY (at)",
                f"INSERT INTO {name} VALUES {rows}, ('none', NULL)",
            ],
        )
        before = bytes_of(path)
        words = ["--key", "user", "--timestamp", "at", "--ttl", f"{TTL.days}d", "--now", NOW.isoformat(), "--dry-run"]
        assert run(["compact", str(path), *words]) == 3
        told = " ".join(capsys.readouterr().err.split())
        assert "has no time zone: it is in the zone of the session that wrote it" in told
        order = {"ttl": f"{TTL.days}d", "timestamp": "at", "key": ["user"], "now": NOW.isoformat()}
        with pytest.raises(SparkFailed, match="has no time zone"):
            ask("compact", path=str(path), max_drop=1.0, **order)
        assert bytes_of(path) == before

        found = re.search(r": (SET .*?; SET .*?; INSERT OVERWRITE .*?)\. Until", told)
        assert found is not None, told
        ask("sql", statements=found[1].replace("delta.`TABLE`", name).split("; "))
        assert run(["compact", str(path), *words]) == 0
        assert ask("compact", path=str(path), **order)["totals"]["dropped"] == 1
        left = ask("sql", statements=[f"SELECT user FROM {name} ORDER BY user"])
        assert left == [["new"], ["newest"], ["none"]]
        times = ask("sql", statements=[f"SELECT unix_seconds(at) FROM {name} WHERE user = 'new'"])
        assert times == [[int((NOW - ages["new"]).timestamp())]]
    finally:
        ask("sql", statements=[f"RESET {setting}" for setting in SETTINGS])
