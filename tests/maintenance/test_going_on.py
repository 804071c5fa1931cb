"""Real Spark restarts queries after and between the runs of ``maintain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ttlsnap.cli.app import run
from ttlsnap.compaction.incremental import CURSOR

from ..compaction.stories import BATCHES, FIELDS, H, limit_of, unwanted
from ..judge.queries import Event, Query, stamp
from ..judge.spark import Checkpoint, Events, Judge
from ..matrix import narrow

PARTITIONS = 4
T = 1_700_006_400  # the same time as in the stories
# Some expired keys get new events before their partition is visited, others after they were dropped.
MORE: list[Events] = [
    [Event(f"k{i}", T + 4 * H + i, 100) for i in range(0, 24, 3)],
    [Event("new", T + 5 * H, 2)],
    [Event("k1", T + 6 * H, 1), Event(None, T + 6 * H, 1)],
    [Event("k2", T + 7 * H, 1)],
    [Event("k4", T + 7 * H, 1)],
]


def maintain(checkpoint: Checkpoint, folder: Path, capsys: pytest.CaptureFixture[str], more: str = "") -> Any:
    """Drop expired entries by a policy, like ``drop_expired`` of the stories. Return the result of the target."""
    query = checkpoint.query
    policy = folder / "policy.toml"
    policy.write_text(
        f"""
[[target]]
path = {json.dumps(str(checkpoint.path))}
stopped = true
[[target.rule]]
ttl = "2h"
timestamp = "{FIELDS[query.operator]}"
now = "{stamp(limit_of(query) + 2 * H)}"
{more}
"""
    )
    code = run(["maintain", str(policy), "--engine", "local", "--format", "json"])
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert (code, target["error"]) == (0, None)
    return target


@pytest.mark.parametrize("provider", narrow(["hdfs", "rocksdb"], 1))
def test_incremental_runs_drop_expired_entries_of_the_visited_partition_only(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str], provider: str
) -> None:
    query = Query("agg_update", provider=provider, changelog=provider == "rocksdb", partitions=PARTITIONS)
    checkpoint = judge.write(query, BATCHES)
    model, is_expired, left = checkpoint.expected, unwanted(query), PARTITIONS
    visited: list[int] = []
    for events in MORE:
        before = judge.state(checkpoint)
        target = maintain(checkpoint, tmp_path, capsys, 'strategy = "incremental"\nmax_partitions = 1')
        cursor = {partition for _, _, partition, _ in json.loads((checkpoint.path / CURSOR).read_text())["visited"]}
        (now,) = cursor - set(visited) if len(visited) < PARTITIONS else cursor
        visited.append(now)
        gone = {entry.key for entry in before if entry.partition == now and is_expired(entry)}
        assert target["totals"]["dropped"] == len(gone) == model.drop(lambda entry, gone=gone: entry.key in gone)  # type: ignore[misc]
        left = left - 1 if left else PARTITIONS - 1
        assert target["visited"] == {"partitions": 1, "of": PARTITIONS, "left": left}
        wanted = checkpoint.expected.run([events])
        assert judge.restart(checkpoint, [events]) == wanted
        assert judge.state(checkpoint) == model.state()
    assert sorted(visited[:PARTITIONS]) == list(range(PARTITIONS))
    assert not any(map(is_expired, model.state()))
