"""A standalone Spark cluster on this machine, and the speed of its executors.

    python cluster_work.py MASTER CORES CHECKPOINT RUNS    prints the seconds that each run took, as JSON

A process has one Spark application, so each number of executors has its own process. An executor has one core.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = Path(pyspark.__file__).parent
_PATIENCE_S = 120


@contextlib.contextmanager
def cluster(executors: int, folder: Path) -> Iterator[str]:
    """Start a master and ``executors`` workers with a core each. Yield the master's URL."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    port, web = ports
    master = f"spark://127.0.0.1:{port}"
    at = ("--host", "127.0.0.1", "--webui-port")
    started: list[tuple[str, ...]] = [("master.Master", *at, str(web), "--port", str(port))]
    size = ("--cores", "1", "--memory", "1g", "-d", str(folder))
    started += [("worker.Worker", *at, "0", *size, master)] * executors
    environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with contextlib.ExitStack() as stack:
        for name, *words in started:
            command = [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *words]
            silent = subprocess.DEVNULL
            process = subprocess.Popen(command, env=environment, stdout=silent, stderr=silent, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE_S
        while _alive(web) < executors:
            if time.monotonic() > until:
                raise RuntimeError("the cluster does not come up")
            time.sleep(0.3)
        yield master


def _alive(web: int) -> int:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
        return int(json.load(answer)["aliveworkers"])
    return 0


def seconds(master: str, cores: int, checkpoint: Path, runs: int) -> list[float]:
    """Return the seconds that the partitions took in each run, in a separate application with ``cores`` cores."""
    command = [sys.executable, __file__, master, str(cores), str(checkpoint), str(runs)]
    found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def application_session(master: str, cores: int) -> SparkSession:
    """Start an application with ``cores`` executors of a core each."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.cores.max", cores).config("spark.executor.cores", "1")
    builder = builder.config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    return builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0").getOrCreate()


def main(master: str, cores: str, checkpoint: str, runs: str) -> None:
    from measuring import measure
    from work import planned, run_engine

    from ttlsnap.engines.spark import SparkEngine

    session = application_session(master, int(cores))
    with planned(Path(checkpoint)) as tasks:
        engine = SparkEngine(session)
        run_engine(engine, tasks)  # this starts the Python workers
        walls = [measure(lambda: run_engine(engine, tasks)).wall for _ in range(int(runs))]
    session.stop()
    print(json.dumps(walls))


if __name__ == "__main__":
    main(*sys.argv[1:])
