"""Queries in real-time mode, which have state since Spark 4.3, on real Spark.

A batch of such a query lasts for minutes. It emits its rows at once, and at its end it writes its state, its offsets
and its commit, in this order. So no file shows that such a query is running. If ttlsnap publishes, the query ends with
its batch, because the planned batch is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ttlsnap import CompactionReport, compact, migrate
from ttlsnap.contract.of_checkpoint import contract_of_checkpoint
from ttlsnap.errors import BusyError
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..compaction.stories import H, T, digest, settled
from ..judge.queries import stamp
from ..judge.spark import Judge
from ..matrix import FULL
from .publishers import age

pytestmark = pytest.mark.wide  # another version of Spark

SPARK = "4.3"
TIMES = {"agg": "value.max", "dedup": "key.at", "visits": "value.seen:s"}
NAMES = {"agg": "stateStoreSave", "dedup": "dedupe", "visits": "transformWithStateExec"}
_PATIENCE_S = 60


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Yield a judge of its own: a query in real-time mode fails if others leave it too few slots for its stages."""
    with Judge(tmp_path_factory.mktemp("judge")) as judge:
        yield judge


@dataclass
class RealTimeQuery:
    """A query in real-time mode on ``checkpoint``: an aggregation, a deduplication, or transformWithState."""

    judge: Judge
    checkpoint: Path
    operator: str
    checkpoint_format: int = 2
    provider: str = "RocksDB"
    seen: int = 0

    def start(self, batch_ms: int = 2000) -> None:
        facts = {"checkpoint_format": self.checkpoint_format, "provider": self.provider}
        self.ask("start", operator=self.operator, batch_ms=batch_ms, **facts)

    def add(self, value: int, keys: range = range(6)) -> None:
        self.ask("add", events=[(f"k{i}", T + i * H, value) for i in keys])

    def take(self, rows: int) -> list[str]:
        """Return the next rows that the query emits, sorted."""
        self.wait(lambda: len(self.ask("rows")) >= self.seen + rows)
        new = self.ask("rows")[self.seen :]
        self.seen += len(new)
        return sorted(new)

    def stop(self) -> None:
        """Stop the query after its first batches."""
        done = len(self.commits)
        self.wait(lambda: len(self.commits) > done)
        self.ask("stop")
        settled(self.checkpoint)  # tasks that were interrupted remove their files a moment later

    @property
    def commits(self) -> list[str]:
        return [path.name for path in (self.checkpoint / "commits").glob("[0-9]*")]

    @property
    def is_committed(self) -> bool:
        """Whether the newest batch is committed. On a busy machine, the first batch may begin before there is data."""
        offsets = [path.name for path in (self.checkpoint / "offsets").glob("[0-9]*")]
        return bool(offsets) and max(offsets, key=int) in self.commits

    def error(self) -> str:
        self.wait(lambda: bool(self.ask("error")))
        return str(self.ask("error"))

    def compact(self, *, stopped: bool = True) -> CompactionReport:
        """Drop what is older than two and a half hours after T: the entries of k0, k1 and k2."""
        ttl = TtlTransformerFactory(StateTtlConfig(H * 1_000_000), TIMES[self.operator])
        return compact(str(self.checkpoint), [ttl], now=stamp(T + 3 * H + H // 2), stopped=stopped)

    def ask(self, verb: str, **order: object) -> Any:
        return self.judge.call(SPARK, f"real_time.{verb}", "real_time.scala", checkpoint=str(self.checkpoint), **order)

    def wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.ask("error") or "nothing happened"
            time.sleep(0.1)


KINDS = [("agg", 2), ("visits", 2), *([("dedup", 2), ("agg", 1)] if FULL else [])]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def query(judge: Judge, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealTimeQuery]:
    """Yield a stopped query with six keys."""
    made = RealTimeQuery(judge, tmp_path / request.param[0], *request.param)
    made.start()
    made.add(1)
    made.take(6)
    made.stop()
    yield made
    made.ask("stop")


def expected(operator: str, before: int, value: int) -> list[str]:
    """Return the rows after every key came again with ``value``, if only k3, k4 and k5 still had their state."""
    if operator == "dedup":
        return [f"k{i} {value}" for i in range(3)]
    return [f"k{i} {1 if i < 3 else before + 1} {value if i < 3 else before + value}" for i in range(6)]


@pytest.mark.parametrize("again_ms", [2000, 0], ids=["in real time", "in micro-batches"])
def test_kept_keys_continue_and_dropped_keys_start_afresh(query: RealTimeQuery, again_ms: int) -> None:
    totals = query.compact().totals
    assert (totals.kept, totals.dropped) == (3, 3)
    query.start(again_ms)
    query.add(10)
    rows = expected(query.operator, 1, 10)
    assert query.take(len(rows)) == rows


def test_a_live_query_is_refused(query: RealTimeQuery) -> None:
    query.start(60_000)
    query.add(10, range(6, 7))
    query.take(1)
    age(query.checkpoint, 3600)
    before = digest(query.checkpoint)
    with pytest.raises(BusyError, match="the query may be running"):
        query.compact(stopped=False)
    assert digest(query.checkpoint) == before
    query.ask("stop")
    settled(query.checkpoint)
    for left in query.checkpoint.glob("state/*/*/.*.tmp*"):
        left.unlink()  # of a task that was stopped while it wrote: another sign, which hides the one in question
    age(query.checkpoint, 3600)
    with pytest.raises(BusyError, match="the query may be running in real-time mode"):
        query.compact(stopped=False)


def test_a_live_query_that_is_called_stopped_ends_with_its_batch(query: RealTimeQuery) -> None:
    query.start(8000)
    query.add(10, range(6, 7))
    query.take(1)
    query.compact()
    logs = {path: text for path, text in digest(query.checkpoint).items() if path.startswith(("offsets", "commits"))}
    query.add(10)
    assert "CONCURRENT_STREAM_LOG_UPDATE" in query.error()
    assert logs.items() <= digest(query.checkpoint).items()
    assert len(query.commits) == len([path for path in logs if path.startswith("commits") and "." not in path])
    # As after a crash, the restarted query reads what came after its last commit again.
    query.seen = len(query.ask("rows"))
    query.start()
    rows = [*expected(query.operator, 1, 10), "k6 10" if query.operator == "dedup" else "k6 1 10"]
    assert query.take(len(rows)) == rows


def test_the_contract_is_that_of_the_same_query_in_micro_batches(query: RealTimeQuery, tmp_path: Path) -> None:
    micro = RealTimeQuery(query.judge, tmp_path / "micro", query.operator)
    micro.start(0)
    micro.add(1)
    micro.take(6)
    micro.wait(lambda: micro.is_committed)
    micro.ask("stop")
    names = [[o.name for o in contract_of_checkpoint(str(each.checkpoint)).operators] for each in (query, micro)]
    assert names[0] == names[1] == [NAMES[query.operator]]


@pytest.mark.parametrize("provider", ["HDFSBacked", "RocksDB"])
def test_a_query_in_micro_batches_gets_into_real_time_mode(judge: Judge, tmp_path: Path, provider: str) -> None:
    query = RealTimeQuery(judge, tmp_path / "agg", "agg", 1, provider)
    query.start(0)
    query.add(1)
    query.take(6)
    query.wait(lambda: query.is_committed)
    query.ask("stop")
    settled(query.checkpoint)
    query.checkpoint_format, query.provider = 2, "RocksDB"
    query.start()
    assert "CHECKPOINT_FORMAT_V1_NOT_SUPPORTED" in query.error()
    migrate(str(query.checkpoint), provider="rocksdb", settings={"checkpoint-format": "2"}, stopped=True)
    query.start()
    query.add(10)
    try:
        assert query.take(6) == [f"k{i} 2 11" for i in range(6)]
    finally:
        query.ask("stop")
