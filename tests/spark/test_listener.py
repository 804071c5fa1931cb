"""``StateListener`` with the progress of queries as Spark reports it."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from pyspark.logger.logger import JSONFormatter
from pyspark.sql.streaming.listener import QueryProgressEvent

from ttlsnap import inspect
from ttlsnap.errors import UsageError
from ttlsnap.spark import StateListener, StateWarning

from ..conftest import ROOT
from ..judge.spark import Judge
from ..samples import sample
from .listening import write_events

DAY = 86_400
Values = dict[tuple[str, ...], float]


def progress(rows: int = 0, *, batch: int = 0, time_s: float = 0, query: int = 1, **more: Any) -> QueryProgressEvent:
    """Return an event of a query with one stateful operator."""
    operator = {
        "operatorName": "stateStoreSave",
        "numRowsTotal": rows,
        "numRowsUpdated": 0,
        "numRowsRemoved": more.get("removed", 0),
        "allUpdatesTimeMs": 0,
        "allRemovalsTimeMs": 0,
        "commitTimeMs": 0,
        "memoryUsedBytes": more.get("memory", 0),
        "numRowsDroppedByWatermark": more.get("late", 0),
        "numShufflePartitions": 2,
        "numStateStoreInstances": 2,
        "customMetrics": more.get("metrics", {}),
    }
    at = datetime.fromtimestamp(1_767_225_600 + time_s, UTC)
    document = {
        "id": str(UUID(int=query)),
        "runId": str(UUID(int=query + 1000)),
        "name": more.get("name", "visits"),
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "batchId": batch,
        "batchDuration": 1,
        "stateOperators": [operator],
        "sources": [],
        "sink": {"description": "noop", "numOutputRows": 0},
    }
    return QueryProgressEvent.fromJson({"progress": document})


def values_of(file: Path) -> Values:
    """Return the values of a file of metrics by the name and the labels, as both of Prometheus' parsers read them."""
    text = file.read_text()
    found: list[Values] = []
    for parse in (parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families):
        families = list(parse(text))
        assert {family.type for family in families} == {"gauge"}
        samples = [sample for family in families for sample in family.samples]
        found.append({(sample.name, *sample.labels.values()): sample.value for sample in samples})
        assert len(found[-1]) == len(samples)
    assert found[0] == found[1]
    return found[0]


def warned(rows: list[int], each_s: float = 60, **limits: Any) -> list[int]:
    """Return after which of the batches with so many rows a listener warns."""
    batches: list[int] = []
    listener = StateListener(on_warning=lambda warning: batches.append(warning.batch), **limits)
    for batch, count in enumerate(rows):
        listener.onQueryProgress(progress(count, batch=batch, time_s=batch * each_s))
    return batches


def test_a_warning_comes_once_for_a_crossing_and_again_when_the_state_has_doubled() -> None:
    assert warned([5, 10, 11, 12, 21, 22, 23, 43, 44], max_rows=10) == [2, 5, 8]


def test_a_state_at_its_limit_causes_no_further_warnings_until_it_was_clearly_below() -> None:
    assert warned([101, 99, 101, 95, 101, 89, 101], max_rows=100) == [0, 6]


def test_growth_is_compared_over_the_whole_period(caplog: pytest.LogCaptureFixture) -> None:
    hours = [1000 + 10 * hour for hour in range(25)]  # 24 % in a day
    assert warned(hours, 3600, max_growth="20%/d") == [24]
    assert warned(hours, 3600, max_growth="25%/d") == []
    assert warned(hours[:-1], 3600, max_growth="20%/d") == []  # no whole day yet
    assert warned([100, 110, 121, 200], DAY, max_growth="15%/d") == [3]
    assert warned([100, 130], 2 * DAY, max_growth="20%/d") == []  # 15 % in each day
    assert warned([0, 100, 130], DAY, max_growth="20%/d") == [2]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_memory_does_not_grow_with_the_number_of_batches() -> None:
    listener = StateListener(max_growth="20%/h")
    for batch in range(5000):
        listener.onQueryProgress(progress(1000, batch=batch, time_s=batch))
    assert len(pickle.dumps(listener)) < 2000


def test_growth_is_that_of_the_size_if_spark_does_not_count_rows() -> None:
    sizes: list[StateWarning] = []
    listener = StateListener(max_growth="20%/1h", on_warning=sizes.append)
    for batch, memory in enumerate((1000, 1300)):
        listener.onQueryProgress(progress(-2, batch=batch, time_s=batch * 3600, memory=memory))
    assert [(warning.limit, round(warning.value, 6)) for warning in sizes] == [("max_growth", 0.3)]
    assert "grew by 30% in 1h, to 1.3 kB; max_growth is 20%/1h" in str(sizes[0])


