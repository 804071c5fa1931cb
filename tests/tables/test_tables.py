"""TTL on tables that a real stream has merged into: what expired is gone, and nothing else is another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run
from ttlsnap.delta.history import table_history

from ..judge.processes import NEWEST, Server, SparkFailed
from ..matrix import FULL

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TTL = timedelta(days=7)
USERS = 60
BATCHES = 2
# The column that holds the time: its definition, what the stream gives for it, and how --timestamp names it.
TIMES = {
    "timestamp": ("at TIMESTAMP", "to_timestamp(at) AS at", "at"),
    "timestamp_ntz": ("at TIMESTAMP_NTZ", "to_timestamp_ntz(at) AS at", "at"),
    "date": ("at DATE", "to_date(at) AS at", "at"),
    "seconds": ("at BIGINT", "unix_timestamp(to_timestamp(at)) AS at", "at:s"),
    "millis": ("at BIGINT", "unix_millis(to_timestamp(at)) AS at", "at:ms"),
    "nested": (
        "seen STRUCT<at: TIMESTAMP, how: STRING>",
        "struct(to_timestamp(at) AS at, 'x' AS how) AS seen",
        "seen.at",
    ),
}
KINDS = {
    "plain": "",
    "partitioned": "PARTITIONED BY (part)",
    "clustered": "CLUSTER BY (user)",
    "vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "feed": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "names": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ids": "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
    "checkpoints": "TBLPROPERTIES ('delta.checkpointInterval' = '2')",
}


def moment(number: int) -> datetime | None:
    """When a user was last seen: over twenty days; every tenth never."""
    return None if number % 10 == 9 else NOW - timedelta(hours=8 * number, minutes=number)


class Table:
    """A table that a stream has merged into, and the server that has Delta."""

    def __init__(self, server: Server, folder: Path, time: str = "timestamp", kind: str = "plain") -> None:
        self._server, self.folder = server, folder
        self.path = str(folder / "table")
        self.time = TIMES[time]
        self.columns = f"user;visits;CAST(visits % 3 AS STRING) AS part;{self.time[1]}"
        (folder / "source").mkdir(parents=True)
        self.sql(
            f"CREATE TABLE delta.`{self.path}` (user STRING, visits BIGINT, part STRING, {self.time[0]}) USING delta "
            + KINDS[kind]
        )
        for batch in range(BATCHES):
            self.put(range(batch, USERS, 2) if batch % 2 else range(USERS))
        self.merge()

    def put(self, users: Any, at: datetime | None = None, visits: int = 1) -> None:
        """A file of events."""
        number = len(list((self.folder / "source").iterdir()))
        lines = []
        for user in users:
            seen = at or moment(user)
            lines.append(json.dumps({"user": f"u{user:03d}", "visits": user * visits, "at": seen and seen.isoformat()}))
        path = self.folder / "source" / f"{number:05d}.json"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_700_000_000 + number,) * 2)

    def call(self, function: str, **order: Any) -> Any:
        return self._server.ask("call", package=str(Path(__file__).parent), function=f"stream.{function}", order=order)

    def sql(self, *statements: str) -> Any:
        return self.call("sql", statements=list(statements))

    def merge(self, pause_s: float = 0.0) -> Any:
        places = {name: str(self.folder / name) for name in ("source", "checkpoint")}
        return self.call("merge", path=self.path, columns=self.columns, pause_s=pause_s, **places)

    def compact(self, **options: Any) -> Any:
        return self.call(
            "compact",
            path=self.path,
            ttl=f"{TTL.days}d",
            timestamp=self.time[2],
            **{"key": ["user"], "now": NOW.isoformat(), **options},
        )

    def users(self, version: int | None = None) -> list[str]:
        at = "" if version is None else f" VERSION AS OF {version}"
        return [row[0] for row in self.sql(f"SELECT user FROM delta.`{self.path}`{at} ORDER BY user")]


def expired(day: bool = False) -> set[str]:
    """Who has been away for longer than the TTL."""
    found = set()
    for user in range(USERS):
        at = moment(user)
        if at is not None:
            seen = at.replace(hour=0, minute=0, second=0) if day else at
            found |= {f"u{user:03d}"} if seen + TTL <= NOW else set()
    return found


ALL = {f"u{user:03d}" for user in range(USERS)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("delta")
    server = Server(NEWEST, 0, folder / "server", folder / "classes", delta=True)
    yield server
    server.close()


EVERYTHING = [
    *((time, "plain") for time in TIMES),
    *(("timestamp", kind) for kind in KINDS if kind != "plain"),
    ("nested", "vectors"),
]


@pytest.mark.parametrize(("time", "kind"), EVERYTHING if FULL else [("nested", "vectors")])
def test_what_expired_goes_and_the_stream_goes_on(server: Server, tmp_path: Path, time: str, kind: str) -> None:
    table = Table(server, tmp_path, time, kind)
    gone = expired(day=time == "date")
    before = table.users()
    assert set(before) == ALL
    dry = table.compact(dry_run=True)
    assert (dry["totals"]["entries"], dry["totals"]["dropped"]) == (USERS, len(gone))
    assert table.users() == before
    report = table.compact()
    assert report["totals"]["dropped"] == len(gone)
    assert set(table.users()) == ALL - gone
    assert table.users(report["logically_gone"]["version"] - 1) == before
    # Once more: there is nothing left, and no version is made.
    assert table.compact()["published"] is False
    # A dropped key starts afresh, a kept one goes on.
    kept = sorted(ALL - gone)[0]
    table.put([int(min(gone)[1:]), int(kept[1:])], at=NOW, visits=1000)
    table.merge()
    assert set(table.users()) == ALL - gone | {min(gone)}


def test_history_and_rollback(server: Server, tmp_path: Path) -> None:
    table = Table(server, tmp_path)
    before = table.users()
    report = table.compact()
    assert table.compact(key=[], dry_run=True)["key"] == ["user"]  # it is remembered
    (first,) = table_history(table.path)
    assert (first.run, first.dropped) == (report["run"], len(expired()))
    table.call("rollback", path=table.path)
    assert table.users() == before
    assert [entry.kind for entry in table_history(table.path)] == ["compact", "rollback"]
    table.compact()
    table.put([1], at=NOW)
    table.merge()
    with pytest.raises(SparkFailed, match="would be lost"):
        table.call("rollback", path=table.path)


def test_bad_input_leaves_a_table_as_it_is(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(server, tmp_path)
    with pytest.raises(SparkFailed, match="say which columns a row goes by"):
        table.compact(key=[])
    # A dry run needs no Spark.
    options = ["--key", "user", "--timestamp", "at", "--ttl", "7d", "--now", NOW.isoformat(), "--dry-run"]
    assert run(["compact", table.path, *options, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["totals"]["dropped"]) == ("table", len(expired()))
    assert run(["compact", table.path, *options]) == 0
    assert "A dry run" in capsys.readouterr().out
    for wrong, words in (
        ([*options, "--output", "x"], "--output is for checkpoints"),
        (options[2:], "--key"),
        (["--key", "nosuch", *options[2:]], "no column nosuch for a key"),
        (["--key", "user", "--timestamp", "nosuch", *options[4:]], "has no field value.nosuch"),
        (
            ["--key", "user", "--transformer", "keep", *options[6:]],
            "only --ttl with --timestamp makes something",
        ),
    ):
        assert run(["compact", table.path, *wrong]) in (2, 3)
        assert words in capsys.readouterr().err
    assert run(["history", table.path]) == 0
    assert "no runs" in capsys.readouterr().out
    assert run(["history", table.path, "--prune"]) == 2
    assert run(["rollback", table.path]) == 4
    table.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(SparkFailed, match=r"delta\.appendOnly"):
        table.compact()
    assert set(table.users()) == ALL
