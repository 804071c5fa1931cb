"""The choice of the engine without ``--engine``: Spark if something calls for it, and otherwise local workers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ttlsnap import compact
from ttlsnap.cli.app import run
from ttlsnap.compaction.engine import Done
from ttlsnap.compaction.task import PartitionResults, PartitionTask, Progress
from ttlsnap.contract.of_query import contract_of_query
from ttlsnap.engines import automatic
from ttlsnap.engines.automatic import AutoEngine
from ttlsnap.engines.local import LocalEngine
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..samples import sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "agg-deltas-lz4-4.2"
WEEK = TtlTransformerFactory(StateTtlConfig(7 * 86_400_000_000), "value.max")


class Elsewhere(LocalEngine):
    """An engine that stands in for Spark's."""

    name = "elsewhere"

    def __init__(self) -> None:
        super().__init__(1)
        self.work = 0

    def run(self, tasks: Sequence[PartitionTask], done: Done, progress: Progress) -> list[PartitionResults]:
        self.work += sum(task.size * task.state_store.relative_cost for task in tasks)
        return super().run(tasks, done, progress)


def test_a_small_state_runs_on_the_local_engine(tmp_path: Path) -> None:
    # In a process of its own, because a Spark session may be active in this one.
    options = ["--ttl", "7d", "--timestamp", "value.max", "--dry-run"]
    command = [sys.executable, "-m", "ttlsnap", "compact", str(sample(NAME, tmp_path)), *options]
    report = json.loads(_output_of([*command, "--format", "json"]))
    assert (report["engine"], report["engine_reason"]) == ("local", "the state is not large")
    assert "local engine (the state is not large), " in _output_of(command)


def _output_of(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_engine_that_the_user_chose_has_no_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compact", str(sample(NAME, tmp_path)), "--ttl", "7d", "--timestamp", "value.max", "--dry-run"]
    assert run([*command, "--engine", "local", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["engine"], report["engine_reason"]) == ("local", None)
    assert run([*command, "--engine", "local", "--master", "local[1]"]) == 2
    assert "--master needs --engine spark or auto" in capsys.readouterr().err


def test_an_active_session_selects_spark(tmp_path: Path, spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None
    report = compact(str(sample(NAME, tmp_path)), [WEEK], dry_run=True)
    assert (report.engine, report.engine_reason) == ("spark", "a Spark session is active")


def test_a_thread_without_an_active_session_uses_the_application_and_does_not_stop_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # Each thread has its own active session.
        assert pool.submit(spark.getActiveSession).result() is None
        report = pool.submit(compact, str(sample(NAME, tmp_path)), [WEEK], dry_run=True).result()
        contract = pool.submit(contract_of_query, _counts, "user string", output_mode="update").result()
    assert (report.engine, report.engine_reason) == ("spark", "a Spark session is active")
    assert contract.operators
    assert spark.range(3).count() == 3


def _counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("user").count()


def test_a_master_selects_spark(tmp_path: Path) -> None:
    spark = Elsewhere()
    engine = AutoEngine(LocalEngine(1), spark, master="spark://host:7077")
    report = compact(str(sample(NAME, tmp_path)), [WEEK], dry_run=True, engine=engine)
    assert (report.engine, report.engine_reason) == ("elsewhere", "the master is spark://host:7077")


@pytest.mark.parametrize("variable", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"])
def test_spark_submit_selects_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    report = compact(str(sample(NAME, tmp_path)), [WEEK], dry_run=True, engine=AutoEngine(LocalEngine(1), Elsewhere()))
    assert (report.engine, report.engine_reason) == ("elsewhere", f"{variable} is set, as by spark-submit")


@pytest.mark.parametrize("provider", [NAME, "rocksdb-4.2"])
def test_a_large_state_selects_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    """The size is measured as work, because a byte of RocksDB's files takes longer than one of HDFS-backed state."""
    monkeypatch.setattr(automatic, "find_session", lambda: None)
    for variable in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(variable, raising=False)
    target, spark = str(sample(provider, tmp_path)), Elsewhere()
    compact(target, [WEEK], dry_run=True, engine=spark)
    assert spark.work > 0
    for large, name, reason in (
        (spark.work, "elsewhere", "the state is large"),
        (spark.work + 1, "local", "the state is not large"),
    ):
        monkeypatch.setattr(automatic, "LARGE", large)
        report = compact(target, [WEEK], dry_run=True, engine=AutoEngine(LocalEngine(1), Elsewhere()))
        assert (report.engine, report.engine_reason) == (name, reason)
