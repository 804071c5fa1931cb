"""Copies of checkpoints on which real Spark restarts, and copies that are made while a query runs."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from ttlsnap.backups.run import copy
from ttlsnap.checkpoint.logs import read_logs
from ttlsnap.copies.report import CopyReport
from ttlsnap.storage.open import open_directory

from ..compaction.stories import BATCHES, MORE, MORE_WHOLE, WHOLE, rocksdb
from ..judge.queries import Query
from ..judge.spark import Judge
from ..matrix import FULL, narrow, rotating
from .queries import QUERIES
from .test_copy import Doing, Interrupted


def last_commit(path: Path) -> int:
    return read_logs(open_directory(str(path))).commits[-1]


@pytest.mark.parametrize("query", narrow(QUERIES, 0, 1), ids=lambda query: f"{query.operator}-{query.provider}")
def test_a_query_continues_on_a_copy(
    judge: Judge, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttlsnap.copies.run.PART", 5)
    written = judge.write(query, WHOLE, layout="snapshot")
    clone = judge.at(written, tmp_path / "clone")

    def end() -> None:
        if listener.calls == 3:
            raise Interrupted

    listener = Doing("arrived", end)
    with pytest.raises(Interrupted):
        copy(str(written.path), str(clone.path), listener=listener, new_id=True)
    before = sorted(clone.path.rglob("*"))
    assert "ttlsnap fence: this copy is not complete; run `ttlsnap copy" in judge.refusal(clone)
    assert {path for path in clone.path.rglob("*") if path.is_file()} == {path for path in before if path.is_file()}
    assert copy(str(written.path), str(clone.path), new_id=True, verify=True).kept == 9
    continued = judge.restart(clone, MORE_WHOLE)
    assert continued and continued == judge.restart(written, MORE_WHOLE)


@pytest.mark.parametrize(
    "query",
    narrow([rocksdb("agg_update", changelog=True), Query("agg_update")]),
    ids=lambda query: query.provider,
)
def test_a_copy_of_a_running_query_is_that_of_one_batch(
    judge: Judge, tmp_path: Path, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttlsnap.copies.run.PART", 10)
    written = judge.write(query, BATCHES, layout="snapshot")
    place = tmp_path / "clone"
    judge.start(written, [])

    def feed() -> None:
        if listener.calls <= len(MORE):
            committed = last_commit(written.path)
            judge.feed(written, MORE[listener.calls - 1])
            while last_commit(written.path) == committed:
                time.sleep(0.05)

    listener = Doing("arrived", feed)
    report = copy(str(written.path), str(place), listener=listener, verify=True)
    assert listener.calls > len(MORE)
    judge.stop(written, when_done=True)
    assert report.batch < last_commit(written.path)
    clone = judge.at(written, place)
    judge.restart(clone, [])
    assert judge.state(clone) == judge.state(written)


FEW_BATCHES = (("spark.sql.streaming.minBatchesToRetain", "3"),)
LOADED = [
    Query("agg_update", conf=FEW_BATCHES),
    Query("dedup", conf=FEW_BATCHES),
    replace(rocksdb("agg_update", changelog=True), conf=FEW_BATCHES),
    replace(rocksdb("agg_append", changelog=True, checkpoint_format=2), conf=FEW_BATCHES),
]
COPIES = 25 if FULL else 3


@pytest.mark.wide
@pytest.mark.parametrize("query", rotating(LOADED, 1, "copies under load"), ids=lambda query: query.operator)
def test_each_copy_of_a_query_under_load_continues_from_its_batch(judge: Judge, tmp_path: Path, query: Query) -> None:
    written = judge.write(query, WHOLE, layout="snapshot")
    judge.start(written, [])
    has_ended = threading.Event()

    def load() -> None:
        for events in cycle(MORE_WHOLE):
            if has_ended.wait(0.3):
                return
            judge.feed(written, events)

    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load)
        try:
            reports: list[CopyReport] = []
            for number in range(COPIES):
                while reports and last_commit(written.path) == reports[-1].batch:
                    time.sleep(0.05)
                reports.append(copy(str(written.path), str(tmp_path / str(number)), verify=True))
        finally:
            has_ended.set()
        loading.result()
    judge.stop(written, when_done=True)
    assert len({report.batch for report in reports}) == COPIES
    for number, report in enumerate(reports):
        clone = judge.at(written, tmp_path / str(number))
        assert last_commit(clone.path) == report.batch
        judge.restart(clone, [])
        assert judge.state(clone) == judge.state(written)
