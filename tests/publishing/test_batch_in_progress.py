"""A batch that was begun and not committed may be running, however old its files are. So may one that no file shows.

Only the user knows whether such a query has crashed, so nothing is published without ``stopped``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ttlsnap import compact, history, migrate, rollback
from ttlsnap.checkpoint import Logs
from ttlsnap.errors import BusyError, RefusedError
from ttlsnap.publishing.in_progress import find_uncommitted
from ttlsnap.publishing.liveness import refuse_if_running
from ttlsnap.publishing.runs import Runs
from ttlsnap.storage.local import LocalDirectory

from ..cli.running import Ttlsnap
from ..compaction.stories import BATCHES, MORE, H, T
from ..judge.queries import Query, stamp
from ..judge.spark import Judge
from .idle import CHANGELOG, HDFS, IDS, ROCKSDB
from .publishers import PUBLISHERS, DropsAFifth, age, drop_some, remove_plan, repair, repartition, tear_offsets
from .trees import copy, end_halfway, newest, tree

VERY_OLD_S = 30 * 86_400.0
BEGUN = r"batch 3 was started but is not committed.*nothing shows how long.*may be running.*stopped(=| \(in a policy)"
REAL_TIME = r"may be running in real-time mode.*(stopped=True|--stopped \(in a policy: stopped = true\))"
NAMED_SINK = Query(
    **ROCKSDB, checkpoint_format=2, conf=(("spark.sql.streaming.queryEvolution.enableSinkEvolution", "true"),)
)
UUID = "11111111-2222-3333-4444-555555555555"


def to_a_copy(target: Path, *, stopped: bool) -> None:
    compact(str(target), [DropsAFifth(0)], output=str(target.with_name("new")), stopped=stopped)


COMMANDS: dict[str, Callable[..., None]] = {**PUBLISHERS, "output": to_a_copy}


@pytest.mark.parametrize("store", [HDFS, ROCKSDB], ids=["hdfs", "rocksdb"])
def test_nothing_is_published_without_stopped_while_a_batch_is_begun(
    inputs: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, object]
) -> None:
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    query = Query(**store)  # type: ignore[arg-type]
    layout = "snapshot" if query.provider == "rocksdb" else "deltas"
    written = inputs.write(query, BATCHES, layout=layout, uncommitted=MORE[0])
    target = end_halfway(copy(written.path, tmp_path / "checkpoint"))
    drop_some(target, stopped=True)  # which a rollback could undo
    age(target, VERY_OLD_S)
    before = tree(target)
    for command in COMMANDS.values():
        with pytest.raises(BusyError, match=BEGUN):
            command(target, stopped=False)
        assert tree(target) == before
    for number, command in enumerate(COMMANDS.values()):
        command(copy(target, tmp_path / str(number) / "checkpoint"), stopped=True)


@pytest.mark.parametrize("store", [HDFS, ROCKSDB], ids=["hdfs", "rocksdb"])
def test_the_state_of_a_batch_that_the_sink_may_have_stays(
    inputs: Judge, tmp_path: Path, store: dict[str, object]
) -> None:
    query = Query(**store)  # type: ignore[arg-type]
    layout = "snapshot" if query.provider == "rocksdb" else "deltas"
    target = inputs.write(query, BATCHES, layout=layout, uncommitted=MORE[0]).path
    before = tree(target)
    for command in (drop_some, repartition, to_a_copy):
        with pytest.raises(RefusedError, match="batch 3 was begun and not committed, but all of its state"):
            command(target, stopped=True)
        assert tree(target) == before
    assert migrate(str(target), partitions=3, stopped=True, dry_run=True).refused
    torn = copy(target, tmp_path / "torn")
    (torn / "offsets/3").write_bytes(b"")
    with pytest.raises(RefusedError, match=f"ttlsnap rewind {torn} --batch 2 --stopped"):
        repair(torn, stopped=True)
    assert tree(torn).keys() == before.keys()
    whole = copy(target, tmp_path / "whole")
    drop_some(end_halfway(target), stopped=True)
    for path in [*whole.glob("state/0/*/4.*"), *whole.glob("state/0/*/.4.*")]:  # now the sink may have the batch
        shutil.copy(path, target / path.relative_to(whole))
    with pytest.raises(RefusedError, match="it can only continue with the new state"):
        rollback(str(target), stopped=True)


@pytest.mark.parametrize(
    ("state", "batch"),
    [
        (["0/0/2.delta", "0/0/3.delta", "0/1/2.zip", "0/1/3_a1.changelog"], 2),
        (["0/0/2.delta", "0/0/3.delta", "0/1/2.zip"], None),
        (["0/0/2.delta", "0/1/2.delta"], None),
        (["0/0/2.delta", "0/0/3.delta", "0/1/1.delta", "0/1/_metadata/schema"], 2),  # an old partition
    ],
)
def test_a_batch_is_whole_if_all_partitions_of_the_one_before_have_its_state(
    state: list[str], batch: int | None
) -> None:
    listing = [f"state/{path}".replace("_a1", f"_{UUID}") for path in state]
    assert find_uncommitted(Logs((0, 1, 2), (0, 1), None), listing) == batch


def test_a_policy_states_that_the_query_is_stopped(inputs: Judge, tmp_path: Path, ttlsnap: Ttlsnap) -> None:
    written = inputs.write(Query(**HDFS), BATCHES, uncommitted=MORE[0])
    target = end_halfway(copy(written.path, tmp_path / "checkpoint"))
    age(target, VERY_OLD_S)
    policy = tmp_path / "policy.toml"
    rule = f'ttl = "2h"\ntimestamp = "value.max"\nnow = "{stamp(T + 4 * H)}Z"'
    for stopped, status in (("false", "skipped"), ("true", "done")):
        policy.write_text(f'[[target]]\npath = "{target}"\nstopped = {stopped}\n{rule}\n')
        (result,) = ttlsnap("maintain", policy, "--format", "json").json["targets"]
        assert result["status"] == status
        assert status == "done" or re.search(BEGUN, result["error"])


def test_nothing_is_repaired_without_stopped_while_a_batch_is_begun(inputs: Judge, tmp_path: Path) -> None:
    target = copy(inputs.write(Query(**HDFS), BATCHES).path, tmp_path / "checkpoint")
    tear_offsets(target)
    age(target, VERY_OLD_S)
    before = tree(target)
    with pytest.raises(BusyError, match=BEGUN):
        repair(target, stopped=False)
    assert tree(target) == before
    repair(target, stopped=True)


@pytest.fixture
def planned(inputs: Judge, tmp_path: Path) -> Path:
    """Return an old checkpoint with the batch 3, which ttlsnap has planned, and the state of version 3."""
    target = copy(inputs.write(Query(**HDFS), BATCHES).path, tmp_path / "checkpoint")
    drop_some(target, stopped=True)
    age(target, VERY_OLD_S)
    return target


def test_a_query_may_be_running_the_batch_that_ttlsnap_planned(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes nothing when it restarts with this batch, and RocksDB nothing before a task ends."""
    monkeypatch.setattr("ttlsnap.migration.run.PROOF", 0)
    assert newest(planned / "offsets") == 3
    before = tree(planned)
    for command in COMMANDS.values():
        with pytest.raises(BusyError, match=r"planned batch 3.*may be running now.*stopped"):
            command(planned, stopped=False)
        assert tree(planned) == before
    drop_some(planned, stopped=True)
    assert len(history(str(planned))) == 2


