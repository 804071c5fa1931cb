"""Runs beside a stream: no update is lost, commits stay below the limits, and a crash does no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from ttlsnap.delta.history import table_history

from ..judge.processes import Server, SparkFailed
from ..matrix import FULL
from .tables import ALL, NOW, TTL, USERS, Table, expired

ROUNDS = 12 if FULL else 2


@pytest.mark.wide
@pytest.mark.parametrize("rule", [None, "cap"] if FULL else [None])
def test_no_update_is_lost(delta_server: Server, tmp_path: Path, rule: str | None) -> None:
    table = Table(delta_server, tmp_path, kind="vectors")
    last: dict[int, int] = {}
    for number in range(1, ROUNDS + 1):
        users = range(number, USERS, 7)
        table.put(users, at=NOW + timedelta(minutes=number), visits=number)
        last |= dict.fromkeys(users, number)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(table.merge, 0.2)
        runs = 0
        while not stream.done() or not runs:
            table.compact(**({} if rule is None else {"rule": rule}))
            runs += 1
        assert stream.result() == ROUNDS
    found = {int(user[1:]): count for user, count in table.rows("user, visits")}
    for user, number in last.items():
        mine = user * number
        if rule is None:
            assert found[user] == mine
        else:
            # The rule may have seen the last value, or only earlier values.
            assert found.get(user) in ({mine, min(mine, 40)} if mine != 3 else {mine, None})
    if rule is None:
        untouched = {f"u{user:03d}" for user in range(USERS) if user not in last}
        assert {f"u{user:03d}" for user in found} == ALL - (expired() & untouched)


if FULL:  # takes a while

    def test_a_commit_gives_up_after_repeated_conflicts(delta_server: Server, tmp_path: Path) -> None:
        table = Table(delta_server, tmp_path)
        before = table.rows()
        with pytest.raises(SparkFailed, match="another writer committed first, 2 times"):
            table.call("beaten", path=table.path)
        assert table.rows() == before
        assert table_history(table.path) == []


@pytest.mark.parametrize("way", ["spread", "by time"] if FULL else [])
def test_commits_are_bounded_and_begin_with_the_oldest_files(delta_server: Server, tmp_path: Path, way: str) -> None:
    table = Table(delta_server, tmp_path)
    columns = "user, visits, part, at"
    order = "at" if way == "by time" else "crc32(user)"
    table.sql(
        f"INSERT OVERWRITE delta.`{table.path}` SELECT /*+ REPARTITION_BY_RANGE(9, place) */ {columns} FROM "
        f"(SELECT *, {order} AS place FROM delta.`{table.path}`)",
    )
    before = table.rows()
    report = table.compact(limits=(2, None))
    assert set(table.users()) == ALL - expired()
    made = [table.commit(version) for version in report["versions"]]
    assert len(made) > 2
    assert {commit["operation"] for commit in made} == {"DELETE" if way == "by time" else "MERGE"}
    touched = [
        int(commit["operationMetrics"].get("numRemovedFiles", commit["operationMetrics"].get("numTargetFilesRemoved")))
        for commit in made
    ]
    assert max(touched) <= 2
    assert sum(touched) > 4
    assert report["totals"]["dropped"] == len(expired())
    if way == "by time":  # the oldest rows are dropped first
        first = set(table.users(report["versions"][0] - 1)) - set(table.users(report["versions"][0]))
        assert first == set(sorted(expired())[-len(first) :])
    (run,) = table_history(table.path)
    assert (list(run.versions), run.dropped) == (report["versions"], len(expired()))
    if FULL:
        table.call("rollback", path=table.path)
        assert table.rows() == before


MOMENTS: dict[str, Callable[[Path, int], bool]] = {
    "before": lambda folder, files: len(list(folder.glob("*.parquet"))) > files,
    "during": lambda folder, files: any(folder.glob("_delta_log/.*.json.*.tmp")),
    "after": lambda folder, files: len(list(folder.glob("_delta_log/*.json"))) > 4,
}


if FULL:  # takes a while

    @pytest.mark.parametrize("moment", list(MOMENTS))
    def test_a_crash_leaves_the_table_as_before_or_after_the_run(
        delta_server: Server, tmp_path: Path, moment: str
    ) -> None:
        table = Table(delta_server, tmp_path)
        table.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('ttlsnap.key' = 'user')")
        before, version = table.rows(), table.version()
        assert version == 3  # creation, two merges, and the key
        command = [str(Path(sys.executable).with_name("ttlsnap")), "compact", table.path, "--ttl", f"{TTL.days}d"]
        command += ["--timestamp", "at", "--now", NOW.isoformat(), "--yes", "--master", "local[1]"]
        files = len(list(Path(table.path).glob("*.parquet")))
        process = subprocess.Popen(
            command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        while process.poll() is None and not MOMENTS[moment](Path(table.path), files):
            time.sleep(0.0005)
        died = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        told = process.communicate()[0].decode()
        assert died, told
        kept = [row for row in before if row[0] not in expired()]
        if moment == "before":
            assert table.rows() == before
        else:
            assert table.rows() in (before, kept)
        assert table.rows() == (kept if table.version() > version else before)
        # The crash does not block the next run.
        table.compact()
        assert table.rows() == kept
