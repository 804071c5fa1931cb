"""Runs on a standalone cluster of Spark: a master and two workers, each with one executor of one core."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from ttlsnap import LocalEngine, compact, export, history, inspect, migrate
from ttlsnap.transformers import StateTtlConfig, TtlTransformerFactory

from ..judge.queries import Event, Query, stamp
from ..judge.spark import Judge
from ..matrix import FULL
from ..migration.entries import entries_of

HOME = Path(pyspark.__file__).parent
JOB = Path(__file__).parents[2] / "examples/spark-submit/ttlsnap_job.py"
T, PARTITIONS, KEYS = 1_700_000_000, 12, 240
# A slow transformer that records each start.
SLOW = """
import time, uuid
from pathlib import Path

class Slow:
    def create(self, state, clock):
        Path(__file__).with_name("begun").joinpath(uuid.uuid4().hex).touch()
        time.sleep(1)
        return None
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Cluster:
    """A cluster: the master's URL, and a folder with the applications' logs and the modules that they import."""

    master: str
    folder: Path
    environment: dict[str, str]

    def run(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        )

    def events(self) -> list[dict[str, Any]]:
        """Return the events that the last application logged."""
        newest = max((self.folder / "events").iterdir(), key=lambda path: path.stat().st_mtime)
        files = (
            [path for path in sorted(newest.iterdir()) if path.name.startswith("events")]
            if newest.is_dir()
            else [newest]
        )
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def tasks(self) -> Counter[str]:
        """Return the number of successful tasks of each executor."""
        ended = [event for event in self.events() if event["Event"] == "SparkListenerTaskEnd"]
        return Counter(e["Task Info"]["Executor ID"] for e in ended if e["Task End Reason"]["Reason"] == "Success")

    def begun(self) -> int:
        return len(list((self.folder / "begun").iterdir()))

    def executors(self) -> list[int]:
        """Return the process ids of the executors."""
        return [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and self._is_executor(path / "cmdline")
        ]

    def _is_executor(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            return b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and (
                str(self.folder).encode() in path.with_name("environ").read_bytes()
            )
        return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("conf", "events", "begun", "work"):
        (folder / name).mkdir()
    (folder / "slow.py").write_text(SLOW)
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": str(folder),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    (folder / "conf/spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(folder),
    }
    port, web = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    started = str(HOME / "bin/spark-class")
    deploy = "org.apache.spark.deploy"
    at = ["--host", "127.0.0.1", "--webui-port"]
    commands = [[started, f"{deploy}.master.Master", *at, str(web), "--port", str(port)]]
    commands += [
        [
            started,
            f"{deploy}.worker.Worker",
            *at,
            "0",
            "--cores",
            "1",
            "--memory",
            "600m",
            "-d",
            f"{folder}/work",
            master,
        ]
        for _ in range(2)
    ]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        for command in commands:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        until = time.monotonic() + 120
        while _alive(web) < 2:
            assert time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(0.3)
        yield Cluster(master, folder, environment)


def _alive(web: int) -> int:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"])
    return 0


