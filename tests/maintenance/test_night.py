"""One night: a policy for twenty targets is killed half way and run again. Then every query restarts correctly."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ..compaction.stories import BATCHES, FIELDS, MORE, H, digest, limit_of, settled, unwanted
from ..delta import tables
from ..delta.tables import Table
from ..judge.processes import Server
from ..judge.queries import Query, stamp
from ..judge.spark import Checkpoint, Judge
from ..matrix import FULL
from ..samples import bytes_of
from ..storage.places import download, upload
from .targets import cut_off, damaged, unknown

WRITTEN = [
    (Query("agg_update"), "4.2"),
    (Query("agg_update", provider="rocksdb"), "4.2"),
    (Query("agg_update", provider="rocksdb", changelog=True), "4.2"),
    (Query("dedup"), "4.2"),
    (Query("dedup_within", provider="rocksdb"), "4.2"),
    (Query("agg_append"), "4.2"),
    (Query("agg_update"), "4.1"),
    (Query("agg_update", provider="rocksdb", changelog=True), "4.1"),
    (Query("agg_update", provider="rocksdb"), "4.0"),
    (Query("agg_update"), "4.0"),
    (Query("agg_update"), "3.5"),
    (Query("agg_update", provider="rocksdb"), "3.5"),
    (Query("agg_window_update"), "3.5"),
]
TARGETS = 20
KILLED_AFTER = 7
# The lease of an object store expires early, so that the second run need not wait.
COMMAND = """
import sys
from ttlsnap.storage import lease
from ttlsnap.cli.app import run
lease.LEASE = 3.0
sys.exit(run(sys.argv[1:]))
"""


def write(judge: Judge, query: Query, version: str) -> Checkpoint:
    layout = "deltas" if query.provider == "hdfs" or query.changelog else "snapshot"
    return judge.write(query, BATCHES, layout=layout, version=version)


@dataclass
class Night:
    """The policy of one night, and its runs."""

    folder: Path
    policy: str = '[defaults]\nstopped = true\nexpired_to = "expired"\non_busy = "skip"\n'
    targets: int = 0

    def add(self, path: str | Path, ttl: str, timestamp: str, now: str, more: str = "") -> None:
        self.policy += f"[[target]]\npath = {json.dumps(str(path))}\n{more}"
        self.policy += f'[[target.rule]]\nttl = "{ttl}"\ntimestamp = "{timestamp}"\nnow = "{now}"\n'
        self.targets += 1

    def add_query(self, checkpoint: Checkpoint, path: str | Path | None = None, more: str = "") -> None:
        query = checkpoint.query
        now = stamp(limit_of(query) + 2 * H)
        self.add(path or checkpoint.path, "2h", FIELDS[query.operator], now, more)

    def run(self, kill_after: int | None = None) -> tuple[int, list[dict[str, Any]]]:
        """Carry out the policy. Return the exit code, and the log event of each target that ended.

        Kill the run when ``kill_after`` targets have ended.
        """
        policy = self.folder / "policy.toml"
        policy.write_text(self.policy)
        words = ["maintain", str(policy), "--engine", "local", "--parallelism", "2", "--log-format", "json"]
        command = [sys.executable, "-c", COMMAND, *words, "--metrics", str(self.folder / "metrics.prom")]
        told = []
        stdout, stderr = subprocess.DEVNULL, subprocess.PIPE
        with subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True) as run:
            for line in run.stderr or ():
                # Output of the JVM may precede the JSON in the same line.
                found = re.search(rb'\{"time".*', line)
                event = json.loads(found[0]) if found else {}
                if event.get("event") == "target":
                    told.append(event)
                if len(told) == kill_after:
                    os.killpg(run.pid, signal.SIGKILL)
                    break
        return run.returncode, told

    def archived(self) -> Counter[str]:
        """Count the archived entries of each run."""
        paths = (self.folder / "expired").glob("*.parquet")
        return Counter(run for path in paths for run in pq.read_table(path)["run"].to_pylist())


if FULL:  # takes some minutes

    @pytest.mark.parametrize("store", ["minio"], indirect=True)
    def test_a_killed_night_is_completed_by_the_next_run(
        judge: Judge, delta_server: Server, bucket: str, tmp_path: Path
    ) -> None:
        night = Night(tmp_path)
        written = judge.together(*(partial(write, judge, query, of) for query, of in WRITTEN))
        copies = [judge.copy(written[place]) for place in (0, 1)]
        begun = judge.write(Query("agg_update"), BATCHES, uncommitted=MORE[0])
        for checkpoint in (*written, *copies, begun):
            settled(checkpoint.path)
        for checkpoint in written:
            night.add_query(checkpoint)
        # Three special targets: one was killed while publishing, one is in an object store, one has a running query.
        night.add_query(copies[0])
        now = stamp(limit_of(copies[0].query) + 2 * H)
        cut_off(copies[0].path, "2h", "value.max", "--now", now, "--expired-to", str(tmp_path / "expired"))
        uri = upload(copies[1].path, f"{bucket}/checkpoint")
        night.add_query(copies[1], uri, 'on_busy = "wait"\nwait = "1m"\n')
        night.add_query(begun, more="stopped = false\n")
        busy = digest(begun.path)
        broken = [damaged(tmp_path / "ck", "damaged"), unknown(tmp_path / "ck", "unknown")]
        for target in broken:
            night.add(target, "7d", "value.max", "2100-01-01")
        before = [bytes_of(target) for target in broken]
        merged = [Table(delta_server, tmp_path / kind, kind=kind) for kind in ("plain", "vectors")]
        for table in merged:
            night.add(table.path, f"{tables.TTL.days}d", "at", tables.NOW.isoformat(), 'key = "user"\n')
        assert night.targets == TARGETS

        code, told = night.run(KILLED_AFTER)
        assert (code, len(told)) == (-signal.SIGKILL, KILLED_AFTER)
        code, told = night.run()
        status = {event["target"]: event["status"] for event in told}
        assert len(status) == TARGETS
        assert code == 5, "the worst: damage"
        assert [status.pop(str(target)) for target in broken] == ["failed", "undecided"]
        assert status.pop(str(begun.path)) == "skipped"
        assert set(status.values()) <= {"done", "nothing"}, told
        assert [bytes_of(target) for target in broken] == before
        assert digest(begun.path) == busy
        assert "\nttlsnap_run_exit_code 5\n" in (tmp_path / "metrics.prom").read_text()
        # A third run has nothing left to do.
        code, told = night.run()
        assert Counter(event["status"] for event in told) == {"nothing": 17, "failed": 1, "undecided": 1, "skipped": 1}

        shutil.rmtree(copies[1].path)
        download(uri, copies[1].path)
        dropped = 0
        for checkpoint in (*written, *copies):
            dropped += checkpoint.expected.drop(unwanted(checkpoint.query))
        for some in (written, copies):  # Spark refuses to run the same query twice at a time
            judge.together(*(partial(_goes_on, judge, checkpoint) for checkpoint in some))
        assert judge.restart(begun, MORE[1:], fresh=True) == begun.expected.run(MORE[1:])
        for table in merged:
            assert set(table.users()) == tables.ALL - tables.expired()
            table.put([int(min(tables.expired())[1:])], at=tables.NOW)
            table.merge()
            assert set(table.users()) == tables.ALL - tables.expired() | {min(tables.expired())}
            dropped += len(tables.expired())
        # The archive has every dropped entry once, although the first run was killed.
        assert night.archived().total() == dropped

    def _goes_on(judge: Judge, checkpoint: Checkpoint) -> None:
        at_once = [[event for events in MORE for event in events]]
        assert judge.restart(checkpoint, at_once, fresh=True) == checkpoint.expected.run(at_once)