@pytest.fixture
def compacted(planned: Path) -> Path:
    """Return the same checkpoint without the planned batch."""
    remove_plan(planned)
    return planned


@pytest.mark.parametrize(
    "path",
    [
        f"offsets/.3.{UUID}.tmp",
        f"commits/.3.{UUID}.tmp",
        "state/0/0/4.delta",
        "state/0/1/.4.delta.crc",
        f"state/0/1/.4.delta.{UUID}.TID7.tmp",
        f"state/0/0/.4_{UUID}.changelog.{UUID}.tmp",
        "state/0/1/9.zip",
        "state/0/_metadata/v2/3",
        f"state/0/_stateSchema/default/3_{UUID}",
    ],
)
def test_a_file_of_a_batch_that_is_not_committed_shows_that_it_is_in_progress(compacted: Path, path: str) -> None:
    there = compacted / path
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(b"")
    age(compacted, VERY_OLD_S)
    with pytest.raises(BusyError, match=rf"{path} belongs to a batch after 2, .*may be running.*stopped"):
        drop_some(compacted, stopped=False)
    drop_some(compacted, stopped=True)


@pytest.mark.parametrize(
    "path", ["offsets/.2.crc", f"commits/.2.{UUID}.tmp", f"state/0/1/.3.delta.{UUID}.tmp", "state/0/0/9.txt"]
)
def test_leftovers_of_committed_batches_and_other_files_show_nothing(compacted: Path, path: str) -> None:
    (compacted / path).write_bytes(b"")
    age(compacted, VERY_OLD_S)
    refuse_if_running(Runs.read(LocalDirectory(str(compacted))), None)