@pytest.fixture(scope="module")
def written(inputs: Judge) -> Path:
    events = [Event(f"k{i}", T + i, i) for i in range(KEYS)]
    return inputs.write(Query(partitions=PARTITIONS), [events[: KEYS // 2], events[KEYS // 2 :]]).path


OPTIONS = (
    *("--ttl", f"{KEYS // 2}s", "--timestamp", "value.max", "--now", f"{stamp(T + KEYS)}Z"),
    *("--transformer", "slow:Slow", "--stopped", "--yes", "--format", "json"),
)


def begun(cluster: Cluster, way: str, target: Path, *command: str) -> subprocess.Popen[str]:
    """Start a command on the cluster, by default a compaction."""
    words = (*(command or ("compact",)), str(target), *OPTIONS)
    if way == "--master":
        return cluster.run(sys.executable, "-m", "ttlsnap", *words, "--master", cluster.master)
    return cluster.run(str(HOME / "bin/spark-submit"), "--master", cluster.master, str(JOB), *words)


def require_right(target: Path, reference: Path, printed: str) -> None:
    """Require the result of one thread on this machine, published once."""
    document = json.loads(printed)
    ttl = TtlTransformerFactory(StateTtlConfig(KEYS // 2 * 1_000_000), "value.max")
    wanted = compact(
        str(reference), [ttl], now=f"{stamp(T + KEYS)}Z", engine=LocalEngine(1), stopped=True, max_drop=1.0
    )
    assert document["totals"]["dropped"] == wanted.totals.dropped > 0
    assert inspect(str(target), entries=1000).samples == inspect(str(reference), entries=1000).samples
    (entry,) = history(str(target))
    assert (entry.status, entry.run) == ("done", document["run"])
    assert not list((target / "_ttlsnap/runs" / entry.run / "staged").rglob("*.snapshot*"))


@pytest.mark.parametrize("way", ["--master", "spark-submit"] if FULL else [])
def test_partitions_are_spread_over_the_executors(cluster: Cluster, written: Path, tmp_path: Path, way: str) -> None:
    target, reference = (Path(shutil.copytree(written, tmp_path / name)) for name in ("target", "reference"))
    process = begun(cluster, way, target)
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, said[-3000:]
    tasks = cluster.tasks()
    assert sum(tasks.values()) == PARTITIONS
    assert len(tasks) == 2
    assert min(tasks.values()) >= 3
    require_right(target, reference, printed)


@pytest.mark.parametrize("way", ["spark-submit", "--master"] if FULL else [])
def test_a_run_survives_the_death_of_an_executor(cluster: Cluster, written: Path, tmp_path: Path, way: str) -> None:
    target, reference = (Path(shutil.copytree(written, tmp_path / name)) for name in ("target", "reference"))
    printed = lose_an_executor(cluster, lambda: begun(cluster, way, target))
    tasks = cluster.tasks()
    assert sum(tasks.values()) >= PARTITIONS
    assert len(tasks) >= 2
    require_right(target, reference, printed)


def lose_an_executor(cluster: Cluster, start: Callable[[], subprocess.Popen[str]]) -> str:
    """Start a command, and kill an executor when some partitions are done. Return what the command printed."""
    before = cluster.begun()
    process = start()
    until = time.monotonic() + 120
    while cluster.begun() < before + 4:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.05)
    killed = cluster.executors()
    assert len(killed) == 2
    os.kill(killed[0], signal.SIGKILL)
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, said[-3000:]
    assert [event["Event"] for event in cluster.events()].count("SparkListenerExecutorRemoved") >= 1
    return printed


@pytest.mark.parametrize("way", ["spark-submit", "--master"] if FULL else [])
def test_a_migration_survives_the_death_of_an_executor(
    cluster: Cluster, written: Path, tmp_path: Path, way: str
) -> None:
    target, reference = (Path(shutil.copytree(written, tmp_path / name)) for name in ("target", "reference"))
    printed = lose_an_executor(cluster, lambda: begun(cluster, way, target, "migrate", "--partitions", "5"))
    ttl = TtlTransformerFactory(StateTtlConfig(KEYS // 2 * 1_000_000), "value.max")
    migrate(str(reference), partitions=5, transformers=[ttl], now=f"{stamp(T + KEYS)}Z", stopped=True)
    assert entries_of(target) == entries_of(reference)
    assert json.loads(printed)["compaction"]["totals"]["dropped"] == KEYS - entries_of(target).total() > 0
    assert not list((target / "_ttlsnap").rglob("*.snapshot*.tmp"))


@pytest.mark.parametrize("mode", ["replace"] if FULL else [])
def test_an_import_runs_on_the_executors(cluster: Cluster, written: Path, tmp_path: Path, mode: str) -> None:
    target, reference = (Path(shutil.copytree(written, tmp_path / name)) for name in ("target", "reference"))
    export(str(reference), str(tmp_path / "state"))
    words = ("import", str(target), "--from", str(tmp_path / "state"), "--mode", mode, "--master", cluster.master)
    process = cluster.run(sys.executable, "-m", "ttlsnap", *words, "--stopped", "--yes", "--format", "json")
    printed, said = process.communicate(timeout=240)
    assert process.returncode == 0, said[-3000:]
    document = json.loads(printed)
    assert (document["engine"], document["totals"]["imported"]) == ("spark", KEYS)
    assert len(cluster.tasks()) == 2
    assert entries_of(target) == entries_of(reference)