def test_the_size_is_that_of_the_current_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "state.prom"
    listener = StateListener(metrics=file, max_size="2MB")
    for query, name in enumerate(("rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes", "other")):
        listener.onQueryProgress(progress(query=query, name=name, memory=9_000_000, metrics={name: 3_000_000}))
    values = values_of(file)
    labels = ("0", "stateStoreSave")
    assert values["ttlsnap_query_state_bytes", "rocksdbSstFileSize", *labels] == 3_000_000
    assert values["ttlsnap_query_state_bytes", "stateOnCurrentVersionSizeBytes", *labels] == 3_000_000
    assert values["ttlsnap_query_state_bytes", "other", *labels] == 9_000_000
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert caplog.messages[0] == (
        "query rocksdbSstFileSize: the state of operator 0 (stateStoreSave) has 3.0 MB; max_size is 2.0 MB, after "
        "batch 0. To see what uses the space: ttlsnap inspect CHECKPOINT --sizes --operator 0"
    )


def test_removed_and_late_rows_add_up_and_count_once_for_each_batch(tmp_path: Path) -> None:
    file = tmp_path / "state.prom"
    listener = StateListener(metrics=str(file))
    for batch in (0, 1, 1):
        listener.onQueryProgress(progress(batch=batch, removed=10, late=3))
    values = values_of(file)
    assert values["ttlsnap_query_state_removed_rows", "visits", "0", "stateStoreSave"] == 20
    assert values["ttlsnap_query_state_late_rows", "visits", "0", "stateStoreSave"] == 6


@pytest.mark.slow
def test_the_latest_query_of_a_name_is_in_the_metrics_and_old_queries_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "state.prom"
    listener = StateListener(metrics=file)
    for query in range(300):
        listener.onQueryProgress(progress(query, query=query, name=None))
    listener.onQueryProgress(progress(7, query=400, name='a "name"\n'))
    listener.onQueryProgress(progress(8, query=401, name='a "name"\n'))
    rows = {
        labels[0]: value for (name, *labels), value in values_of(file).items() if name == "ttlsnap_query_state_rows"
    }
    assert rows['a "name"\n'] == 8
    assert rows[str(UUID(int=299))] == 299
    assert len(rows) == 99  # of 100 queries, two have the same name


