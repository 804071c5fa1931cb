"""What sinks do with batches that run again after a backup was used: ``docs/sinks.md``, as real Spark shows it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from ttlsnap import compact, doctor
from ttlsnap.backups.run import copy
from ttlsnap.cli.app import run
from ttlsnap.errors import RefusedError
from ttlsnap.positions.rewinding import rewind

from ..compaction.stories import MORE_WHOLE, WHOLE
from ..judge.queries import Query
from ..judge.spark import Checkpoint, Judge
from ..matrix import rotating
from ..publishing.publishers import DropsAFifth, drop_some, repair, repartition, replace_all
from ..publishing.trees import newest, tree

HOW = ("copy", "rewind", "doctor", "lost")
PAGE = Path(__file__).parents[2] / "docs/sinks.md"


def files_of(out: Path) -> set[str]:
    """Return the files that a file sink or a Delta table names in its log."""
    names = set()
    for log in [*(out / "_spark_metadata").glob("[0-9]*"), *(out / "_delta_log").glob("*.json")]:
        for line in log.read_text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            names |= {entry["path"]} if "path" in entry else {entry["add"]["path"]} if "add" in entry else set()
    return names


@pytest.mark.wide
@pytest.mark.parametrize(
    ("sink", "new_id", "writes_again"),
    [("parquet", False, False), ("parquet", True, False), ("delta", False, False), ("delta", True, True)],
)
def test_a_sink_skips_the_numbers_that_it_knows(
    judge: Judge, tmp_path: Path, sink: str, new_id: bool, writes_again: bool
) -> None:
    checkpoint = judge.write(Query("agg_append", sink=sink), WHOLE)
    copied = judge.at(checkpoint, tmp_path / "copy")
    copy(str(checkpoint.path), str(copied.path), new_id=new_id)
    judge.restart(checkpoint, MORE_WHOLE)
    before = files_of(checkpoint.out)
    if writes_again:
        with pytest.raises(Exception, match="was written twice"):
            judge.restart(copied, MORE_WHOLE)
    else:
        judge.restart(copied, MORE_WHOLE)
    assert (files_of(checkpoint.out) > before) is writes_again


@pytest.mark.wide
@pytest.mark.parametrize(("sink", "how"), rotating([*product(["parquet", "delta"], HOW)], 2, "sinks"))
def test_a_sink_writes_again_what_is_read_again_after_a_restore_in_place(
    judge: Judge, tmp_path: Path, sink: str, how: str
) -> None:
    checkpoint = judge.write(Query("agg_append", sink=sink), WHOLE)
    batch = copy(str(checkpoint.path), str(tmp_path / "backup")).batch
    first = judge.restart(checkpoint, MORE_WHOLE)
    before, target = files_of(checkpoint.out), str(checkpoint.path)
    if how == "lost":
        last = newest(checkpoint.path / "commits")
        shutil.rmtree(target)
        restored = copy(str(tmp_path / "backup"), target, replace=True, last_batch=last, stopped=True)
        assert (restored.batch, restored.source_batch, restored.warnings) == (last, batch, ())
    elif how == "copy":
        copy(str(tmp_path / "backup"), target, replace=True, stopped=True)
    elif how == "rewind":
        rewind(target, batch, stopped=True)
    else:
        for path in checkpoint.path.glob(f"state/*/0/**/{batch + 2}.*"):
            path.unlink()
        report = doctor(target, fix=["last-batch-lost"], stopped=True, confirm=lambda going_back: True)
        assert report.fixed == ("last-batch-lost",)
    again = judge.restart(checkpoint, [])
    assert files_of(checkpoint.out) > before
    assert [batch.rows for batch in first if batch.rows] == [batch.rows for batch in again if batch.rows]


def into_a_copy(target: Path, *, stopped: bool) -> None:
    compact(str(target), [DropsAFifth(0)], output=str(target.with_name("output")), stopped=stopped)


def end_before_the_commit(checkpoint: Checkpoint) -> int:
    """Remove the newest commit, as if the process had ended before writing it. The sink has the batch."""
    last = newest(checkpoint.path / "commits")
    for name in (str(last), f".{last}.crc"):
        (checkpoint.path / "commits" / name).unlink()
    return last


IDS = {"provider": "rocksdb", "checkpoint_format": 2}
"""A store with ids of checkpoints. Spark cannot run a batch again whose state is written, and whose commit is not."""
GOING_BACK = [
    *product(["parquet", "delta"], ["copy", "rewind", "last", "torn"], [False]),
    ("delta", "last", True),
]


@pytest.mark.wide
@pytest.mark.parametrize(("sink", "how", "has_ids"), rotating(GOING_BACK, 2, "begun"))
def test_a_query_goes_on_after_a_batch_that_only_the_sink_has_ended(
    judge: Judge, tmp_path: Path, sink: str, how: str, has_ids: bool
) -> None:
    query = Query("agg_append", sink=sink, **(IDS if has_ids else {}))  # type: ignore[arg-type]
    checkpoint = judge.write(query, WHOLE, layout="snapshot" if has_ids else "deltas")
    batch = copy(str(checkpoint.path), str(tmp_path / "backup")).batch
    first = judge.restart(checkpoint, MORE_WHOLE)
    last, before = end_before_the_commit(checkpoint), tree(checkpoint.path)
    whole, target = files_of(checkpoint.out), str(checkpoint.path)
    for change in (drop_some, repartition, replace_all, into_a_copy):
        with pytest.raises(RefusedError, match=f"batch {last} was begun and not committed"):
            change(checkpoint.path, stopped=True)
    assert tree(checkpoint.path) == before
    if has_ids:
        with pytest.raises(Exception, match="CheckpointInfo"):
            judge.restart(checkpoint, [])
    if how == "torn":
        (checkpoint.path / f"offsets/{last}").write_bytes(b"")
        with pytest.raises(RefusedError, match=f"ttlsnap rewind {target} --batch {last - 1} --stopped"):
            repair(checkpoint.path, stopped=True)
    if how == "copy":
        report = copy(str(tmp_path / "backup"), target, replace=True, stopped=True)
    else:
        report = rewind(target, batch if how == "rewind" else last - 1, stopped=True)
    assert report.batch == last
    again = judge.restart(checkpoint, [])
    assert files_of(checkpoint.out) > whole
    rows = [batch.rows for batch in first if batch.rows]
    assert [batch.rows for batch in again if batch.rows] == (rows if how in ("copy", "rewind") else rows[-1:])


@pytest.mark.wide
def test_a_clone_with_a_new_folder_for_its_file_sink_goes_on(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = judge.write(Query("agg_append", sink="parquet"), WHOLE)
    clone = judge.at(checkpoint, tmp_path / "clone")
    clone.out = tmp_path / "out"
    assert run(["copy", str(checkpoint.path), str(clone.path), "--new-id"]) == 0
    names = " ".join(capsys.readouterr().out.split()).rpartition("each with the one line v1: ")[2]
    (clone.out / "_spark_metadata").mkdir(parents=True)
    for name in names.split(", "):
        (clone.out / "_spark_metadata" / name).write_text("v1\n")
    more = [[event] for events in MORE_WHOLE for event in events]
    judge.restart(clone, more[:12])
    assert (clone.out / "_spark_metadata/9.compact").exists()


@pytest.mark.wide
def test_the_commands_of_the_documentation_close_the_gap_in_the_log_of_a_file_sink(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty .compact file would make all earlier output disappear."""
    checkpoint = judge.write(Query("agg_append", sink="parquet"), WHOLE)
    copy(str(checkpoint.path), str(tmp_path / "backup"))
    judge.restart(checkpoint, MORE_WHOLE)
    last, log = newest(checkpoint.path / "commits"), checkpoint.out / "_spark_metadata"
    end = 21  # the log lacks 9.compact and 19.compact, too
    assert last < 9
    report = copy(str(tmp_path / "backup"), str(checkpoint.path), replace=True, last_batch=end, stopped=True)
    assert f"from its last .compact file up to {end}" in report.warnings[0]
    assert "An empty .compact file would lose all earlier output" in report.warnings[0]
    (commands,) = re.findall(r"```sh\n(\(\nset -e.*?)```", PAGE.read_text(), re.DOTALL)
    commands = commands.replace("cd out/", "cd ")
    assert "seq 9 21" in commands
    before = files_of(checkpoint.out)
    monkeypatch.chdir(checkpoint.out)
    # What exists stays, and what should exist and does not is an error, even if the numbers are wrong.
    (log / "0").rename(log / "away")
    too_early = commands.replace("seq 9 21", f"seq {last} {end}")
    assert subprocess.run(["sh", "-c", too_early], check=False).returncode and not (log / "9.compact").exists()
    (log / "away").rename(log / "0")
    subprocess.run(["sh", "-c", too_early], check=True)
    assert {path.name for path in log.glob("[0-9]*")} >= {"9.compact", "19.compact", "20", "21"}
    assert before and {json.loads(line)["path"] for line in (log / "19.compact").read_text().splitlines()[1:]} == before
    more = [[event] for events in MORE_WHOLE for event in events]
    judge.restart(checkpoint, more[:12])
    compacted = {json.loads(line)["path"] for line in (log / "29.compact").read_text().splitlines()[1:]}
    assert compacted > before
