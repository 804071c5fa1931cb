"""Tables that a real stream has merged into, and queries on them."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ..judge.processes import Server

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TTL = timedelta(days=7)
USERS = 60
BATCHES = 2
# The column with the time: its definition, the stream's expression for it, and its name for --timestamp.
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
    "tracked": "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.checkpointPolicy' = 'v2')",
}
# Columns of other types. The stream writes them in every row.
RICH = {
    "tags": ("tags MAP<STRING, STRUCT<n: INT>>", "map('a', named_struct('n', CAST(visits AS INT))) AS tags"),
    "deep": (
        "deep STRUCT<list: ARRAY<MAP<STRING, BIGINT>>, why: STRING>",
        "named_struct('list', array(map('b', visits), map()), 'why', IF(visits % 2 = 0, NULL, 'x')) AS deep",
    ),
    "name": ("name VARCHAR(20) NOT NULL", "concat(user, '.') AS name"),
    "price": ("price DECIMAL(20, 3)", "CAST(visits AS DECIMAL(20, 3)) AS price"),
    "blob": ("blob BINARY", "CAST(user AS BINARY) AS blob"),
    "twice": ("twice BIGINT GENERATED ALWAYS AS (visits * 2)", "visits * 2 AS twice"),
}


def moment(number: int) -> datetime | None:
    """Return when a user was last seen, within twenty days. Every tenth user has no time."""
    return None if number % 10 == 9 else NOW - timedelta(hours=8 * number, minutes=number)


class Table:
    """A table that a stream has merged into, and its server with Delta."""

    def __init__(
        self, server: Server, folder: Path, time: str = "timestamp", kind: str = "plain", rich: bool = False
    ) -> None:
        self._server, self.folder = server, folder
        self.path = str(folder / "table")
        self.time = TIMES[time]
        more = list(RICH.values()) if rich else []
        self.columns = ";".join(
            ["user", "visits", "CAST(visits % 3 AS STRING) AS part", self.time[1], *(given for _, given in more)]
        )
        definitions = ", ".join(["user STRING, visits BIGINT, part STRING", self.time[0], *(made for made, _ in more)])
        kind_of_it = (server, time, kind, rich)
        if kind_of_it in _MADE:
            _copy(_MADE[kind_of_it], folder)
            return
        (folder / "source").mkdir(parents=True)
        self.sql(
            f"CREATE TABLE delta.`{self.path}` ({definitions}) USING delta {KINDS[kind]}",
            *([f"ALTER TABLE delta.`{self.path}` ADD CONSTRAINT few CHECK (visits < 1000000)"] if rich else []),
        )
        for batch in range(BATCHES):
            self.put(range(batch, USERS, 2) if batch % 2 else range(USERS))
        self.merge()
        _MADE[kind_of_it] = folder.with_name(f"{folder.name}-as-made")
        _copy(folder, _MADE[kind_of_it])

    def put(self, users: Any, at: datetime | None = None, visits: int = 1) -> None:
        """Write a file of events."""
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
        return self.call("merge", path=self.path, pause_s=pause_s, **self.stream())

    def stream(self) -> dict[str, Any]:
        """Return the order for ``merge``."""
        places = {name: str(self.folder / name) for name in ("source", "checkpoint")}
        return {"columns": self.columns, **places}

    def compact(self, **options: Any) -> Any:
        return self.call("compact", path=self.path, **self.order(**options))

    def order(self, **options: Any) -> dict[str, Any]:
        """Return the options of a run."""
        policy = {} if "rule" in options else {"ttl": f"{TTL.days}d", "timestamp": self.time[2]}
        return {**policy, "key": ["user"], "now": NOW.isoformat(), **options}

    def rows(self, columns: str = "*", version: int | None = None) -> list[list[Any]]:
        at = "" if version is None else f" VERSION AS OF {version}"
        return list(self.sql(f"SELECT {columns} FROM delta.`{self.path}`{at} ORDER BY user"))

    def version(self) -> int:
        return max(int(path.stem) for path in (Path(self.path) / "_delta_log").glob("*.json"))

    def commit(self, version: int) -> dict[str, Any]:
        """Return the ``commitInfo`` of a version."""
        text = (Path(self.path) / "_delta_log" / f"{version:020d}.json").read_text()
        found = [json.loads(line) for line in text.splitlines()]
        return next(dict(line["commitInfo"]) for line in found if "commitInfo" in line)

    def files(self) -> dict[str, int]:
        """Return every file on disk with its size."""
        root = Path(self.path)
        return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    def users(self, version: int | None = None) -> list[str]:
        return [row[0] for row in self.rows("user", version)]


_MADE: dict[tuple[Server, str, str, bool], Path] = {}


def _copy(made: Path, folder: Path) -> None:
    """Copy a table and its stream, and adapt the full paths in the stream's source log."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    for log in folder.glob("checkpoint/sources/0/[0-9]*"):
        log.write_text(log.read_text().replace(f"{made}/", f"{folder}/"))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)


def expired(day: bool = False) -> set[str]:
    """Return the users who have been away for the TTL or longer."""
    found = set()
    for user in range(USERS):
        at = moment(user)
        if at is not None:
            seen = at.replace(hour=0, minute=0, second=0) if day else at
            found |= {f"u{user:03d}"} if seen + TTL <= NOW else set()
    return found


ALL = {f"u{user:03d}" for user in range(USERS)}