def test_errors_are_logged_once_and_do_not_reach_the_query(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()

    def fail(warning: StateWarning) -> None:
        raise ValueError(f"no mail for {warning.limit}")

    listener = StateListener(metrics=folder / "state.prom", max_rows=1, on_warning=fail)
    folder.rmdir()
    for batch in range(3):
        listener.onQueryProgress(progress(5, batch=batch))
    folder.mkdir()
    listener.onQueryProgress(progress(5, batch=3))
    listener.onQueryProgress(object())
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [("no mail" in error, "cannot write" in error) for error in errors] == [
        *((True, False), (False, True)),  # after the first batch
        (False, False),  # of the event that is none
    ]
    assert values_of(folder / "state.prom")["ttlsnap_query_state_rows", "visits", "0", "stateStoreSave"] == 5


def test_a_listener_can_be_pickled_with_what_it_has_seen() -> None:
    listener = StateListener(max_rows=10)
    listener.onQueryProgress(progress(11))
    assert pickle.loads(pickle.dumps(listener)).__dict__.keys() == listener.__dict__.keys()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "a StateListener needs metrics, max_size, max_rows or max_growth"),
        ({"on_warning": print}, "on_warning is never called without a limit"),
        ({"max_size": "big"}, "'big' is not a size"),
        ({"max_rows": "10"}, "max_rows is '10'; it must be a number from 1 on"),
        ({"max_rows": 0}, "max_rows is 0"),
        ({"max_growth": "20%"}, "'20%' is not a growth; write 20%/d"),
        ({"max_growth": "0%/d"}, "'0%/d' is not a growth"),
        ({"max_growth": "5%/soon"}, "'soon' is not a duration"),
        ({"max_rows": True}, "max_rows is True"),
        ({"max_rows": 1, "on_warning": "tell"}, "on_warning is 'tell'; it must be a function"),
        ({"metrics": "/tmp"}, "'/tmp' is not a file"),
        ({"metrics": ""}, "'' is not a file"),
        ({"metrics": "/no/such/folder/x.prom"}, "/no/such/folder is not a folder on this machine; create it first"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        StateListener(**options)
    assert words in str(refused.value)


class _Silent(Exception):
    """An error whose text is an error itself."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("name", ["offsets/6", "state/x.prom", "state.prom"])
def test_metrics_are_refused_in_a_checkpoint(tmp_path: Path, name: str) -> None:
    target = sample("agg-deltas-lz4-4.2", tmp_path)
    with pytest.raises(UsageError, match=f"is inside {target}"):
        StateListener(metrics=target / name)


@pytest.mark.parametrize("error", [SystemExit(3), _Silent()], ids=["exit", "without a text"])
def test_no_error_of_a_function_reaches_spark(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(caplog.handler, "formatter", JSONFormatter())  # it takes the text of the error

    def fail(warning: StateWarning) -> None:
        raise error

    StateListener(max_rows=1, on_warning=fail).onQueryProgress(progress(5))
    (message,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert message.startswith(f"StateListener: {type(error).__name__}")


Listen = Callable[..., dict[str, Any]]


@pytest.fixture(
    params=["4.2", pytest.param("3.5", marks=pytest.mark.wide), pytest.param("4.3", marks=pytest.mark.wide)]
)
def listen(request: pytest.FixtureRequest, judge: Judge, tmp_path: Path) -> Listen:
    """Return a function that runs a query with a listener, in each version of Spark."""
    write_events(tmp_path)

    def run(provider: str, **order: Any) -> dict[str, Any]:
        packages = [str(ROOT), sysconfig.get_path("purelib")]  # Spark's own come first
        order |= {"packages": packages, "folder": str(tmp_path), "provider": provider}
        found: dict[str, Any] = judge.call_in(Path(__file__).parent, request.param, "listening.listen", **order)
        return found

    return run


@pytest.mark.parametrize("provider", ["HDFSBacked", "RocksDB"])
def test_a_listener_measures_a_real_query(listen: Listen, tmp_path: Path, provider: str) -> None:
    found = listen(provider, limits={"max_rows": 25})
    values = values_of(tmp_path / "state.prom")
    names = ["stateStoreSave", "dedupe"]
    assert [operator["operatorName"] for operator in found["progress"]] == names
    for place, operator in enumerate(found["progress"]):
        labels = ("visits", str(place), operator["operatorName"])
        assert values["ttlsnap_query_state_rows", *labels] == operator["numRowsTotal"] == (30, 60)[place]
        assert values["ttlsnap_query_state_memory_bytes", *labels] == operator["memoryUsedBytes"] > 0
        assert values["ttlsnap_query_state_bytes", *labels] > 0
        for name, value in operator["customMetrics"].items():
            if value >= 0:
                assert values["ttlsnap_query_state_metric", *labels, name] == value
    # The numbers of operators are those of the checkpoint.
    sizes = inspect(str(tmp_path / "checkpoint"), sizes=True).sizes
    assert sizes is not None
    assert [state.entries for state in sizes.states] == [30, 60]
    assert found["called"] == [
        "visits 1 dedupe max_rows 40",
        "visits 0 stateStoreSave max_rows 30",
    ]
    assert [line.split(":")[0] for line in found["log"]] == ["WARNING query visits"] * 2


def test_a_failing_callback_does_not_stop_a_real_query(listen: Listen) -> None:
    found = listen("RocksDB", limits={"max_rows": 1}, fails=True)
    assert found["progress"][0]["numRowsTotal"] == 30
    assert len(found["called"]) > 2
    assert any(line.startswith("ERROR StateListener: ValueError: the callback failed.") for line in found["log"])


CONNECT = """
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from ttlsnap.spark import StateListener

folder = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect")
warned = []
listener = StateListener(metrics=folder / "state.prom", max_rows=25, on_warning=warned.append)
spark.streams.addListener(listener)
events = spark.readStream.schema("key string").json(str(folder / "events"))
writer = events.groupBy("key").count().writeStream.outputMode("update").format("noop").queryName("visits")
writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
for run in range(20):
    writer.start().awaitTermination()
    deadline = time.monotonic() + 10
    while not warned and time.monotonic() < deadline:
        time.sleep(0.1)
    if warned:
        break
    # Under load, Spark Connect can lose the events of a query that ends soon after its listener was added.
    file = next((folder / "events").iterdir())
    file.with_name(f"again-{run}.json").write_bytes(file.read_bytes())
print("WARNED", warned[0], flush=True)
# A thread of PySpark keeps the process alive, and removeListener waits forever if an event arrives (SPARK-59623).
os._exit(0)
"""


@pytest.mark.wide
@pytest.mark.spark
def test_a_listener_measures_a_query_over_connect(tmp_path: Path) -> None:
    write_events(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_REMOTE": "local[2]"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
        check=False,
    )
    assert "WARNED query visits: the state of operator 0 (stateStoreSave) has 30 rows" in done.stdout, done.stderr
    assert values_of(tmp_path / "state.prom")["ttlsnap_query_state_rows", "visits", "0", "stateStoreSave"] == 30


def test_the_driver_of_a_listener_loads_no_code_that_reads_state() -> None:
    code = "import sys, json; from ttlsnap.spark import StateListener; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"ttlsnap.reading", "ttlsnap.engines", "ttlsnap.spark.reading"} & set(json.loads(done.stdout))