@pytest.mark.parametrize(("version", "refused"), [("4.3", True), ("4.2", False)])
def test_a_query_that_can_be_in_real_time_mode_needs_stopped(
    inputs: Judge, tmp_path: Path, version: str, refused: bool
) -> None:
    query = NAMED_SINK if version == "4.3" else Query(**IDS)
    written = inputs.write(query, BATCHES, layout="snapshot", version=version)
    target = copy(written.path, tmp_path / "checkpoint")
    age(target, VERY_OLD_S)
    if not refused:
        drop_some(target, stopped=False)
        return
    before = tree(target)
    for command in COMMANDS.values():
        if command is not PUBLISHERS["rollback"]:
            with pytest.raises(BusyError, match=REAL_TIME):
                command(target, stopped=False)
            assert tree(target) == before
    drop_some(target, stopped=True)
    remove_plan(target)
    with pytest.raises(BusyError, match=REAL_TIME):
        PUBLISHERS["rollback"](target, stopped=False)


@pytest.mark.parametrize("version", ["4.3", "4.2"])
def test_state_that_is_older_than_its_offsets_was_written_in_real_time_mode(
    inputs: Judge, tmp_path: Path, version: str
) -> None:
    written = inputs.write(Query(**ROCKSDB), BATCHES, layout="snapshot", version=version)
    target = copy(written.path, tmp_path / "checkpoint")
    age(target, VERY_OLD_S)
    files = LocalDirectory(str(target))
    refuse_if_running(Runs.read(files), None)
    offsets = (target / "offsets/2").stat().st_mtime
    for state in target.glob("state/0/*/3.zip"):
        os.utime(state, (offsets - 1, offsets - 1))
    if version == "4.3":
        with pytest.raises(BusyError, match=REAL_TIME):
            refuse_if_running(Runs.read(files), None)
    else:
        refuse_if_running(Runs.read(files), None)


@pytest.mark.parametrize("store", [HDFS, ROCKSDB, CHANGELOG], ids=["hdfs", "rocksdb", "changelog"])
def test_a_run_leaves_no_sign_of_a_batch_but_the_planned_one(
    inputs: Judge, tmp_path: Path, store: dict[str, object]
) -> None:
    query = Query(**store)  # type: ignore[arg-type]
    layout = "snapshot" if query.provider == "rocksdb" and not query.changelog else "deltas"
    target = copy(inputs.write(query, BATCHES, layout=layout).path, tmp_path / "checkpoint")
    for publish in PUBLISHERS.values():
        publish(target, stopped=True)
        remove_plan(target)
        age(target, VERY_OLD_S)
        refuse_if_running(Runs.read(LocalDirectory(str(target))), None)
